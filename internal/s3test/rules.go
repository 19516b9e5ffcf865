package s3test

import (
	"errors"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

// CheckRules writes lifecycle rules and reads them back. A server that is known to have none must say so.
func CheckRules(t *testing.T, s *Server, store objectstore.LifecycleStore) {
	t.Helper()
	have, err := store.LifecycleRules(t.Context())
	if s.Name == Versitygw {
		if !errors.Is(err, objectstore.ErrUnsupported) {
			t.Errorf("rules of %s: %+v, %v, want ErrUnsupported", s.Name, have, err)
		}
		return
	}
	if err != nil || len(have) != 0 {
		t.Fatalf("rules of a new bucket: %+v, %v", have, err)
	}
	want := []objectstore.LifecycleRule{
		{ID: "foreign", Prefix: "logs/", Days: 30, Enabled: false},
		{ID: "forebay-retention-1d", Prefix: "ttl=1d/", Days: 2, Enabled: true},
	}
	for range 2 { // the second time with the rules as they were read
		if err := store.PutLifecycleRules(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if have, err = store.LifecycleRules(t.Context()); err != nil || len(have) != len(want) {
			t.Fatalf("rules: %+v, %v, want %d", have, err, len(want))
		}
		for i, r := range have {
			if w := want[i]; r.ID != w.ID || r.Prefix != w.Prefix || r.Days != w.Days || r.Enabled != w.Enabled || r.Native == nil {
				t.Errorf("rule %d: %+v, want %+v", i, r, w)
			}
		}
		want = have
	}
	if err := store.PutLifecycleRules(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if have, err = store.LifecycleRules(t.Context()); err != nil || len(have) != 0 {
		t.Errorf("rules after all were removed: %+v, %v", have, err)
	}
}
