package minio_test

import (
	"fmt"
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
	"github.com/forebaymq/forebay/objectstore/open"
)

// BenchmarkStore moves objects of the size of a segment to versitygw and back.
func BenchmarkStore(b *testing.B) {
	server := s3test.Start(b)
	store, err := open.Open(b.Context(), server.MinioURL(server.Bucket()), open.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	body := make([]byte, 8<<20)
	for i := range body {
		body[i] = byte(i * 31)
	}
	b.Run("put", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := store.PutIfAbsent(b.Context(), fmt.Sprintf("put/%d/%d", b.N, i), body, fmt.Sprint(b.N, i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	if _, err := store.PutIfAbsent(b.Context(), "get", body, "w"); err != nil {
		b.Fatal(err)
	}
	b.Run("get", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := store.Get(b.Context(), "get"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("range64KiB", func(b *testing.B) {
		b.SetBytes(64 << 10)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := store.GetRange(b.Context(), "get", 1<<20, 64<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
}
