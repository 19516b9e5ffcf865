// Package ingest is the append path: it batches the records of all tenants into level-0 segments, uploads them in parallel, commits
// them in seal order, and answers when the object is durable and the commit is at a quorum. There is no weaker answer.
//
// A request is atomic: all its records are in one segment and one commit. Memory is bounded: a request that does not fit is refused at
// once (OVERLOADED for the node, QUOTA_EXCEEDED for the tenant), never queued.
//
// All methods of Ingester are safe for concurrent use.
package ingest
