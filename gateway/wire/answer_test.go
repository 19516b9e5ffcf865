package wire

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/segment"
)

func TestAppendReadJSON(t *testing.T) {
	recs := []segment.Record{
		{Offset: 0, AppendTime: 0, ProducerTime: segment.NoTime, DeliverAt: segment.NoTime},
		{Offset: 9223372036854775807, AppendTime: 1772600767008, ProducerTime: -1, DeliverAt: maxTime, Kind: segment.KindJSON,
			Key: []byte("a\"\\\n\x01é😀"), Value: []byte(` {"n": 12345678901234567890} `), ID: "i\t",
			Headers: []segment.Header{{Name: "b", Value: "\""}, {Name: "b"}}},
		{Offset: 2, AppendTime: 1772600767008, ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText,
			Key: []byte{}, Value: []byte{}},
		{Offset: 3, AppendTime: 1772600767009, ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData,
			Key: []byte{0xff}, KeyBinary: true, Value: []byte{0, 0xff}},
	}
	got := string(AppendRead([]byte("x"), JSON, recs, Page{Partition: 7, NextOffset: 4, Head: 5, LogStart: 0}))
	want := `x{"records":[` +
		`{"partition":7,"offset":0,"time":"1970-01-01T00:00:00.000Z"},` +
		`{"partition":7,"offset":9223372036854775807,"time":"2026-03-04T05:06:07.008Z","producerTime":"1969-12-31T23:59:59.999Z",` +
		`"deliverAt":"9999-12-31T23:59:59.999Z","key":"a\"\\\n\u0001é😀","value": {"n": 12345678901234567890} ,` +
		`"headers":[["b","\""],["b",""]],"id":"i\t"},` +
		`{"partition":7,"offset":2,"time":"2026-03-04T05:06:07.008Z","key":"","text":""},` +
		`{"partition":7,"offset":3,"time":"2026-03-04T05:06:07.009Z","keyBase64":"/w==","data":"AP8="}` +
		`],"nextOffset":4,"head":5,"logStart":0}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if empty := string(AppendRead(nil, JSON, nil, Page{})); empty != `{"records":[],"nextOffset":0,"head":0,"logStart":0}` {
		t.Error(empty)
	}
	if one := string(AppendRecordJSON(nil, &recs[2], 1)); one != `{"partition":1,"offset":2,"time":"2026-03-04T05:06:07.008Z","key":"","text":""}` {
		t.Error(one)
	}
	if one := string(AppendRecordMembers(nil, &recs[0], 1)); one != `"partition":1,"offset":0,"time":"1970-01-01T00:00:00.000Z"` {
		t.Error(one)
	}
}

// readForms are records of every shape, as they come out of segments.
func readForms() []segment.Record {
	var recs []segment.Record
	for _, key := range [][]byte{nil, {}, []byte("key"), {0xff, 0}} {
		for _, value := range []struct {
			kind segment.Kind
			v    []byte
		}{{segment.KindNone, nil}, {segment.KindData, []byte{}}, {segment.KindData, []byte{0, 0xff}}, {segment.KindText, []byte{}},
			{segment.KindText, []byte("é")}, {segment.KindJSON, []byte("null")}, {segment.KindJSON, []byte(`{"a": [1]}`)}} {
			for _, tm := range []int64{segment.NoTime, 0, -62135596800000, 1772600767008} {
				for _, headers := range [][]segment.Header{nil, {{Name: "a"}, {Name: "a", Value: strings.Repeat("v", 200)}}} {
					recs = append(recs, segment.Record{
						Offset: int64(len(recs)) << (len(recs) % 40), AppendTime: tm & (1<<40 - 1), ProducerTime: tm, DeliverAt: tm,
						Kind: value.kind, Value: value.v, Key: key, KeyBinary: len(key) == 2, Headers: headers,
						ID: strings.Repeat("i", len(recs)%3),
					})
				}
			}
		}
	}
	return recs
}

func TestAppendReadProtoAgreesWithTheGeneratedType(t *testing.T) {
	recs := readForms()
	page := Page{Partition: 300, NextOffset: 1 << 40, Head: 1<<40 + 1, LogStart: 5}
	var got forebayv1.ReadResponse
	if err := proto.Unmarshal(AppendRead(nil, Protobuf, recs, page), &got); err != nil {
		t.Fatal(err)
	}
	want := &forebayv1.ReadResponse{NextOffset: page.NextOffset, Head: page.Head, LogStart: page.LogStart}
	for i := range recs {
		r := &recs[i]
		m := &forebayv1.Record{Key: r.Key, KeyBinary: r.KeyBinary, Id: r.ID, Partition: proto.Int32(300), Offset: r.Offset, TimeMs: r.AppendTime}
		if r.Kind != segment.KindNone {
			m.Value, m.Kind = r.Value, forebayv1.ContentKind(r.Kind)
		}
		if r.ProducerTime != segment.NoTime {
			m.ProducerTimeMs = proto.Int64(r.ProducerTime)
		}
		if r.DeliverAt != segment.NoTime {
			m.DeliverAtMs = proto.Int64(r.DeliverAt)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, &forebayv1.Header{Name: h.Name, Value: h.Value})
		}
		want.Records = append(want.Records, m)
		if one := AppendRecordProto(nil, r, 300); len(one) != recordSizeProto(r, 300) {
			t.Errorf("record %d: %d bytes, size says %d", i, len(one), recordSizeProto(r, 300))
		}
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestAppendReadJSONIsValidJSON(t *testing.T) {
	var got struct {
		Records []map[string]stdjson.RawMessage
	}
	recs := readForms()
	if err := stdjson.Unmarshal(AppendRead(nil, JSON, recs, Page{}), &got); err != nil || len(got.Records) != len(recs) {
		t.Errorf("%v, %d records", err, len(got.Records))
	}
}

func TestAppendPublish(t *testing.T) {
	parts, offsets := []int32{0, 300}, []int64{0, 1 << 60}
	if got := string(AppendPublish(nil, JSON, parts, offsets, true)); got !=
		`{"records":[{"partition":0,"offset":0},{"partition":300,"offset":1152921504606846976}],"duplicate":true}` {
		t.Error(got)
	}
	topics := []TopicPositions{{Topic: "b", Partitions: parts, Offsets: offsets}, {Topic: "a", Partitions: parts[1:], Offsets: offsets[:1]}}
	if got := string(AppendPublishTopics(nil, JSON, topics, false)); got !=
		`{"topics":{"b":{"records":[{"partition":0,"offset":0},{"partition":300,"offset":1152921504606846976}]},`+
			`"a":{"records":[{"partition":300,"offset":0}]}},"duplicate":false}` {
		t.Error(got)
	}
	positions := []*forebayv1.Position{{}, {Partition: 300, Offset: 1 << 60}}
	var one forebayv1.PublishResponse
	if err := proto.Unmarshal(AppendPublish(nil, Protobuf, parts, offsets, true), &one); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&forebayv1.PublishResponse{Records: positions, Duplicate: true}, &one, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	var several forebayv1.PublishTopicsResponse
	if err := proto.Unmarshal(AppendPublishTopics(nil, Protobuf, topics, false), &several); err != nil {
		t.Fatal(err)
	}
	want := &forebayv1.PublishTopicsResponse{Topics: []*forebayv1.TopicPositions{
		{Topic: "b", Records: positions}, {Topic: "a", Records: []*forebayv1.Position{{Partition: 300}}}}}
	if diff := cmp.Diff(want, &several, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// republish turns an answer in one encoding into the body of a publish in the same encoding, as a client that copies records would.
func republish(t *testing.T, ct ContentType, answer []byte) []byte {
	t.Helper()
	if ct == Protobuf {
		var page forebayv1.ReadResponse
		if err := proto.Unmarshal(answer, &page); err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			r.Offset, r.TimeMs, r.Partition = 0, 0, nil
		}
		return marshal(t, &forebayv1.PublishRequest{Records: page.Records})
	}
	var page struct {
		Records []map[string]stdjson.RawMessage `json:"records"`
	}
	if err := stdjson.Unmarshal(answer, &page); err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		if tm, ok := r["producerTime"]; ok {
			r["time"] = tm
		} else {
			delete(r, "time")
		}
		for _, name := range []string{"producerTime", "partition", "offset"} {
			delete(r, name)
		}
	}
	// Put together by hand: stdjson.Marshal would compact the raw values.
	var b bytes.Buffer
	b.WriteString(`{"records":[`)
	for i, r := range page.Records {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		comma := ""
		for name, v := range r {
			fmt.Fprintf(&b, "%s%q:%s", comma, name, v)
			comma = ","
		}
		b.WriteByte('}')
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// L6: absent, empty and null keys and values are all different and stay so, within each encoding and from one to the other; H1: every byte
// value survives.
func TestRoundTrips(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	var text []rune
	for r := rune(0); r < 0x250; r++ {
		text = append(text, r)
	}
	texts := []byte(string(text) + "\u2028\u2029\ufffd\uffff😀")
	recs := readForms()
	for i := range 256 {
		recs = append(recs, segment.Record{Kind: segment.KindData, Value: []byte{byte(i)}, Key: []byte{byte(i)}, KeyBinary: true})
	}
	recs = append(recs,
		segment.Record{Kind: segment.KindData, Value: all, Key: all, KeyBinary: true},
		segment.Record{Kind: segment.KindText, Value: texts, Key: texts, Headers: []segment.Header{{Name: string(texts), Value: string(texts)}}},
		segment.Record{Kind: segment.KindJSON, Value: []byte("{ \"n\":12345678901234567890,\t\"m\":1e400 }")},
	)
	for i := range recs {
		r := &recs[i]
		r.Offset, r.AppendTime = 0, 0 // given by the log
		if i > 200 {
			r.ProducerTime, r.DeliverAt = segment.NoTime, segment.NoTime
		}
	}
	for _, path := range [][]ContentType{{JSON}, {Protobuf}, {JSON, Protobuf}, {Protobuf, JSON}} {
		got := recs
		for _, ct := range path {
			body := republish(t, ct, AppendRead(nil, ct, got, Page{}))
			p, err := DecodePublish(ct, body, "t", now)
			if err != nil {
				t.Fatalf("%v: %v", path, err)
			}
			got = p.Topics[0].Records
		}
		if diff := cmp.Diff(recs, got); diff != "" {
			t.Errorf("%v: %s", path, diff)
		}
	}
}

func TestAppendEvent(t *testing.T) {
	got := string(AppendEvent(nil, "0:5", "", []byte("{\"a\":\n1,\r\n\"b\":\r2}")))
	if want := "id: 0:5\ndata: {\"a\":\ndata: 1,\ndata: \"b\":\ndata: 2}\n\n"; got != want {
		t.Errorf("%q", got)
	}
	if got := string(AppendEvent(nil, "", "end", []byte("{}"))); got != "event: end\ndata: {}\n\n" {
		t.Errorf("%q", got)
	}
	// What a receiver joins is the same JSON.
	lines := bufio.NewScanner(strings.NewReader(got))
	var data []string
	for lines.Scan() {
		if s, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data = append(data, s)
		}
	}
	if !stdjson.Valid([]byte(strings.Join(data, "\n"))) {
		t.Errorf("%q", data)
	}
}
