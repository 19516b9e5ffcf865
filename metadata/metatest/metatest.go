package metatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// Cluster makes connections to one fresh store. Close is called by the test's cleanup, for what make has made.
type Cluster interface {
	// Connect makes another connection, as another node has it. The suite closes it.
	Connect(t *testing.T) metadata.Driver
}

// ClusterFunc is a Cluster by a function.
type ClusterFunc func(t *testing.T) metadata.Driver

// Connect implements Cluster.
func (f ClusterFunc) Connect(t *testing.T) metadata.Driver { return f(t) }

// patience bounds what must happen soon. It is long because a loaded machine may be slow; no test waits for it to pass.
const patience = 30 * time.Second

// Run checks a driver. fresh makes an empty store.
func Run(t *testing.T, fresh func(t *testing.T) Cluster) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"Init/race", initRace},
		{"Append/validates", appendValidates},
		{"Append/one revision", appendOneRevision},
		{"Append/idempotent", appendIdempotent},
		{"Append/part truncated", appendPartTruncated},
		{"Append/too large", appendTooLarge},
		{"Append/ended context", appendEndedContext},
		{"Append/concurrent", appendConcurrent},
		{"Append/guard", appendGuard},
		{"Append/values are not kept", appendCopies},
		{"Head/linearizable", headLinearizable},
		{"Head/is an entry", headIsAnEntry},
		{"Load/one revision", loadOneRevision},
		{"Load/many", loadMany},
		{"Watch/from the past", watchPast},
		{"Watch/live", watchLive},
		{"Watch/large", watchLarge},
		{"Watch/ends", watchEnds},
		{"Watch/compacted", watchCompacted},
		{"Claim/exclusive", claimExclusive},
		{"Claim/epochs", claimEpochs},
		{"Claim/close gives back", claimClose},
		{"Snapshot/truncates", snapshotTruncates},
		{"Snapshot/many streams", snapshotManyStreams},
		{"Snapshot/never back", snapshotNeverBack},
		{"Snapshot/guard", snapshotGuard},
		{"Compact/bounds", compactBounds},
		{"Close/twice", closeTwice},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := &suite{T: t, ctx: ctx, cluster: fresh(t)}
			s.d = s.connect()
			c.test(s)
		})
	}
}

type suite struct {
	*testing.T
	ctx     context.Context
	cluster Cluster
	d       metadata.Driver
}

func (s *suite) connect() metadata.Driver {
	s.Helper()
	d := s.cluster.Connect(s.T)
	s.Cleanup(func() {
		if err := d.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return d
}

func (s *suite) must(err error, what string) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func value(shard int, stream metadata.Stream, seq uint64) []byte {
	return fmt.Appendf(nil, "%d/%s/%d", shard, stream, seq)
}

func entries(stream metadata.Stream, seq uint64, shards ...int) []metadata.LogEntry {
	var out []metadata.LogEntry
	for _, shard := range shards {
		out = append(out, metadata.LogEntry{Shard: shard, Stream: stream, Seq: seq, Value: value(shard, stream, seq)})
	}
	return out
}

func (s *suite) append(stream metadata.Stream, seq uint64, shards ...int) int64 {
	s.Helper()
	rev, err := s.d.Append(s.ctx, entries(stream, seq, shards...), nil)
	s.must(err, "append")
	return rev
}

func (s *suite) load() *metadata.Loaded {
	s.Helper()
	l, err := s.d.Load(s.ctx)
	s.must(err, "load")
	return l
}

func (s *suite) claim(d metadata.Driver, name string) *metadata.HeldClaim {
	s.Helper()
	c, held, err := d.Claim(s.ctx, name, "holder", patience)
	s.must(err, "claim "+name)
	if !held {
		s.Fatalf("claim %s is held by another", name)
	}
	return c
}

// keysOf gives entries as "revision shard/stream/seq", and checks their values.
func (s *suite) keysOf(list []metadata.LogEntry) []string {
	s.Helper()
	var out []string
	for _, e := range list {
		if string(e.Value) != string(value(e.Shard, e.Stream, e.Seq)) {
			s.Errorf("entry %d/%s/%d has the value %q", e.Shard, e.Stream, e.Seq, e.Value)
		}
		out = append(out, fmt.Sprintf("%d %d/%s/%d", e.Revision, e.Shard, e.Stream, e.Seq))
	}
	return out
}

func (s *suite) equal(got, want []string, what string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// watcher collects what a watch delivers, and checks its order.
type watcher struct {
	s       *suite
	cancel  context.CancelFunc
	ended   chan error
	changed chan struct{} // capacity 1
	mu      struct {
		sync.Mutex
		entries []metadata.LogEntry
		through int64
	}
}

func (s *suite) watch(d metadata.Driver, from int64) *watcher {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &watcher{s: s, cancel: cancel, ended: make(chan error, 1), changed: make(chan struct{}, 1)}
	w.mu.through = from - 1
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- d.Watch(ctx, from, w.take)
	}()
	s.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watcher) take(ev metadata.Events) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev.Through <= w.mu.through {
		w.s.Errorf("watch delivered through %d after %d", ev.Through, w.mu.through)
	}
	last := metadata.LogEntry{Revision: w.mu.through, Shard: 1 << 30}
	for _, e := range ev.Entries {
		if e.Revision < last.Revision || e.Revision == last.Revision && e.Shard <= last.Shard {
			w.s.Errorf("watch delivered %d/%d after %d/%d", e.Revision, e.Shard, last.Revision, last.Shard)
		}
		if e.Revision > ev.Through {
			w.s.Errorf("watch delivered revision %d beyond through %d", e.Revision, ev.Through)
		}
		last = e
	}
	w.mu.entries = append(w.mu.entries, ev.Entries...)
	w.mu.through = ev.Through
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return nil
}

// until waits until the watch has seen everything through a revision, and gives the entries.
func (w *watcher) until(revision int64) []metadata.LogEntry {
	w.s.Helper()
	for {
		w.mu.Lock()
		through, list := w.mu.through, slices.Clone(w.mu.entries)
		w.mu.Unlock()
		if through >= revision {
			return list
		}
		select {
		case <-w.changed:
		case err := <-w.ended:
			w.s.Fatalf("watch ended at %d before %d: %v", through, revision, err)
		case <-w.s.ctx.Done():
			w.s.Fatalf("watch is at %d, want %d", through, revision)
		}
	}
}

func closeTwice(s *suite) {
	d := s.connect()
	s.must(d.Close(), "close")
	s.must(d.Close(), "close again")
	if _, err := d.Append(s.ctx, entries("a", 1, 0), nil); !errors.Is(err, metadata.ErrNoQuorum) && !metadata.IsIndefinite(err) {
		s.Errorf("append after close: %v", err)
	}
	if _, err := d.Head(s.ctx); !errors.Is(err, metadata.ErrNoQuorum) {
		s.Errorf("head after close: %v", err)
	}
}

func initRace(s *suite) {
	const n = 8
	got := make([]metadata.Fabric, n)
	var wg sync.WaitGroup
	for i := range n {
		d := s.d
		if i%2 == 1 {
			d = s.connect()
		}
		wg.Go(func() {
			f, err := d.Init(s.ctx, metadata.Fabric{Format: 1, Shards: i + 1, ID: fmt.Sprint("f", i), Region: "here"})
			if err != nil {
				s.Errorf("init: %v", err)
			}
			got[i] = f
		})
	}
	wg.Wait()
	for i, f := range got {
		if f != got[0] || f.ID != fmt.Sprint("f", f.Shards-1) {
			s.Errorf("connection %d sees the fabric %+v, the first %+v", i, f, got[0])
		}
	}
}
