package s3test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/open"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

// URL makes the URL of a bucket for one driver: (*Server).S3URL or (*Server).MinioURL.
type URL func(s *Server, bucket string) string

func (s *Server) open(t testing.TB, url URL) objectstore.Store {
	t.Helper()
	store, err := open.Open(t.Context(), url(s, s.Bucket()), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Conformance runs the suite of objectstore/storetest on a real server by one driver. Of what the driver's library lacks, change tells.
func Conformance(t *testing.T, url URL, change ...func(*storetest.Options)) {
	server := Start(t)
	lacks := server.Lacks()
	for _, c := range change {
		c(&lacks)
	}
	storetest.Run(t, func(t *testing.T) objectstore.Store { return server.open(t, url) }, lacks)
}

// LifecycleRules writes rules to a real server and reads them back, where it has rules.
func LifecycleRules(t *testing.T, url URL) {
	server := Start(t)
	store := server.open(t, url)
	defer func() { _ = store.Close() }()
	CheckRules(t, server, store.(objectstore.LifecycleStore))
	if _, err := store.Stat(t.Context(), "absent"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("stat of nothing after that: %v", err)
	}
}

// BenchmarkStore moves objects of the size of a segment to a real server and back.
func BenchmarkStore(b *testing.B, url URL) {
	server := Start(b)
	store := server.open(b, url)
	defer func() { _ = store.Close() }()
	body := make([]byte, 8<<20)
	for i := range body {
		body[i] = byte(i * 31)
	}
	run := func(name string, size int64, call func(i int) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := call(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	runs := 0
	run("put", int64(len(body)), func(i int) error {
		if i == 0 {
			runs++
		}
		_, err := store.PutIfAbsent(b.Context(), fmt.Sprintf("put/%d/%d", runs, i), body, fmt.Sprint(runs, "/", i))
		return err
	})
	if _, err := store.PutIfAbsent(b.Context(), "get", body, "w"); err != nil {
		b.Fatal(err)
	}
	run("get", int64(len(body)), func(int) error {
		_, _, err := store.Get(b.Context(), "get")
		return err
	})
	run("range64KiB", 64<<10, func(int) error {
		_, err := store.GetRange(b.Context(), "get", 1<<20, 64<<10)
		return err
	})
}
