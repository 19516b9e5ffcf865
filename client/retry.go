package client

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// RetryPolicy bounds what the client does by itself about failures. The zero value is the default; durations are wall-clock.
type RetryPolicy struct {
	Attempts      int           // how often a request is sent at most, the first time included. Default 6; 1 = never again
	Initial       time.Duration // mean of the first pause. Default 200 ms; doubled each time, with jitter
	Max           time.Duration // longest pause between attempts by the backoff. Default 10 s
	MaxRetryAfter time.Duration // longest pause that a server's Retry-After may ask for; longer ones are cut to it. Default 30 s
	MaxElapsed    time.Duration // no attempt is begun later than this after the first. Default 2 min
	// Notify, if set, hears of each pause before it begins.
	Notify func(err *Error, pause time.Duration)
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Attempts <= 0 {
		p.Attempts = 6
	}
	if p.Initial <= 0 {
		p.Initial = 200 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = 10 * time.Second
	}
	if p.MaxRetryAfter <= 0 {
		p.MaxRetryAfter = 30 * time.Second
	}
	if p.MaxElapsed <= 0 {
		p.MaxElapsed = 2 * time.Minute
	}
	return p
}

// repeatable says whether sending a request a second time can do harm.
type repeatable bool

const (
	safeTwice  repeatable = true  // reads, settings, publishes with a sequence
	onceAtMost repeatable = false // publishes without a sequence
)

// retry runs attempt until it succeeds, fails for good, or the policy ends. The error returned is always that of the last attempt, never
// "deadline exceeded" in its place: the caller must be able to tell what happened.
func retry(ctx context.Context, policy RetryPolicy, twice repeatable, attempt func(context.Context) error) error {
	pauses := &backoff.ExponentialBackOff{
		InitialInterval:     policy.Initial,
		RandomizationFactor: 0.5,
		Multiplier:          2,
		MaxInterval:         policy.Max,
	}
	pauses.Reset()
	start := time.Now()
	for n := 1; ; n++ {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		var e *Error
		if errors.As(err, &e) {
			e.Attempts = n
		}
		outcome, _ := Classify(err)
		again := outcome == Retriable || outcome == Indefinite && twice == safeTwice
		if !again || n >= policy.Attempts || ctx.Err() != nil {
			return err
		}
		pause := pauses.NextBackOff()
		if e != nil && e.RetryAfter > 0 {
			pause = max(min(e.RetryAfter, policy.MaxRetryAfter), pause)
		}
		if time.Since(start)+pause > policy.MaxElapsed {
			return err
		}
		if policy.Notify != nil && e != nil {
			policy.Notify(e, pause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
