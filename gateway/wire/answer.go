package wire

import (
	"encoding/base64"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forebaymq/forebay/segment"
)

// TopicPositions answers the records of one topic, in the order of the request.
type TopicPositions struct {
	Topic      string
	Partitions []int32
	Offsets    []int64 // one a partition
}

// AppendPublish appends the answer to POST /v1/topics/{topic}/records in the encoding ct.
func AppendPublish(dst []byte, ct ContentType, partitions []int32, offsets []int64, duplicate bool) []byte {
	if ct == Protobuf {
		return appendPublishProto(dst, partitions, offsets, duplicate)
	}
	dst = append(dst, '{')
	dst = appendPositions(dst, partitions, offsets)
	return appendDuplicate(dst, duplicate)
}

// AppendPublishTopics appends the answer to POST /v1/records in the encoding ct: {"topics":{"a":{"records":[...]}},"duplicate":false}.
func AppendPublishTopics(dst []byte, ct ContentType, topics []TopicPositions, duplicate bool) []byte {
	if ct == Protobuf {
		return appendPublishTopicsProto(dst, topics, duplicate)
	}
	dst = append(dst, `{"topics":{`...)
	for i := range topics {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, topics[i].Topic)
		dst = append(dst, ":{"...)
		dst = appendPositions(dst, topics[i].Partitions, topics[i].Offsets)
		dst = append(dst, '}')
	}
	dst = append(dst, '}')
	return appendDuplicate(dst, duplicate)
}

func appendPositions(dst []byte, partitions []int32, offsets []int64) []byte {
	dst = append(dst, `"records":[`...)
	for i, offset := range offsets {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"partition":`...)
		dst = strconv.AppendInt(dst, int64(partitions[i]), 10)
		dst = append(dst, `,"offset":`...)
		dst = strconv.AppendInt(dst, offset, 10)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendDuplicate(dst []byte, duplicate bool) []byte {
	dst = append(dst, `,"duplicate":`...)
	return append(strconv.AppendBool(dst, duplicate), '}')
}

// Page is what a read of one partition answers beside its records.
type Page struct {
	Partition  int32
	NextOffset int64
	Head       int64
	LogStart   int64
}

// AppendRead appends the answer to a read in the encoding ct. Nothing is allocated but what dst needs to grow.
func AppendRead(dst []byte, ct ContentType, recs []segment.Record, p Page) []byte {
	if ct == Protobuf {
		return appendReadProto(dst, recs, p)
	}
	var t lastTime
	dst = append(dst, `{"records":[`...)
	for i := range recs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		dst = appendRecord(dst, &recs[i], p.Partition, &t)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"nextOffset":`...)
	dst = strconv.AppendInt(dst, p.NextOffset, 10)
	dst = append(dst, `,"head":`...)
	dst = strconv.AppendInt(dst, p.Head, 10)
	dst = append(dst, `,"logStart":`...)
	dst = strconv.AppendInt(dst, p.LogStart, 10)
	return append(dst, '}')
}

// AppendRecordJSON appends one record read as a JSON object.
func AppendRecordJSON(dst []byte, rec *segment.Record, partition int32) []byte {
	var t lastTime
	dst = append(dst, '{')
	dst = appendRecord(dst, rec, partition, &t)
	return append(dst, '}')
}

// AppendRecordMembers appends the members of one record read, without the braces, for answers that add members of their own.
func AppendRecordMembers(dst []byte, rec *segment.Record, partition int32) []byte {
	var t lastTime
	return appendRecord(dst, rec, partition, &t)
}

// lastTime keeps the text of the last time: the records of a batch share their append time.
type lastTime struct {
	ms   int64
	text [timeLength]byte
	set  bool
}

func (t *lastTime) append(dst []byte, ms int64) []byte {
	if !t.set || t.ms != ms {
		t.text, t.ms, t.set = timeText(ms), ms, true
	}
	return append(dst, t.text[:]...)
}

func appendRecord(dst []byte, rec *segment.Record, partition int32, t *lastTime) []byte {
	dst = append(dst, `"partition":`...)
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, rec.Offset, 10)
	dst = append(dst, `,"time":"`...)
	dst = t.append(dst, rec.AppendTime)
	dst = append(dst, '"')
	if rec.ProducerTime != segment.NoTime {
		dst = append(dst, `,"producerTime":"`...)
		dst = append(AppendTime(dst, rec.ProducerTime), '"')
	}
	if rec.DeliverAt != segment.NoTime {
		dst = append(dst, `,"deliverAt":"`...)
		dst = append(AppendTime(dst, rec.DeliverAt), '"')
	}
	switch {
	case rec.Key == nil:
	case rec.KeyBinary:
		dst = append(dst, `,"keyBase64":`...)
		dst = appendBase64(dst, rec.Key)
	default:
		dst = append(dst, `,"key":`...)
		dst = appendString(dst, rec.Key)
	}
	switch rec.Kind {
	case segment.KindNone:
	case segment.KindJSON:
		dst = append(dst, `,"value":`...)
		dst = append(dst, rec.Value...)
	case segment.KindText:
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, rec.Value)
	default:
		dst = append(dst, `,"data":`...)
		dst = appendBase64(dst, rec.Value)
	}
	if len(rec.Headers) > 0 {
		dst = append(dst, `,"headers":[`...)
		for i := range rec.Headers {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '[')
			dst = appendString(dst, rec.Headers[i].Name)
			dst = append(dst, ',')
			dst = appendString(dst, rec.Headers[i].Value)
			dst = append(dst, ']')
		}
		dst = append(dst, ']')
	}
	if rec.ID != "" {
		dst = append(dst, `,"id":`...)
		dst = appendString(dst, rec.ID)
	}
	return dst
}

// appendString appends a JSON string. Bytes that are not UTF-8, which decoding has kept out, would show as U+FFFD.
func appendString[T ~[]byte | ~string](dst []byte, s T) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

func appendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// AppendEvent appends one server-sent event: id (what Last-Event-ID will carry), event ("" = the default type) and data. White space
// in data may hold line ends; each line becomes a data line of its own, which the receiver joins again with "\n".
func AppendEvent(dst []byte, id, event string, data []byte) []byte {
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	if event != "" {
		dst = append(append(append(dst, "event: "...), event...), '\n')
	}
	dst = append(dst, "data: "...)
	for i, c := range data {
		switch {
		case c == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case c == '\r', c == '\n':
			dst = append(dst, "\ndata: "...)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, "\n\n"...)
}
