// Package objectstore is the bucket contract that Forebay needs of an object store, with its drivers (file, mem; the S3 drivers
// implement the same contract), and wrappers for retry, metrics and seeded faults.
//
// Objects are immutable: a key is written once, by PutIfAbsent. The exception is PutIfMatch, for stores that have it.
//
// Every failed write is definite (it had no effect: ErrExists, ErrUnavailable, ErrThrottled, ...) or indefinite
// (*OutcomeUnknownError). Retries happen in the retry wrapper only; drivers do not retry.
//
// One conformance suite (package objectstore/storetest) is passed by every driver. All methods are safe for concurrent use.
package objectstore
