package client

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The protobuf messages of api/forebay/v1/records.proto, encoded and decoded in place. Generated code would build a message per record
// on each side; here a request is sized, then written once, and an answer's records point into the answer.

// contentProtobuf is the content type of the binary form.
const contentProtobuf = "application/x-protobuf"

// fieldRecord numbers the fields of message Record.
const (
	fieldKey          protowire.Number = 1
	fieldValue        protowire.Number = 2
	fieldKind         protowire.Number = 3
	fieldHeaders      protowire.Number = 4
	fieldProducerTime protowire.Number = 5
	fieldDeliverAt    protowire.Number = 6
	fieldID           protowire.Number = 7
	fieldPartition    protowire.Number = 8
	fieldKeyBinary    protowire.Number = 9
	fieldOffset       protowire.Number = 10
	fieldTime         protowire.Number = 11
)

// sizeTag1 is the length of a tag with a field number below 16.
const sizeTag1 = 1

func sizeBytesField(n int) int { return sizeTag1 + protowire.SizeBytes(n) }

func sizeHeader(h Header) int {
	n := 0
	if h.Name != "" {
		n += sizeBytesField(len(h.Name))
	}
	if h.Value != "" {
		n += sizeBytesField(len(h.Value))
	}
	return n
}

func sizeRecord(r *Record) int {
	n := 0
	if r.Key != nil {
		n += sizeBytesField(len(r.Key))
	}
	if r.Value != nil {
		n += sizeBytesField(len(r.Value))
	}
	if r.Kind != 0 {
		n += sizeTag1 + 1
	}
	for _, h := range r.Headers {
		n += sizeBytesField(sizeHeader(h))
	}
	if !r.ProducerTime.IsZero() {
		n += sizeTag1 + protowire.SizeVarint(protowire.EncodeZigZag(r.ProducerTime.UnixMilli()))
	}
	if !r.DeliverAt.IsZero() {
		n += sizeTag1 + protowire.SizeVarint(protowire.EncodeZigZag(r.DeliverAt.UnixMilli()))
	}
	if r.ID != "" {
		n += sizeBytesField(len(r.ID))
	}
	if r.Pinned {
		n += sizeTag1 + protowire.SizeVarint(uint64(int64(r.Partition)))
	}
	if r.KeyBinary {
		n += sizeTag1 + 1
	}
	return n
}

func appendBytesField[T ~string | ~[]byte](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendVarintField(b []byte, field protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func appendRecord(b []byte, r *Record) []byte {
	if r.Key != nil {
		b = appendBytesField(b, fieldKey, r.Key)
	}
	if r.Value != nil {
		b = appendBytesField(b, fieldValue, r.Value)
	}
	if r.Kind != 0 {
		b = appendVarintField(b, fieldKind, uint64(r.Kind))
	}
	for _, h := range r.Headers {
		b = protowire.AppendTag(b, fieldHeaders, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeHeader(h)))
		if h.Name != "" {
			b = appendBytesField(b, 1, h.Name)
		}
		if h.Value != "" {
			b = appendBytesField(b, 2, h.Value)
		}
	}
	if !r.ProducerTime.IsZero() {
		b = appendVarintField(b, fieldProducerTime, protowire.EncodeZigZag(r.ProducerTime.UnixMilli()))
	}
	if !r.DeliverAt.IsZero() {
		b = appendVarintField(b, fieldDeliverAt, protowire.EncodeZigZag(r.DeliverAt.UnixMilli()))
	}
	if r.ID != "" {
		b = appendBytesField(b, fieldID, r.ID)
	}
	if r.Pinned {
		b = appendVarintField(b, fieldPartition, uint64(int64(r.Partition)))
	}
	if r.KeyBinary {
		b = appendVarintField(b, fieldKeyBinary, 1)
	}
	return b
}

// appendRecords writes each record as field of the enclosing message.
func appendRecords(b []byte, field protowire.Number, records []Record) []byte {
	for i := range records {
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeRecord(&records[i])))
		b = appendRecord(b, &records[i])
	}
	return b
}

func sizeRecords(records []Record) int {
	n := 0
	for i := range records {
		n += sizeBytesField(sizeRecord(&records[i]))
	}
	return n
}

func appendProducer(b []byte, field protowire.Number, p *ProducerSequence) []byte {
	if p == nil {
		return b
	}
	inner := make([]byte, 0, len(p.ID)+24)
	if p.ID != "" {
		inner = appendBytesField(inner, 1, p.ID)
	}
	if p.Epoch != 0 {
		inner = appendVarintField(inner, 2, uint64(p.Epoch))
	}
	if p.Sequence != 0 {
		inner = appendVarintField(inner, 3, uint64(p.Sequence))
	}
	return appendBytesField(b, field, inner)
}

// encodePublish appends a PublishRequest.
func encodePublish(b []byte, records []Record, p *ProducerSequence) []byte {
	if need := sizeRecords(records) + 300; cap(b)-len(b) < need {
		b = append(make([]byte, 0, len(b)+need), b...)
	}
	return appendProducer(appendRecords(b, 1, records), 2, p)
}

// encodePublishTopics appends a PublishTopicsRequest.
func encodePublishTopics(b []byte, topics []TopicRecords, p *ProducerSequence) []byte {
	for _, t := range topics {
		n := sizeRecords(t.Records)
		if t.Topic != "" {
			n += sizeBytesField(len(t.Topic))
		}
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		if t.Topic != "" {
			b = appendBytesField(b, 1, t.Topic)
		}
		b = appendRecords(b, 2, t.Records)
	}
	return appendProducer(b, 2, p)
}

// fields walks over the fields of one message. It stops at the first that is malformed.
func fields(b []byte, fn func(num protowire.Number, varint uint64, bytes []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("protobuf tag: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var varint uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("protobuf field %d: %w", num, protowire.ParseError(n))
		}
		if err := fn(num, varint, bytes); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func decodePosition(b []byte) (Position, error) {
	var p Position
	err := fields(b, func(num protowire.Number, v uint64, _ []byte) error {
		switch num {
		case 1:
			p.Partition = int32(v)
		case 2:
			p.Offset = int64(v)
		}
		return nil
	})
	return p, err
}

// decodePublish reads a PublishResponse.
func decodePublish(b []byte, hint int) (*PublishResult, error) {
	r := &PublishResult{Records: make([]Position, 0, hint)}
	err := fields(b, func(num protowire.Number, v uint64, inner []byte) error {
		switch num {
		case 1:
			p, err := decodePosition(inner)
			r.Records = append(r.Records, p)
			return err
		case 2:
			r.Duplicate = v != 0
		}
		return nil
	})
	return r, err
}

// decodePublishTopics reads a PublishTopicsResponse.
func decodePublishTopics(b []byte) (*PublishTopicsResult, error) {
	r := &PublishTopicsResult{Topics: map[string][]Position{}}
	err := fields(b, func(num protowire.Number, v uint64, inner []byte) error {
		switch num {
		case 1:
			var topic string
			var positions []Position
			err := fields(inner, func(num protowire.Number, _ uint64, inner []byte) error {
				switch num {
				case 1:
					topic = string(inner)
				case 2:
					p, err := decodePosition(inner)
					positions = append(positions, p)
					return err
				}
				return nil
			})
			r.Topics[topic] = positions
			return err
		case 2:
			r.Duplicate = v != 0
		}
		return nil
	})
	return r, err
}

// decodeRead reads a ReadResponse. Its records point into b.
func decodeRead(b []byte) (*ReadResult, error) {
	r := &ReadResult{}
	n, err := countField(b, 1)
	if err != nil {
		return nil, err
	}
	r.Records = make([]Record, 0, n)
	err = fields(b, func(num protowire.Number, v uint64, inner []byte) error {
		switch num {
		case 1:
			r.Records = append(r.Records, Record{})
			return decodeRecord(inner, &r.Records[len(r.Records)-1])
		case 2:
			r.NextOffset = int64(v)
		case 3:
			r.Head = int64(v)
		case 4:
			r.LogStart = int64(v)
		}
		return nil
	})
	return r, err
}

// countField counts how often a field occurs, so that a slice can be allocated once.
func countField(b []byte, field protowire.Number) (int, error) {
	count := 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, fmt.Errorf("protobuf tag: %w", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return 0, fmt.Errorf("protobuf field %d: %w", num, protowire.ParseError(m))
		}
		if num == field {
			count++
		}
		b = b[n+m:]
	}
	return count, nil
}

// present makes an empty field differ from an absent one.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b[:len(b):len(b)]
}

func decodeRecord(b []byte, r *Record) error {
	return fields(b, func(num protowire.Number, v uint64, inner []byte) error {
		switch num {
		case fieldKey:
			r.Key = present(inner)
		case fieldValue:
			r.Value = present(inner)
		case fieldKind:
			if v > math.MaxUint8 {
				return fmt.Errorf("protobuf content kind %d is out of range", v)
			}
			r.Kind = Kind(v)
		case fieldHeaders:
			var h Header
			err := fields(inner, func(num protowire.Number, _ uint64, text []byte) error {
				switch num {
				case 1:
					h.Name = string(text)
				case 2:
					h.Value = string(text)
				}
				return nil
			})
			r.Headers = append(r.Headers, h)
			return err
		case fieldProducerTime:
			r.ProducerTime = time.UnixMilli(protowire.DecodeZigZag(v)).UTC()
		case fieldDeliverAt:
			r.DeliverAt = time.UnixMilli(protowire.DecodeZigZag(v)).UTC()
		case fieldID:
			r.ID = string(inner)
		case fieldPartition:
			r.Partition = int32(v)
		case fieldKeyBinary:
			r.KeyBinary = v != 0
		case fieldOffset:
			r.Offset = int64(v)
		case fieldTime:
			r.Time = time.UnixMilli(int64(v)).UTC()
		}
		return nil
	})
}
