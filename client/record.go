package client

import "time"

// Kind says how a value is shown to readers of the JSON form. The numbers are those of records.proto.
type Kind uint8

// Kinds of content.
const (
	KindData Kind = 1 // bytes, shown as base64; also what the zero Kind means where there is a value
	KindText Kind = 2 // UTF-8 text
	KindJSON Kind = 3 // one JSON text
)

// Header is one header of a record. Headers are ordered and names may repeat.
type Header struct {
	Name, Value string
}

// Record is a record to publish or a record read.
type Record struct {
	Key       []byte // nil = absent, which is not empty
	Value     []byte // nil = tombstone, which is not empty
	Kind      Kind
	KeyBinary bool // readers of the JSON form see keyBase64 instead of key
	Headers   []Header
	// ProducerTime is the producer's own time, kept to the millisecond. Zero = none.
	ProducerTime time.Time
	// DeliverAt: work queues deliver not before, to the millisecond; replay shows the record at once. Zero = none.
	DeliverAt time.Time
	ID        string // event ID, "" = none

	// Partition is set by reads. A publish looks at it only when Pinned, and the server takes it only without a key.
	Partition int32
	Pinned    bool

	Offset int64     // set by reads
	Time   time.Time // set by reads: append time
}

// ProducerSequence makes a publish idempotent: per partition, a sequence at or below one that was accepted is recognised as a repetition.
type ProducerSequence struct {
	ID       string
	Epoch    int64 // an epoch older than the newest is fenced
	Sequence int64 // rises by the caller's choice
}

// Position says where a record is.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}
