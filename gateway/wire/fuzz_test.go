package wire

import (
	"bytes"
	stdjson "encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/segment"
)

// bentSeeds adds each seed, each of its truncations at a few places, and copies with one bit changed.
func bentSeeds(f *testing.F, seeds ...[]byte) {
	for _, s := range seeds {
		f.Add(s)
		for i := 1; i < len(s); i += 1 + len(s)/7 {
			f.Add(s[:i])
			bent := slices.Clone(s)
			bent[i] ^= 1 << (i % 8)
			f.Add(bent)
		}
	}
}

func FuzzPublishJSON(f *testing.F) {
	bentSeeds(f,
		[]byte(`{"records":[{"key":"k","value":{"a":[1e400,"\ud83d\ude00",null]},"headers":[["a","b"]],"time":"2026-01-02T03:04:05.678Z","id":"i"}]}`),
		[]byte(`{"records":[{"keyBase64":"AP8=","data":"AP8=","headers":{"a":"b"},"delay":"3d"},{},{"text":"é","partition":3}],"producer":{"id":"p","epoch":1,"sequence":2}}`),
		[]byte(`{"topics":{"a":{"records":[{"value":null}]},"b":{"records":[{"text":""}]}}}`),
		[]byte("{\"records\":[{\"text\":\"\xff\"}]}"),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		for _, single := range []string{"t", ""} {
			p, err := DecodePublish(JSON, body, single, now)
			if !bytes.Equal(before, body) {
				t.Fatal("the body was changed")
			}
			if err != nil {
				faultCode(t, err)
				continue
			}
			if !stdjson.Valid(body) || !utf8.Valid(body) {
				t.Fatal("accepted what is not JSON in UTF-8")
			}
			for _, topic := range p.Topics {
				if len(topic.Records) == 0 || len(topic.Records) != len(topic.Partitions) {
					t.Fatalf("%d records, %d partitions", len(topic.Records), len(topic.Partitions))
				}
				for i := range topic.Records {
					topic.Records[i].AppendTime = 0
				}
				// What is stored is shown, in both encodings, as it came.
				for _, ct := range []ContentType{JSON, Protobuf} {
					again, err := DecodePublish(ct, republish(t, ct, AppendRead(nil, ct, topic.Records, Page{})), "t", now)
					if err != nil {
						t.Fatalf("%s: %v", ct, err)
					}
					if diff := cmp.Diff(topic.Records, again.Topics[0].Records); diff != "" {
						t.Fatalf("%s: %s", ct, diff)
					}
				}
			}
		}
	})
}

func FuzzPublishProto(f *testing.F) {
	bentSeeds(f,
		marshal(f, request(&forebayv1.Record{})),
		marshal(f, &forebayv1.PublishRequest{
			Producer: &forebayv1.Producer{Id: "p", Epoch: 2, Sequence: 3},
			Records: []*forebayv1.Record{
				{Key: []byte("k"), KeyBinary: true, Value: []byte("é"), Kind: forebayv1.ContentKind_CONTENT_KIND_TEXT, Id: "i"},
				{Key: []byte{0xff}, Value: []byte("[1]"), Kind: forebayv1.ContentKind_CONTENT_KIND_JSON},
				{Partition: proto.Int32(1), Value: []byte{0xff}, ProducerTimeMs: proto.Int64(-1), DeliverAtMs: proto.Int64(5),
					Headers: []*forebayv1.Header{{Name: "b", Value: "1"}, {Name: "a"}}},
			},
		}),
	)
	f.Fuzz(func(t *testing.T, body []byte) { checkOracle(t, body) })
}

func FuzzPublishTopicsProto(f *testing.F) {
	bentSeeds(f, marshal(f, &forebayv1.PublishTopicsRequest{Topics: []*forebayv1.TopicRecords{
		{Topic: "b", Records: request(&forebayv1.Record{Value: []byte("1")}, &forebayv1.Record{}).Records},
		{Topic: "a", Records: request(&forebayv1.Record{Key: []byte("k")}).Records},
	}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := DecodePublish(Protobuf, body, "", now)
		if err != nil {
			faultCode(t, err)
			return
		}
		var want forebayv1.PublishTopicsRequest
		if err := proto.Unmarshal(body, &want); err != nil || len(want.Topics) != len(p.Topics) {
			t.Fatalf("accepted what the generated decoder refuses: %v", err)
		}
		for i, topic := range want.Topics {
			if p.Topics[i].Topic != topic.Topic || len(p.Topics[i].Records) != len(topic.Records) {
				t.Fatalf("topic %d: %+v", i, p.Topics[i])
			}
		}
	})
}

func FuzzTopicConfig(f *testing.F) {
	bentSeeds(f,
		[]byte(`{"partitions":9,"retention":{"time":"3d","bytes":null},"cleanup":"compact,delete","minCompactionLag":"0s","acknowledgeKeyRemap":true}`),
		[]byte(`{"residency":"eu","mirror":false,"maxRecordBytes":1,"dedupeWindow":"24h","schema":{"subject":"s","mode":"off"}}`),
		[]byte(`{"schema":null,"residency":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		present := api.DefaultTopicConfig()
		for _, current := range []*api.TopicConfig{nil, &present} {
			cfg, _, err := DecodeTopicConfig(body, current)
			if err != nil {
				if api.CodeOf(err) == "" {
					t.Fatalf("refused with %v", err)
				}
				continue
			}
			if cfg.Partitions < 1 || cfg.Partitions > api.MaxPartitions || cfg.MaxRecordBytes < 1 || cfg.MaxRecordBytes > api.MaxRecordBytes ||
				cfg.RetentionTime < 0 || cfg.RetentionBytes < 0 || !cfg.Cleanup.Compacts() && !cfg.Cleanup.Deletes() {
				t.Fatalf("%+v", cfg)
			}
		}
	})
}

func FuzzDecodeStrict(f *testing.F) {
	bentSeeds(f, []byte(`{"epoch":5,"maybe":null,"name":"a","on":true,"wait":"1m","at":"2026-03-04T05:06:07Z","nested":{"X":0},"items":[{"offset":2}],"offsets":{"0":42}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got strictBody
		if err := DecodeStrict(body, &got); err != nil {
			faultCode(t, err)
			return
		}
		if !stdjson.Valid(body) || !utf8.Valid(body) {
			t.Fatal("accepted what is not JSON in UTF-8")
		}
	})
}

func FuzzReadBody(f *testing.F) {
	for _, data := range [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("abc"), 1000), make([]byte, 5000)} {
		bentSeeds(f, gzipOf(f, data), zstdOf(f, data), zstdStream(f, data))
	}
	reader := NewBodyReader()
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, encoding := range []string{"", "gzip", "zstd"} {
			got, release, err := reader.Read(bodyRequest(encoding, bytes.NewReader(body)), 4096)
			if err != nil {
				faultCode(t, err)
			} else if len(got) > 4096 || encoding == "" && !bytes.Equal(got, body) {
				t.Fatalf("%s: %d bytes", encoding, len(got))
			}
			release()
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"500ms", "3d", "1h30m", "1.5s", "106751d23h", "0.999999999d", "9223372036854775807ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if back, err := ParseDuration(FormatDuration(d)); d < 0 || err != nil || back != d {
			t.Fatalf("%q: %d, back as %d, %v", s, d, back, err)
		}
	})
}

func FuzzTime(f *testing.F) {
	f.Add("2026-03-04T05:06:07.008+01:30")
	f.Fuzz(func(t *testing.T, s string) {
		ms, err := ParseTime("t", s)
		if err != nil {
			return
		}
		if back, err := ParseTime("t", FormatTime(ms)); err != nil || back != ms || ms == segment.NoTime {
			t.Fatalf("%q: %d, back as %d, %v", s, ms, back, err)
		}
	})
}
