package client

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

func samples() []Record {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	return []Record{
		{},
		{Key: []byte{}, Value: []byte{}, Kind: KindData},
		{Key: []byte("k"), Value: []byte(`{"a":1}`), Kind: KindJSON, Headers: []Header{{"a", "1"}, {"a", ""}, {"", "x"}, {"", ""}}},
		{Key: []byte{0, 255}, KeyBinary: true, Value: []byte("text"), Kind: KindText, ID: "event-1", ProducerTime: at, DeliverAt: at.Add(time.Hour)},
		{Value: make([]byte, 300), Kind: KindData, Pinned: true, Partition: 9999},
		{Key: []byte("gone"), ProducerTime: time.UnixMilli(-1).UTC()},
	}
}

func generated(r Record) *forebayv1.Record {
	g := &forebayv1.Record{Key: r.Key, Value: r.Value, Kind: forebayv1.ContentKind(r.Kind), Id: r.ID, KeyBinary: r.KeyBinary}
	for _, h := range r.Headers {
		g.Headers = append(g.Headers, &forebayv1.Header{Name: h.Name, Value: h.Value})
	}
	if !r.ProducerTime.IsZero() {
		g.ProducerTimeMs = proto.Int64(r.ProducerTime.UnixMilli())
	}
	if !r.DeliverAt.IsZero() {
		g.DeliverAtMs = proto.Int64(r.DeliverAt.UnixMilli())
	}
	if r.Pinned {
		g.Partition = proto.Int32(r.Partition)
	}
	return g
}

// TestPublishEncodingAgreesWithGeneratedCode: the messages written by hand are those of records.proto.
func TestPublishEncodingAgreesWithGeneratedCode(t *testing.T) {
	want := &forebayv1.PublishRequest{Producer: &forebayv1.Producer{Id: "p", Epoch: 3, Sequence: 1 << 40}}
	for _, r := range samples() {
		want.Records = append(want.Records, generated(r))
	}
	got := &forebayv1.PublishRequest{}
	if err := proto.Unmarshal(encodePublish(nil, samples(), &ProducerSequence{ID: "p", Epoch: 3, Sequence: 1 << 40}), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for i, r := range samples() {
		if n := len(appendRecord(nil, &r)); n != sizeRecord(&r) {
			t.Errorf("record %d has %d bytes, sized %d", i, n, sizeRecord(&r))
		}
	}
}

func TestPublishTopicsEncodingAgreesWithGeneratedCode(t *testing.T) {
	want := &forebayv1.PublishTopicsRequest{Topics: []*forebayv1.TopicRecords{{Topic: "a"}, {Topic: "b", Records: []*forebayv1.Record{generated(samples()[2])}}}}
	got := &forebayv1.PublishTopicsRequest{}
	raw := encodePublishTopics(nil, []TopicRecords{{Topic: "a"}, {Topic: "b", Records: samples()[2:3]}}, nil)
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeReadAgreesWithGeneratedCode(t *testing.T) {
	answer := &forebayv1.ReadResponse{NextOffset: 107, Head: 1 << 40, LogStart: 3}
	var want []Record
	for i, r := range samples() {
		g := generated(r)
		g.Partition, g.Offset, g.TimeMs = proto.Int32(5), int64(100+i), 1_700_000_000_000
		answer.Records = append(answer.Records, g)
		r.Pinned, r.Partition, r.Offset, r.Time = false, 5, int64(100+i), time.UnixMilli(1_700_000_000_000).UTC()
		want = append(want, r)
	}
	raw, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRead(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&ReadResult{Records: want, NextOffset: 107, Head: 1 << 40, LogStart: 3}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeAnswers(t *testing.T) {
	raw, err := proto.Marshal(&forebayv1.PublishResponse{Records: []*forebayv1.Position{{}, {Partition: 2, Offset: 1 << 40}}, Duplicate: true})
	if err != nil {
		t.Fatal(err)
	}
	one, err := decodePublish(raw, 2)
	if diff := cmp.Diff(&PublishResult{Records: []Position{{}, {2, 1 << 40}}, Duplicate: true}, one); err != nil || diff != "" {
		t.Error(err, diff)
	}
	raw, err = proto.Marshal(&forebayv1.PublishTopicsResponse{Topics: []*forebayv1.TopicPositions{{Topic: "a", Records: []*forebayv1.Position{{Offset: 7}}}}})
	if err != nil {
		t.Fatal(err)
	}
	many, err := decodePublishTopics(raw)
	if diff := cmp.Diff(&PublishTopicsResult{Topics: map[string][]Position{"a": {{0, 7}}}}, many); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// FuzzDecode: no bytes make the decoders panic or hang.
func FuzzDecode(f *testing.F) {
	raw := encodePublish(nil, samples(), &ProducerSequence{ID: "p"})
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRead(b); err == nil && r == nil {
			t.Error("neither a result nor an error")
		}
		_, _ = decodePublish(b, 0)
		_, _ = decodePublishTopics(b)
	})
}
