// Package storetest is the conformance suite of object stores: every driver, and every wrapper around one, passes it.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) objectstore.Store { return mem.New(mem.Options{}) }, storetest.Options{})
//	}
//
// Each test opens a store of its own. Where opening is expensive (a real bucket), the function may give each test another prefix
// of one bucket; the suite closes what it gets.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/objectstore"
)

// Options say what a store is known to lack. What it has is tested; what it lacks must be refused as documented.
type Options struct {
	// NoPutIfMatch: PutIfMatch is ErrUnsupported.
	NoPutIfMatch bool
	// ContentIDs: the store keeps no writers' IDs, recognises its own writes by their content, and leaves Info.ID empty.
	ContentIDs bool
	// NoKeyBelowKey: the store keeps keys as files in folders, so that of "p" and "p/q" it holds the one that came first, and refuses the
	// other, definitely.
	NoKeyBelowKey bool
	// HidesKeyBelowKey: the store holds "p" and "p/q" both, but a list shows "p" only.
	HidesKeyBelowKey bool
	// NoDotPrefix: a list by a prefix whose last element is "." or ".." is refused.
	NoDotPrefix bool
	// PlainKeys: a list may skip keys with characters that URLs escape, at the edges of its pages. Other keys are listed right.
	PlainKeys bool
	// RacyConditions: conditional writes check first and write then, so that two at once may both succeed. Such a store is unfit for anything but
	// tests; the suite leaves out its races and the probe, which may or may not notice.
	RacyConditions bool
	// NoBlankKey: a key of nothing but spaces is ErrInvalidKey.
	NoBlankKey bool
	// ClockSkew is by how much the clock that gives Info.Modified may differ from this machine's. Default: 5 minutes.
	ClockSkew time.Duration
	// BigObject is the size of the largest object put. Default: 8 MiB.
	BigObject int
}

func (o Options) withDefaults() Options {
	if o.ClockSkew == 0 {
		o.ClockSkew = 5 * time.Minute
	}
	if o.BigObject == 0 {
		o.BigObject = 8 << 20
	}
	return o
}

// suite is one test's store.
type suite struct {
	*testing.T
	ctx   context.Context
	store objectstore.Store
	opt   Options
}

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) objectstore.Store, opt Options) {
	t.Helper()
	opt = opt.withDefaults()
	for _, tc := range []struct {
		name string
		run  func(s *suite)
	}{
		{"RoundTrip", roundTrip},
		{"Info", infoFields},
		{"BodyIsNotShared", bodyIsNotShared},
		{"Range", ranges},
		{"Tail", tails},
		{"Absent", absent},
		{"PutTwice", putTwice},
		{"PutRace", putRace},
		{"PutRaceSameID", putRaceSameID},
		{"PutIfMatch", putIfMatch},
		{"PutIfMatchRace", putIfMatchRace},
		{"InvalidKeys", invalidKeys},
		{"OddKeys", oddKeys},
		{"InvalidArguments", invalidArguments},
		{"KeyAndPrefix", keyAndPrefix},
		{"ListOrder", listOrder},
		{"ListPrefix", listPrefix},
		{"ListStartAfter", listStartAfter},
		{"ListPages", listPages},
		{"ListWhileWriting", listWhileWriting},
		{"Delete", deletes},
		{"DeleteErrors", deleteErrors},
		{"DeleteRace", deleteRace},
		{"Cancelled", cancelled},
		{"CancelMidway", cancelMidway},
		{"Probe", probe},
		{"Close", closed},
	} {
		if opt.RacyConditions && (strings.Contains(tc.name, "Race") || tc.name == "Probe") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			tc.run(&suite{T: t, ctx: t.Context(), store: store, opt: opt})
		})
	}
}

// want fails the test unless err is of the class (nil: no error).
func (s *suite) want(err, class error, what string, args ...any) {
	s.Helper()
	if class == nil && err != nil || class != nil && !errors.Is(err, class) {
		s.Fatalf("%s: got error %v, want %v", fmt.Sprintf(what, args...), err, class)
	}
	if class != nil && objectstore.IsIndefinite(err) {
		s.Fatalf("%s: %v is indefinite, want definite", fmt.Sprintf(what, args...), err)
	}
}

func (s *suite) put(key string, body []byte, id string) objectstore.Info {
	s.Helper()
	info, err := s.store.PutIfAbsent(s.ctx, key, body, id)
	s.want(err, nil, "put %s", key)
	return info
}

func (s *suite) wantBody(key string, body []byte) {
	s.Helper()
	got, _, err := s.store.Get(s.ctx, key)
	s.want(err, nil, "get %s", key)
	if !bytes.Equal(got, body) {
		s.Fatalf("get %s: %d bytes that differ from the %d written", key, len(got), len(body))
	}
}

// keys lists all keys below a prefix, limit a page, and checks what every page must hold.
func (s *suite) keys(prefix string, limit int) []string {
	s.Helper()
	var keys []string
	for after := ""; ; {
		page, err := s.store.List(s.ctx, prefix, after, limit)
		s.want(err, nil, "list %q after %q", prefix, after)
		if len(page.Objects) > limit {
			s.Fatalf("list %q: %d objects, limit %d", prefix, len(page.Objects), limit)
		}
		for _, o := range page.Objects {
			if o.Key <= after {
				s.Fatalf("list %q: key %q does not come after %q", prefix, o.Key, after)
			}
			after = o.Key
			keys = append(keys, o.Key)
		}
		if page.Next == "" {
			return keys
		}
		if len(page.Objects) != limit {
			s.Fatalf("list %q: %d objects and another page, limit %d", prefix, len(page.Objects), limit)
		}
		if page.Next < after {
			s.Fatalf("list %q: next %q is before the last key %q", prefix, page.Next, after)
		}
		after = page.Next
	}
}

// payload gives n bytes that look random and depend on seed.
func payload(n int, seed uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}
