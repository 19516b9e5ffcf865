// Package gateway is the REST face of a node: it serves the contract of records, topics, producers and health over HTTP/1.1 and
// HTTP/2, and an ops port for operators.
//
// A request goes through, in this order: the connection limit, the bounded header, the request ID, span and metrics (observe.go),
// authentication (before a byte of the body is read), authorization, the body under a minimum rate and a memory budget (body.go),
// strict decoding (package wire), the handler, and one write of one pooled buffer (respond.go). Every failure becomes one
// application/problem+json document (problem.go).
//
// Main types: Server, made by New from Options; the interfaces that it consumes are in consume.go.
//
// Topics are looked up in the node's own view first. Where that view says that something does not exist, the node catches up once with
// the log and looks again, so what one node created every node shows at once, and the usual request pays nothing for it.
//
// Concurrency: Start and Stop are idempotent and may be called from any goroutine. Every goroutine that a Server starts has ended when
// Stop returns.
package gateway
