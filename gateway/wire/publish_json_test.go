package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC)

// plain makes a record with nothing in it but what the caller sets afterwards.
func plain(set func(*segment.Record)) segment.Record {
	r := segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime}
	set(&r)
	return r
}

func decodeOne(t *testing.T, record string) (segment.Record, int32) {
	t.Helper()
	p, err := DecodePublish(JSON, []byte(`{"records":[`+record+`]}`), "t", now)
	if err != nil {
		t.Fatalf("decode %s: %v", record, err)
	}
	if len(p.Topics) != 1 || len(p.Topics[0].Records) != 1 || len(p.Topics[0].Partitions) != 1 {
		t.Fatalf("decode %s: %+v", record, p)
	}
	return p.Topics[0].Records[0], p.Topics[0].Partitions[0]
}

func TestRecordForms(t *testing.T) {
	ms := now.UnixMilli()
	for _, c := range []struct {
		in        string
		want      segment.Record
		partition int32
	}{
		{`{}`, plain(func(r *segment.Record) {}), -1},
		{`{"key":"k"}`, plain(func(r *segment.Record) { r.Key = []byte("k") }), -1},
		{`{"key":""}`, plain(func(r *segment.Record) { r.Key = []byte{} }), -1},
		{`{"keyBase64":""}`, plain(func(r *segment.Record) { r.Key, r.KeyBinary = []byte{}, true }), -1},
		{`{"keyBase64":"/wA="}`, plain(func(r *segment.Record) { r.Key, r.KeyBinary = []byte{0xff, 0}, true }), -1},
		{`{"keyBase64":"\/wA="}`, plain(func(r *segment.Record) { r.Key, r.KeyBinary = []byte{0xff, 0}, true }), -1},
		{`{"key":"a\u00e9\ud83d\ude00\n\"/"}`, plain(func(r *segment.Record) { r.Key = []byte("aé😀\n\"/") }), -1},
		{`{"k\u0065y":"k"}`, plain(func(r *segment.Record) { r.Key = []byte("k") }), -1},
		{`{"value":null}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("null") }), -1},
		{`{"value": 12345678901234567890 }`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("12345678901234567890") }), -1},
		{`{"value":1e400}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("1e400") }), -1},
		{`{"value":-0.10}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("-0.10") }), -1},
		{"{\"value\":\t{ \"b\" :1,\n\"a\":[ ] }\r\n}", plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("{ \"b\" :1,\n\"a\":[ ] }") }), -1},
		{`{"value":"\u0041\/"}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte(`"\u0041\/"`) }), -1},
		{`{"value":""}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte(`""`) }), -1},
		{`{"text":""}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindText, []byte{} }), -1},
		{`{"text":"a\u0000b"}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindText, []byte("a\x00b") }), -1},
		{`{"data":""}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindData, []byte{} }), -1},
		{`{"data":"AP8="}`, plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindData, []byte{0, 0xff} }), -1},
		{`{"headers":[]}`, plain(func(r *segment.Record) {}), -1},
		{`{"headers":{}}`, plain(func(r *segment.Record) {}), -1},
		{`{"headers":[["b","1"],["a",""],["b","2"]]}`, plain(func(r *segment.Record) {
			r.Headers = []segment.Header{{Name: "b", Value: "1"}, {Name: "a"}, {Name: "b", Value: "2"}}
		}), -1},
		{`{"headers":{"z":"1","a":"é"}}`, plain(func(r *segment.Record) {
			r.Headers = []segment.Header{{Name: "z", Value: "1"}, {Name: "a", Value: "é"}}
		}), -1},
		{`{"time":"2026-01-02T03:04:05.6789+02:00"}`, plain(func(r *segment.Record) {
			r.ProducerTime = time.Date(2026, 1, 2, 1, 4, 5, 678e6, time.UTC).UnixMilli()
		}), -1},
		{`{"time":"1969-12-31T23:59:59.9999Z"}`, plain(func(r *segment.Record) { r.ProducerTime = -1 }), -1},
		{`{"time":"9999-12-31T23:59:59.999Z"}`, plain(func(r *segment.Record) { r.ProducerTime = maxTime }), -1},
		{`{"time":"0001-01-01T00:00:00Z"}`, plain(func(r *segment.Record) { r.ProducerTime = minTime }), -1},
		{`{"delay":"500ms"}`, plain(func(r *segment.Record) { r.DeliverAt = ms + 500 }), -1},
		{`{"delay":"7d"}`, plain(func(r *segment.Record) { r.DeliverAt = ms + 7*24*3600*1000 }), -1},
		{`{"deliverAt":"2026-03-04T05:06:08Z"}`, plain(func(r *segment.Record) { r.DeliverAt = ms + 992 }), -1},
		{`{"partition":0}`, plain(func(r *segment.Record) {}), 0},
		{`{"partition":9999}`, plain(func(r *segment.Record) {}), 9999},
		{`{"id":"e-1"}`, plain(func(r *segment.Record) { r.ID = "e-1" }), -1},
	} {
		got, partition := decodeOne(t, c.in)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.in, diff)
		}
		if partition != c.partition {
			t.Errorf("%s: partition %d, want %d", c.in, partition, c.partition)
		}
	}
}

// faultOf gives code and pointer of an error, and fails the test if it is not one that a client may see.
func faultOf(t *testing.T, err error) (api.Code, string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T) is not an *api.Error", err, err)
	}
	if e.Detail == "" || len(e.Fields) == 0 {
		t.Fatalf("error %v says too little: %+v", err, e)
	}
	return e.Code, e.Fields[0].Pointer
}

func TestPublishJSONRefused(t *testing.T) {
	long := strings.Repeat
	const inv, big = api.CodeInvalidRequest, api.CodeTooLarge
	one := func(record string) string { return `{"records":[{"key":"ok"},` + record + `]}` }
	many := func(n int, s string) string { return strings.TrimSuffix(long(s+",", n), ",") }
	for _, c := range []struct {
		in      string
		code    api.Code
		pointer string
	}{
		{``, inv, ""},
		{` `, inv, ""},
		{`null`, inv, ""},
		{`[]`, inv, ""},
		{`{}`, inv, "/records"},
		{`{"records":[]}`, inv, "/records"},
		{`{"records":null}`, inv, "/records"},
		{`{"records":{}}`, inv, "/records"},
		{`{"records":[{}]} x`, inv, ""},
		{`{"records":[{}]}{}`, inv, ""},
		{`{"records":[{}]`, inv, ""},
		{`{"records":[{},]}`, inv, "/records"},
		{`{"records":[{}],"records":[{}]}`, inv, "/records"},
		{`{"records":[{}],"extra":1}`, inv, "/extra"},
		{`{"records":[{}],"Producer":{}}`, inv, "/Producer"},
		{`{"topics":{"a":{"records":[{}]}}}`, inv, "/topics"},
		{"\xef\xbb\xbf" + `{"records":[{}]}`, inv, ""},
		{one(`1`), inv, "/records/1"},
		{one(`null`), inv, "/records/1"},
		{one(`{"offset":1}`), inv, "/records/1/offset"},
		{one(`{"Key":"k"}`), inv, "/records/1/Key"},
		{one(`{"a/b~c":1}`), inv, "/records/1/a~1b~0c"},
		{one(`{"key":"a","key":"b"}`), inv, "/records/1/key"},
		{one(`{"key":"a","k\u0065y":"b"}`), inv, "/records/1/key"},
		{one(`{"key":"a","keyBase64":"AA=="}`), inv, "/records/1/keyBase64"},
		{one(`{"keyBase64":"AA==","key":"a"}`), inv, "/records/1/key"},
		{one(`{"key":null}`), inv, "/records/1/key"},
		{one(`{"key":1}`), inv, "/records/1/key"},
		{one(`{"text":null}`), inv, "/records/1/text"},
		{one(`{"data":null}`), inv, "/records/1/data"},
		{one(`{"value":null,"text":"a"}`), inv, "/records/1/text"},
		{one(`{"text":"","value":1}`), inv, "/records/1/value"},
		{one(`{"data":"","value":1}`), inv, "/records/1/value"},
		{one(`{"value":{"a":1,"a":2}}`), inv, "/records/1/value/a"},
		{one(`{"value":{"a":1,"\u0061":2}}`), inv, "/records/1/value/a"},
		{one(`{"value":[{"x":{"a":01}}]}`), inv, "/records/1/value/0/x"},
		{one(`{"` + long("x/", 4000) + `":1}`), inv, "/records/1"},
		{one(`{"value":NaN}`), inv, "/records/1/value"},
		{one(`{"value":1.}`), inv, "/records/1/value"},
		{one(`{"value":tru}`), inv, "/records/1/value"},
		{one(`{"value":}`), inv, "/records/1/value"},
		{one("{\"value\":\"a\tb\"}"), inv, "/records/1/value"},
		{one(`{"value":"\x41"}`), inv, "/records/1/value"},
		{one(`{"data":"A"}`), inv, "/records/1/data"},
		{one(`{"data":"AA"}`), inv, "/records/1/data"},
		{one(`{"data":"AB=="}`), inv, "/records/1/data"}, // stray bits
		{one(`{"data":"AA==\n"}`), inv, "/records/1/data"},
		{one(`{"data":"AA\n=="}`), inv, "/records/1/data"},
		{one(`{"data":"AAA\nA\r\n\n"}`), inv, "/records/1/data"},
		{one(`{"data":"_-8="}`), inv, "/records/1/data"},
		{one(`{"data":" AA="}`), inv, "/records/1/data"},
		{one(`{"headers":null}`), inv, "/records/1/headers"},
		{one(`{"headers":"a"}`), inv, "/records/1/headers"},
		{one(`{"headers":["a","b"]}`), inv, "/records/1/headers/0"},
		{one(`{"headers":[["a"]]}`), inv, "/records/1/headers/0"},
		{one(`{"headers":[[]]}`), inv, "/records/1/headers/0"},
		{one(`{"headers":[["a","b","c"]]}`), inv, "/records/1/headers/0"},
		{one(`{"headers":[["a","b"],["a",1]]}`), inv, "/records/1/headers/1/1"},
		{one(`{"headers":{"a":1}}`), inv, "/records/1/headers/a"},
		{one(`{"headers":{"a":"1","a":"2"}}`), inv, "/records/1/headers/a"},
		{one(`{"headers":{"":"1"}}`), inv, "/records/1/headers"},
		{one(`{"time":1700000000000}`), inv, "/records/1/time"},
		{one(`{"time":"2026-01-02"}`), inv, "/records/1/time"},
		{one(`{"time":"2026-01-02T03:04:05"}`), inv, "/records/1/time"},
		{one(`{"time":"2026-13-02T03:04:05Z"}`), inv, "/records/1/time"},
		{one(`{"time":"0000-01-01T00:00:00Z"}`), inv, "/records/1/time"},
		{one(`{"time":"2026-01-02T03:04:05,5Z"}`), inv, "/records/1/time"},
		{one(`{"delay":"-1s"}`), inv, "/records/1/delay"},
		{one(`{"delay":5}`), inv, "/records/1/delay"},
		{one(`{"delay":"8d"}`), inv, "/records/1/delay"},
		{one(`{"delay":"1s","deliverAt":"2026-01-02T03:04:05Z"}`), inv, "/records/1/deliverAt"},
		{one(`{"deliverAt":"2027-01-02T03:04:05Z"}`), inv, "/records/1/deliverAt"},
		{one(`{"id":""}`), inv, "/records/1/id"},
		{one(`{"id":1}`), inv, "/records/1/id"},
		{one(`{"key":"a","partition":0}`), inv, "/records/1/partition"},
		{one(`{"partition":0,"key":""}`), inv, "/records/1/partition"},
		// H4
		{one(`{"partition":1e3}`), inv, "/records/1/partition"},
		{one(`{"partition":1.5}`), inv, "/records/1/partition"},
		{one(`{"partition":1.0}`), inv, "/records/1/partition"},
		{one(`{"partition":-0}`), inv, "/records/1/partition"},
		{one(`{"partition":-1}`), inv, "/records/1/partition"},
		{one(`{"partition":"5"}`), inv, "/records/1/partition"},
		{one(`{"partition":null}`), inv, "/records/1/partition"},
		{one(`{"partition":10000}`), inv, "/records/1/partition"},
		{one(`{"partition":4294967296}`), inv, "/records/1/partition"},
		{one(`{"partition":9223372036854775808}`), inv, "/records/1/partition"},
		{`{"records":[{}],"producer":{"id":"p","epoch":1e3,"sequence":1}}`, inv, "/producer/epoch"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0,"sequence":1.5}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0,"sequence":-0}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0,"sequence":"5"}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0,"sequence":9223372036854775808}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0,"sequence":-1}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"id":"p","epoch":-1,"sequence":1}}`, inv, "/producer/epoch"},
		{`{"records":[{}],"producer":{"id":"p","epoch":0}}`, inv, "/producer/sequence"},
		{`{"records":[{}],"producer":{"epoch":0,"sequence":1}}`, inv, "/producer/id"},
		{`{"records":[{}],"producer":{"id":"__x","sequence":1}}`, inv, "/producer/id"},
		{`{"records":[{}],"producer":{"id":"a\u0007","sequence":1}}`, inv, "/producer/id"},
		{`{"records":[{}],"producer":{"id":"` + long("p", 201) + `","sequence":1}}`, inv, "/producer/id"},
		{`{"records":[{}],"producer":null}`, inv, "/producer"},
		{`{"records":[{}],"producer":{"id":"p","sequence":1,"x":1}}`, inv, "/producer/x"},
		// H1
		{one("{\"key\":\"\xff\"}"), inv, "/records/1/key"},
		{one("{\"value\":\"\xff\"}"), inv, "/records/1/value"},
		{one("{\"value\":{\"\xff\":1}}"), inv, "/records/1/value"},
		{one("{\"text\":\"\xc0\x80\"}"), inv, "/records/1/text"},
		{one("{\"id\":\"\xed\xa0\x80\"}"), inv, "/records/1/id"},
		{one("{\"headers\":[[\"\xff\",\"a\"]]}"), inv, "/records/1/headers/0/0"},
		{one("{\"headers\":[[\"a\",\"\xff\"]]}"), inv, "/records/1/headers/0/1"},
		{one("{\"headers\":{\"\xff\":\"a\"}}"), inv, "/records/1/headers"},
		{one("{\"\xff\":1}"), inv, "/records/1"},
		{one(`{"key":"\ud800"}`), inv, "/records/1/key"},
		{one(`{"value":"\ud800"}`), inv, "/records/1/value"},
		{one(`{"value":{"x":["\ud800\u0041"]}}`), inv, "/records/1/value/x/0"},
		{one(`{"value":{"\udc00":1}}`), inv, "/records/1/value"},
		{one(`{"text":"\udc00\ud800"}`), inv, "/records/1/text"},
		{one(`{"headers":[["a","\ud800"]]}`), inv, "/records/1/headers/0/1"},
		{one(`{"headers":{"\ud800":"a"}}`), inv, "/records/1/headers"},
		{one(`{"id":"\ud800"}`), inv, "/records/1/id"},
		// limits
		{one(`{"key":"` + long("k", api.MaxKeyBytes+1) + `"}`), big, "/records/1/key"},
		{one(`{"id":"` + long("i", api.MaxIDBytes+1) + `"}`), big, "/records/1/id"},
		{one(`{"headers":[` + many(api.MaxHeaders+1, `["a","b"]`) + `]}`), big, "/records/1/headers/63"},
		{one(`{"headers":[["a","` + long("h", api.MaxHeaderBytes) + `"]]}`), big, "/records/1/headers"},
		{one(`{"text":"` + long("v", api.MaxRecordBytes+1) + `"}`), big, "/records/1"},
		{`{"records":[` + many(api.MaxRecordsPerRequest+1, `{}`) + `]}`, big, "/records"},
		{one(`{"value":` + long("[", 20_000) + long("]", 20_000) + `}`), inv, "/records/1/value" + long("/0", 504)},
	} {
		_, err := DecodePublish(JSON, []byte(c.in), "t", now)
		name := c.in[:min(len(c.in), 100)]
		if err == nil {
			t.Errorf("%q: accepted", name)
			continue
		}
		code, pointer := faultOf(t, err)
		if code != c.code || pointer != c.pointer {
			t.Errorf("%q: %s at %.60q, want %s at %.60q (%.200v)", name, code, pointer, c.code, c.pointer, err)
		}
	}
}

func TestPublishJSONAtTheLimits(t *testing.T) {
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	for name, record := range map[string]string{
		"key":    `{"key":"` + strings.Repeat("k", api.MaxKeyBytes) + `"}`,
		"id":     `{"id":"` + strings.Repeat("i", api.MaxIDBytes) + `"}`,
		"count":  `{"headers":[` + many(api.MaxHeaders, `["a","b"]`) + `]}`,
		"header": `{"headers":[["a","` + strings.Repeat("h", api.MaxHeaderBytes-1) + `"]]}`,
		"value":  `{"text":"` + strings.Repeat("v", api.MaxRecordBytes) + `"}`,
		"data":   `{"data":"` + base64.StdEncoding.EncodeToString(make([]byte, api.MaxRecordBytes)) + `"}`,
		"all":    `{"key":"k","headers":[["a","b"]],"text":"` + strings.Repeat("v", api.MaxRecordBytes-3) + `"}`,
		"depth":  `{"value":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
	} {
		if _, err := DecodePublish(JSON, []byte(`{"records":[`+record+`]}`), "t", now); err != nil {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	body := `{"records":[` + many(api.MaxRecordsPerRequest, `{}`) + `]}`
	p, err := DecodePublish(JSON, []byte(body), "t", now)
	if err != nil || len(p.Topics[0].Records) != api.MaxRecordsPerRequest || len(p.Topics[0].Partitions) != api.MaxRecordsPerRequest {
		t.Errorf("the most records of a request: %v", err)
	}
}

func TestPublishTopicsJSON(t *testing.T) {
	body := `{"producer":{"sequence":9223372036854775807,"epoch":3,"id":"p é"},"topics":{
		"b":{"records":[{"value":1},{"partition":2}]}, "a":{"records":[{"key":"k"}]}}}`
	p, err := DecodePublish(JSON, []byte(body), "", now)
	if err != nil {
		t.Fatal(err)
	}
	want := &Publish{
		Producer: &metadata.Producer{ID: "p é", Epoch: 3, Sequence: 9223372036854775807},
		Topics: []TopicRecords{
			{Topic: "b", Partitions: []int32{-1, 2}, Records: []segment.Record{
				plain(func(r *segment.Record) { r.Kind, r.Value = segment.KindJSON, []byte("1") }), plain(func(*segment.Record) {})}},
			{Topic: "a", Partitions: []int32{-1}, Records: []segment.Record{plain(func(r *segment.Record) { r.Key = []byte("k") })}},
		},
	}
	if diff := cmp.Diff(want, p, cmpopts.IgnoreUnexported(TopicRecords{})); diff != "" {
		t.Error(diff)
	}
	for in, pointer := range map[string]string{
		`{"topics":{}}`:                       "/topics",
		`{}`:                                  "/topics",
		`{"records":[{}]}`:                    "/records",
		`{"topics":[]}`:                       "/topics",
		`{"topics":{"a":{}}}`:                 "/topics/a/records",
		`{"topics":{"a":{"records":[]}}}`:     "/topics/a/records",
		`{"topics":{"a":{"records":[1]}}}`:    "/topics/a/records/0",
		`{"topics":{"a":[{}]}}`:               "/topics/a",
		`{"topics":{"a":{"x":1}}}`:            "/topics/a/x",
		`{"topics":{"__a":{"records":[{}]}}}`: "/topics/__a",
		`{"topics":{"a/b":{"records":[{}]}}}`: "/topics/a~1b",
		`{"topics":{"":{"records":[{}]}}}`:    "/topics/",
		`{"topics":{"a":{"records":[{}]},"a":{"records":[{}]}}}`: "/topics/a",
		"{\"topics\":{\"\xff\":{\"records\":[{}]}}}":             "/topics",
	} {
		_, err := DecodePublish(JSON, []byte(in), "", now)
		if err == nil {
			t.Errorf("%s: accepted", in)
			continue
		}
		if code, at := faultOf(t, err); code != api.CodeInvalidRequest || at != pointer {
			t.Errorf("%s: %s at %q, want %q", in, code, at, pointer)
		}
	}
	var b strings.Builder
	for i := range api.MaxTopicsPerRequest + 1 {
		fmt.Fprintf(&b, `,"t%d":{"records":[{}]}`, i)
	}
	_, err = DecodePublish(JSON, []byte(`{"topics":{`+b.String()[1:]+`}}`), "", now)
	if code, at := faultOf(t, err); code != api.CodeTooLarge || at != "/topics/t100" {
		t.Errorf("too many topics: %s at %q", code, at)
	}
}

// What is said about a record names its index, so that a client of large batches finds it.
func TestTooLargeNamesTheRecord(t *testing.T) {
	_, err := DecodePublish(JSON, []byte(`{"records":[{},{},{"text":"`+strings.Repeat("v", api.MaxRecordBytes+1)+`"}]}`), "t", now)
	var e *api.Error
	if !errors.As(err, &e) || e.Extra["record"] != 2 || e.Code != api.CodeTooLarge {
		t.Errorf("%v", err)
	}
}

func TestCheckAgainstTheTopic(t *testing.T) {
	decode := func(body string) *TopicRecords {
		p, err := DecodePublish(JSON, []byte(body), "t", now)
		if err != nil {
			t.Fatal(err)
		}
		return &p.Topics[0]
	}
	cfg := api.DefaultTopicConfig()
	cfg.MaxRecordBytes = 10
	compacted := cfg
	compacted.Cleanup = api.CleanupCompactDelete
	for _, c := range []struct {
		body    string
		cfg     api.TopicConfig
		code    api.Code
		pointer string
	}{
		{`{"records":[{"text":"0123456789"}]}`, cfg, "", ""},
		{`{"records":[{},{"key":"k","headers":{"a":"b"},"text":"01234567"}]}`, cfg, api.CodeTooLarge, "/records/1"},
		{`{"records":[{"partition":7}]}`, cfg, "", ""},
		{`{"records":[{"partition":7},{"partition":8}]}`, cfg, api.CodeUnknownPartition, "/records/1/partition"},
		{`{"records":[{"key":""},{"text":"a"}]}`, compacted, api.CodeInvalidRequest, "/records/1/key"},
		{`{"records":[{"key":""}]}`, compacted, "", ""},
		{`{"records":[{"partition":1}]}`, compacted, api.CodeInvalidRequest, "/records/0/key"},
	} {
		err := decode(c.body).Check(&c.cfg)
		if c.code == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		if code, pointer := faultOf(t, err); code != c.code || pointer != c.pointer {
			t.Errorf("%s: %s at %q, want %s at %q", c.body, code, pointer, c.code, c.pointer)
		}
	}
}

// Keys, texts and values are not copied out of the body.
func TestRecordsShareTheBody(t *testing.T) {
	body := []byte(`{"records":[{"key":"kk","value":{"a":1}},{"text":"tt"}]}`)
	p, err := DecodePublish(JSON, body, "t", now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = '!'
	}
	recs := p.Topics[0].Records
	if string(recs[0].Key) != "!!" || string(recs[0].Value) != "!!!!!!!" || string(recs[1].Value) != "!!" {
		t.Errorf("%+v", recs)
	}
	if cap(recs[0].Key) != 2 || cap(recs[0].Value) != 7 || cap(recs[1].Value) != 2 {
		t.Error("an append to a key or value would write into the body")
	}
}
