package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/segment"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func request(recs ...*forebayv1.Record) *forebayv1.PublishRequest {
	return &forebayv1.PublishRequest{Records: recs}
}

func TestPublishProto(t *testing.T) {
	ms := now.UnixMilli()
	body := marshal(t, &forebayv1.PublishRequest{
		Producer: &forebayv1.Producer{Id: "p", Epoch: 2, Sequence: math.MaxInt64},
		Records: []*forebayv1.Record{
			{},
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte("k"), KeyBinary: true, Value: []byte("é"), Kind: forebayv1.ContentKind_CONTENT_KIND_TEXT, Id: "i"},
			{Key: []byte{0xff}, Value: []byte(" [1e400, \n1] "), Kind: forebayv1.ContentKind_CONTENT_KIND_JSON},
			{Partition: proto.Int32(0), Value: []byte{0xff}, Kind: forebayv1.ContentKind_CONTENT_KIND_DATA, KeyBinary: true,
				ProducerTimeMs: proto.Int64(-1), DeliverAtMs: proto.Int64(ms + 5),
				Headers: []*forebayv1.Header{{Name: "b", Value: "1"}, {Name: "a"}, {Name: "b", Value: "2"}}},
		},
	})
	p, err := DecodePublish(Protobuf, body, "t", now)
	if err != nil {
		t.Fatal(err)
	}
	want := TopicRecords{Topic: "t", Partitions: []int32{-1, -1, -1, -1, 0}, Records: []segment.Record{
		plain(func(r *segment.Record) {}),
		plain(func(r *segment.Record) { r.Key, r.Value, r.Kind = []byte{}, []byte{}, segment.KindData }),
		plain(func(r *segment.Record) {
			r.Key, r.KeyBinary, r.Value, r.Kind, r.ID = []byte("k"), true, []byte("é"), segment.KindText, "i"
		}),
		plain(func(r *segment.Record) {
			r.Key, r.KeyBinary, r.Value, r.Kind = []byte{0xff}, true, []byte(" [1e400, \n1] "), segment.KindJSON
		}),
		plain(func(r *segment.Record) {
			r.Value, r.Kind, r.ProducerTime, r.DeliverAt = []byte{0xff}, segment.KindData, -1, ms+5
			r.Headers = []segment.Header{{Name: "b", Value: "1"}, {Name: "a"}, {Name: "b", Value: "2"}}
		}),
	}}
	if diff := cmp.Diff([]TopicRecords{want}, p.Topics, cmpopts.IgnoreUnexported(TopicRecords{})); diff != "" {
		t.Error(diff)
	}
	if p.Producer == nil || p.Producer.ID != "p" || p.Producer.Epoch != 2 || p.Producer.Sequence != math.MaxInt64 {
		t.Errorf("producer %+v", p.Producer)
	}
}

func TestPublishTopicsProto(t *testing.T) {
	body := marshal(t, &forebayv1.PublishTopicsRequest{Topics: []*forebayv1.TopicRecords{
		{Topic: "b", Records: request(&forebayv1.Record{Value: []byte("1")}, &forebayv1.Record{}).Records},
		{Topic: "a", Records: request(&forebayv1.Record{Key: []byte("k")}).Records},
	}})
	p, err := DecodePublish(Protobuf, body, "", now)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Topics) != 2 || p.Topics[0].Topic != "b" || len(p.Topics[0].Records) != 2 || p.Topics[1].Topic != "a" ||
		string(p.Topics[1].Records[0].Key) != "k" || p.Producer != nil {
		t.Errorf("%+v", p)
	}
}

func TestPublishProtoRefused(t *testing.T) {
	const inv, big = api.CodeInvalidRequest, api.CodeTooLarge
	ms := now.UnixMilli()
	ok := &forebayv1.Record{}
	many := func(n int) (recs []*forebayv1.Record) {
		for range n {
			recs = append(recs, ok)
		}
		return recs
	}
	raw := func(b ...byte) []byte { return protowire.AppendBytes([]byte{0x0a}, b) } // one record of these bytes
	one := func(r *forebayv1.Record) []byte { return marshal(t, request(ok, r)) }
	topics := func(ts ...*forebayv1.TopicRecords) []byte {
		return marshal(t, &forebayv1.PublishTopicsRequest{Topics: ts})
	}
	badString := func(num protowire.Number) []byte {
		return raw(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), "\xff")...)
	}
	header := func(h string) []byte { return raw(protowire.AppendString([]byte{0x22}, h)...) }
	const kindText, kindJSON = forebayv1.ContentKind_CONTENT_KIND_TEXT, forebayv1.ContentKind_CONTENT_KIND_JSON
	for name, c := range map[string]struct {
		body    []byte
		single  string
		code    api.Code
		pointer string
	}{
		"empty":            {nil, "t", inv, "/records"},
		"empty topics":     {nil, "", inv, "/topics"},
		"topic no records": {topics(&forebayv1.TopicRecords{Topic: "a"}), "", inv, "/topics/0/records"},
		"topic name":       {topics(&forebayv1.TopicRecords{Topic: "a/b", Records: many(1)}), "", inv, "/topics/0/topic"},
		"topic no name":    {topics(&forebayv1.TopicRecords{Records: many(1)}), "", inv, "/topics/0/topic"},
		"topic twice": {topics(&forebayv1.TopicRecords{Topic: "a", Records: many(1)}, &forebayv1.TopicRecords{Topic: "a", Records: many(1)}),
			"", inv, "/topics/1/topic"},
		"record in topic":      {topics(&forebayv1.TopicRecords{Topic: "a", Records: []*forebayv1.Record{ok, {Id: strings.Repeat("i", 257)}}}), "", big, "/topics/0/records/1/id"},
		"garbage":              {[]byte("\xff\xff\xff"), "t", inv, ""},
		"truncated":            {one(&forebayv1.Record{Value: []byte("abc")})[:6], "t", inv, ""},
		"group":                {[]byte{0x0b, 0x0c}, "t", inv, ""},
		"unknown field":        {[]byte{0x1a, 0}, "t", inv, ""},
		"wrong wire type":      {[]byte{0x08, 0}, "t", inv, ""},
		"record unknown field": {raw(0x62, 0), "t", inv, "/records/0"},
		"record wrong type":    {raw(0x08, 1), "t", inv, "/records/0"},
		"record truncated":     {raw(0x0a, 5, 'a'), "t", inv, "/records/0"},
		"huge length":          {append([]byte{0x0a}, protowire.AppendVarint(nil, math.MaxUint64)...), "t", inv, ""},
		"field zero":           {[]byte{0x02, 0}, "t", inv, ""},
		"offset":               {one(&forebayv1.Record{Offset: 1}), "t", inv, "/records/1"},
		"append time":          {one(&forebayv1.Record{TimeMs: 1}), "t", inv, "/records/1"},
		"kind without value":   {one(&forebayv1.Record{Kind: kindText}), "t", inv, "/records/1/kind"},
		"kind data, no value":  {one(&forebayv1.Record{Kind: 1}), "t", inv, "/records/1/kind"},
		"unknown kind":         {one(&forebayv1.Record{Value: []byte{}, Kind: 4}), "t", inv, "/records/1/kind"},
		"negative kind":        {one(&forebayv1.Record{Value: []byte{}, Kind: -1}), "t", inv, "/records/1/kind"},
		"text not UTF-8":       {one(&forebayv1.Record{Value: []byte("\xff"), Kind: kindText}), "t", inv, "/records/1/value"},
		"text surrogate":       {one(&forebayv1.Record{Value: []byte("\xed\xa0\x80"), Kind: kindText}), "t", inv, "/records/1/value"},
		"JSON empty":           {one(&forebayv1.Record{Value: []byte(""), Kind: kindJSON}), "t", inv, "/records/1/value"},
		"JSON two texts":       {one(&forebayv1.Record{Value: []byte("1 2"), Kind: kindJSON}), "t", inv, "/records/1/value"},
		"JSON not UTF-8":       {one(&forebayv1.Record{Value: []byte("\"\xff\""), Kind: kindJSON}), "t", inv, "/records/1/value"},
		"JSON lone surrogate":  {one(&forebayv1.Record{Value: []byte(`"\ud800"`), Kind: kindJSON}), "t", inv, "/records/1/value"},
		"JSON duplicate":       {one(&forebayv1.Record{Value: []byte(`{"a":1,"a":1}`), Kind: kindJSON}), "t", inv, "/records/1/value"},
		"id not UTF-8":         {badString(7), "t", inv, "/records/0/id"},
		"header not UTF-8":     {header("\x0a\x01\xff"), "t", inv, "/records/0/headers"},
		"value not UTF-8":      {header("\x0a\x01a\x12\x01\xff"), "t", inv, "/records/0/headers"},
		"header no name":       {one(&forebayv1.Record{Headers: []*forebayv1.Header{{Value: "v"}}}), "t", inv, "/records/1/headers"},
		"partition and key":    {one(&forebayv1.Record{Key: []byte{}, Partition: proto.Int32(1)}), "t", inv, "/records/1/partition"},
		"partition negative":   {one(&forebayv1.Record{Partition: proto.Int32(-1)}), "t", inv, "/records/1/partition"},
		"partition too high":   {one(&forebayv1.Record{Partition: proto.Int32(10_000)}), "t", inv, "/records/1/partition"},
		"time too early":       {one(&forebayv1.Record{ProducerTimeMs: proto.Int64(math.MinInt64)}), "t", inv, "/records/1/producer_time_ms"},
		"time too late":        {one(&forebayv1.Record{ProducerTimeMs: proto.Int64(maxTime + 1)}), "t", inv, "/records/1/producer_time_ms"},
		"delivery too early":   {one(&forebayv1.Record{DeliverAtMs: proto.Int64(minTime - 1)}), "t", inv, "/records/1/deliver_at_ms"},
		"delivery too late":    {one(&forebayv1.Record{DeliverAtMs: proto.Int64(ms + api.MaxDeliverDelay.Milliseconds() + 1)}), "t", inv, "/records/1/deliver_at_ms"},
		"key too long":         {one(&forebayv1.Record{Key: make([]byte, api.MaxKeyBytes+1)}), "t", big, "/records/1/key"},
		"record too long":      {one(&forebayv1.Record{Value: make([]byte, api.MaxRecordBytes+1)}), "t", big, "/records/1"},
		"header too long":      {one(&forebayv1.Record{Headers: []*forebayv1.Header{{Name: strings.Repeat("n", api.MaxHeaderBytes+1)}}}), "t", big, "/records/1/headers"},
		"too many records":     {marshal(t, request(many(api.MaxRecordsPerRequest+1)...)), "t", big, "/records"},
		"producer sequence":    {marshal(t, &forebayv1.PublishRequest{Records: many(1), Producer: &forebayv1.Producer{Id: "p", Sequence: -1}}), "t", inv, "/producer/sequence"},
		"producer epoch":       {marshal(t, &forebayv1.PublishRequest{Records: many(1), Producer: &forebayv1.Producer{Id: "p", Epoch: -1}}), "t", inv, "/producer/epoch"},
		"producer empty":       {append(marshal(t, request(ok)), 0x12, 0), "t", inv, "/producer/id"},
		"producer not UTF-8":   {append(marshal(t, request(ok)), 0x12, 3, 0x0a, 1, 0xff), "t", inv, "/producer/id"},
		"producer unknown":     {append(marshal(t, request(ok)), 0x12, 2, 0x22, 0), "t", inv, "/producer"},
	} {
		_, err := DecodePublish(Protobuf, c.body, c.single, now)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if code, pointer := faultOf(t, err); code != c.code || pointer != c.pointer {
			t.Errorf("%s: %s at %q, want %s at %q (%v)", name, code, pointer, c.code, c.pointer, err)
		}
	}
	recs := []*forebayv1.Record{{}}
	for range api.MaxHeaders + 1 {
		recs[0].Headers = append(recs[0].Headers, &forebayv1.Header{Name: "a"})
	}
	if code, _ := faultOf(t, errOf(DecodePublish(Protobuf, marshal(t, request(recs...)), "t", now))); code != big {
		t.Errorf("too many headers: %s", code)
	}
	var ts []*forebayv1.TopicRecords
	for i := range api.MaxTopicsPerRequest + 1 {
		ts = append(ts, &forebayv1.TopicRecords{Topic: strings.Repeat("t", i+1), Records: many(1)})
	}
	if code, _ := faultOf(t, errOf(DecodePublish(Protobuf, topics(ts...), "", now))); code != big {
		t.Errorf("too many topics: %s", code)
	}
}

func errOf(_ *Publish, err error) error { return err }

// checkOracle holds one body against the generated decoder: what we accept, it accepts with the same content.
func checkOracle(t *testing.T, body []byte) {
	t.Helper()
	got, err := DecodePublish(Protobuf, body, "t", now)
	var want forebayv1.PublishRequest
	oracle := proto.Unmarshal(body, &want)
	if err != nil {
		faultCode(t, err)
		return
	}
	if oracle != nil {
		t.Fatalf("accepted what the generated decoder refuses: %v", oracle)
	}
	recs := got.Topics[0].Records
	if len(recs) != len(want.Records) {
		t.Fatalf("%d records, want %d", len(recs), len(want.Records))
	}
	for i, w := range want.Records {
		exp := plain(func(r *segment.Record) {
			r.Key, r.ID = w.Key, w.Id
			if w.Value != nil {
				r.Value, r.Kind = w.Value, max(segment.Kind(w.Kind), segment.KindData)
			}
			for _, h := range w.Headers {
				r.Headers = append(r.Headers, segment.Header{Name: h.Name, Value: h.Value})
			}
			if w.ProducerTimeMs != nil {
				r.ProducerTime = *w.ProducerTimeMs
			}
			if w.DeliverAtMs != nil {
				r.DeliverAt = *w.DeliverAtMs
			}
			r.KeyBinary = recs[i].KeyBinary // depends on the bytes of the key too
		})
		if diff := cmp.Diff(exp, recs[i]); diff != "" {
			t.Fatalf("record %d: %s", i, diff)
		}
		partition := int32(-1)
		if w.Partition != nil {
			partition = *w.Partition
		}
		if got.Topics[0].Partitions[i] != partition {
			t.Fatalf("record %d: partition %d, want %d", i, got.Topics[0].Partitions[i], partition)
		}
	}
	if (got.Producer == nil) != (want.Producer == nil) {
		t.Fatalf("producer %v, want %v", got.Producer, want.Producer)
	}
	if p := got.Producer; p != nil && (p.ID != want.Producer.Id || p.Epoch != want.Producer.Epoch || p.Sequence != want.Producer.Sequence) {
		t.Fatalf("producer %v, want %v", got.Producer, want.Producer)
	}
}

func faultCode(t *testing.T, err error) {
	t.Helper()
	if code := api.CodeOf(err); code != api.CodeInvalidRequest && code != api.CodeTooLarge {
		t.Fatalf("refused with %v", err)
	}
}
