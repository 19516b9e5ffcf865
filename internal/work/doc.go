// Package work is the engine of `forebay work`: it leases records of a subscription, has each handled, and settles it.
//
// Run keeps a bounded number of handlers busy. A record whose handler succeeds is acked, one whose handler fails is nacked with the reason.
// Leases are extended while their records wait or are handled; where one is lost, its handler is told by the end of its context, and what it
// did does not count. Print leases, prints and acks.
//
// Both end by draining: leasing stops, what runs is finished and settled, what waits is given back. The end of the context ends the
// handlers as well. Delivery is at least once: a record may come again after a lost lease, a failed ack or the death of the process.
package work
