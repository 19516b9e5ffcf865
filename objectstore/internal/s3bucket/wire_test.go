package s3bucket

import (
	"bytes"
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

func TestXMLRoot(t *testing.T) {
	for _, tc := range []struct{ body, root, fault string }{
		{`<?xml version="1.0"?><ListBucketResult xmlns="u"><Key>a</Key></ListBucketResult>` + "\n", "ListBucketResult", ""},
		{`<DeleteResult/>`, "DeleteResult", ""},
		{`<Error><Code>x</Code></Error>`, "Error", ""},
		{`<s3:Error xmlns:s3="u"></s3:Error>`, "Error", ""},
		{"", "", "empty"},
		{"  \n", "", "empty"},
		{`<ListBucketResult><Key>a</Key>`, "", "ends early"},
		{`<ListBucketResult><Key>a</Ke`, "", "ends early"},
		{`<ListBuck`, "", "not XML"},
		{`<html><body>busy</html`, "", "ends early"},
	} {
		root, err := xmlRoot([]byte(tc.body))
		if root != tc.root || (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("%q: %q, %v; want %q, %q", tc.body, root, err, tc.root, tc.fault)
		}
	}
}

func TestTruncated(t *testing.T) {
	for body, want := range map[string]bool{
		"<IsTruncated>true</IsTruncated>":                 true,
		"<IsTruncated>\n true </IsTruncated>":             true,
		"<a/><IsTruncated>True</IsTruncated>":             true,
		"<IsTruncated>false</IsTruncated>":                false,
		"<IsTruncated/>":                                  false,
		"":                                                false,
		"<Key>&lt;IsTruncated&gt;true</Key>":              false,
		"<IsTruncated>" + strings.Repeat(" ", 100) + "x<": false,
	} {
		if got := truncated([]byte(body)); got != want {
			t.Errorf("%q: %v, want %v", body, got, want)
		}
	}
}

func TestParseContentRange(t *testing.T) {
	for s, want := range map[string][3]int64{
		"bytes 0-9/100":   {0, 9, 100},
		"bytes 99-99/100": {99, 99, 100},
		"bytes 0-0/1":     {0, 0, 1},
	} {
		first, last, size, ok := parseContentRange(s)
		if !ok || [3]int64{first, last, size} != want {
			t.Errorf("%q: %d-%d/%d %v, want %v", s, first, last, size, ok, want)
		}
	}
	for _, s := range []string{
		"", "bytes", "bytes 0-9", "bytes 0-9/*", "bytes */100", "bytes 9-0/100", "bytes 0-100/100", "bytes -1-9/100", "bytes 0-9/-1", "items 0-9/100",
		"bytes 0-99999999999999999999/100", "bytes 0-9/100/2",
	} {
		if first, last, size, ok := parseContentRange(s); ok {
			t.Errorf("%q: %d-%d/%d, want a refusal", s, first, last, size)
		}
	}
}

func FuzzParseContentRange(f *testing.F) {
	f.Add("bytes 0-9/100")
	f.Add("bytes 0-9/*")
	f.Add("bytes 5-4/9")
	f.Fuzz(func(t *testing.T, s string) {
		first, last, size, ok := parseContentRange(s)
		if ok && (first < 0 || first > last || last >= size) {
			t.Errorf("%q: %d-%d/%d", s, first, last, size)
		}
	})
}

// FuzzXMLRoot: what a store answers never makes it panic, and what is called whole has an end.
func FuzzXMLRoot(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><ListBucketResult></ListBucketResult>`))
	f.Add([]byte(`<Error><Code>x`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = truncated(body)
		if root, err := xmlRoot(body); err == nil && (root == "" || !bytes.Contains(body, []byte(">"))) {
			t.Errorf("%q is whole, root %q", body, root)
		}
	})
}

// TestIDs: every ID that the contract allows survives as a header, and has nothing in it that a header loses.
func TestIDs(t *testing.T) {
	var all strings.Builder
	for c := byte(0x20); c < 0x7f; c++ {
		all.WriteByte(c)
	}
	for _, id := range []string{"01JABCDEFGHJKMNPQRSTVWXYZ0", " ", "  a  b  ", "%41", "a+b", all.String(), strings.Repeat("~", objectstore.MaxIDBytes)} {
		value := escapeID(id)
		if strings.ContainsAny(value, " \"\\,;\t") {
			t.Errorf("%q is kept as %q", id, value)
		}
		if got := unescapeID(value); got != id {
			t.Errorf("%q came back as %q", id, got)
		}
	}
	if got := escapeID("01JABCDEFGHJKMNPQRSTVWXYZ0"); got != "01JABCDEFGHJKMNPQRSTVWXYZ0" {
		t.Errorf("a ULID is kept as %q", got)
	}
	if got := unescapeID("%zz"); got != "" {
		t.Errorf("foreign metadata reads as %q", got)
	}
}

func TestChecksum(t *testing.T) {
	// The check value of CRC-32C: 0xE3069283 of "123456789".
	if got := checksum([]byte("123456789")); got != "4waSgw==" {
		t.Errorf("checksum %q", got)
	}
}

func TestRules(t *testing.T) {
	s := &Store{opt: Options{Prefix: "a/b/"}}
	for full, want := range map[string]string{
		"a/b/ttl=1d/": "ttl=1d/",
		"a/b/":        "",
		"a/":          "",
		"a":           "",
		"":            "",
		"a/bc/":       "/a/bc/",
		"q/":          "/q/",
	} {
		if got := s.cutRule(full); got != want {
			t.Errorf("rule %q is %q in the store, want %q", full, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	s := NewSettings(url.Values{"a": {"x"}, "b": {"true"}, "c": {"maybe"}, "d": {"1", "2"}, "e": {""}, "z": {"?"}})
	if s.Text("a") != "x" || !s.Bool("b", false) || !s.Bool("absent", true) {
		t.Error("settings read wrong")
	}
	s.Bool("c", false)
	s.Text("d")
	s.Text("e")
	err := s.Err()
	for _, want := range []string{"c=maybe: want true or false", "d is given 2 times", "e is empty", "unknown settings: z; known are a, absent, b, c, d, e"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for path, want := range map[string]string{"": "", "/": "", "/a": "a/", "/a/b/": "a/b/"} {
		if got, err := PrefixOf(path); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"/a//b", "/..", "/a/./b", "/a\x00"} {
		if got, err := PrefixOf(path); !errors.Is(err, objectstore.ErrInvalidKey) {
			t.Errorf("%q: %q, %v, want ErrInvalidKey", path, got, err)
		}
	}
}

func TestPossible(t *testing.T) {
	for prefix, want := range map[string]bool{
		"": true, "a": true, "a/": true, ".": true, "..": true, ".tmp/x": true, "a/..b": true, "é": true,
		"/": false, "a//": false, "../": false, "./a": false, "x/./y": false, "a/../": false, "\x00": false, "\xff": false, "a\nb": false,
	} {
		if got := possible(prefix); got != want {
			t.Errorf("%q: %v, want %v", prefix, got, want)
		}
	}
}

// TestEmptyExtent: what MinIO answers to the tail of an empty object.
func TestEmptyExtent(t *testing.T) {
	r := &reading{call: &Call{}, obj: &Object{ContentRange: "bytes 0--1/0"}}
	if first, last, size, err := r.extent(); first != 0 || last != -1 || size != 0 || err != nil {
		t.Errorf("%d-%d/%d, %v", first, last, size, err)
	}
	r.obj.Size = 1
	if _, _, _, err := r.extent(); !errors.Is(err, objectstore.ErrTruncated) {
		t.Errorf("one byte of an object of none: %v", err)
	}
}

// TestBeyond: no sum of a cut offset and length overflows.
func TestBeyond(t *testing.T) {
	if off := int64(beyond); off+beyond < off || int64(math.MaxInt64)-beyond < beyond {
		t.Error("offsets overflow")
	}
}
