// Package ingest is the append path: it batches the records of all tenants into level-0 segments, uploads them in parallel, commits
// them in seal order, and answers when the object is durable and the commit is at a quorum. There is no weaker answer.
//
// A request is atomic: all its records are in one segment and one commit. Memory is bounded: a request that does not fit is refused at
// once (OVERLOADED for the node, QUOTA_EXCEEDED for the tenant), never queued.
//
// # The way of a request
//
//	plan    its records are counted and measured by topic-partition       request.go
//	enter   its cost is taken from the budgets, or it is refused          budget.go
//	encode  into one buffer, outside every lock                           request.go, buffer.go
//	buffer  references to it join the open segment                        open.go
//	seal    when decide says so, the open segment becomes a flight        policy.go, ids.go
//	flight  encoding, uploading, uploaded, submitted, committed           flight.go, build.go
//	answer  the caller computes its offsets from its batches' bases       request.go
//
// Requests without producer, event IDs to compare, or a second topic share one batch a topic-partition; others have batches and a
// group of their own, accepted or refused as a whole in apply.
//
// # What is not obvious
//
//   - Order. Uploads end in any order, commits are submitted in seal order. A segment that fails takes with it everything that was accepted
//     after it and is not submitted yet, up to requests that are still being encoded: a producer's later sequence must not be stored
//     while an earlier one is not, or the retry of the earlier one would pass for a duplicate.
//   - Definite and indefinite. An upload with unknown outcome is never committed, so for the client it is a definite failure, and the object
//     is an orphan. Only a submitted commit can be OUTCOME_UNKNOWN.
//   - A caller whose ctx ends takes its request back while the segment is open. Later it leaves, and its share of the budgets stays taken
//     until the segment is finished.
//   - The flush policy waits only when waiting gathers something, and finds out by probing (see decide).
//
// # Concurrency
//
// All methods of Ingester are safe for concurrent use. One goroutine runs the flush policy, and each flight has its own; Close waits for
// all of them.
package ingest
