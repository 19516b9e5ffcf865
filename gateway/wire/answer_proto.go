package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forebaymq/forebay/segment"
)

// Field numbers of the answers in api/forebay/v1/records.proto.
const (
	positionPartition = 1
	positionOffset    = 2

	publishRecords   = 1 // of PublishResponse; the topics of PublishTopicsResponse have the same number
	publishDuplicate = 2

	readRecords    = 1
	readNextOffset = 2
	readHead       = 3
	readLogStart   = 4
)

// All fields here have numbers below 16, and so tags of one byte.
const tagSize = 1

func appendPublishProto(dst []byte, partitions []int32, offsets []int64, duplicate bool) []byte {
	dst = appendPositionsProto(dst, publishRecords, partitions, offsets)
	return appendBoolProto(dst, publishDuplicate, duplicate)
}

func appendPublishTopicsProto(dst []byte, topics []TopicPositions, duplicate bool) []byte {
	for i := range topics {
		t := &topics[i]
		size := tagSize + protowire.SizeBytes(len(t.Topic))
		for j, offset := range t.Offsets {
			size += tagSize + protowire.SizeBytes(positionSize(t.Partitions[j], offset))
		}
		dst = protowire.AppendTag(dst, publishRecords, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = protowire.AppendTag(dst, topicName, protowire.BytesType)
		dst = protowire.AppendString(dst, t.Topic)
		dst = appendPositionsProto(dst, topicRecords, t.Partitions, t.Offsets)
	}
	return appendBoolProto(dst, publishDuplicate, duplicate)
}

func appendPositionsProto(dst []byte, num protowire.Number, partitions []int32, offsets []int64) []byte {
	for i, offset := range offsets {
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(positionSize(partitions[i], offset)))
		dst = appendInt64Proto(dst, positionPartition, int64(partitions[i]))
		dst = appendInt64Proto(dst, positionOffset, offset)
	}
	return dst
}

func positionSize(partition int32, offset int64) int {
	return sizeInt64Proto(int64(partition)) + sizeInt64Proto(offset)
}

func appendReadProto(dst []byte, recs []segment.Record, p Page) []byte {
	for i := range recs {
		dst = protowire.AppendTag(dst, readRecords, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(recordSizeProto(&recs[i], p.Partition)))
		dst = appendRecordProto(dst, &recs[i], p.Partition)
	}
	dst = appendInt64Proto(dst, readNextOffset, p.NextOffset)
	dst = appendInt64Proto(dst, readHead, p.Head)
	return appendInt64Proto(dst, readLogStart, p.LogStart)
}

// AppendRecordProto appends one record read as a Record message, without a length before it.
func AppendRecordProto(dst []byte, rec *segment.Record, partition int32) []byte {
	return appendRecordProto(dst, rec, partition)
}

func recordSizeProto(rec *segment.Record, partition int32) int {
	size := tagSize + protowire.SizeVarint(uint64(partition)) + sizeInt64Proto(rec.Offset) + sizeInt64Proto(rec.AppendTime)
	if rec.Key != nil {
		size += tagSize + protowire.SizeBytes(len(rec.Key))
		if rec.KeyBinary {
			size += tagSize + 1
		}
	}
	if rec.Kind != segment.KindNone {
		size += tagSize + protowire.SizeBytes(len(rec.Value)) + tagSize + 1
	}
	for i := range rec.Headers {
		size += tagSize + protowire.SizeBytes(headerSizeProto(&rec.Headers[i]))
	}
	if rec.ProducerTime != segment.NoTime {
		size += tagSize + protowire.SizeVarint(protowire.EncodeZigZag(rec.ProducerTime))
	}
	if rec.DeliverAt != segment.NoTime {
		size += tagSize + protowire.SizeVarint(protowire.EncodeZigZag(rec.DeliverAt))
	}
	if rec.ID != "" {
		size += tagSize + protowire.SizeBytes(len(rec.ID))
	}
	return size
}

func headerSizeProto(h *segment.Header) int {
	size := tagSize + protowire.SizeBytes(len(h.Name))
	if h.Value != "" {
		size += tagSize + protowire.SizeBytes(len(h.Value))
	}
	return size
}

func appendRecordProto(dst []byte, rec *segment.Record, partition int32) []byte {
	if rec.Key != nil {
		dst = protowire.AppendTag(dst, recordKey, protowire.BytesType)
		dst = protowire.AppendBytes(dst, rec.Key)
	}
	if rec.Kind != segment.KindNone {
		dst = protowire.AppendTag(dst, recordValue, protowire.BytesType)
		dst = protowire.AppendBytes(dst, rec.Value)
		dst = protowire.AppendTag(dst, recordKind, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(rec.Kind))
	}
	for i := range rec.Headers {
		h := &rec.Headers[i]
		dst = protowire.AppendTag(dst, recordHeaders, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(headerSizeProto(h)))
		dst = protowire.AppendTag(dst, headerName, protowire.BytesType)
		dst = protowire.AppendString(dst, h.Name)
		if h.Value != "" {
			dst = protowire.AppendTag(dst, headerValue, protowire.BytesType)
			dst = protowire.AppendString(dst, h.Value)
		}
	}
	if rec.ProducerTime != segment.NoTime {
		dst = protowire.AppendTag(dst, recordProducerTime, protowire.VarintType)
		dst = protowire.AppendVarint(dst, protowire.EncodeZigZag(rec.ProducerTime))
	}
	if rec.DeliverAt != segment.NoTime {
		dst = protowire.AppendTag(dst, recordDeliverAt, protowire.VarintType)
		dst = protowire.AppendVarint(dst, protowire.EncodeZigZag(rec.DeliverAt))
	}
	if rec.ID != "" {
		dst = protowire.AppendTag(dst, recordID, protowire.BytesType)
		dst = protowire.AppendString(dst, rec.ID)
	}
	dst = protowire.AppendTag(dst, recordPartition, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(partition))
	if rec.Key != nil && rec.KeyBinary {
		dst = protowire.AppendTag(dst, recordKeyBinary, protowire.VarintType)
		dst = protowire.AppendVarint(dst, 1)
	}
	dst = appendInt64Proto(dst, recordOffset, rec.Offset)
	return appendInt64Proto(dst, recordTime, rec.AppendTime)
}

// appendInt64Proto appends an int64 or int32 field without presence: zero is left out.
func appendInt64Proto(dst []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(v))
}

func sizeInt64Proto(v int64) int {
	if v == 0 {
		return 0
	}
	return tagSize + protowire.SizeVarint(uint64(v))
}

func appendBoolProto(dst []byte, num protowire.Number, v bool) []byte {
	if !v {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.VarintType)
	return protowire.AppendVarint(dst, 1)
}
