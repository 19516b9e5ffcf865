// Package work is what `forebay work` adds to client.Worker: Command runs a program for each record (`forebay consume` uses it, too), and Print
// leases, prints and acks.
//
// Print ends by draining, as a Worker does: leasing stops, and what was printed is acked. Delivery is at least once: a record may come again after
// a lost lease, a failed ack or the death of the process.
package work
