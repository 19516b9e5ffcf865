package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"github.com/forebaymq/forebay/api"
)

// Outcome says what a caller may conclude from an error.
type Outcome uint8

// The outcomes.
const (
	Succeeded  Outcome = iota // no error
	Retriable                 // nothing took effect; the same request may succeed later
	Definite                  // nothing took effect; the same request will fail again
	Indefinite                // it may have taken effect, now or later
)

func (o Outcome) String() string {
	return [...]string{"succeeded", "retriable", "definite", "indefinite"}[o]
}

// Classify is the one place that judges errors. It gives the outcome and the reason for it.
func Classify(err error) (Outcome, string) {
	if err == nil {
		return Succeeded, "no error"
	}
	var d *DeliveryError
	if errors.As(err, &d) {
		return d.Outcome, "the producer has followed all attempts, of which the last is the cause"
	}
	var e *Error
	if errors.As(err, &e) && e.Unsure {
		return Indefinite, "the last attempt had no effect, but an earlier one may have had"
	}
	if errors.As(err, &e) && e.Status != 0 {
		return classifyAnswer(e)
	}
	return classifyTransport(err)
}

func classifyAnswer(e *Error) (Outcome, string) {
	if info, known := api.Codes[e.Code]; known {
		switch {
		case info.Retriable:
			return Retriable, "the contract says that " + string(e.Code) + " had no effect"
		case e.Code == api.CodeOutcomeUnknown:
			return Indefinite, "the server does not know the outcome itself"
		case e.Code == api.CodeInternal:
			return Indefinite, "the server failed at a place nobody foresaw, perhaps after the effect"
		}
		return Definite, "the server refused the request for a reason that stays"
	}
	switch {
	case e.Status >= 200 && e.Status < 300:
		return Indefinite, "the request succeeded, but its answer is unreadable"
	case e.Status == http.StatusTooManyRequests:
		return Retriable, "429 means refused before any effect, whoever says it"
	case e.Status >= 500:
		// A proxy answers 502, 503 and 504 in its own words also when the server behind it went away in the middle.
		return Indefinite, "somebody on the way failed, perhaps after the request was passed on"
	}
	return Definite, "the request was refused by somebody who is not Forebay, or by a newer Forebay"
}

func classifyTransport(err error) (Outcome, string) {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var dial *net.OpError
	switch {
	case errors.Is(err, errNoToken):
		return Retriable, "there was no token, so nothing was sent; its source may have one later"
	case errors.Is(err, errNotSent):
		return Definite, "the request could not be built"
	case errors.As(err, &certificate):
		return Definite, "the server's certificate is not trusted, and will not be next time"
	case errors.As(err, &record):
		return Definite, "the address does not speak TLS"
	case errors.As(err, &dial) && dial.Op == "dial":
		return Retriable, "no connection was made, so nothing was sent"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Indefinite, "the caller stopped waiting, the request may be on its way"
	}
	return Indefinite, "the connection broke when the request may have been sent"
}
