package metatest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

func claimExclusive(s *suite) {
	const n = 6
	held := make([]*metadata.HeldClaim, n)
	var wg sync.WaitGroup
	for i := range n {
		d := s.connect()
		wg.Go(func() {
			c, ok, err := d.Claim(s.ctx, "house", fmt.Sprint("holder", i), patience)
			if err != nil {
				s.Errorf("claim: %v", err)
			}
			if ok != (c != nil) {
				s.Errorf("held %v with the claim %v", ok, c)
			}
			held[i] = c
		})
	}
	wg.Wait()
	var got []*metadata.HeldClaim
	for _, c := range held {
		if c != nil {
			got = append(got, c)
		}
	}
	if len(got) != 1 {
		s.Fatalf("%d holders, want 1", len(got))
	}
	if got[0].Name != "house" || got[0].Epoch <= 0 {
		s.Errorf("claim %+v", got[0])
	}
	s.claim(s.d, "garden") // another name is another claim
	select {
	case <-got[0].Done:
		s.Error("the holder was told that it has lost the claim")
	default:
	}
}

func claimEpochs(s *suite) {
	other := s.connect()
	var last int64
	for i := range 6 {
		d := s.d
		if i%2 == 1 {
			d = other
		}
		c := s.claim(d, "house")
		if c.Epoch <= last {
			s.Errorf("epoch %d after %d", c.Epoch, last)
		}
		last = c.Epoch
		s.must(d.Release(s.ctx, c), "release")
		s.ended(c, "a released claim")
		s.must(d.Release(s.ctx, c), "release again")
	}
	// Releasing an old claim again must not free a newer one.
	old := s.claim(s.d, "house")
	s.must(s.d.Release(s.ctx, old), "release")
	now := s.claim(other, "house")
	s.must(s.d.Release(s.ctx, old), "release of the old claim")
	if _, held, err := s.d.Claim(s.ctx, "house", "h", time.Second); err != nil || held {
		s.Errorf("held %v, %v: releasing the old claim freed the new one", held, err)
	}
	select {
	case <-now.Done:
		s.Error("the new holder was told that it has lost the claim")
	default:
	}
}

func (s *suite) ended(c *metadata.HeldClaim, what string) {
	s.Helper()
	select {
	case <-c.Done:
	case <-s.ctx.Done():
		s.Fatalf("%s: its holder was not told", what)
	}
}

func claimClose(s *suite) {
	d := s.connect()
	c := s.claim(d, "house")
	s.must(d.Close(), "close")
	s.ended(c, "the claim of a closed driver")
	if next := s.claim(s.d, "house"); next.Epoch <= c.Epoch {
		s.Errorf("epoch %d after %d", next.Epoch, c.Epoch)
	}
}

func snapshotTruncates(s *suite) {
	c := s.claim(s.d, "house")
	s.append("a", 1, 0, 1)
	s.append("b", 9, 0)
	r := s.append("a", 2, 0)
	later := s.append("a", 3, 0)
	s.append("b", 10, 1)
	p := metadata.SnapshotPointer{Shard: 0, Revision: r, Object: "snap/x", Hash: [32]byte{1, 2, 3}}
	// The last entry of a stream stands for all before it.
	drop := append(entries("a", 2, 0), entries("b", 9, 0)...)
	for range 2 { // a repeat changes nothing
		s.must(s.d.PutSnapshot(s.ctx, p, drop, guardOf(c)), "snapshot")
		l := s.load()
		if len(l.Snapshots) != 1 || l.Snapshots[0] != p {
			s.Errorf("pointers %+v, want %+v", l.Snapshots, p)
		}
		if got := s.keysOf(l.Entries); len(got) != 3 || got[1] != fmt.Sprintf("%d 0/a/3", later) {
			s.Errorf("entries after truncation: %v, want 1/a/1, 0/a/3, 1/b/10", got)
		}
	}
	// The entry is gone, so the same key may be created again: apply knows what it has applied.
	if rev := s.append("a", 2, 0); rev <= later {
		s.Errorf("an entry that was truncated is answered with %d", rev)
	}
}

func snapshotManyStreams(s *suite) {
	c := s.claim(s.d, "house")
	const n = 300
	var drop []metadata.LogEntry
	var last int64
	for i := range n {
		stream := metadata.Stream(fmt.Sprintf("s%03d", i))
		last = s.append(stream, 1, 0)
		drop = append(drop, entries(stream, 1, 0)...)
	}
	keep := s.append("s007", 2, 0)
	p := metadata.SnapshotPointer{Shard: 0, Revision: last, Object: "snap/many"}
	s.must(s.d.PutSnapshot(s.ctx, p, drop, guardOf(c)), "snapshot")
	l := s.load()
	s.equal(s.keysOf(l.Entries), []string{fmt.Sprintf("%d 0/s007/2", keep)}, "entries")
	if l.Snapshots[0] != p {
		s.Errorf("pointer %+v", l.Snapshots[0])
	}
}

func snapshotNeverBack(s *suite) {
	c := s.claim(s.d, "house")
	s.append("a", 1, 0)
	r := s.append("a", 2, 0)
	newer := metadata.SnapshotPointer{Shard: 0, Revision: r, Object: "new"}
	s.must(s.d.PutSnapshot(s.ctx, newer, entries("a", 2, 0), guardOf(c)), "snapshot")
	older := metadata.SnapshotPointer{Shard: 0, Revision: r - 1, Object: "old"}
	if err := s.d.PutSnapshot(s.ctx, older, entries("a", 1, 0), guardOf(c)); !errors.Is(err, metadata.ErrSnapshotStale) {
		s.Errorf("an older pointer: %v, want ErrSnapshotStale", err)
	}
	if got := s.load().Snapshots[0]; got != newer {
		s.Errorf("pointer %+v, want %+v", got, newer)
	}
}

func snapshotGuard(s *suite) {
	c := s.claim(s.d, "house")
	r := s.append("a", 1, 0)
	s.must(s.d.Release(s.ctx, c), "release")
	next := s.claim(s.connect(), "house")
	p := metadata.SnapshotPointer{Shard: 0, Revision: r, Object: "o"}
	if err := s.d.PutSnapshot(s.ctx, p, entries("a", 1, 0), guardOf(c)); !errors.Is(err, metadata.ErrClaimLost) {
		s.Errorf("snapshot of the old epoch: %v, want ErrClaimLost", err)
	}
	if l := s.load(); len(l.Snapshots) != 0 || len(l.Entries) != 1 {
		s.Errorf("it left pointers %v and entries %v", l.Snapshots, s.keysOf(l.Entries))
	}
	s.must(s.d.PutSnapshot(s.ctx, p, entries("a", 1, 0), guardOf(next)), "snapshot of the successor")
}
