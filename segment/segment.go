package segment

import (
	"errors"
	"fmt"
	"math"
)

// NoTime stands for an absent time. Times are Unix milliseconds.
const NoTime int64 = math.MinInt64

// Kind says how a value was published, and so how it is shown to JSON readers.
type Kind uint8

// Kinds of content. They are part of the format and never renumbered.
const (
	KindNone Kind = 0 // no value: a tombstone
	KindData Kind = 1 // bytes
	KindText Kind = 2 // UTF-8 text
	KindJSON Kind = 3 // one JSON text, exactly as sent
)

// Header is one header of a record. Headers are ordered and names may repeat.
type Header struct {
	Name, Value string
}

// Record is one record. A nil Key is absent and a nil Value is a tombstone; both differ from empty.
type Record struct {
	Offset       int64 // set by readers; encoded only in sparse batches
	AppendTime   int64 // Unix ms; set by readers; encoded only in sparse batches
	ProducerTime int64 // Unix ms or NoTime
	DeliverAt    int64 // Unix ms or NoTime: work queues deliver not before
	Kind         Kind
	KeyBinary    bool // the key was published as base64 and is shown so
	Key          []byte
	Value        []byte
	Headers      []Header
	ID           string // event ID, "" = none
}

// ErrCorrupt is the class of every error about bytes that are not a valid segment. It is never retriable.
var ErrCorrupt = errors.New("corrupt segment")

// CorruptError says where bytes are bad: which object, at which offset, in which structure.
type CorruptError struct {
	Object    string // object name, "" where the caller knows better
	Offset    int64  // byte offset in the object, or in the structure where the object is not known
	Structure string // "header", "footer", "index", "batch", "record", "checksum"
	Reason    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt segment %s: %s at byte %d: %s", e.Object, e.Structure, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// BatchRef says where a batch stands in its object.
type BatchRef struct {
	Pos uint64 // byte offset of the batch header
	Len uint32 // stored bytes, batch header included
}
