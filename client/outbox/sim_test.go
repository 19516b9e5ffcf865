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

// sleeper makes a relay stand still, all of it, at random steps: a process that is stopped and does not know it. While it sleeps, whoever comes by a
// step waits.
type sleeper struct {
	mu    sync.Mutex
	rng   *rand.Rand
	awake chan struct{} // nil: it does not sleep
	never bool          // it does not fall asleep again
	n     int
}

func (s *sleeper) at(step string) {
	if step == "marking" || step == "settling" { // these hold a lock in the database, for which the others would wait
		return
	}
	s.mu.Lock()
	if s.awake == nil && !s.never && step != "tick" && s.rng.IntN(5) == 0 {
		s.awake = make(chan struct{})
		s.n++
	}
	awake := s.awake
	s.mu.Unlock()
	if awake != nil {
		<-awake
	}
}

func (s *sleeper) wake(forGood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awake != nil {
		close(s.awake)
		s.awake = nil
	}
	s.never = s.never || forGood
}

// TestSimulation: three relays stand still at random steps and are taken for dead while they do, answers of the server are lost before and
// after their effect, relays end and begin. Each row is in the log once, in order per key.
//
// FOREBAY_OUTBOX_SEEDS sets the number of seeds (default 2).
func TestSimulation(t *testing.T) {
	for seed := range uint64(envInt(t, "FOREBAY_OUTBOX_SEEDS", 2)) {
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
	type simulated struct {
		*running
		*sleeper
	}
	begin := func() simulated {
		s := &sleeper{rng: rand.New(rand.NewPCG(seed, rng.Uint64()))}
		r := simulated{run(t, o, db, l, outbox.WithHook(s.at), outbox.WithBatch(1+rng.IntN(6), 1<<20)), s}
		t.Cleanup(func() { s.wake(true) }) // before it is stopped
		return r
	}
	relays := []simulated{begin(), begin(), begin()}
	naps := 0
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
			relays[rng.IntN(len(relays))].wake(false)
		case 3:
			if i := rng.IntN(9); i < len(relays) {
				relays[i].wake(true)
				relays[i].stop()
				naps += relays[i].n
				relays[i] = begin()
			}
		}
		waiting := rng.IntN(120)
		eventually(t, "the relays keep up", func() error {
			st, err := o.Stats(context.Background(), db)
			if err == nil && st.Waiting > int64(waiting) {
				err = fmt.Errorf("%+v", st)
				for _, r := range relays {
					if rng.IntN(4) == 0 {
						r.wake(false)
					}
					err = fmt.Errorf("%w; %+v", err, r.Stats())
				}
			}
			return err
		})
	}
	for _, r := range relays {
		r.wake(true)
		naps += r.n
	}
	drained(t, o, db)
	if naps < 5 {
		t.Errorf("%d naps: that proves little", naps)
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
