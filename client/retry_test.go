package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
)

var (
	errBusy    = &Error{Op: "x", Status: 503, Code: api.CodeOverloaded}
	errUnknown = &Error{Op: "x", Status: 504, Code: api.CodeOutcomeUnknown}
	errBad     = &Error{Op: "x", Status: 400, Code: api.CodeInvalidRequest}
)

func failing(calls *int, err *Error, times int) func(context.Context) error {
	return func(context.Context) error {
		if *calls++; *calls <= times {
			e := *err
			return &e
		}
		return nil
	}
}

func TestRetry(t *testing.T) {
	policy := RetryPolicy{Attempts: 4}.withDefaults()
	cases := []struct {
		name  string
		err   *Error
		times int
		twice repeatable
		calls int
		fails bool
	}{
		{"success at once", errBusy, 0, onceAtMost, 1, false},
		{"retriable, without a sequence", errBusy, 2, onceAtMost, 3, false},
		{"retriable, for ever", errBusy, 100, onceAtMost, 4, true},
		{"unknown outcome, without a sequence: not resent by itself", errUnknown, 100, onceAtMost, 1, true},
		{"unknown outcome, with a sequence", errUnknown, 2, safeTwice, 3, false},
		{"definite", errBad, 100, safeTwice, 1, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := retry(t.Context(), policy, c.twice, failing(&calls, c.err, c.times))
				if calls != c.calls || (err != nil) != c.fails {
					t.Errorf("%d calls, %v", calls, err)
				}
				var e *Error
				if errors.As(err, &e) && e.Attempts != c.calls {
					t.Errorf("the error says %d attempts", e.Attempts)
				}
			})
		})
	}
}

// TestRetryAfterIsBounded is case K1: huge, negative and nonsensical values wait neither for ever nor not at all.
func TestRetryAfterIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := []struct {
		header   string
		min, max time.Duration // of the pause
	}{
		{"", 100 * time.Millisecond, 300 * time.Millisecond},
		{"1", time.Second, time.Second},
		{"7", 7 * time.Second, 7 * time.Second},
		{"0", 100 * time.Millisecond, 300 * time.Millisecond},
		{"-5", 100 * time.Millisecond, 300 * time.Millisecond},
		{"-99999999999999999999", 100 * time.Millisecond, 300 * time.Millisecond},
		{"soon", 100 * time.Millisecond, 300 * time.Millisecond},
		{"1e9", 100 * time.Millisecond, 300 * time.Millisecond},
		{"86400", 30 * time.Second, 30 * time.Second},
		{"9223372036854775807", 30 * time.Second, 30 * time.Second},
		{"99999999999999999999999999", 30 * time.Second, 30 * time.Second},
		{now.Add(3 * time.Second).Format(http.TimeFormat), 3 * time.Second, 3 * time.Second},
		{now.Add(-time.Hour).Format(http.TimeFormat), 100 * time.Millisecond, 300 * time.Millisecond},
		{now.Add(1000 * time.Hour).Format(http.TimeFormat), 30 * time.Second, 30 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.header, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := *errBusy
				e.RetryAfter = parseRetryAfter(c.header, now)
				var pauses []time.Duration
				policy := RetryPolicy{Attempts: 2, Notify: func(_ *Error, pause time.Duration) { pauses = append(pauses, pause) }}.withDefaults()
				calls := 0
				if err := retry(t.Context(), policy, onceAtMost, failing(&calls, &e, 1)); err != nil {
					t.Fatal(err)
				}
				if len(pauses) != 1 || pauses[0] < c.min || pauses[0] > c.max {
					t.Errorf("paused %v, want %s to %s", pauses, c.min, c.max)
				}
			})
		})
	}
}

func TestRetryEndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, calls := time.Now(), 0
		policy := RetryPolicy{Attempts: 1 << 20, MaxElapsed: 30 * time.Second}.withDefaults()
		if err := retry(t.Context(), policy, safeTwice, failing(&calls, errBusy, 1<<30)); !errors.Is(err, errBusy) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 30*time.Second || calls < 4 {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}

// TestRetryKeepsTheLastError: a caller that stops waiting still learns what was the matter.
func TestRetryKeepsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		err := retry(ctx, RetryPolicy{Attempts: 1 << 20}.withDefaults(), safeTwice, failing(&calls, errUnknown, 1<<30))
		if outcome, _ := Classify(err); outcome != Indefinite || !errors.Is(err, errUnknown) {
			t.Errorf("got %v", err)
		}
	})
}
