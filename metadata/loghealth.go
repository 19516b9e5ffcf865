package metadata

import (
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// health is what a node knows about its quorum.
//
//	good --a head read fails, the last success is StuckAfter ago--> down --a head read or append succeeds--> good
//	good --a transaction is StuckAfter old----------------------> stuck --its outcome is known-------------> good or down
//	good --apply does not reach a head within SubmitTimeout-----> lagging --it does------------------------> good
type health struct {
	sync.Mutex
	lastGood time.Time // a read or append with a quorum succeeded
	down     bool      // no quorum for StuckAfter
	stuck    bool      // the transaction in flight has no answer
	lagging  bool      // the watch does not show what the store has
	flight   time.Time // when the transaction in flight began; zero = none
}

func (h *health) good(now time.Time) {
	h.Lock()
	defer h.Unlock()
	h.lastGood, h.down = now, false
}

// failed records that a read failed, and says whether the quorum counts as lost.
func (h *health) failed(now time.Time, after time.Duration) bool {
	h.Lock()
	defer h.Unlock()
	if now.Sub(h.lastGood) >= after {
		h.down = true
	}
	return h.down
}

func (h *health) begin(now time.Time) {
	h.Lock()
	defer h.Unlock()
	h.flight = now
}

// end closes the transaction in flight: its outcome is known.
func (h *health) end(ok bool, now time.Time) {
	h.Lock()
	defer h.Unlock()
	h.flight, h.stuck = time.Time{}, false
	if ok {
		h.lastGood, h.down = now, false
	}
}

func (h *health) setStuck() {
	h.Lock()
	defer h.Unlock()
	h.stuck = true
}

func (h *health) setDown() {
	h.Lock()
	defer h.Unlock()
	h.down = true
}

// setLagging records whether apply has reached a head that was read.
func (h *health) setLagging(lagging bool) {
	h.Lock()
	defer h.Unlock()
	h.lagging = lagging
}

// readable says whether a linearizable read may be tried.
func (h *health) readable() bool {
	h.Lock()
	defer h.Unlock()
	return !h.down && !h.lagging
}

func (h *health) available() bool {
	h.Lock()
	defer h.Unlock()
	return !h.down && !h.stuck && !h.lagging
}

// stuckFor is how long a stuck transaction has been in flight; 0 = none is stuck.
func (h *health) stuckFor(clock clockwork.Clock) time.Duration {
	h.Lock()
	defer h.Unlock()
	if h.flight.IsZero() || !h.stuck {
		return 0
	}
	return clock.Since(h.flight)
}

// probeDue says whether nothing has shown the quorum lately, or a barrier is needed to see that apply goes on.
func (h *health) probeDue(now time.Time, every time.Duration) bool {
	h.Lock()
	defer h.Unlock()
	return h.lagging || now.Sub(h.lastGood) >= every
}

// probe checks the quorum when nothing else has shown it lately: so an idle node's readiness is true, and a node that has refused
// everything comes back by itself.
func (l *Log) probe() {
	tick := l.o.Clock.NewTicker(l.o.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.Chan():
		case <-l.ctx.Done():
			return
		}
		if !l.health.probeDue(l.o.Clock.Now(), l.o.ProbeInterval) {
			continue
		}
		b, err := l.joinBarrier()
		if err != nil {
			return
		}
		select {
		case <-b.done:
		case <-l.ctx.Done():
			return
		}
	}
}
