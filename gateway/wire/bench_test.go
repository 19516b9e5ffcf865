package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
	"github.com/forebaymq/forebay/segment"
)

const benchBatch = 100

// benchValues are 1 KiB values as they stand in the body of a request.
func benchValues() map[string]string {
	var object strings.Builder
	object.WriteByte('{')
	for i := 0; object.Len() < 960; i++ {
		if i > 0 {
			object.WriteByte(',')
		}
		fmt.Fprintf(&object, `"field%d":{"id":%d,"name":"some text here %d","ok":true}`, i, i*1000, i)
	}
	object.WriteByte('}')
	return map[string]string{
		"value-object": `"value":` + object.String(),
		"value-string": `"value":"` + strings.Repeat("x", 1022) + `"`,
		"text":         `"text":"` + strings.Repeat("x", 1024) + `"`,
		"text-escaped": `"text":"` + strings.Repeat("line of text\\n", 78) + `"`,
		"text-utf8":    `"text":"` + strings.Repeat("é", 512) + `"`,
		"data":         `"data":"` + base64.StdEncoding.EncodeToString(make([]byte, 1024)) + `"`,
	}
}

func benchBody(value, more string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"records":[`)
	for i := range benchBatch {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"key":"user-%d",%s%s}`, i, value, more)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func benchDecode(b *testing.B, ct ContentType, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodePublish(ct, body, "t", now); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkDecodePublishJSON(b *testing.B) {
	for name, value := range benchValues() {
		b.Run(name, func(b *testing.B) { benchDecode(b, JSON, benchBody(value, "")) })
	}
	b.Run("headers", func(b *testing.B) {
		benchDecode(b, JSON, benchBody(benchValues()["text"],
			`,"headers":[["traceparent","00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],["type","order"]],"time":"2026-03-04T05:06:07.008Z","id":"e-1"`))
	})
}

func BenchmarkDecodePublishProto(b *testing.B) {
	for name, kind := range map[string]forebayv1.ContentKind{"data": 1, "text": 2, "json": 3} {
		var recs []*forebayv1.Record
		for i := range benchBatch {
			recs = append(recs, &forebayv1.Record{Key: fmt.Appendf(nil, "user-%d", i), Kind: kind, Value: []byte(`"` + strings.Repeat("x", 1022) + `"`)})
		}
		b.Run(name, func(b *testing.B) { benchDecode(b, Protobuf, marshal(b, request(recs...))) })
	}
}

func BenchmarkAppendRead(b *testing.B) {
	for name, kind := range map[string]segment.Kind{"data": segment.KindData, "text": segment.KindText, "value": segment.KindJSON} {
		recs := make([]segment.Record, benchBatch)
		for i := range recs {
			recs[i] = segment.Record{Offset: int64(i), AppendTime: 1772600767008, ProducerTime: 1772600767000 + int64(i), DeliverAt: segment.NoTime,
				Kind: kind, Key: fmt.Appendf(nil, "user-%d", i), Value: []byte(`"` + strings.Repeat("x", 1022) + `"`)}
		}
		for _, ct := range []ContentType{JSON, Protobuf} {
			b.Run(name+"/"+map[ContentType]string{JSON: "json", Protobuf: "proto"}[ct], func(b *testing.B) {
				b.ReportAllocs()
				var dst []byte
				for b.Loop() {
					dst = AppendRead(dst[:0], ct, recs, Page{Partition: 1, NextOffset: benchBatch, Head: benchBatch})
				}
				b.SetBytes(int64(len(dst)))
				b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

func BenchmarkReadBody(b *testing.B) {
	plain := benchBody(benchValues()["value-object"], "")
	reader := NewBodyReader()
	for encoding, body := range map[string][]byte{"": plain, "gzip": gzipOf(b, plain), "zstd": zstdOf(b, plain)} {
		b.Run("encoding="+encoding, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				_, release, err := reader.Read(bodyRequest(encoding, bytes.NewReader(body)), 16<<20)
				if err != nil {
					b.Fatal(err)
				}
				release()
			}
		})
	}
}
