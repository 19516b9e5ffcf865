package client

import (
	"math/rand/v2"
	"testing"
)

// TestConsumerWindow compares the window with a slow and simple one, over random orders of settling, holes and repetitions.
func TestConsumerWindow(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		start := r.Int64N(1000)
		w := &consumerWindow{next: start}
		type open struct {
			place  uint64
			offset int64
			done   bool
		}
		var all []open
		next := start
		prefix := func() int64 {
			for _, o := range all {
				if !o.done {
					return o.offset
				}
			}
			return next
		}
		for step := range 700 {
			switch x := r.IntN(100); {
			case x < 45:
				offset := next + r.Int64N(3)
				all = append(all, open{w.add(offset), offset, false})
				next = offset + 1
			case x < 48:
				next += r.Int64N(5)
				w.reach(next)
			case x < 50:
				w.reach(next - r.Int64N(3)) // never back
			case len(all) > 0:
				i := max(0, len(all)-1-r.IntN(min(len(all), 400)))
				if r.IntN(3) == 0 { // the first one that is open
					for i = 0; i < len(all)-1 && all[i].done; i++ {
					}
				}
				if w.done(all[i].place) == all[i].done {
					t.Fatalf("seed %d step %d: done says %v", seed, step, all[i].done)
				}
				all[i].done = true
			}
			if got, want := w.prefix(), prefix(); got != want {
				t.Fatalf("seed %d step %d: prefix %d, want %d", seed, step, got, want)
			}
			if w.done(w.first + uint64(w.len()) + r.Uint64N(5)) {
				t.Fatalf("seed %d step %d: something beyond the window was open", seed, step)
			}
		}
		for _, o := range all {
			w.done(o.place)
		}
		if w.len() != 0 || w.open != 0 || w.prefix() != next {
			t.Fatalf("seed %d: %d left, %d open, prefix %d of %d", seed, w.len(), w.open, w.prefix(), next)
		}
	}
}
