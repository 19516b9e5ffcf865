package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// instantServer acknowledges every publish at once, without looking at it closely.
type instantServer struct{}

func (instantServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Method == http.MethodGet:
		return response(200, "application/json", []byte(`{"partitions":16}`)), nil
	case strings.HasPrefix(r.URL.Path, "/v1/producers/"):
		return response(200, "application/json", []byte(`{"epoch":1}`)), nil
	}
	n, err := countField(body, 1)
	if err != nil {
		return nil, err
	}
	var answer []byte
	for range n {
		answer = protowire.AppendTag(answer, 1, protowire.BytesType)
		answer = append(answer, 4, 8, 1, 16, 1)
	}
	return response(200, contentProtobuf, answer), nil
}

// BenchmarkProducer is what the Producer itself costs, without a network and a server.
func BenchmarkProducer(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, err := New("http://fake", WithHTTPClient(&http.Client{Transport: instantServer{}}))
			if err != nil {
				b.Fatal(err)
			}
			p, err := NewProducer(c, "t")
			if err != nil {
				b.Fatal(err)
			}
			r := Record{Key: []byte("key-0000"), Value: make([]byte, size-8), Kind: KindData}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := range b.N {
				r.Key[4], r.Key[5] = byte('a'+i%26), byte('a'+i/26%26)
				if _, err := p.Send(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
