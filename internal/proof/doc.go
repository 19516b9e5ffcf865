// Package proof checks the promises of the design against running nodes, by REST calls only: histories of concurrent appends and reads
// are checked for linearizability while nodes and etcd members die, and a process is killed at every point between buffer and
// acknowledgement. The same checkers must flag builds whose fences are removed (internal/failpoint), or they prove nothing.
//
// The checkers use nothing of the code under test: their own HTTP client, their own model of a partition.
package proof
