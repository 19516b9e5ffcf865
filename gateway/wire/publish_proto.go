package wire

import (
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// Field numbers of api/forebay/v1/records.proto.
const (
	recordKey          = 1
	recordValue        = 2
	recordKind         = 3
	recordHeaders      = 4
	recordProducerTime = 5
	recordDeliverAt    = 6
	recordID           = 7
	recordPartition    = 8
	recordKeyBinary    = 9
	recordOffset       = 10
	recordTime         = 11

	headerName  = 1
	headerValue = 2

	producerID       = 1
	producerEpoch    = 2
	producerSequence = 3

	requestRecords  = 1 // of PublishRequest; the topics of PublishTopicsRequest have the same number
	requestProducer = 2

	topicName    = 1 // of TopicRecords and TopicPositions
	topicRecords = 2
)

// recordsProto decodes the records of one request.
type recordsProto struct {
	now     int64 // Unix ms
	total   int   // records so far, over all topics
	headers headerNames
}

func decodePublishProto(body []byte, single string, now int64) (*Publish, error) {
	d := &recordsProto{now: now}
	p := &Publish{}
	if single != "" {
		p.Topics = []TopicRecords{{Topic: single, pointer: "/records"}}
		n, err := countField(body, requestRecords, "")
		if err != nil {
			return nil, err
		}
		if err := d.room(&p.Topics[0], n); err != nil {
			return nil, err
		}
	}
	err := eachField(body, "", func(num protowire.Number, f field) error {
		switch {
		case num == requestRecords && f.typ == protowire.BytesType && single != "":
			return d.record(&p.Topics[0], f.bytes)
		case num == requestRecords && f.typ == protowire.BytesType:
			return d.topic(p, f.bytes)
		case num == requestProducer && f.typ == protowire.BytesType:
			if p.Producer == nil {
				p.Producer = &metadata.Producer{}
			}
			return decodeProducer(p.Producer, f.bytes) // a repeated message field merges
		}
		return unknownField("", num)
	})
	if err != nil {
		return nil, err
	}
	if p.Producer != nil {
		if err := checkProducer("/producer", p.Producer); err != nil {
			return nil, err
		}
	}
	if len(p.Topics) == 0 {
		return nil, invalid("/topics", "must have at least one topic")
	}
	for i := range p.Topics {
		if len(p.Topics[i].Records) == 0 {
			return nil, invalid(p.Topics[i].pointer, "must have at least one record")
		}
	}
	return p, nil
}

// room allocates for n records of t, once, after a pass that has counted them.
func (d *recordsProto) room(t *TopicRecords, n int) error {
	if d.total += n; d.total > api.MaxRecordsPerRequest {
		return tooLarge(t.pointer, "a request has at most %d records", api.MaxRecordsPerRequest)
	}
	t.Records = make([]segment.Record, 0, n)
	t.Partitions = make([]int32, 0, n)
	return nil
}

func (d *recordsProto) topic(p *Publish, b []byte) error {
	i := len(p.Topics)
	place := "/topics/" + strconv.Itoa(i)
	if i == api.MaxTopicsPerRequest {
		return tooLarge(place, "a request names at most %d topics", api.MaxTopicsPerRequest)
	}
	t := TopicRecords{pointer: place + "/records"}
	n, err := countField(b, topicRecords, place)
	if err != nil {
		return err
	}
	if err := d.room(&t, n); err != nil {
		return err
	}
	err = eachField(b, place, func(num protowire.Number, f field) error {
		switch {
		case num == topicName && f.typ == protowire.BytesType:
			if t.Topic = string(f.bytes); !utf8.ValidString(t.Topic) {
				return invalid(place+"/topic", "must be valid UTF-8")
			}
			return nil
		case num == topicRecords && f.typ == protowire.BytesType:
			return d.record(&t, f.bytes)
		}
		return unknownField(place, num)
	})
	if err != nil {
		return err
	}
	if err := checkTopicName(place+"/topic", t.Topic); err != nil {
		return err
	}
	for j := range p.Topics {
		if p.Topics[j].Topic == t.Topic {
			return invalid(place+"/topic", "the topic is there twice")
		}
	}
	p.Topics = append(p.Topics, t)
	return nil
}

// record decodes one record and appends it to t.
func (d *recordsProto) record(t *TopicRecords, b []byte) error {
	i := len(t.Records)
	t.Records = append(t.Records, segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime})
	rec, partition, kind := &t.Records[i], int32(-1), uint64(0)
	for len(b) > 0 {
		num, f, n := consumeField(b)
		if n < 0 {
			return malformed(t.place(i))
		}
		b = b[n:]
		var member, detail string
		switch {
		case num == recordKey && f.typ == protowire.BytesType:
			rec.Key = f.bytes
		case num == recordValue && f.typ == protowire.BytesType:
			rec.Value = f.bytes
		case num == recordKind && f.typ == protowire.VarintType:
			kind = f.number
		case num == recordHeaders && f.typ == protowire.BytesType:
			if len(rec.Headers) == api.MaxHeaders {
				return tooLarge(t.place(i)+"/headers", "a record has at most %d headers", api.MaxHeaders)
			}
			if !d.header(rec, f.bytes) {
				member, detail = "headers", "a header is a name and a value, both valid UTF-8"
			}
		case num == recordProducerTime && f.typ == protowire.VarintType:
			if rec.ProducerTime = protowire.DecodeZigZag(f.number); rec.ProducerTime < minTime || rec.ProducerTime > maxTime {
				member, detail = "producer_time_ms", "must lie within the years 1 to 9999"
			}
		case num == recordDeliverAt && f.typ == protowire.VarintType:
			if rec.DeliverAt = protowire.DecodeZigZag(f.number); rec.DeliverAt < minTime || rec.DeliverAt > maxTime {
				member, detail = "deliver_at_ms", "must lie within the years 1 to 9999"
			}
		case num == recordID && f.typ == protowire.BytesType:
			if rec.ID = string(f.bytes); !utf8.ValidString(rec.ID) {
				member, detail = "id", "must be valid UTF-8"
			}
		case num == recordPartition && f.typ == protowire.VarintType:
			if f.number >= api.MaxPartitions {
				member, detail = "partition", "must be between 0 and "+strconv.Itoa(api.MaxPartitions-1)
			}
			partition = int32(min(f.number, math.MaxInt32))
		case num == recordKeyBinary && f.typ == protowire.VarintType:
			rec.KeyBinary = f.number != 0
		case num == recordOffset, num == recordTime:
			member, detail = "", "offset and time_ms are for records read; leave them out"
		default:
			return unknownField(t.place(i), num)
		}
		if detail != "" {
			return recordFault(t.place(i), member, detail, api.CodeInvalidRequest, i)
		}
	}
	if member, detail := setKind(rec, kind); detail != "" {
		return recordFault(t.place(i), member, detail, api.CodeInvalidRequest, i)
	}
	// A key that no JSON string can hold is shown as base64, whatever the producer said.
	rec.KeyBinary = rec.Key != nil && (rec.KeyBinary || !utf8.Valid(rec.Key))
	if member, detail, code := checkRecord(rec, partition, d.now); code != "" {
		if member == "deliverAt" {
			member = "deliver_at_ms"
		}
		return recordFault(t.place(i), member, detail, code, i)
	}
	t.Partitions = append(t.Partitions, partition)
	return nil
}

// setKind sets the kind of content that the producer named, if the value is of it.
func setKind(rec *segment.Record, kind uint64) (member, detail string) {
	switch {
	case kind > uint64(segment.KindJSON):
		return "kind", "must be one of the kinds of content"
	case rec.Value == nil && kind != 0:
		return "kind", "a kind needs a value; a tombstone has neither"
	case rec.Value == nil:
		rec.Kind = segment.KindNone
	case kind == 0:
		rec.Kind = segment.KindData
	default:
		rec.Kind = segment.Kind(kind)
	}
	switch {
	case rec.Kind == segment.KindText && !utf8.Valid(rec.Value):
		return "value", "text must be valid UTF-8"
	case rec.Kind == segment.KindJSON && !jsontext.Value(rec.Value).IsValid():
		return "value", "must be one valid JSON text in UTF-8, without duplicate names"
	}
	return "", ""
}

func (d *recordsProto) header(rec *segment.Record, b []byte) bool {
	var name, value []byte
	for len(b) > 0 {
		num, f, n := consumeField(b)
		// Each occurrence is checked, one that a later one replaces too, as every other decoder does.
		if n < 0 || f.typ != protowire.BytesType || num != headerName && num != headerValue || !utf8.Valid(f.bytes) {
			return false
		}
		b = b[n:]
		if num == headerName {
			name = f.bytes
		} else {
			value = f.bytes
		}
	}
	if rec.Headers == nil {
		rec.Headers = make([]segment.Header, 0, d.headers.expect())
	}
	rec.Headers = append(rec.Headers, segment.Header{Name: d.headers.name(len(rec.Headers), name), Value: string(value)})
	return true
}

func decodeProducer(p *metadata.Producer, b []byte) error {
	return eachField(b, "/producer", func(num protowire.Number, f field) error {
		switch {
		case num == producerID && f.typ == protowire.BytesType:
			if p.ID = string(f.bytes); !utf8.ValidString(p.ID) {
				return invalid("/producer/id", "must be valid UTF-8")
			}
		case num == producerEpoch && f.typ == protowire.VarintType:
			p.Epoch = int64(f.number)
		case num == producerSequence && f.typ == protowire.VarintType:
			p.Sequence = int64(f.number)
		default:
			return unknownField("/producer", num)
		}
		return nil
	})
}

// field is the value of one field: bytes of a length-delimited one (shared with the body, never nil), or number of a varint.
type field struct {
	typ    protowire.Type
	bytes  []byte
	number uint64
}

// consumeField reads one field, or returns n < 0. Fields of other wire types than the two that the contract has come back with their type
// alone: their number is then unknown, or their type is wrong.
func consumeField(b []byte) (num protowire.Number, f field, n int) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, field{}, -1
	}
	m := 0
	f.typ = typ
	switch typ {
	case protowire.BytesType:
		f.bytes, m = protowire.ConsumeBytes(b[n:])
		if m >= 0 && f.bytes == nil {
			f.bytes = []byte{}
		}
	case protowire.VarintType:
		f.number, m = protowire.ConsumeVarint(b[n:])
	default:
		m = protowire.ConsumeFieldValue(num, typ, b[n:])
	}
	if m < 0 {
		return 0, field{}, -1
	}
	return num, f, n + m
}

func eachField(b []byte, place string, visit func(protowire.Number, field) error) error {
	for len(b) > 0 {
		num, f, n := consumeField(b)
		if n < 0 {
			return malformed(place)
		}
		b = b[n:]
		if err := visit(num, f); err != nil {
			return err
		}
	}
	return nil
}

// countField counts the fields of number want.
func countField(b []byte, want protowire.Number, place string) (int, error) {
	count := 0
	for len(b) > 0 {
		num, _, n := consumeField(b)
		if n < 0 {
			return 0, malformed(place)
		}
		if num == want {
			count++
		}
		b = b[n:]
	}
	return count, nil
}

func malformed(place string) error {
	return invalid(place, "the bytes are not a protobuf message of this type")
}

func unknownField(place string, num protowire.Number) error {
	return invalid(place, "field %d is unknown here or has another type", num)
}
