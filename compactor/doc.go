// Package compactor keeps what ingest has written cheap to read and to keep.
//
// It merges the small mixed objects of level 0 to runs: all batches of a partition that are in one object, one after the other, with one
// index entry in the metadata. The objects are grouped by retention class, so that the bucket's own rules can delete them, and merged level
// by level until old data is read with few large GETs. It compacts topics by key, moves logStart within a run, copies data to a longer class
// before a rule could delete it, and collects what nothing refers to any more.
//
// Main types:
//
//   - Compactor: Start, Close; runs inside every node, or alone.
//   - Policy: when what is merged. The planners (plan.go, class.go) are pure functions of the metadata and of a Policy.
//   - Job, Group: what one worker does under one claim.
//   - Options.Lifecycle: a bucket with rules. Optional; without, everything is deleted by the collector.
//
// A shard is claimed for a short time by whichever node finds work in it, and every write carries the claim's epoch: a node that was paused
// beyond its claim changes nothing. A job writes an object first and then replaces the batches in the metadata; what fails in between is
// garbage. Objects are deleted by one collector in the fabric, and only when no log entry can ever refer to them again.
//
// Concurrency: Start and Close may be called from any goroutine; everything else is internal.
package compactor
