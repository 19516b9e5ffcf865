package s3_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
	"github.com/forebaymq/forebay/objectstore/s3"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

const directoryBucket = "bucket--use1-az4--x-s3"

// openDirectory opens a fake that behaves as a directory bucket does: sessions, lists without order and without a start.
func openDirectory(t *testing.T) (*s3.Store, *s3fake.Server) {
	t.Helper()
	server := s3fake.New(t)
	server.Unordered, server.RequireSession = true, true
	o := options(server)
	o.Bucket = directoryBucket
	s, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, server
}

func TestConformanceDirectoryBucket(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		s, _ := openDirectory(t)
		return s
	}, storetest.Options{BigObject: 1 << 20})
}

// TestDirectoryBucketLists: a listing reads the bucket once, not once a page, and all of it is there in order.
func TestDirectoryBucketLists(t *testing.T) {
	s, server := openDirectory(t)
	defer s.Close()
	var want []string
	for i := range 3500 {
		key := fmt.Sprintf("l0/%02x/%04d", (i*7)%256, i)
		server.Put(key, "x", "w")
		want = append(want, key)
	}
	slices.Sort(want)
	var got []string
	for after := ""; ; {
		page, err := s.List(t.Context(), "l0/", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			got = append(got, o.Key)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %d keys, want %d in order", len(got), len(want))
	}
	if n := server.Count("LIST"); n != 4 {
		t.Errorf("%d requests to list 3500 keys in 35 pages, want 4", n)
	}
	if n := server.Count("SESSION"); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if _, err := s.List(t.Context(), "l0/0", "l0/00/0256", 10); err != nil { // not where a list ended
		t.Error(err)
	}
}
