package s3suite

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/internal/s3fake"
)

// readFaults: whatever happens to an answer, no wrong byte comes back as right.
func readFaults(s *suite) {
	store := s.driver()
	body := bytes.Repeat([]byte("0123456789"), 1000)
	_, err := store.PutIfAbsent(s.ctx, "k", body, "w")
	s.want(err, nil, false, "put")
	reads := map[string]func() error{
		"get":   func() error { _, _, err := store.Get(s.ctx, "k"); return err },
		"range": func() error { _, err := store.GetRange(s.ctx, "k", 5, 5000); return err },
		"tail":  func() error { _, _, err := store.GetTail(s.ctx, "k", 5000); return err },
	}
	for _, tc := range []struct {
		name  string
		f     s3fake.Fault
		class error
		only  string // "" = all reads
	}{
		{"reset mid-body", s3fake.Fault{CutBody: 3000}, objectstore.ErrTruncated, ""},
		{"reset before the body", s3fake.Fault{CutBody: -1}, objectstore.ErrTruncated, ""},
		{"a short range, announced as such", s3fake.Fault{CutBody: 3000, WrongLength: true}, objectstore.ErrTruncated, "range"},
		{"a short tail, announced as such", s3fake.Fault{CutBody: 3000, WrongLength: true}, objectstore.ErrTruncated, "tail"},
		{"a wrong checksum", s3fake.Fault{WrongSum: true}, objectstore.ErrTruncated, "get"},
		{"the range ignored", s3fake.Fault{IgnoreRange: true}, objectstore.ErrTruncated, "range"},
		{"the tail ignored", s3fake.Fault{IgnoreRange: true}, objectstore.ErrTruncated, "tail"},
		{"no answer", s3fake.Fault{DropBefore: true}, objectstore.ErrUnavailable, ""},
		{"500", s3fake.Fault{Status: 500, Code: "InternalError"}, objectstore.ErrUnavailable, ""},
		{"502", s3fake.Fault{Status: 502}, objectstore.ErrUnavailable, ""},
		{"503", s3fake.Fault{Status: 503}, objectstore.ErrThrottled, ""},
	} {
		s.server.SetScript(on("GET", 1<<30, tc.f))
		for name, read := range reads {
			if tc.only == "" || tc.only == name {
				s.want(read(), tc.class, false, name+" with "+tc.name)
			}
		}
	}
	s.server.SetScript(nil)
	for name, read := range reads {
		s.want(read(), nil, false, name)
	}
}

// readResetOnce: the retry wrapper reads again.
func readResetOnce(s *suite) {
	store := s.retrying()
	_, err := store.PutIfAbsent(s.ctx, "k", []byte("0123456789"), "w")
	s.want(err, nil, false, "put")
	s.server.SetScript(on("GET", 2, s3fake.Fault{CutBody: 4}))
	got, err := store.GetRange(s.ctx, "k", 2, 6)
	s.want(err, nil, false, "range through two resets")
	if string(got) != "234567" {
		s.Errorf("range %q", got)
	}
	s.wantCount("GET", 3)
}

// deleteErrorsInside is the first half of case S5: a delete is answered 200, and not everything is gone.
func deleteErrorsInside(s *suite) {
	store := s.driver()
	put := func() {
		for _, key := range []string{"a", "b", "c", "d", "e<&>"} {
			s.server.Put(key, "x", "w")
		}
	}
	put()
	s.server.SetScript(on("DELETE", 1, s3fake.Fault{KeyErrors: map[string]string{"b": "InternalError", "c": "AccessDenied", "d": "SlowDown", "absent": "NoSuchKey"}}))
	err := store.Delete(s.ctx, "a", "b", "c", "d", "e<&>", "absent")
	failed, _ := err.(objectstore.KeyErrors)
	if len(failed) != 3 {
		s.Fatalf("delete: %v, want errors of b, c and d", err)
	}
	s.want(failed["b"], objectstore.ErrUnavailable, true, "InternalError of a key")
	if failed["c"] == nil || objectstore.OutcomeOf(failed["c"]) != objectstore.Other {
		s.Errorf("AccessDenied of a key: %v", failed["c"])
	}
	s.want(failed["d"], objectstore.ErrThrottled, false, "SlowDown of a key")
	for key, there := range map[string]bool{"a": false, "b": true, "c": true, "d": true, "e<&>": false} {
		if _, got := s.server.Body(key); got != there {
			s.Errorf("object %s is there: %v, want %v", key, got, there)
		}
	}
	// The retry wrapper asks again for what may pass, and for nothing else.
	s.server.SetScript(on("DELETE", 2, s3fake.Fault{KeyErrors: map[string]string{"b": "InternalError", "d": "SlowDown"}}))
	s.want(s.retrying().Delete(s.ctx, "a", "b", "d"), nil, false, "delete under the retry wrapper")
	for _, tc := range []struct {
		name string
		f    s3fake.Fault
	}{
		{"an answer that mentions no key", s3fake.Fault{OmitKeys: true, NoEffectOK: true}},
		{"an error in an answer 200", s3fake.Fault{Inside: true, Code: "InternalError"}},
		{"an empty answer", s3fake.Fault{EmptyAnswer: true}},
		{"no answer", s3fake.Fault{DropAfter: true}},
	} {
		put()
		s.server.SetScript(on("DELETE", s.server.Count("DELETE")+1, tc.f))
		err := store.Delete(s.ctx, "a", "b")
		failed, _ := err.(objectstore.KeyErrors)
		if len(failed) != 2 || !objectstore.IsIndefinite(failed["a"]) || !objectstore.IsIndefinite(failed["b"]) {
			s.Errorf("delete with %s: %v, want both keys unknown", tc.name, err)
		}
	}
	s.server.SetScript(on("DELETE", s.server.Count("DELETE")+1, s3fake.Fault{Inside: true, Code: "SlowDown"}))
	err = store.Delete(s.ctx, "a", "b")
	s.want(err, objectstore.ErrThrottled, false, "delete with SlowDown in an answer 200")
}

// listErrorInside: an error in an answer 200 must not look like an empty bucket.
func listErrorInside(s *suite) {
	store := s.driver()
	s.server.Put("a", "x", "w")
	for code, class := range map[string]error{"InternalError": objectstore.ErrUnavailable, "SlowDown": objectstore.ErrThrottled} {
		s.server.SetScript(on("LIST", 1<<30, s3fake.Fault{Inside: true, Code: code}))
		_, err := store.List(s.ctx, "", "", 10)
		s.want(err, class, false, "list with "+code+" in an answer 200")
	}
	s.server.SetScript(on("LIST", 1<<30, s3fake.Fault{EmptyAnswer: true}))
	if page, err := store.List(s.ctx, "", "", 10); err == nil {
		s.Errorf("list of an empty answer: %+v, want an error", page)
	}
}

// listEdges is the other half of case S5: pages of exactly 1000, and stores that give less than they have.
func listEdges(s *suite) {
	store := s.driver()
	var keys []string
	for i := range 2001 {
		keys = append(keys, fmt.Sprintf("p/%04d", i))
	}
	for _, key := range keys[:1000] {
		s.server.Put(key, "x", "w")
	}
	page, err := store.List(s.ctx, "p/", "", 1000)
	s.want(err, nil, false, "list")
	if len(page.Objects) != 1000 || page.Next != "" {
		s.Fatalf("1000 keys: %d objects, next %q, want all and no more", len(page.Objects), page.Next)
	}
	s.wantCount("LIST", 1)
	for _, key := range keys[1000:] {
		s.server.Put(key, "x", "w")
	}
	for _, tc := range []struct{ short, limit int }{{0, 1000}, {0, 333}, {1000, 1000}, {999, 1000}, {333, 1000}} {
		s.server.SetScript(on("LIST", 1<<30, s3fake.Fault{ShortPage: tc.short}))
		if got := s.all(store, "p/", tc.limit); !slices.Equal(got, keys) {
			s.Fatalf("list by %d of a store that gives %d a page: %d keys, want %d, each once", tc.limit, tc.short, len(got), len(keys))
		}
	}
	for _, limit := range []int{1000, 10, 3} {
		s.server.SetScript(on("LIST", 1<<30, s3fake.Fault{ShortPage: 1}))
		if got := s.all(store, "p/000", limit); !slices.Equal(got, keys[:10]) {
			s.Fatalf("list by %d of a store that gives one key a page: %d keys, want 10", limit, len(got))
		}
	}
}

func (s *suite) all(store objectstore.Store, prefix string, limit int) []string {
	s.Helper()
	var keys []string
	for after := ""; ; {
		page, err := store.List(s.ctx, prefix, after, limit)
		s.want(err, nil, false, "list")
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if page.Next == "" {
			return keys
		}
		if len(page.Objects) != limit {
			s.Fatalf("a page of %d that is not the last, limit %d", len(page.Objects), limit)
		}
		after = page.Next
	}
}

// listCut: a list that ends early must not look like a short one.
func listCut(s *suite) {
	store := s.driver()
	for i := range 50 {
		s.server.Put(fmt.Sprintf("k%02d", i), "x", "w")
	}
	for _, f := range []s3fake.Fault{{CutBody: 2000}, {CutBody: 2000, WrongLength: true}, {CutBody: 10, WrongLength: true}} {
		s.server.SetScript(on("LIST", 1<<30, f))
		if page, err := store.List(s.ctx, "", "", 1000); err == nil || objectstore.OutcomeOf(err) == objectstore.Other {
			s.Errorf("list cut at %d: %d objects, %v; want an error that may be tried again", f.CutBody, len(page.Objects), err)
		}
	}
	s.server.SetScript(on("LIST", s.server.Count("LIST")+1, s3fake.Fault{CutBody: 2000}))
	if got := s.all(s.retrying(), "", 1000); len(got) != 50 {
		s.Errorf("list through a reset: %d keys, want 50", len(got))
	}
}

// keyBelowKey: S3 has no folders, so a key may have others below it.
func keyBelowKey(s *suite) {
	store := s.driver()
	keys := []string{"p", "p/q", "p/q/r"}
	for _, key := range keys {
		_, err := store.PutIfAbsent(s.ctx, key, []byte("body of "+key), "w")
		s.want(err, nil, false, "put "+key)
	}
	if got := s.all(store, "p", 10); !slices.Equal(got, keys) {
		s.Errorf("keys %q, want %q", got, keys)
	}
	s.want(store.Delete(s.ctx, "p", "p/q"), nil, false, "delete")
	body, _, err := store.Get(s.ctx, "p/q/r")
	s.want(err, nil, false, "get")
	if string(body) != "body of p/q/r" {
		s.Errorf("body %q", body)
	}
}
