package s3_test

import (
	"errors"
	"testing"

	"github.com/forebaymq/forebay/internal/s3test"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/open"
)

// TestLifecycleRules writes rules to a real server and reads them back, where it has rules.
func TestLifecycleRules(t *testing.T) {
	server := s3test.Start(t)
	store, err := open.Open(t.Context(), server.S3URL(server.Bucket()), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s3test.CheckRules(t, server, store.(objectstore.LifecycleStore))
	if _, err := store.Stat(t.Context(), "absent"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("stat of nothing after that: %v", err)
	}
}
