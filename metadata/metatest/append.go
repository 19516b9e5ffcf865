package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forebaymq/forebay/metadata"
)

func appendValidates(s *suite) {
	mixed := append(entries("a", 1, 0), entries("b", 1, 1)...)
	seqs := append(entries("a", 1, 0), entries("a", 2, 1)...)
	for name, list := range map[string][]metadata.LogEntry{
		"none": nil, "streams": mixed, "sequences": seqs, "a shard twice": entries("a", 1, 2, 2), "no stream": entries("", 1, 0),
	} {
		if _, err := s.d.Append(s.ctx, list, nil); err == nil || errors.Is(err, metadata.ErrNoQuorum) || metadata.IsIndefinite(err) {
			s.Errorf("%s: %v, want a plain refusal", name, err)
		}
	}
	if l := s.load(); len(l.Entries) != 0 {
		s.Errorf("refused appends left %v", s.keysOf(l.Entries))
	}
}

func appendOneRevision(s *suite) {
	rev := s.append("a", 1, 3, 0, 7)
	next := s.append("a", 2, 0)
	if next <= rev {
		s.Errorf("revisions %d, then %d", rev, next)
	}
	s.equal(s.keysOf(s.load().Entries), []string{
		fmt.Sprintf("%d 0/a/1", rev), fmt.Sprintf("%d 3/a/1", rev), fmt.Sprintf("%d 7/a/1", rev), fmt.Sprintf("%d 0/a/2", next),
	}, "entries")
}

func appendIdempotent(s *suite) {
	rev := s.append("a", 1, 0, 1)
	s.append("b", 1, 0, 1)
	// The retry of an unknown outcome, with other bytes to see that nothing is overwritten.
	again := entries("a", 1, 0, 1)
	again[0].Value = []byte("other")
	got, err := s.connect().Append(s.ctx, again, nil)
	s.must(err, "append again")
	if got != rev {
		s.Errorf("the repeat answers revision %d, want %d", got, rev)
	}
	if l := s.load(); len(l.Entries) != 4 {
		s.Errorf("entries after a repeat: %v", s.keysOf(l.Entries))
	} else {
		s.keysOf(l.Entries)
	}
}

// A snapshot of one shard has deleted its entry of a transaction: the repeat must not create it again beside the other shard's.
func appendPartTruncated(s *suite) {
	rev := s.append("a", 1, 0, 1)
	c := s.claim(s.d, "house")
	s.must(s.d.PutSnapshot(s.ctx, metadata.SnapshotPointer{Shard: 0, Revision: rev, Object: "o"}, entries("a", 1, 0), guardOf(c)), "snapshot")
	if got := s.append("a", 1, 0, 1); got != rev {
		s.Errorf("the repeat answers revision %d, want %d", got, rev)
	}
	s.equal(s.keysOf(s.load().Entries), []string{fmt.Sprintf("%d 1/a/1", rev)}, "entries")
}

func appendTooLarge(s *suite) {
	list := entries("a", 1, 0)
	list[0].Value = bytes.Repeat([]byte("x"), 4<<20)
	if _, err := s.d.Append(s.ctx, list, nil); !errors.Is(err, metadata.ErrTooLarge) || metadata.IsIndefinite(err) {
		s.Errorf("4 MiB: %v, want ErrTooLarge", err)
	}
	list[0].Value = bytes.Repeat([]byte("x"), 1<<20)
	if _, err := s.d.Append(s.ctx, list, nil); err != nil {
		s.Errorf("1 MiB: %v", err)
	}
}

func appendEndedContext(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.d.Append(ctx, entries("a", 1, 0), nil); !errors.Is(err, metadata.ErrNoQuorum) || metadata.IsIndefinite(err) {
		s.Errorf("append with an ended context: %v, want a definite refusal", err)
	}
	if l := s.load(); len(l.Entries) != 0 {
		s.Errorf("it left %v", s.keysOf(l.Entries))
	}
}

func appendConcurrent(s *suite) {
	const writers, each = 4, 25
	w := s.watch(s.connect(), 1)
	revs := make([][]int64, writers)
	var wg sync.WaitGroup
	for i := range writers {
		d := s.connect()
		wg.Go(func() {
			for seq := range uint64(each) {
				rev, err := d.Append(s.ctx, entries(metadata.Stream(fmt.Sprint("w", i)), seq, 0, i+1), nil)
				if err != nil {
					s.Errorf("writer %d: %v", i, err)
					return
				}
				revs[i] = append(revs[i], rev)
			}
		})
	}
	wg.Wait()
	var last int64
	seen := map[int64]bool{}
	for i, list := range revs {
		for j, rev := range list {
			if seen[rev] || j > 0 && rev <= list[j-1] {
				s.Errorf("writer %d: revisions %v are not its own and rising", i, list)
			}
			seen[rev] = true
			last = max(last, rev)
		}
	}
	got := w.until(last)
	if len(got) != 2*writers*each {
		s.Fatalf("the watch saw %d entries, want %d", len(got), 2*writers*each)
	}
	for i := 0; i < len(got); i += 2 {
		a, b := got[i], got[i+1]
		if a.Revision != b.Revision || a.Stream != b.Stream || a.Seq != b.Seq || a.Shard != 0 {
			s.Fatalf("entries %d and %d are not one transaction: %v", i, i+1, s.keysOf(got[i:i+2]))
		}
		writer := b.Shard - 1
		if revs[writer][a.Seq] != a.Revision {
			s.Errorf("writer %d, sequence %d: answered %d, watched %d", writer, a.Seq, revs[writer][a.Seq], a.Revision)
		}
	}
	s.equal(s.keysOf(s.load().Entries), s.keysOf(got), "loaded against watched")
}

func guardOf(c *metadata.HeldClaim) metadata.Guard {
	return metadata.Guard{Claim: c.Name, Epoch: c.Epoch}
}

// I3: a holder that was paused beyond its claim cannot write.
func appendGuard(s *suite) {
	other := s.connect()
	old := s.claim(s.d, "house")
	g := guardOf(old)
	rev, err := s.d.Append(s.ctx, entries("a", 1, 0), &g)
	s.must(err, "append under the claim")
	s.must(s.d.Release(s.ctx, old), "release")
	if _, err := s.d.Append(s.ctx, entries("a", 2, 0), &g); !errors.Is(err, metadata.ErrClaimLost) || metadata.IsIndefinite(err) {
		s.Errorf("append after the release: %v, want ErrClaimLost", err)
	}
	g2 := guardOf(s.claim(other, "house"))
	if _, err := s.d.Append(s.ctx, entries("a", 2, 0), &g); !errors.Is(err, metadata.ErrClaimLost) {
		s.Errorf("append of the old epoch: %v, want ErrClaimLost", err)
	}
	if _, err := other.Append(s.ctx, entries("b", 1, 0), &g2); err != nil {
		s.Errorf("append of the successor: %v", err)
	}
	// What the old holder had written before is still answered: it must learn that it was.
	if got, err := s.d.Append(s.ctx, entries("a", 1, 0), &g); err != nil || got != rev {
		s.Errorf("repeat of a write under the old epoch: %d, %v, want %d", got, err, rev)
	}
	if l := s.load(); len(l.Entries) != 2 {
		s.Errorf("entries: %v", s.keysOf(l.Entries))
	}
}

func appendCopies(s *suite) {
	list := entries("a", 1, 0)
	want := bytes.Clone(list[0].Value)
	rev, err := s.d.Append(s.ctx, list, nil)
	s.must(err, "append")
	clear(list[0].Value)
	got := s.watch(s.d, 1).until(rev)
	if len(got) != 1 || !bytes.Equal(got[0].Value, want) {
		s.Errorf("watched %q, want %q", got[0].Value, want)
	}
}
