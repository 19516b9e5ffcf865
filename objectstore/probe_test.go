package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
)

// lacking is a store that lacks one thing.
type lacking struct {
	objectstore.Store
	lacks string
	mu    sync.Mutex
}

func (l *lacking) force(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.Store.Stat(ctx, key); err == nil {
		return l.Store.PutIfMatch(ctx, key, info.ETag, body, id)
	}
	return l.Store.PutIfAbsent(ctx, key, body, id)
}

func (l *lacking) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	racing := strings.HasSuffix(key, "-race")
	switch l.lacks {
	case "conditions":
		return l.force(ctx, key, body, id)
	case "conditions in a race":
		if racing {
			return l.force(ctx, key, body, id)
		}
	case "the right winner":
		if racing {
			_, err := l.Store.PutIfAbsent(ctx, key, bytes.ToUpper(body), id)
			return objectstore.Info{}, err
		}
	case "a winner":
		if racing {
			return objectstore.Info{}, objectstore.ErrConflict
		}
	case "writers":
		if racing {
			return objectstore.Info{}, objectstore.ErrThrottled
		}
	case "refusal without effect":
		_, err := l.Store.PutIfAbsent(ctx, key, body, id)
		if errors.Is(err, objectstore.ErrExists) {
			_, _ = l.force(ctx, key, body, id)
		}
		return objectstore.Info{}, err
	case "IDs":
		if _, err := l.Store.Stat(ctx, key); err == nil {
			return objectstore.Info{}, objectstore.ErrExists
		}
	case "everything":
		return objectstore.Info{}, objectstore.ErrUnavailable
	}
	return l.Store.PutIfAbsent(ctx, key, body, id)
}

func (l *lacking) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	switch l.lacks {
	case "read after write":
		return nil, objectstore.Info{}, objectstore.ErrNotFound
	case "whole reads":
		body, info, err := l.Store.Get(ctx, key)
		return body[:len(body)/2], info, err
	}
	return l.Store.Get(ctx, key)
}

func (l *lacking) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if l.lacks == "ranges" {
		body, _, err := l.Store.Get(ctx, key)
		return body, err
	}
	return l.Store.GetRange(ctx, key, off, n)
}

func (l *lacking) List(ctx context.Context, prefix, after string, limit int) (objectstore.Page, error) {
	if l.lacks == "lists" {
		return objectstore.Page{}, nil
	}
	return l.Store.List(ctx, prefix, after, limit)
}

func (l *lacking) Delete(ctx context.Context, keys ...string) error {
	switch l.lacks {
	case "deletes":
		return nil
	case "delete rights":
		return objectstore.KeyErrors{keys[0]: objectstore.ErrUnavailable}
	}
	return l.Store.Delete(ctx, keys...)
}

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		lacks, feature, detail string // feature "": another error than ProbeError
		dirty                  bool
	}{
		{"conditions", "conditional create", "creating an object that exists succeeded", false},
		{"conditions in a race", "conditional create", "20 of 20 concurrent creates", false},
		{"the right winner", "conditional create", "was told that it created the object", false},
		{"a winner", "conditional create", "none of 20", false},
		{"refusal without effect", "conditional create", "replaced it all the same", false},
		{"IDs", "user metadata", "not recognised", false},
		{"read after write", "every finished write", "not found", false},
		{"whole reads", "every finished write", "came back as 6", false},
		{"lists", "every finished write", "a list shows 0", false},
		{"ranges", "range reads", "bytes 1 to 4", false},
		{"deletes", "deletes", "still there", true},
		{"delete rights", "", "unavailable", true},
		{"everything", "", "unavailable", false},
		{"writers", "", "slow down", false},
	} {
		t.Run(tc.lacks, func(t *testing.T) {
			inner := mem.New(mem.Options{})
			err := objectstore.Probe(t.Context(), &lacking{Store: inner, lacks: tc.lacks}, "probes/")
			var probeErr *objectstore.ProbeError
			if errors.As(err, &probeErr) != (tc.feature != "") {
				t.Fatalf("probe: %v, want a ProbeError: %v", err, tc.feature != "")
			}
			if tc.feature != "" && !strings.Contains(probeErr.Feature, tc.feature) || err == nil || !strings.Contains(err.Error(), tc.detail) {
				t.Errorf("probe: %v, want feature %q, text %q", err, tc.feature, tc.detail)
			}
			page, listErr := inner.List(t.Context(), "", "", 10)
			if listErr != nil || (len(page.Objects) > 0) != tc.dirty {
				t.Errorf("left: %+v, %v", page.Objects, listErr)
			}
		})
	}
	good := mem.New(mem.Options{})
	if err := objectstore.Probe(t.Context(), good, "probes/"); err != nil {
		t.Errorf("probe of a good store: %v", err)
	}
}

// TestProbesAtOnce: nodes that start together probe the same prefix.
func TestProbesAtOnce(t *testing.T) {
	s := mem.New(mem.Options{})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := objectstore.Probe(t.Context(), s, "probes/"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
