// Package segment is the byte format of Forebay's immutable segment objects: bytes only, no network, no clock, no log.
//
// A segment is a header, batches (each of one topic-partition, contiguous), an index of the batches, and a fixed footer, so that one
// GET of the tail opens an object. docs/segment-format.md is normative and a test compares its tables with the constants here.
//
// Level 0 segments are written by one flush of one ingest node. Their batches are dense: offsets and append time are not in the
// object, because only apply decides them; a reader supplies both. Level 1 and higher are written by the compactor; their batches
// are sparse: every record carries its offset and append time.
//
// The encoding of one record does not depend on its neighbours, so that a batch is the concatenation of encodings made elsewhere.
//
// Decoders never panic and never allocate from an unchecked length. Bad bytes are a *CorruptError, which is ErrCorrupt.
package segment
