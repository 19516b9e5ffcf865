package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
)

// stalls holds goroutines of relays at random steps until it lets them go: processes that stand still and do not know it.
type stalls struct {
	mu   sync.Mutex
	rng  *rand.Rand
	hold chan struct{} // closed: go on
	open bool          // hold nobody any more
	n    int
}

func (s *stalls) at(step string) {
	if step == "marking" || step == "settling" { // these hold a lock in the database, and whoever takes over waits for it
		return
	}
	s.mu.Lock()
	if s.open || s.rng.IntN(5) > 0 {
		s.mu.Unlock()
		return
	}
	s.n++
	hold := s.hold
	s.mu.Unlock()
	<-hold
}

// release lets go whom it holds; for good: it holds nobody from now on.
func (s *stalls) release(forGood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return
	}
	close(s.hold)
	s.hold, s.open = make(chan struct{}), forGood
}

// TestSimulation: three relays stand still at random steps and are taken for dead while they do, answers of the server are lost before and
// after their effect, relays end and begin. Each row is in the log once, in order per key.
//
// FOREBAY_OUTBOX_SEEDS sets the number of seeds (default 3).
func TestSimulation(t *testing.T) {
	for seed := range uint64(envInt(t, "FOREBAY_OUTBOX_SEEDS", 3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed)
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	o, db := newOutbox(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	l := newFakeLog("t", "u")
	l.rng, l.lose, l.drop = rand.New(rand.NewPCG(seed, 2)), 0.08, 0.05
	s := &stalls{rng: rand.New(rand.NewPCG(seed, 3)), hold: make(chan struct{})}
	t.Cleanup(func() { s.release(true) })
	begin := func() *running {
		return run(t, o, db, l, outbox.WithHook(s.at), outbox.WithBatch(1+rng.IntN(6), 1<<20))
	}
	relays := []*running{begin(), begin(), begin()}
	t.Cleanup(func() { s.release(true) }) // before the relays are stopped
	const keys, rows = 6, 240
	want := map[string][]string{}
	for n := 0; n < rows; {
		var records []client.Record
		topic := []string{"t", "u"}[rng.IntN(2)]
		for range 1 + rng.IntN(5) {
			key := fmt.Sprint("k", rng.IntN(keys))
			records = append(records, text(key, fmt.Sprint(n)))
			want[topic+key] = append(want[topic+key], fmt.Sprint(n))
			n++
		}
		add(t, o, db, topic, records...)
		switch rng.IntN(6) {
		case 0: // whoever looked at a fast clock takes one for dead
			_, err := db.Exec("DELETE FROM forebay_outbox_relays WHERE relay = (SELECT relay FROM forebay_outbox_relays ORDER BY md5(relay || $1::text) LIMIT 1)", fmt.Sprint(n))
			if err != nil {
				t.Fatal(err)
			}
		case 1, 2:
			s.release(false)
		case 3:
			if i := rng.IntN(9); i < len(relays) {
				s.release(true)
				relays[i].stop()
				s.mu.Lock()
				s.open = false
				s.mu.Unlock()
				relays[i] = begin()
			}
		}
		waiting := rng.IntN(120)
		eventually(t, "the relays keep up", func() error {
			st, err := o.Stats(context.Background(), db)
			if err == nil && st.Waiting > int64(waiting) {
				s.release(false)
				err = fmt.Errorf("%+v", st)
				for _, r := range relays {
					err = fmt.Errorf("%w; %+v", err, r.Stats())
				}
			}
			return err
		})
	}
	s.release(true)
	drained(t, o, db, relays...)
	if s.n < 5 {
		t.Errorf("%d stalls: that proves little", s.n)
	}
	ids := map[string]bool{}
	for _, topic := range []string{"t", "u"} {
		for _, r := range l.all(topic) {
			if ids[r.ID] {
				t.Errorf("event %s twice", r.ID)
			}
			ids[r.ID] = true
		}
		for k := range keys {
			key := fmt.Sprint("k", k)
			if got := l.values(topic, key); !slices.Equal(got, want[topic+key]) {
				t.Errorf("topic %s key %s has %q, want %q", topic, key, got, want[topic+key])
			}
		}
	}
}
