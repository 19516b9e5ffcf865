package client

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/forebaymq/forebay/api"
)

// forever as the limit of an outage means that there is none.
const forever time.Duration = -1

// longestPause between attempts to reach a server that is away.
const longestPause = 15 * time.Second

// outage paces what a long-lived thing tries again while its server is away, after the retries of the single calls have been in vain. It says
// when it is over, too: a refusal that stays, or an outage beyond the limit. Not safe for concurrent use.
type outage struct {
	reached       bool          // the server has answered before
	limit         time.Duration // forever, or how long after the first failure a further attempt may begin
	maxRetryAfter time.Duration
	since         time.Time
	failures      int
	pauses        *backoff.ExponentialBackOff
}

// newOutage paces by pauses that grow to longest, give or take a half, and to what the server asks for, up to maxRetryAfter.
func newOutage(limit, longest, maxRetryAfter time.Duration) *outage {
	return &outage{limit: limit, maxRetryAfter: maxRetryAfter, pauses: &backoff.ExponentialBackOff{
		InitialInterval: min(500*time.Millisecond, longest), RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longest,
	}}
}

// over begins anew: the server has answered.
func (o *outage) over() { o.failures, o.reached = 0, true }

// next says whether to go on after err, and after which pause.
func (o *outage) next(err error) (pause time.Duration, again bool) {
	if o.failures == 0 {
		o.since = time.Now()
		o.pauses.Reset()
	}
	o.failures++
	if o.refusal(err) {
		return 0, false
	}
	pause = o.pauses.NextBackOff()
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		pause = max(pause, min(e.RetryAfter, o.maxRetryAfter))
	}
	return pause, o.limit < 0 || time.Since(o.since)+pause <= o.limit
}

// refusal says whether err will stay, whatever time passes.
func (o *outage) refusal(err error) bool {
	if outcome, _ := Classify(err); outcome != Definite {
		return false
	}
	if codeOf(err) == api.CodeUnauthenticated {
		return o.failures > 3 // a token may have run out on its way: another one is asked for with the next attempt
	}
	// What somebody between says in his own words is not final: a gateway answers 404 while what is behind it starts. But it may be all that a wrong
	// address will ever say.
	return consumerFatal(err) || !o.reached
}

// telling gives a client like c whose attempts that fail and are made again are told to notify, too, beside the Notify of its policy. An outage that
// those get over would otherwise be none to whoever watches a long-lived thing. Each failure is told once: the last attempt's is what a call returns.
func (c *Client) telling(notify func(err error)) *Client {
	like, own := *c, c.policy.Notify
	like.policy.Notify = func(err *Error, pause time.Duration) {
		if own != nil {
			own(err, pause)
		}
		notify(err)
	}
	return &like
}

// pass waits for d, or for the end of ctx (false).
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
