// Package wire turns requests of the REST contract into Go values and Go values into answers. It knows bytes and rules, not routes:
// nothing here waits, locks, logs or reads a clock.
//
// # Concepts
//
//   - A publish body, JSON or protobuf, becomes a Publish: records whose keys and values share memory with the body wherever they can.
//     The exact text of a JSON `value` is what is stored; numbers are never parsed, so nothing is rounded.
//   - Decoding is strict. Duplicate and unknown members, invalid UTF-8 (lone surrogates included), trailing bytes, integers that are not
//     written as integers: each is an INVALID_REQUEST whose FieldError points at the place. Sizes beyond api/limits.go are TOO_LARGE.
//   - Answers are appended to a buffer of the caller, by hand on the hot paths (records), so that a page of records costs no allocation
//     per record.
//
// # When to use what
//
// BodyReader reads and decompresses a body. DecodePublish decodes the two publish bodies; Publish.Check holds them against the
// configuration of their topics. DecodeTopicConfig decodes PUT /v1/topics/{topic}; DecodeStrict any other JSON body. ParseInt,
// ParseDuration and ParseTime read query parameters. AppendProblem renders every error.
//
// # Concurrency
//
// Functions are pure. A BodyReader may be used by many goroutines at once.
package wire
