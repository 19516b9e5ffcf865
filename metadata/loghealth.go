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
type health struct {
	sync.Mutex
	lastGood time.Time // a read or append with a quorum succeeded
	down     bool      // no quorum for StuckAfter
	stuck    bool      // the transaction in flight has no answer
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

func (h *health) isDown() bool {
	h.Lock()
	defer h.Unlock()
	return h.down
}

func (h *health) available() bool {
	h.Lock()
	defer h.Unlock()
	return !h.down && !h.stuck
}

func (h *health) state(clock clockwork.Clock) (available bool, stuck time.Duration, sinceGood time.Duration) {
	h.Lock()
	defer h.Unlock()
	if !h.flight.IsZero() && h.stuck {
		stuck = clock.Since(h.flight)
	}
	return !h.down && !h.stuck, stuck, clock.Since(h.lastGood)
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
		if _, _, since := l.health.state(l.o.Clock); since < l.o.ProbeInterval {
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
