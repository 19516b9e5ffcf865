package wire

import (
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Publish is a decoded publish request.
type Publish struct {
	Producer *metadata.Producer // nil: not idempotent
	Topics   []TopicRecords     // at least one, each topic once, in the order of the request
}

// TopicRecords are the records of one topic.
type TopicRecords struct {
	Topic   string
	Records []segment.Record // at least one
	// Partitions has one element a record: the partition that the request names, or -1 where the gateway is to choose.
	Partitions []int32
	pointer    string // to the array of records, for errors
}

// DecodePublish decodes the body of POST /v1/topics/{topic}/records (single is the topic of the path) or of POST /v1/records (single is
// ""). now is the moment from which a record's delay counts.
//
// Keys and values share memory with body wherever their bytes stand in it as they are: body must live, unchanged, as long as the
// records are in use. Strings (headers, IDs, the producer) are copies.
//
// Codes: INVALID_REQUEST with a pointer to the place, TOO_LARGE for what exceeds a limit of the contract.
func DecodePublish(ct ContentType, body []byte, single string, now time.Time) (*Publish, error) {
	if ct == Protobuf {
		return decodePublishProto(body, single, now.UnixMilli())
	}
	return decodePublishJSON(body, single, now.UnixMilli())
}

// Check holds the records of one topic against its configuration: the size of a record (TOO_LARGE), explicit partitions
// (UNKNOWN_PARTITION), and keys where the topic is compacted (INVALID_REQUEST: the same records can never be accepted).
func (t *TopicRecords) Check(cfg *api.TopicConfig) error {
	compacts := cfg.Cleanup.Compacts()
	for i := range t.Records {
		rec := &t.Records[i]
		if p := t.Partitions[i]; int(p) >= cfg.Partitions {
			e := fault(api.CodeUnknownPartition, t.place(i)+"/partition", "the topic has partitions 0 to %d", cfg.Partitions-1)
			return e
		}
		if compacts && rec.Key == nil {
			return invalid(t.place(i)+"/key", "the topic is compacted by key, so every record needs a key")
		}
		if size := RecordBytes(rec); cfg.MaxRecordBytes > 0 && size > cfg.MaxRecordBytes {
			return tooLarge(t.place(i), "record %d has %d bytes of key, value and headers; the topic takes at most %d", i, size, cfg.MaxRecordBytes)
		}
	}
	return nil
}

func (t *TopicRecords) place(i int) string { return t.pointer + "/" + strconv.Itoa(i) }

// RecordBytes is the size of a record as the limits count it: key, value, and names and values of headers.
func RecordBytes(r *segment.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

// limits of one record, checked the same way in both encodings. It returns the member at fault ("" = the record) with the fault, or nil.
func checkRecord(r *segment.Record, partition int32, now int64) (member, detail string, code api.Code) {
	headerBytes := 0
	for i := range r.Headers {
		if r.Headers[i].Name == "" {
			return "headers", "a header needs a name", api.CodeInvalidRequest
		}
		headerBytes += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	switch {
	case len(r.Key) > api.MaxKeyBytes:
		return "key", "the key has more than " + strconv.Itoa(api.MaxKeyBytes) + " bytes", api.CodeTooLarge
	case len(r.Headers) > api.MaxHeaders:
		return "headers", "a record has at most " + strconv.Itoa(api.MaxHeaders) + " headers", api.CodeTooLarge
	case headerBytes > api.MaxHeaderBytes:
		return "headers", "names and values of headers have more than " + strconv.Itoa(api.MaxHeaderBytes) + " bytes", api.CodeTooLarge
	case len(r.ID) > api.MaxIDBytes:
		return "id", "the event ID has more than " + strconv.Itoa(api.MaxIDBytes) + " bytes", api.CodeTooLarge
	case len(r.Key)+len(r.Value)+headerBytes > api.MaxRecordBytes:
		return "", "key, value and headers have more than " + strconv.Itoa(api.MaxRecordBytes) + " bytes", api.CodeTooLarge
	case partition >= 0 && r.Key != nil:
		return "partition", "a record with a key goes to the partition of its key; leave out one of the two", api.CodeInvalidRequest
	case r.DeliverAt != segment.NoTime && r.DeliverAt > now+api.MaxDeliverDelay.Milliseconds():
		return "deliverAt", "delivery can be put off by at most " + FormatDuration(api.MaxDeliverDelay), api.CodeInvalidRequest
	}
	return "", "", ""
}

// recordFault places what checkRecord found.
func recordFault(recordPointer, member, detail string, code api.Code, index int) error {
	if member != "" {
		recordPointer += "/" + member
	}
	e := fault(code, recordPointer, "%s", detail)
	return e.With("record", index)
}

// checkProducer holds a producer against the contract. pointer is that of the producer object.
func checkProducer(pointer string, p *metadata.Producer) error {
	if err := checkProducerID(pointer+"/id", p.ID); err != nil {
		return err
	}
	if p.Epoch < 0 {
		return invalid(pointer+"/epoch", "must be 0 or above")
	}
	if p.Sequence < 0 {
		return invalid(pointer+"/sequence", "must be 0 or above")
	}
	return nil
}

// CheckProducerID says whether id may name a producer: 1 to 200 bytes of printable UTF-8, not starting with "__" (reserved).
func CheckProducerID(field, id string) error { return checkProducerID(field, id) }

func checkProducerID(pointer, id string) error {
	ok := len(id) > 0 && len(id) <= api.MaxProducerIDBytes && utf8.ValidString(id) && !(len(id) >= 2 && id[:2] == "__")
	for _, r := range id {
		ok = ok && unicode.IsPrint(r)
	}
	if !ok {
		return invalid(pointer, "must be 1 to %d bytes of printable text, not starting with \"__\"", api.MaxProducerIDBytes)
	}
	return nil
}

// checkTopicName checks a topic named in a body.
func checkTopicName(pointer, name string) error {
	if !api.ValidName(name) {
		return invalid(pointer, "must match ^[A-Za-z0-9._-]{1,200}$, not be . or .., and not start with __")
	}
	return nil
}
