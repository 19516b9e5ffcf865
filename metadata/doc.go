// Package metadata owns every durable metadata key: the commit log, the state machine that the log drives, its snapshots, and claims.
//
// The log is a totally ordered sequence of small entries in a Driver (etcd, or memory). An entry is a key created once; its order is
// the store's revision. A node applies the entries in that order to a pure, deterministic State and so computes offsets itself. A
// commit entry makes the batches of one segment part of their partitions, all or none: the linearization point of a publish.
//
// Main types:
//
//   - Command: one change of the state (Commit, CreateTopic, ... GCBoundary). An Entry is the commands of one shard in one transaction.
//   - State: the pure state machine of one shard. No clock, no randomness, no I/O, no map order.
//   - Driver: what the log needs of its store. Implemented by metadata/etcd and by MemDriver; one conformance suite (metadata/metatest).
//   - Log: a node's view: it applies, answers reads, submits commands, syncs, takes snapshots, holds claims.
//
// docs/metadata-keys.md is the normative table of keys and encodings, and a test compares it with the code.
//
// Concurrency: all methods of Log are safe for concurrent use. What a read method returns is a copy or immutable.
package metadata
