package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestClassify(t *testing.T) {
	answer := func(status int, code api.Code) error { return &Error{Op: "x", Status: status, Code: code} }
	transport := func(err error) error { return &Error{Op: "x", Cause: err} }
	cases := []struct {
		name string
		err  error
		want Outcome
	}{
		{"nil", nil, Succeeded},
		{"quota", answer(429, api.CodeQuotaExceeded), Retriable},
		{"overloaded", answer(503, api.CodeOverloaded), Retriable},
		{"no quorum", answer(503, api.CodeMetadataUnavailable), Retriable},
		{"storage", answer(503, api.CodeStorageUnavailable), Retriable},
		{"sent too slowly", answer(408, api.CodeRequestTimeout), Retriable},
		{"unknown outcome", answer(504, api.CodeOutcomeUnknown), Indefinite},
		{"internal", answer(500, api.CodeInternal), Indefinite},
		{"invalid", answer(400, api.CodeInvalidRequest), Definite},
		{"fenced", answer(409, api.CodeProducerFenced), Definite},
		{"unknown topic", answer(404, api.CodeUnknownTopic), Definite},
		{"a proxy's 503", answer(503, ""), Indefinite},
		{"a proxy's 502", answer(502, ""), Indefinite},
		{"a proxy's 429", answer(429, ""), Retriable},
		{"a proxy's 403", answer(403, ""), Definite},
		{"a redirect", answer(307, ""), Definite},
		{"a code of the future with 409", answer(409, "NEW_CODE"), Definite},
		{"an unreadable success", answer(200, ""), Indefinite},
		{"wrapped", fmt.Errorf("publish: %w", answer(503, api.CodeOverloaded)), Retriable},
		{"refused connection", transport(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), Retriable},
		{"unknown host", transport(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}), Retriable},
		{"broken while reading", transport(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), Indefinite},
		{"broken while writing", transport(&net.OpError{Op: "write", Err: syscall.EPIPE}), Indefinite},
		{"end of file", transport(io.ErrUnexpectedEOF), Indefinite},
		{"caller's deadline", transport(context.DeadlineExceeded), Indefinite},
		{"cancelled", transport(context.Canceled), Indefinite},
		{"certificate", transport(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), Definite},
		{"not TLS", transport(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), Definite},
		{"not built", transport(errors.Join(errNotSent, errors.New("bad method"))), Definite},
		{"no token", transport(fmt.Errorf("%w: %w", errNoToken, errors.New("the issuer is away"))), Retriable},
		{"something else", errors.New("boom"), Indefinite},
		{"refused after a lost answer", &Error{Op: "x", Status: 403, Code: api.CodeForbidden, Unsure: true}, Indefinite},
		{"overloaded after a lost answer", &Error{Op: "x", Status: 503, Code: api.CodeOverloaded, Unsure: true}, Indefinite},
		{"given up by a producer", &DeliveryError{Outcome: Retriable, Cause: answer(403, api.CodeForbidden)}, Retriable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, reason := Classify(c.err)
			if got != c.want {
				t.Errorf("got %s (%s), want %s", got, reason, c.want)
			}
			if reason == "" {
				t.Error("no reason")
			}
		})
	}
}

// TestClassifyFollowsTheTable: what the contract calls retriable is, and nothing else with a code is.
func TestClassifyFollowsTheTable(t *testing.T) {
	for code, info := range api.Codes {
		outcome, _ := Classify(&Error{Op: "x", Status: info.Status, Code: code})
		if (outcome == Retriable) != info.Retriable {
			t.Errorf("%s is %s, the table says retriable=%v", code, outcome, info.Retriable)
		}
		if (&Error{Op: "x", Status: info.Status, Code: code}).Retriable() != info.Retriable {
			t.Errorf("%s: Retriable() disagrees with the table", code)
		}
	}
}
