// Package bench measures a server from the outside, over its REST API: the engine of `forebay bench`.
//
// Publish sends prebuilt requests, either as fast as the answers come (closed loop) or at a fixed rate (open loop). In an open loop the
// latency of a request counts from the moment at which it was to be sent: a server that stalls delays the requests behind it, and that
// delay is in the figures (no coordinated omission). Read replays a topic, all partitions in parallel. Poll measures how long a record
// takes from the start of its publish to the answer of a long poll that waits for it.
//
// Queue works off a backlog through a subscription of its own, and keeps a bit a record for delivery and one for settlement: a record that
// was settled twice, a frontier that has passed a record which nobody acknowledged, and counts that differ from the server's are faults,
// and the run fails. Pickup is Poll for leases.
//
// Sizes are bytes of keys and values; MB is 10^6 bytes, GiB 2^30. Latencies are milliseconds.
package bench
