// Package client is the public Go client of Forebay's REST API.
//
// A Client is made by New, holds no state but its connections, and is safe for concurrent use. Records and receipts travel as protobuf
// (application/x-protobuf), everything else as JSON.
//
// # Errors
//
// Every failure is an *Error. Classify says what a caller may conclude from it: Retriable (nothing happened, the same request may
// succeed later), Definite (nothing happened, and the same request will fail again) or Indefinite (it may have happened).
//
// # Retries
//
// The client retries by itself, with bounded exponential backoff and a bounded Retry-After, what is Retriable. What is Indefinite it
// sends again only where a repetition has no second effect: reads, settings, and a publish that carries a ProducerSequence, which lets
// the server recognise the repetition. A publish without one whose outcome is unknown is returned to the caller, who alone knows
// whether twice is better than never.
//
// A lease carries a request ID, by which a repetition gets the same leases; acks, nacks and extensions are repeatable by nature, but a
// nack that had its effect answers LEASE_LOST when it is repeated. A redrive, a discard and a seek to the latest record are not repeated
// when their outcome is unknown: the second one would act on what came since.
//
// # Memory
//
// Keys and values of records read share one buffer per answer: keep a copy of what should outlive the rest.
package client
