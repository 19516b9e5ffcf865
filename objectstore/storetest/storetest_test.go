package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/objectstore/storetest"
)

const brokenEnv = "FOREBAY_STORETEST_BROKEN"

// broken is a store with one fault.
type broken struct {
	objectstore.Store
	fault string
	mu    struct {
		sync.Mutex
		last []byte
	}
}

// faults lists each fault with the test of the suite that must notice it.
func faults() map[string]string {
	return map[string]string{
		"overwrites":         "PutTwice",
		"forgets IDs":        "PutTwice",
		"says exists to all": "PutRace",
		"shares bodies":      "BodyIsNotShared",
		"skips at page edge": "ListOrder",
		"next on last page":  "ListPages",
		"prefix as folder":   "ListPrefix",
		"includes start":     "ListStartAfter",
		"range past the end": "Range",
		"tail without size":  "Tail",
		"swallows errors":    "DeleteErrors",
		"absent is an error": "Delete",
		"ignores context":    "Cancelled",
		"takes any key":      "InvalidKeys",
		"match ignores etag": "PutIfMatch",
		"all is unknown":     "PutTwice",
	}
}

func (b *broken) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	switch b.fault {
	case "overwrites":
		if info, err := b.Stat(ctx, key); err == nil {
			return b.Store.PutIfMatch(ctx, key, info.ETag, body, id)
		}
	case "forgets IDs":
		id += "+"
		if _, err := b.Stat(ctx, key); err == nil {
			return objectstore.Info{}, objectstore.ErrExists
		}
	case "says exists to all":
		if strings.HasPrefix(key, "race/") {
			return objectstore.Info{}, objectstore.ErrExists
		}
	case "shares bodies":
		b.mu.Lock()
		b.mu.last = body
		b.mu.Unlock()
	case "takes any key":
		if key != "" {
			key = strings.Trim(strings.ReplaceAll(key, "//", "/"), "/")
		}
	}
	info, err := b.Store.PutIfAbsent(ctx, key, body, id)
	if b.fault == "all is unknown" && err != nil {
		err = &objectstore.OutcomeUnknownError{Op: "put", Key: key, Cause: err}
	}
	return info, err
}

func (b *broken) Get(ctx context.Context, key string) ([]byte, objectstore.Info, error) {
	if b.fault == "ignores context" {
		ctx = context.WithoutCancel(ctx)
	}
	body, info, err := b.Store.Get(ctx, key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == "shares bodies" && len(b.mu.last) == len(body) {
		body = b.mu.last
	}
	return body, info, err
}

func (b *broken) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	body, err := b.Store.GetRange(ctx, key, off, n)
	if b.fault == "range past the end" && errors.Is(err, objectstore.ErrInvalidRange) {
		return nil, nil
	}
	return body, err
}

func (b *broken) GetTail(ctx context.Context, key string, n int64) ([]byte, objectstore.Info, error) {
	body, info, err := b.Store.GetTail(ctx, key, n)
	if b.fault == "tail without size" {
		info.Size = int64(len(body))
	}
	return body, info, err
}

func (b *broken) PutIfMatch(ctx context.Context, key, etag string, body []byte, id string) (objectstore.Info, error) {
	if b.fault == "match ignores etag" {
		info, err := b.Stat(ctx, key)
		if err != nil {
			return info, err
		}
		etag = info.ETag
	}
	return b.Store.PutIfMatch(ctx, key, etag, body, id)
}

func (b *broken) List(ctx context.Context, prefix, startAfter string, limit int) (objectstore.Page, error) {
	switch b.fault {
	case "prefix as folder":
		if prefix != "" && !strings.HasSuffix(prefix, "/") {
			prefix += "/"
		}
	case "includes start":
		if _, err := b.Stat(ctx, startAfter); err == nil {
			startAfter = startAfter[:len(startAfter)-1]
		}
	}
	page, err := b.Store.List(ctx, prefix, startAfter, limit)
	switch {
	case b.fault == "skips at page edge" && page.Next != "":
		page.Next += "\x7f"
	case b.fault == "next on last page" && limit > 0 && len(page.Objects) == limit:
		page.Next = page.Objects[limit-1].Key
	}
	return page, err
}

func (b *broken) Delete(ctx context.Context, keys ...string) error {
	err := b.Store.Delete(ctx, keys...)
	var failed objectstore.KeyErrors
	if b.fault == "swallows errors" && errors.As(err, &failed) {
		return nil
	}
	if b.fault == "absent is an error" && slices.Contains(keys, "absent") {
		return objectstore.KeyErrors{"absent": objectstore.ErrNotFound}
	}
	return err
}

// TestSuite runs on a whole store, or, started by TestSuiteCatches, on a broken one.
func TestSuite(t *testing.T) {
	fault := os.Getenv(brokenEnv)
	storetest.Run(t, func(*testing.T) objectstore.Store {
		return &broken{Store: mem.New(mem.Options{}), fault: fault}
	}, storetest.Options{BigObject: 64 << 10})
}

// TestSuiteCatches runs the suite in a process of its own for each fault: it must fail, in the test that is about it.
func TestSuiteCatches(t *testing.T) {
	for fault, test := range faults() {
		t.Run(fault, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSuite$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), brokenEnv+"="+fault)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) {
				t.Fatalf("the suite passes (%v)", err)
			}
			if !strings.Contains(out.String(), "--- FAIL: TestSuite/"+test+" ") {
				t.Errorf("test %s passes; output:\n%s", test, out.String())
			}
		})
	}
}

// TestSuiteOnLesserStores: what a store is declared to lack is allowed to be missing.
func TestSuiteOnLesserStores(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return noMatch{mem.New(mem.Options{})} },
		storetest.Options{NoPutIfMatch: true, BigObject: 64 << 10})
}

type noMatch struct{ objectstore.Store }

func (noMatch) PutIfMatch(context.Context, string, string, []byte, string) (objectstore.Info, error) {
	return objectstore.Info{}, objectstore.ErrUnsupported
}
