package ingest

import (
	"context"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Request is one atomic publish.
type Request struct {
	Tenant   string
	Producer *metadata.Producer // nil: not idempotent; with metadata.NoSequence only fenced
	Topics   []TopicRecords     // at least one, each topic once
}

// TopicRecords are the records of one topic, in order, each with the partition that the gateway chose. Ingest encodes the records before
// Append returns or waits; the caller may not change them until then, and ingest keeps no reference after it.
type TopicRecords struct {
	Topic      *metadata.Topic
	Records    []segment.Record
	Partitions []int32 // one a record
}

// Result answers a Request.
type Result struct {
	Topics    []TopicResult // in the order of the request
	Duplicate bool          // every record was there before (exact retry)
}

// TopicResult holds one position a record, in the order of the request.
type TopicResult struct {
	Offsets []int64
}

// Committer is what ingest needs of the metadata log.
type Committer interface {
	// SubmitCommit queues a commit behind those submitted before and returns at once. Commits take effect in submission order.
	SubmitCommit(c *metadata.Commit) *metadata.Pending
	// Available returns nil, or METADATA_UNAVAILABLE while the log is known to be without a quorum: nothing should be accepted then.
	Available() error
}

// BlockSink takes the bytes of own flushes into the read cache. May be nil.
type BlockSink interface {
	// Put gives the whole object that was just uploaded. It is not changed afterwards.
	Put(object string, body []byte)
}

// Appender is what the gateway consumes.
type Appender interface {
	// Append stores the request and returns its offsets, or an *api.Error. OUTCOME_UNKNOWN when ctx ended while the outcome was
	// not known; every other error means that nothing was stored.
	Append(ctx context.Context, r *Request) (*Result, error)
}
