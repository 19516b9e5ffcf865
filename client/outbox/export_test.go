package outbox

import "time"

// WithHook calls f at the named steps of the relay, in its goroutines: tick, opened, settling, assigned, published, marking, lost.
func WithHook(f func(step string)) RelayOption { return func(o *relayOptions) { o.hook = f } }

// WithPauses sets the pauses after failures.
func WithPauses(min, max time.Duration) RelayOption {
	return func(o *relayOptions) { o.minPause, o.maxPause = min, max }
}

var Share = share
