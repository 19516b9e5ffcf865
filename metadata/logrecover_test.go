package metadata_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

// A transaction without an answer: the queue behind it is refused, definitely, and the node comes back by itself.
func TestStuckAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		topic := a.topic(t, "acme", "orders", 1)
		gate := make(chan struct{})
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op != metafault.Append {
				return metafault.Action{}
			}
			select {
			case <-gate:
				return metafault.Action{}
			default:
				return metafault.Action{Err: &metadata.IndefiniteError{Cause: errors.New("timeout")}}
			}
		})
		inFlight := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		synctest.Wait()
		queued := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		if err := a.Available(); err != nil {
			t.Errorf("unavailable before StuckAfter: %v", err)
		}
		if st := a.Status(); !st.Ready || st.Submitted != 1 {
			t.Errorf("status before StuckAfter: %+v", st)
		}
		begin := time.Now()
		if _, err := await(t, queued); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("queued: %v, want METADATA_UNAVAILABLE", err)
		}
		if waited := time.Since(begin); waited > 3*time.Second {
			t.Errorf("the queue was refused after %s", waited)
		}
		var e *api.Error
		if err := a.Available(); !errors.As(err, &e) || e.Code != api.CodeMetadataUnavailable || e.RetryAfter != time.Second {
			t.Errorf("available while stuck: %v", err)
		}
		if _, err := await(t, a.SubmitCommit(commitOf(batch{topic, 0, 1}))); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("a new one while stuck: %v", err)
		}
		if st := a.Status(); st.Ready || st.Stuck < 3*time.Second {
			t.Errorf("status while stuck: %+v", st)
		}
		select {
		case <-inFlight.Done():
			t.Fatal("the transaction in flight has an outcome, although nobody knows it")
		default:
		}
		close(gate)
		if r, err := await(t, inFlight); err != nil || bases(t, r)[0] != 0 {
			t.Errorf("in flight: %v, %v", r, err)
		}
		synctest.Wait()
		if st := a.Status(); !st.Ready || st.Stuck != 0 {
			t.Errorf("status after the answer: %+v", st)
		}
		if got := a.commit(t, batch{topic, 0, 1})[0]; got != 1 {
			t.Errorf("next base %d, want 1: a refused commit was stored", got)
		}
	})
}

// No leader: a short election is waited for, a long absence is a definite refusal, and the probe brings the node back.
func TestNoQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		topic := a.topic(t, "acme", "orders", 1)
		a.mem.SetReachable(false)
		time.AfterFunc(2*time.Second, func() { a.mem.SetReachable(true) })
		if got := a.commit(t, batch{topic, 0, 1})[0]; got != 0 {
			t.Errorf("base %d", got)
		}
		a.mem.SetReachable(false)
		synced := make(chan error, 1)
		go func() { synced <- a.Sync(t.Context()) }()
		first := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		second := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		for _, p := range []*metadata.Pending{first, second} {
			if _, err := await(t, p); api.CodeOf(err) != api.CodeMetadataUnavailable {
				t.Errorf("without a quorum: %v, want METADATA_UNAVAILABLE", err)
			}
		}
		if err := <-synced; api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("sync without a quorum: %v", err)
		}
		if a.Available() == nil || a.Status().Ready {
			t.Error("available without a quorum")
		}
		begin := time.Now()
		if err := a.Sync(t.Context()); api.CodeOf(err) != api.CodeMetadataUnavailable || time.Since(begin) > 0 {
			t.Errorf("sync while known to be down: %v after %s, want a refusal at once", err, time.Since(begin))
		}
		a.mem.SetReachable(true)
		time.Sleep(2 * time.Second) // virtual: the probe
		if err := a.Available(); err != nil {
			t.Errorf("after the quorum is back: %v", err)
		}
		if got := a.commit(t, batch{topic, 0, 1})[0]; got != 1 {
			t.Errorf("base %d, want 1: a refused commit was stored", got)
		}
	})
}

// An idle node's readiness is true: the probe notices that the quorum is gone although nobody asks.
func TestIdleNodeNoticesTheLossOfQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		time.Sleep(time.Minute)
		if !a.Status().Ready {
			t.Error("an idle node is not ready")
		}
		a.mem.SetReachable(false)
		time.Sleep(10 * time.Second)
		if a.Status().Ready {
			t.Error("ready without a quorum")
		}
		a.mem.SetReachable(true)
		time.Sleep(10 * time.Second)
		if !a.Status().Ready {
			t.Error("not ready with a quorum")
		}
	})
}

func TestSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		gate := make(chan struct{})
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Head {
				return metafault.Action{Wait: gate}
			}
			return metafault.Action{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := a.Sync(ctx); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("sync: %v", err)
		}
		close(gate)
		if err := a.Sync(t.Context()); err != nil {
			t.Errorf("sync after: %v", err)
		}
	})
}

// Callers share a read, but only one that starts after they began.
func TestSyncSharesReadsThatStartLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(), f.open()
		topic := b.topic(t, "acme", "orders", 1)
		gate := make(chan struct{})
		first := a.faults.Calls(metafault.Head) + 1
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Head && c.N == first {
				return metafault.Action{Wait: gate}
			}
			return metafault.Action{}
		})
		const n = 50
		done := make(chan error, n+1)
		go func() { done <- a.Sync(t.Context()) }()
		synctest.Wait() // the first read is under way
		b.commit(t, batch{topic, 0, 1})
		for range n {
			go func() {
				err := a.Sync(t.Context())
				if info, perr := a.Partition(topic.ID, 0); err == nil && (perr != nil || info.Head != 1) {
					t.Errorf("after sync: head %d, %v, want 1", info.Head, perr)
				}
				done <- err
			}()
		}
		synctest.Wait()
		close(gate)
		for range n + 1 {
			if err := <-done; err != nil {
				t.Errorf("sync: %v", err)
			}
		}
		if reads := a.faults.Calls(metafault.Head) - first + 1; reads != 2 {
			t.Errorf("%d calls took %d reads, want 2", n+1, reads)
		}
	})
}

// I4: a node is cut off while topics change and the history is compacted. It reads everything again, and sees the deletes.
func TestCompactedWatchReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(), f.open()
		kept, gone := a.topic(t, "acme", "kept", 1), a.topic(t, "acme", "gone", 1)
		a.commit(t, batch{kept, 0, 1}, batch{gone, 0, 1})
		b.head(t, kept, 0)
		onGone, releaseGone := b.Changed(gone.ID, 0, 1)
		defer releaseGone()
		onKept, releaseKept := b.Changed(kept.ID, 0, 1)
		defer releaseKept()
		b.mem.SetReachable(false)
		if err := a.DeleteTopic(t.Context(), "acme", "gone"); err != nil {
			t.Fatal(err)
		}
		fresh := a.topic(t, "acme", "fresh", 1)
		a.commit(t, batch{kept, 0, 4}, batch{fresh, 0, 2})
		f.compactAll(t, a)
		b.mem.SetReachable(true)
		<-onGone
		<-onKept
		if _, err := b.Topic("acme", "gone"); api.CodeOf(err) != api.CodeUnknownTopic {
			t.Errorf("the deleted topic: %v", err)
		}
		if got := b.head(t, kept, 0); got != 5 {
			t.Errorf("head %d, want 5", got)
		}
		if _, err := b.Partition(gone.ID, 0); api.CodeOf(err) != api.CodeUnknownTopic {
			t.Errorf("partition of the deleted topic: %v", err)
		}
		sameState(t, a, b)
		if got := b.commit(t, batch{kept, 0, 1})[0]; got != 5 {
			t.Errorf("base %d after the reload, want 5", got)
		}
	})
}

// compactAll drops the history below the newest entry, without any snapshot.
func (f *fabric) compactAll(t testing.TB, n *node) {
	t.Helper()
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.entries.Compact(t.Context(), n.Revision()); err != nil {
		t.Fatal(err)
	}
}

// A commit is acknowledged by the store while the watch stands still, and then the watch is compacted: the reload answers it.
func TestCommitIsAnsweredByAReload(t *testing.T) {
	for _, truncated := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric(t)
			a := f.open()
			b := f.open(func(o *metadata.Options) { *o = keepingHouse(*o, 1) })
			topic := a.topic(t, "acme", "orders", 1)
			cut := make(chan struct{})
			a.faults.SetHook(func(c metafault.Call) metafault.Action {
				if c.Op == metafault.Deliver {
					return metafault.Action{Wait: cut, Err: errors.New("cut")}
				}
				return metafault.Action{}
			})
			commit := commitOf(batch{topic, 0, 3})
			p := a.SubmitCommit(commit)
			if truncated {
				time.Sleep(5 * time.Second) // virtual: b takes snapshots, which swallow the entry
				b.commit(t, batch{topic, 0, 1})
				time.Sleep(5 * time.Second)
			}
			synctest.Wait()
			f.compactAll(t, b)
			b.commit(t, batch{topic, 0, 1})
			f.compactAll(t, b)
			a.faults.SetHook(nil)
			close(cut)
			r, err := await(t, p)
			if truncated {
				// Its first answer was kept by nobody that this node can ask: the outcome is unknown, and the commit has one effect.
				if api.CodeOf(err) != api.CodeOutcomeUnknown {
					t.Errorf("after a truncation: %v, %v, want OUTCOME_UNKNOWN", r, err)
				}
			} else if err != nil || bases(t, r)[0] != 0 {
				t.Errorf("after a compaction: %v, %v", r, err)
			}
			want := int64(4)
			if truncated {
				want = 5
			}
			if got := a.head(t, topic, 0); got != want {
				t.Errorf("head %d, want %d", got, want)
			}
			sameState(t, a, b)
		})
	}
}

// An entry that cannot be applied stops the node; it is not skipped.
func TestUndecodableEntryIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		topic := a.topic(t, "acme", "orders", 1)
		ch, release := a.Changed(topic.ID, 0, 0)
		defer release()
		bad := []metadata.LogEntry{{Shard: 1, Stream: "alien", Seq: 1, Value: []byte{0xff, 0xff}}}
		if _, err := f.entries.Append(t.Context(), bad, nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Sync(t.Context()); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("sync: %v", err)
		}
		if a.Available() == nil || a.Status().Ready {
			t.Error("ready although it cannot follow the log")
		}
		if _, err := await(t, a.SubmitCommit(commitOf(batch{topic, 0, 1}))); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("commit: %v", err)
		}
		select {
		case <-ch:
			t.Error("a waiter was woken")
		default:
		}
		if _, err := metadata.Open(t.Context(), metadata.Options{Driver: f.entries, Store: f.objects, NodeID: "late", Region: "here"}); err == nil {
			t.Error("a new node opened over an entry that it cannot read")
		}
	})
}

// A watch that is open and shows nothing: reads are refused within bounds, and it is started again.
func TestSilentWatchIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(), f.open()
		topic := a.topic(t, "acme", "orders", 1)
		b.head(t, topic, 0)
		deaf := b.faults.Calls(metafault.Watch)
		never := make(chan struct{})
		b.faults.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Deliver && deaf > 0 {
				deaf = 0
				return metafault.Action{Wait: never, Err: errors.New("cut")}
			}
			return metafault.Action{}
		})
		a.commit(t, batch{topic, 0, 1})
		begin := time.Now()
		if err := b.Sync(t.Context()); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("sync over a silent watch: %v", err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("it was refused after %s", took)
		}
		if b.Status().Ready {
			t.Error("ready although it lags")
		}
		time.Sleep(3 * time.Second) // virtual: the probe
		if got := b.head(t, topic, 0); got != 1 {
			t.Errorf("head %d, want 1", got)
		}
		if !b.Status().Ready {
			t.Error("not ready although it has caught up")
		}
	})
}
