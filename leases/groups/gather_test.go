package groups

import (
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// TestMembersComeAgainTogether: after Redis was lost a group of ten takes few generations, not one a member; nobody waits once all are there, and
// nobody waits long for one that does not come.
func TestMembersComeAgainTogether(t *testing.T) {
	for name, c := range map[string]struct {
		apart  time.Duration // between two of them
		silent int           // that do not come
		within time.Duration // every one has its answer
		most   int64         // generations
	}{
		"at once":               {0, 0, maxGather / 2, 2},
		"one after another":     {300 * time.Millisecond, 0, maxGather + 500*time.Millisecond, 5},
		"all at once, but one":  {0, 1, maxGather + 500*time.Millisecond, 3},
		"a single one is there": {0, 9, maxGather + 500*time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) {
				n := f.node()
				n.makeTopic("orders", 10)
				all := make([]*peer, 10)
				for i := range all {
					all[i] = n.peer("g", "orders").join()
				}
				calm(t, all...)
				was := all[0].generation
				f.redis.FlushAll()
				here := all[c.silent:]
				var wg sync.WaitGroup
				for i, p := range here {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * c.apart)
						_, err := p.tryBeat()
						wantCode(t, err, api.CodeStaleGeneration)
						begun := time.Now()
						p.join()
						if took := time.Since(begun); took > c.within {
							t.Errorf("member %d joins in %s", i, took)
						}
					})
				}
				wg.Wait()
				newest := int64(0)
				for _, p := range here {
					newest = max(newest, p.generation)
				}
				if n := newest - was; n < 2 || n > c.most {
					t.Errorf("%d generations", n)
				}
				calm(t, here...)
			})
		})
	}
}
