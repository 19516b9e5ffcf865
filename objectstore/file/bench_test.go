package file

import (
	"fmt"
	"sync/atomic"
	"testing"
)

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{64 << 10, 8 << 20} {
		for _, parallel := range []int{1, 8} {
			b.Run(fmt.Sprintf("size=%dKiB/parallel=%d", size>>10, parallel), func(b *testing.B) {
				s := openAt(b, b.TempDir(), Options{})
				body := make([]byte, size)
				for i := range body {
					body[i] = byte(i * 7)
				}
				var n atomic.Int64
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.SetParallelism((parallel + 1) / 2) // times GOMAXPROCS, which is 2 on the reference machine
				put := func() {
					i := n.Add(1)
					if _, err := s.PutIfAbsent(b.Context(), fmt.Sprintf("l0/%02x/%d", i%256, i), body, "w"); err != nil {
						b.Error(err)
					}
				}
				if parallel == 1 {
					for b.Loop() {
						put()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						put()
					}
				})
			})
		}
	}
}

func BenchmarkGetRange(b *testing.B) {
	s := openAt(b, b.TempDir(), Options{})
	if _, err := s.PutIfAbsent(b.Context(), "k", make([]byte, 8<<20), "w"); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(256 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.GetRange(b.Context(), "k", 1<<20, 256<<10); err != nil {
			b.Fatal(err)
		}
	}
}
