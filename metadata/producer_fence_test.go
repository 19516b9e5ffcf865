package metadata

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

const stGroupProducer = "__group.1"

func (w *stWorld) start(id string) int64 {
	w.t.Helper()
	return w.one(&ProducerEpoch{Tenant: "acme", ID: id, Now: w.now}).Epoch
}

// wantRefused demands that every batch was refused with the code, and that the refusal names the running epoch.
func wantRefused(t testing.TB, results []BatchResult, code api.Code, epoch int64) {
	t.Helper()
	for i, r := range results {
		wantCode(t, r.Err, code)
		e, ok := r.Err.(*api.Error)
		if !ok || e.Extra["epoch"] != epoch {
			t.Fatalf("batch %d: %+v does not name epoch %d", i, r.Err, epoch)
		}
	}
}

// A request that is only fenced is held against the running epoch and nothing else: it is never a repeat, and leaves nothing behind.
func TestFenceOnly(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(4))
	first := w.start(stGroupProducer)
	for i := range int64(3) {
		r := w.send(stGroupProducer, first, NoSequence, free(journal, 0, 2), free(journal, 3, 1))
		wantBase(t, r[0], 2*i, false)
		wantBase(t, r[1], i, false)
	}
	second := w.start(stGroupProducer)
	if second != first+1 {
		t.Fatalf("epoch %d after %d", second, first)
	}
	heads := []int64{w.info(journal, 0).Head, w.info(journal, 3).Head}
	wantRefused(t, w.send(stGroupProducer, first, NoSequence, free(journal, 0, 2), free(journal, 3, 1)), api.CodeProducerFenced, second)
	wantRefused(t, w.send(stGroupProducer, second+1, NoSequence, free(journal, 0, 2)), api.CodeInvalidRequest, second)
	if got := []int64{w.info(journal, 0).Head, w.info(journal, 3).Head}; got[0] != heads[0] || got[1] != heads[1] {
		t.Fatalf("heads %v, want %v: a refused request was stored", got, heads)
	}
	wantBase(t, w.send(stGroupProducer, second, NoSequence, free(journal, 0, 1))[0], 6, false)

	if st := w.s.Stats(); st.Windows != 0 || st.Sessions != 1 {
		t.Errorf("%+v is remembered", st)
	}
	if got := w.s.ProducerPositions("acme", stGroupProducer, ""); got != nil {
		t.Errorf("positions %v", got)
	}
}

// All partitions or none.
func TestFenceOnlyIsAtomic(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(2))
	epoch := w.start(stGroupProducer)
	for _, r := range w.send(stGroupProducer, epoch, NoSequence, free(journal, 0, 1), free(journal, 2, 1)) {
		wantCode(t, r.Err, api.CodeUnknownPartition)
	}
	for _, r := range w.send(stGroupProducer, epoch, NoSequence, free(&Topic{ID: 99}, 0, 1), free(journal, 1, 1)) {
		wantCode(t, r.Err, api.CodeUnknownTopic)
	}
	if st := w.s.Stats(); st.Partitions != 0 {
		t.Errorf("%+v: a part was stored", st)
	}
	// Nothing could be taken for a repeat, so a partition may come twice.
	r := w.send(stGroupProducer, epoch, NoSequence, free(journal, 0, 1), free(journal, 1, 1), free(journal, 0, 2))
	wantBase(t, r[0], 0, false)
	wantBase(t, r[2], 1, false)
}

// The order of the log decides, within one entry too.
func TestFenceOnlyInLogOrder(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(1))
	old := w.start(stGroupProducer)
	write := func(epoch int64) *Commit {
		return w.commit([]Group{{Tenant: "acme", Producer: &Producer{ID: stGroupProducer, Epoch: epoch, Sequence: NoSequence}}}, grouped(journal, 0, 1, 0))
	}
	next := &ProducerEpoch{Tenant: "acme", ID: stGroupProducer, Now: w.now}
	r := w.apply(write(old), next, write(old), write(old+1))
	wantBase(t, r[0].Batches[0], 0, false)
	wantRefused(t, r[2].Batches, api.CodeProducerFenced, old+1)
	wantBase(t, r[3].Batches[0], 1, false)
	// Another tenant's session of the same name is another's.
	c := write(old + 1)
	c.Groups[0].Tenant = "beta"
	wantCode(t, w.one(c).Batches[0].Err, api.CodeUnknownTopic)
}

// One commit may carry several fenced requests and requests with sequences of one producer; they do not meet.
func TestFenceOnlyBesideSequences(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	epoch := w.start("p")
	request := func(seq int64) Group {
		return Group{Tenant: "acme", Producer: &Producer{ID: "p", Epoch: epoch, Sequence: seq}}
	}
	groups := []Group{request(5), request(NoSequence), request(NoSequence), request(5), request(6)}
	var batches []BatchDelta
	for g := range groups {
		batches = append(batches, grouped(orders, 0, 1, int32(g)))
	}
	r := w.one(w.commit(groups, batches...)).Batches
	for i, want := range []int64{0, 1, 2, 0, 3} {
		wantBase(t, r[i], want, i == 3)
	}
	wantBase(t, w.send("p", epoch, 5, free(orders, 0, 1))[0], 0, true)
	wantCode(t, w.send("p", epoch, 4, free(orders, 0, 1))[0].Err, api.CodeConflict)
}

// A commit that comes twice, as the log's retries do, takes effect once.
func TestFenceOnlyCommitTwice(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(2))
	epoch := w.start(stGroupProducer)
	c := w.commit([]Group{{Tenant: "acme", Producer: &Producer{ID: stGroupProducer, Epoch: epoch, Sequence: NoSequence}}},
		grouped(journal, 0, 3, 0), grouped(journal, 1, 1, 0))
	first := w.one(c).Batches
	w.start(stGroupProducer) // fenced meanwhile: the first answer holds all the same
	again := w.one(c).Batches
	for i := range first {
		wantBase(t, again[i], first[i].Base, first[i].Duplicate)
	}
	loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.s = loaded
	if r := w.apply(c)[0]; r.Err != ErrAlreadyApplied || w.info(journal, 0).Head != 3 {
		t.Errorf("after a snapshot: %+v, head %d", r, w.info(journal, 0).Head)
	}
}

// Without a session epoch 0 is the running one, and a request leaves no trace of a producer.
func TestFenceOnlyWithoutSession(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(1))
	wantRefused(t, w.send(stGroupProducer, 1, NoSequence, free(journal, 0, 1)), api.CodeInvalidRequest, 0)
	wantBase(t, w.send(stGroupProducer, 0, NoSequence, free(journal, 0, 1))[0], 0, false)
	if len(w.s.producers) != 0 || w.s.Stats().Sessions != 0 {
		t.Errorf("%d producers", len(w.s.producers))
	}
	if _, err := UnmarshalSnapshot(w.s.MarshalSnapshot()); err != nil {
		t.Error(err)
	}
	epoch := w.start(stGroupProducer)
	wantRefused(t, w.send(stGroupProducer, 0, NoSequence, free(journal, 0, 1)), api.CodeProducerFenced, epoch)
}

func TestFenceOnlyDropsKnownEventIDs(t *testing.T) {
	w := newWorld(t)
	events := dedupeTopic(w, time.Hour)
	epoch := w.start(stGroupProducer)
	wantBase(t, w.send(stGroupProducer, epoch, NoSequence, withIDs(events, 0, 1, 2))[0], 0, false)
	wantBase(t, w.send(stGroupProducer, epoch, NoSequence, withIDs(events, 0, 2, 1))[0], 1, true)
}

// Fenced requests keep a session as others do; a session that nobody used for 7 days is forgotten, its epoch never given again.
func TestFenceOnlyKeepsTheSession(t *testing.T) {
	w := newWorld(t)
	journal := w.topic("journal", stConfig(1))
	epoch := w.start(stGroupProducer)
	idle := w.start("__group.2")
	for range 6 {
		w.tick(6 * 24 * time.Hour)
		if r := w.send(stGroupProducer, epoch, NoSequence, free(journal, 0, 1))[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	wantRefused(t, w.send("__group.2", idle, NoSequence, free(journal, 0, 1)), api.CodeInvalidRequest, 0)
	// A refused request is no use.
	for range 2 {
		w.tick(4 * 24 * time.Hour)
		wantRefused(t, w.send(stGroupProducer, epoch+1, NoSequence, free(journal, 0, 1)), api.CodeInvalidRequest, epoch)
	}
	w.one(w.commit(nil, free(journal, 0, 1)))
	wantRefused(t, w.send(stGroupProducer, epoch, NoSequence, free(journal, 0, 1)), api.CodeInvalidRequest, 0)
	if next := w.start(stGroupProducer); next <= epoch {
		t.Errorf("epoch %d after %d", next, epoch)
	}
}
