package client

import (
	"errors"
	"fmt"

	"github.com/forebaymq/forebay/api"
)

// Reasons for which a Producer gives up on a record, for errors.Is. What became of the record is the Outcome of the *DeliveryError
// around them, or what Classify says.
var (
	// ErrFenced: a newer session of the producer's ID exists. The Producer has ended; a new one would fence the other in turn.
	ErrFenced = &Error{Code: api.CodeProducerFenced}
	// ErrDeliveryDeadline: the time given by WithProducerDeadline has passed.
	ErrDeliveryDeadline = errors.New("the delivery deadline has passed")
	// ErrProducerClosed: Close was called, or its context ended before everything was delivered.
	ErrProducerClosed = errors.New("the producer is closed")
	// ErrProducerStopped: a record before this one failed, and the producer was told to stop then.
	ErrProducerStopped = errors.New("the producer has stopped at a record that failed")
)

// DeliveryError says that a Producer could not deliver a record, and what became of it.
type DeliveryError struct {
	Topic string
	// Outcome is Definite or Retriable where the record is not stored and never will be by this Send, and Indefinite where that is not
	// known. An Indefinite record may still be stored, but only before every record of its partition that was sent later, and once.
	Outcome  Outcome
	Attempts int   // how often it was sent
	Reason   error // why the Producer gave up, such as ErrDeliveryDeadline; nil where Cause says it all
	Cause    error // of the last attempt, mostly an *Error; nil where there was none
}

func (e *DeliveryError) Error() string {
	what := "not stored"
	if e.Outcome == Indefinite {
		what = "stored or not, it is not known which"
	}
	s := fmt.Sprintf("deliver to %s: %s", e.Topic, what)
	switch {
	case errors.Is(e.Reason, ErrFenced):
		s += ": a newer session of the producer exists"
	case e.Reason != nil:
		s += ": " + e.Reason.Error()
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	if e.Attempts > 1 {
		s += fmt.Sprintf(" (after %d attempts)", e.Attempts)
	}
	return s
}

// Unwrap gives the reason and the cause.
func (e *DeliveryError) Unwrap() []error {
	var errs []error
	if e.Reason != nil {
		errs = append(errs, e.Reason)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// tooLarge is what a record is refused with before anything is sent.
func tooLarge(topic, what string, size, limit int, name string) error {
	return &Error{Op: "send to " + topic, Code: api.CodeTooLarge, Cause: errNotSent,
		Detail: fmt.Sprintf("%s has %d bytes, the limit is %d (api.%s)", what, size, limit, name)}
}

// checkRecordLimits refuses what no server takes, before it can spoil the request of others.
func checkRecordLimits(topic string, r *Record) error {
	headers := 0
	for i := range r.Headers {
		headers += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	size := len(r.Key) + len(r.Value) + headers
	switch {
	case size > api.MaxRecordBytes:
		return tooLarge(topic, "the record (key, value and headers)", size, api.MaxRecordBytes, "MaxRecordBytes")
	case len(r.Key) > api.MaxKeyBytes:
		return tooLarge(topic, "the key", len(r.Key), api.MaxKeyBytes, "MaxKeyBytes")
	case headers > api.MaxHeaderBytes:
		return tooLarge(topic, "the record's headers", headers, api.MaxHeaderBytes, "MaxHeaderBytes")
	case len(r.ID) > api.MaxIDBytes:
		return tooLarge(topic, "the event ID", len(r.ID), api.MaxIDBytes, "MaxIDBytes")
	case len(r.Headers) > api.MaxHeaders:
		return &Error{Op: "send to " + topic, Code: api.CodeTooLarge, Cause: errNotSent,
			Detail: fmt.Sprintf("the record has %d headers, the limit is %d (api.MaxHeaders)", len(r.Headers), api.MaxHeaders)}
	case r.Pinned && r.Key != nil:
		return &Error{Op: "send to " + topic, Code: api.CodeInvalidRequest, Cause: errNotSent,
			Detail: "a record with a key goes to the partition of its key; leave out one of the two"}
	}
	return nil
}
