package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestOutage(t *testing.T) {
	answer := func(status int, code api.Code) error { return &Error{Op: "x", Status: status, Code: code} }
	for _, c := range []struct {
		name         string
		err          error
		atFirst, yet bool // whether to go on, before the server was reached and after
	}{
		{"the lease store is away", answer(503, api.CodeLeasesUnavailable), true, true},
		{"a quota", answer(429, api.CodeQuotaExceeded), true, true},
		{"an unknown outcome", answer(504, api.CodeOutcomeUnknown), true, true},
		{"a fault of the server", answer(500, api.CodeInternal), true, true},
		{"no connection", &Error{Op: "x", Cause: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, true, true},
		{"no token", &Error{Op: "x", Cause: fmt.Errorf("%w: issuer is away", errNoToken)}, true, true},
		{"a timeout", &Error{Op: "x", Cause: context.DeadlineExceeded}, true, true},
		{"a proxy that finds nobody", answer(502, ""), true, true},
		{"a proxy that knows no such path", answer(404, ""), false, true},
		{"no permission", answer(403, api.CodeForbidden), false, false},
		{"no subscription", answer(404, api.CodeUnknownSubscription), false, false},
		{"a gap", answer(409, api.CodeRetentionGap), false, false},
		{"a certificate", &Error{Op: "x", Cause: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}}, false, false},
		{"a request that makes no sense", &Error{Op: "x", Cause: errNotSent}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOutage(forever, time.Second, time.Second)
			if _, again := o.next(c.err); again != c.atFirst {
				t.Errorf("at first: %t", again)
			}
			o.over()
			if _, again := o.next(c.err); again != c.yet {
				t.Errorf("later: %t", again)
			}
		})
	}
}

// TestOutagePauses: they grow, heed what the server asks for, within bounds, and begin anew after an answer.
func TestOutagePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &Error{Op: "x", Status: 503, Code: api.CodeOverloaded}
		o := newOutage(time.Hour, 10*time.Second, 30*time.Second)
		for round := range 2 {
			begin := time.Now()
			for n := 0; ; n++ {
				pause, again := o.next(busy)
				if n == 0 && (pause > 750*time.Millisecond || pause < 250*time.Millisecond) || pause > 15*time.Second || n > 10 && pause < 5*time.Second {
					t.Errorf("pause %d is %s", n, pause)
				}
				if !again {
					break
				}
				pass(t.Context(), pause)
			}
			if took := time.Since(begin); took > time.Hour || took < time.Hour-15*time.Second {
				t.Errorf("round %d took %s", round, took)
			}
			o.over()
		}
		for asked, want := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, time.Hour: 30 * time.Second} {
			o.over()
			if pause, again := o.next(&Error{Op: "x", Status: 503, Code: api.CodeOverloaded, RetryAfter: asked}); pause != want || !again {
				t.Errorf("asked for %s: %s, %t", asked, pause, again)
			}
		}
		o.over()
		expired := &Error{Op: "x", Status: 401, Code: api.CodeUnauthenticated}
		for n := range 4 {
			if _, again := o.next(expired); again != (n < 3) {
				t.Errorf("refused token %d: %t", n, again)
			}
		}
	})
}
