package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/objectstore"
)

var _ objectstore.Store = (*Store)(nil)

// Defaults of Options.
const (
	DefaultAttempts = 6
	DefaultBase     = 50 * time.Millisecond
	DefaultMax      = 2 * time.Second
	DefaultPerTry   = 30 * time.Second
)

// Options of New. The zero value is the default.
type Options struct {
	// Attempts is how many requests one call makes at most, the first included. Default: DefaultAttempts.
	Attempts int
	// Base is the longest wait before the second attempt; it doubles with each further one, up to Max. A wait is drawn evenly from
	// the upper half of that. Defaults: DefaultBase, DefaultMax.
	Base, Max time.Duration
	// PerTry ends an attempt that takes longer. Default: DefaultPerTry. Negative: no limit but the caller's.
	PerTry time.Duration
	// Clock paces it. Default: the real clock.
	Clock clockwork.Clock
	// Rand gives numbers in [0,1) for the jitter; it is called by many goroutines at once. Default: math/rand/v2.
	Rand func() float64
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	if o.Attempts == 0 {
		o.Attempts = DefaultAttempts
	}
	if o.Base == 0 {
		o.Base = DefaultBase
	}
	if o.Max == 0 {
		o.Max = max(DefaultMax, o.Base)
	}
	if o.PerTry == 0 {
		o.PerTry = DefaultPerTry
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// Validate reports what is wrong.
func (o Options) Validate() error {
	var errs []error
	if o.Attempts < 0 {
		errs = append(errs, fmt.Errorf("options.Attempts: %d, want at least 1", o.Attempts))
	}
	if o.Base < 0 {
		errs = append(errs, fmt.Errorf("options.Base: %v, want a positive duration", o.Base))
	}
	if o.Max < 0 || o.Max != 0 && o.Max < o.Base {
		errs = append(errs, fmt.Errorf("options.Max: %v, want at least Base (%v)", o.Max, o.Base))
	}
	return errors.Join(errs...)
}

// Store passes everything on, again if need be.
type Store struct {
	next    objectstore.Store
	opt     Options
	retries *prometheus.CounterVec
}

// New wraps a store, which Close closes.
func New(next objectstore.Store, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("object store retries: %w", err)
	}
	o = o.WithDefaults()
	retries, err := newRetries(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Store{next: next, opt: o, retries: retries}, nil
}

// retriable says whether an attempt without effect that ended in err may be followed by another. ctx is the caller's.
func retriable(ctx context.Context, err error) bool {
	switch objectstore.OutcomeOf(err) {
	case objectstore.Unavailable, objectstore.Throttled, objectstore.Truncated:
		return true
	case objectstore.TimedOut:
		return ctx.Err() == nil // a limit of the driver's own, not the caller's deadline
	}
	return false
}

// stopError marks the end of the caller's context between attempts.
type stopError struct {
	ctxErr error // context.Canceled or DeadlineExceeded
	last   error // of the last attempt
}

func (e *stopError) Error() string { return fmt.Sprintf("%v; the last attempt: %v", e.ctxErr, e.last) }

// Unwrap gives the context's error first: the call ended for it.
func (e *stopError) Unwrap() []error { return []error{e.ctxErr, e.last} }

// run makes attempts until one succeeds, says that another is of no use, is the last, or ctx ends.
func (s *Store) run(ctx context.Context, op objectstore.Op, try func(ctx context.Context) (again bool, err error)) error {
	// No jitter from the library: its randomness cannot be injected.
	intervals := backoff.ExponentialBackOff{InitialInterval: s.opt.Base, Multiplier: 2, MaxInterval: s.opt.Max}
	for n := 1; ; n++ {
		again, err := s.once(ctx, try)
		if err == nil || !again {
			return err
		}
		if ctxErr := ctx.Err(); ctxErr != nil {
			return &stopError{ctxErr: ctxErr, last: err}
		}
		if n >= s.opt.Attempts {
			if n == 1 {
				return err
			}
			return fmt.Errorf("%d attempts: %w", n, err)
		}
		if err := s.wait(ctx, intervals.NextBackOff(), err); err != nil {
			return err
		}
		s.count(op, err)
	}
}

// errPerTry is the cause with which the context of an attempt ends when the attempt takes too long.
var errPerTry = errors.New("attempt takes too long")

// once makes one attempt, in time. It does not use the clock package's own timeouts: their Err blocks under a fake clock.
func (s *Store) once(ctx context.Context, try func(ctx context.Context) (bool, error)) (bool, error) {
	if s.opt.PerTry > 0 {
		tryCtx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := s.opt.Clock.AfterFunc(s.opt.PerTry, func() { cancel(errPerTry) })
		defer timer.Stop()
		ctx = tryCtx
	}
	return try(ctx)
}

// tried turns the error of an attempt that ended for PerTry into ErrUnavailable: the caller has not cancelled anything. Unknown
// outcomes stay unknown.
func (s *Store) tried(tryCtx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(tryCtx), errPerTry) {
		return err
	}
	switch objectstore.OutcomeOf(err) {
	case objectstore.Cancelled, objectstore.TimedOut:
		return fmt.Errorf("%w: no answer within %v (%v)", objectstore.ErrUnavailable, s.opt.PerTry, err)
	}
	return err
}

// wait pauses for between half of d and d.
func (s *Store) wait(ctx context.Context, d time.Duration, last error) error {
	timer := s.opt.Clock.NewTimer(d/2 + time.Duration(s.opt.Rand()*float64(d/2)))
	defer timer.Stop()
	select {
	case <-timer.Chan():
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return &stopError{ctxErr: err, last: last}
	}
	return nil
}

// Close closes the wrapped store.
func (s *Store) Close() error { return s.next.Close() }
