package fetch

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/time/rate"
)

// maxTenants is how many tenants' rates are kept. A forgotten tenant starts with a full burst again.
const maxTenants = 4096

// oldLimits limits how many bytes of old data each tenant causes to be read from the store.
type oldLimits struct {
	perSecond int64 // below zero: no limit
	burst     int
	clock     clockwork.Clock
	tenants   *lru[string, *rate.Limiter]
}

func newOldLimits(perSecond, largest int64, clock clockwork.Clock) *oldLimits {
	return &oldLimits{
		perSecond: perSecond,
		burst:     int(max(perSecond, largest)),
		clock:     clock,
		tenants:   newLRU[string](maxTenants, func(*rate.Limiter) int64 { return 1 }),
	}
}

func (o *oldLimits) limiter(tenant string) *rate.Limiter {
	if l, ok := o.tenants.get(tenant); ok {
		return l
	}
	// Two first readers of one tenant may each make a limiter; the later one stays, and the other's tokens are forgotten once.
	l := rate.NewLimiter(rate.Limit(o.perSecond), o.burst)
	o.tenants.put(l, tenant)
	return l
}

// wait takes n bytes off the tenant's rate, and waits until they are due. waited says whether it had to.
func (o *oldLimits) wait(ctx context.Context, tenant string, n int64) (waited bool, err error) {
	if o.perSecond < 0 || n <= 0 {
		return false, nil
	}
	now := o.clock.Now()
	// A request larger than the burst could never be served: it pays for one burst.
	r := o.limiter(tenant).ReserveN(now, int(min(n, int64(o.burst))))
	delay := r.DelayFrom(now)
	if delay <= 0 {
		return false, nil
	}
	timer := o.clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.Chan():
		return true, nil
	case <-ctx.Done():
		r.CancelAt(o.clock.Now())
		return true, ctx.Err()
	}
}

// take takes n bytes if that needs no waiting.
func (o *oldLimits) take(tenant string, n int64) bool {
	return o.perSecond < 0 || n <= 0 || o.limiter(tenant).AllowN(o.clock.Now(), int(min(n, int64(o.burst))))
}

// cutoff is the append time, in Unix ms, before which data is old.
func cutoff(clock clockwork.Clock, age time.Duration) int64 { return clock.Now().Add(-age).UnixMilli() }
