package file_test

import (
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/file"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func open(t testing.TB, dir string, o file.Options) *file.Store {
	t.Helper()
	s, err := file.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return open(t, t.TempDir(), file.Options{}) }, storetest.Options{})
}

func TestConformanceContentIDs(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		return open(t, t.TempDir(), file.Options{ContentIDs: true})
	}, storetest.Options{ContentIDs: true})
}
