package main

import (
	"unicode/utf8"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/gateway/wire"
	"github.com/forebaymq/forebay/segment"
)

// appendTopicRecord appends a record as the REST API shows it, with its topic before the rest.
func appendTopicRecord(dst []byte, topic string, r *client.Record) []byte {
	rec := segment.Record{
		Offset: r.Offset, AppendTime: r.Time.UnixMilli(), ProducerTime: segment.NoTime, DeliverAt: segment.NoTime,
		Key: r.Key, Value: r.Value, Kind: segment.Kind(r.Kind), KeyBinary: r.KeyBinary || !utf8.Valid(r.Key), ID: r.ID,
	}
	if r.Value == nil {
		rec.Kind = segment.KindNone
	} else if r.Kind == 0 {
		rec.Kind = segment.KindData
	}
	if !r.ProducerTime.IsZero() {
		rec.ProducerTime = r.ProducerTime.UnixMilli()
	}
	if !r.DeliverAt.IsZero() {
		rec.DeliverAt = r.DeliverAt.UnixMilli()
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, segment.Header(h))
	}
	dst = append(dst, `{"topic":"`...)
	dst = append(dst, topic...) // a name needs no escapes
	dst = append(dst, `",`...)
	return append(wire.AppendRecordMembers(dst, &rec, r.Partition), '}')
}
