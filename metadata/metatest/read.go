package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forebaymq/forebay/metadata"
)

func headLinearizable(s *suite) {
	if head, err := s.d.Head(s.ctx); err != nil || head != 0 {
		s.Errorf("head of an empty log: %d, %v, want 0", head, err)
	}
	other := s.connect()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	noise := s.connect() // other writers
	wg.Go(func() {
		for seq := uint64(1); ctx.Err() == nil; seq++ {
			_, _ = noise.Append(ctx, entries("noise", seq, 5), nil) // may be cut short by the end of the test
		}
	})
	for seq := range uint64(50) {
		rev := s.append("a", seq, int(seq%3))
		head, err := other.Head(s.ctx)
		s.must(err, "head")
		if head < rev {
			s.Fatalf("head %d on another connection, after an append at %d was answered", head, rev)
		}
	}
}

func headIsAnEntry(s *suite) {
	rev := s.append("a", 1, 0)
	c := s.claim(s.d, "house") // raises the store's revision, but is no entry
	head, err := s.d.Head(s.ctx)
	s.must(err, "head")
	if head != rev {
		s.Errorf("head %d, want that of the newest entry, %d", head, rev)
	}
	s.must(s.d.PutSnapshot(s.ctx, metadata.SnapshotPointer{Shard: 0, Revision: rev, Object: "o"}, entries("a", 1, 0), guardOf(c)), "snapshot")
	if head, err = s.d.Head(s.ctx); err != nil || head != rev {
		s.Errorf("head %d, %v after truncation, want %d", head, err, rev)
	}
}

func loadOneRevision(s *suite) {
	writer := s.connect()
	ctx, cancel := context.WithCancel(s.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for seq := uint64(1); ctx.Err() == nil; seq++ {
			_, _ = writer.Append(ctx, entries("a", seq, 0, 1), nil)
		}
	})
	for range 8 {
		l := s.load()
		count := map[int64]int{}
		for i, e := range l.Entries {
			count[e.Revision]++
			if e.Revision > l.Revision {
				s.Fatalf("loaded an entry of %d at revision %d", e.Revision, l.Revision)
			}
			if want := uint64(i/2 + 1); e.Seq != want {
				s.Fatalf("entry %d has sequence %d, want %d: not everything up to the revision", i, e.Seq, want)
			}
		}
		for rev, n := range count {
			if n != 2 {
				s.Fatalf("loaded %d entries of revision %d, want 2", n, rev)
			}
		}
		// Nothing between the load and a watch from the next revision.
		if len(l.Entries) > 0 {
			head, err := s.d.Head(s.ctx)
			s.must(err, "head")
			got := s.watch(s.d, l.Revision+1).until(head)
			if want := l.Entries[len(l.Entries)-1].Seq + 1; len(got) > 0 && got[0].Seq != want {
				s.Fatalf("the watch goes on with sequence %d, want %d", got[0].Seq, want)
			}
		}
	}
}

func loadMany(s *suite) {
	const n = 300
	var want []string
	for i := range n {
		stream := metadata.Stream(fmt.Sprint("s", i%7))
		rev := s.append(stream, uint64(i), i%5)
		want = append(want, fmt.Sprintf("%d %d/%s/%d", rev, i%5, stream, i))
	}
	s.equal(s.keysOf(s.load().Entries), want, "entries")
}

func watchPast(s *suite) {
	first := s.append("a", 1, 0, 1)
	second := s.append("a", 2, 1)
	third := s.append("b", 1, 0)
	all := s.keysOf(s.watch(s.d, 1).until(third))
	s.equal(all, []string{
		fmt.Sprintf("%d 0/a/1", first), fmt.Sprintf("%d 1/a/1", first), fmt.Sprintf("%d 1/a/2", second), fmt.Sprintf("%d 0/b/1", third),
	}, "from the start")
	s.equal(s.keysOf(s.watch(s.d, second).until(third)), all[2:], "from the second revision")
	s.equal(s.keysOf(s.watch(s.connect(), third).until(third)), all[3:], "from the last revision")
}

func watchLive(s *suite) {
	w := s.watch(s.connect(), 1)
	var want []string
	for i := range uint64(50) {
		rev := s.append("a", i, int(i%3))
		want = append(want, fmt.Sprintf("%d %d/a/%d", rev, i%3, i))
		s.equal(s.keysOf(w.until(rev)), want, "watched")
		if s.Failed() {
			return
		}
	}
	// Deletions are no entries.
	c := s.claim(s.d, "house")
	s.must(s.d.PutSnapshot(s.ctx, metadata.SnapshotPointer{Shard: 0, Revision: 1, Object: "o"}, entries("a", 49, 0), guardOf(c)), "snapshot")
	rev := s.append("a", 50, 0)
	s.equal(s.keysOf(w.until(rev)), append(want, fmt.Sprintf("%d 0/a/50", rev)), "watched after a truncation")
}

// Revisions that are larger than a message between store and client arrive whole.
func watchLarge(s *suite) {
	const n = 8
	var last int64
	for seq := range uint64(n) {
		list := entries("a", seq, 0, 1, 2)
		for i := range list {
			list[i].Value = bytes.Repeat([]byte{byte(seq)}, 400<<10)
		}
		rev, err := s.d.Append(s.ctx, list, nil)
		s.must(err, "append")
		last = rev
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := errors.New("enough")
	seen := map[int64]int{}
	err := s.d.Watch(ctx, 1, func(ev metadata.Events) error {
		here := map[int64]bool{}
		for _, e := range ev.Entries {
			if len(e.Value) != 400<<10 || e.Value[0] != byte(e.Seq) {
				s.Errorf("entry %d/%d has %d bytes", e.Shard, e.Seq, len(e.Value))
			}
			if seen[e.Revision] > 0 && !here[e.Revision] {
				s.Errorf("revision %d was delivered in parts", e.Revision)
			}
			here[e.Revision] = true
			seen[e.Revision]++
		}
		if ev.Through >= last {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		s.Errorf("watch: %v", err)
	}
	for rev, k := range seen {
		if k != 3 {
			s.Errorf("revision %d: %d entries, want 3", rev, k)
		}
	}
	if len(seen) != n {
		s.Errorf("%d revisions, want %d", len(seen), n)
	}
}

func watchEnds(s *suite) {
	s.append("a", 1, 0)
	stop := errors.New("enough")
	if err := s.d.Watch(s.ctx, 1, func(metadata.Events) error { return stop }); !errors.Is(err, stop) {
		s.Errorf("watch whose function failed: %v", err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	err := s.d.Watch(ctx, 1, func(metadata.Events) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		s.Errorf("watch whose context ended: %v", err)
	}
	d := s.connect()
	w := s.watch(d, 1)
	w.until(1)
	s.must(d.Close(), "close")
	select {
	case <-w.ended:
	case <-s.ctx.Done():
		s.Error("the watch of a closed driver goes on")
	}
}

// I4: a watch that starts below what the store still has says so, and a load shows what it missed.
func watchCompacted(s *suite) {
	first := s.append("a", 1, 0)
	for seq := uint64(2); seq < 6; seq++ {
		s.append("a", seq, 0)
	}
	last := s.append("a", 6, 0)
	s.must(s.d.Compact(s.ctx, last), "compact")
	err := s.d.Watch(s.ctx, first, func(ev metadata.Events) error {
		return fmt.Errorf("delivered %v", s.keysOf(ev.Entries))
	})
	if !errors.Is(err, metadata.ErrCompacted) {
		s.Errorf("watch below the compaction: %v, want ErrCompacted", err)
	}
	s.equal(s.keysOf(s.watch(s.d, last).until(last)), []string{fmt.Sprintf("%d 0/a/6", last)}, "watch from the compaction")
	if l := s.load(); len(l.Entries) != 6 {
		s.Errorf("entries after compaction: %v", s.keysOf(l.Entries))
	}
}

func compactBounds(s *suite) {
	rev := s.append("a", 1, 0)
	s.must(s.d.Compact(s.ctx, rev), "compact")
	s.must(s.d.Compact(s.ctx, rev), "compact again")
	if err := s.d.Compact(s.ctx, rev+1000); err == nil {
		s.Error("a compaction in the future succeeded")
	}
}
