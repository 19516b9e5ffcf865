package leases

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// brokenJournal is a journal that fails when told to, and counts.
type brokenJournal struct {
	Journal
	mu     sync.Mutex
	err    error
	hidden int // appends whose answer is lost
	writes int
}

func (j *brokenJournal) set(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
}

// count gives how many appends there were.
func (j *brokenJournal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes
}

func (j *brokenJournal) Write(ctx context.Context, tenant string, entries []journal.Entry) ([]int64, error) {
	j.mu.Lock()
	err := j.err
	j.writes++
	hide := j.hidden > 0
	if hide {
		j.hidden--
	}
	j.mu.Unlock()
	if err != nil {
		return nil, err
	}
	offsets, err := j.Journal.Write(ctx, tenant, entries)
	if hide {
		return nil, api.Errorf(api.CodeOutcomeUnknown, "the answer was lost")
	}
	return offsets, err
}

// TestFlushIsSoon: a change is in the journal at most 100 ms after it was made, however many follow, and many changes are one append.
func TestFlushIsSoon(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		counted := &brokenJournal{}
		n := f.node(func(o *Options) { counted.Journal = o.Journal; o.Journal = counted })
		n.topic("orders", 4, nil)
		n.subscribe(work, nil)
		for p := range int32(4) {
			n.publish("orders", p, numbered("", 500)...)
		}
		n.settle(work, Ack, "", n.lease(work, 1))
		time.Sleep(time.Second)
		before := counted.count()
		var worst time.Duration
		begun := time.Now()
		for time.Since(begun) < time.Second {
			n.settle(work, Ack, "", n.lease(work, 5))
			time.Sleep(3 * time.Millisecond)
			worst = max(worst, n.engine.flusher.oldest())
		}
		if worst > 100*time.Millisecond {
			t.Errorf("a change was %s old and not in the journal", worst)
		}
		if writes := counted.count() - before; writes > 60 {
			t.Errorf("%d appends in a second", writes)
		}
		time.Sleep(200 * time.Millisecond)
		if age := n.engine.flusher.oldest(); age != 0 {
			t.Errorf("%s behind when all is quiet", age)
		}
	})
}

// TestTenantsShareAppends: the changes of many subscriptions of a tenant are few appends.
func TestTenantsShareAppends(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		counted := &brokenJournal{}
		n := f.node(func(o *Options) { counted.Journal = o.Journal; o.Journal = counted })
		n.topic("orders", 1, nil)
		n.publish("orders", 0, numbered("", 10)...)
		var names []Name
		for _, v := range numbered("s", 50) {
			names = append(names, sub("orders", v))
			n.subscribe(names[len(names)-1], nil)
		}
		for _, name := range names {
			n.lease(name, 5)
		}
		time.Sleep(time.Second)
		before := counted.count()
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() { n.settle(name, Ack, "", n.lease(name, 5)) })
		}
		all.Wait()
		time.Sleep(time.Second)
		if writes := counted.count() - before; writes > 5 {
			t.Errorf("%d appends for %d subscriptions", writes, len(names))
		}
	})
}

func TestFlusherKeepsTheOldest(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		clock := f.node(nil).engine.o.Clock
		fl := newFlusher(clock)
		q := &queue{active: &active{id: 1}, sub: &metadata.Subscription{Tenant: "a"}}
		other := &queue{active: &active{id: 2}, sub: &metadata.Subscription{Tenant: "b"}}
		fl.mark(q)
		time.Sleep(time.Second)
		fl.mark(q)
		fl.mark(other)
		first := fl.depart()
		if len(first) != 2 || fl.oldest() != time.Second {
			t.Fatalf("%d flights, oldest %s", len(first), fl.oldest())
		}
		for range flushFlights - 1 {
			fl.mark(q)
			if n := len(fl.depart()); n != 1 {
				t.Fatalf("%d flights", n)
			}
		}
		fl.mark(q)
		if n := len(fl.depart()); n != 0 {
			t.Errorf("%d more flights than may be under way", n)
		}
		time.Sleep(time.Second)
		for i, flight := range first {
			fl.arrive(flight, flight.changes)
			if want := flushRetry << i; fl.pause(0) != want {
				t.Errorf("after %d failures: pause %s, want %s", i+1, fl.pause(0), want)
			}
		}
		if fl.oldest() != 2*time.Second || !fl.knows(1) || !fl.knows(2) {
			t.Errorf("after a failure: oldest %s", fl.oldest())
		}
	})
}
