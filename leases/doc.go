// Package leases is the work queues: subscriptions whose consumers compete for the records of a topic. Each record is leased to one worker at a
// time, acked out of order, retried with backoff, and set aside as a dead letter when it keeps failing.
//
// # Where the state is
//
// What must survive is in the journal (package leases/journal): frontiers, settled ranges above them, and pointers to the records that failed, died
// or are scheduled. What may be lost at any moment is in Redis (package leases/store): leases, and a copy of all that. Whoever finds
// Redis without the state of a subscription opens it from the journal; leases are gone then, their records are delivered again, and
// nothing else has happened. What a subscription is (its topic and configuration) is in the metadata log.
//
// # The engine
//
// Engine implements Queues. A node has one, and nodes share nothing but Redis, the journal and the log: any of them can serve any request.
//
//	lease    waiters of a subscription queue up, first come first served     lease.go, waiter.go
//	         one call to Redis reserves for all that wait                    dispatch.go, fresh.go, admit.go
//	         the records are read, holes and bad ones passed                 deliver.go, run.go
//	settle   concurrent acks share one call                                  settle.go
//	open     the state of a subscription goes from the journal to Redis      open.go
//	flush    what changed goes to the journal within 100 ms                  flush.go
//	sweep    what lapsed or became due is found; waiters are woken           sweep.go, wake.go
//
// # Concurrency
//
// All methods of Engine are safe for concurrent use. A subscription that is used has an active: its waiters, what this node knows of its
// partitions, and one goroutine while somebody waits for a record that might be there.
package leases
