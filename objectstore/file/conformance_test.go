package file

import (
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

func openAt(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
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
	s := openAt(t, t.TempDir(), Options{})
	opt := storetest.Options{ContentIDs: !s.KeepsIDs()} // by the file system of the temporary folder
	storetest.Run(t, func(t *testing.T) objectstore.Store { return openAt(t, t.TempDir(), Options{}) }, opt)
}

func TestConformanceContentIDs(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store {
		return openAt(t, t.TempDir(), Options{ContentIDs: true})
	}, storetest.Options{ContentIDs: true})
}
