package metafault

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/forebaymq/forebay/metadata"
)

// Rates are probabilities, each 0..1, of the faults that Random injects.
type Rates struct {
	Refused  float64       // calls fail before any effect, with ErrNoQuorum
	Lost     float64       // calls have their effect, and their answers are lost
	Broken   float64       // deliveries of a watch end it
	MaxDelay time.Duration // calls wait up to this long
}

// Random makes a hook that draws faults from a seed. The same seed and the same sequence of calls give the same faults.
func Random(seed uint64, r Rates) Hook {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	return func(c Call) Action {
		var a Action
		roll := rng.Float64()
		if r.MaxDelay > 0 {
			a.Delay = time.Duration(rng.Int64N(int64(r.MaxDelay) + 1))
		}
		switch {
		case c.Op == Deliver:
			if roll < r.Broken {
				a.Err = fmt.Errorf("watch broken: %w", ErrInjected)
			}
		case c.Op == Watch:
		case roll < r.Refused:
			a.Err = fmt.Errorf("%w: %w", metadata.ErrNoQuorum, ErrInjected)
		case roll < r.Refused+r.Lost:
			a.Lost = true
		}
		return a
	}
}
