package file

import (
	"path"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/objectstore"
)

func TestKeyPath(t *testing.T) {
	for key, want := range map[string]string{
		"a":                  "a",
		"l0/7f/01J.seg":      "l0.d/7f.d/01J.seg",
		"a.d":                "a%2Ed",
		"a.d/b.d":            "a.d.d/b%2Ed",
		".tmp":               "%2Etmp",
		".tmp/x":             "%2Etmp.d/x",
		"...":                "%2E..",
		".d":                 "%2Ed", // the leading dot is escaped already
		"50%":                "50%25",
		"%2E":                "%252E",
		"a%2Ed":              "a%252Ed",
		"ttl=1d/l1/00/x.y z": "ttl=1d.d/l1.d/00.d/x.y z",
	} {
		if got := keyPath(key); got != want {
			t.Errorf("keyPath(%q) = %q, want %q", key, got, want)
		}
	}
	long := strings.Repeat("%", objectstore.MaxElementBytes)
	for _, key := range []string{long, "a/" + long, long + "/a"} {
		if got := keyPath(key); got != "" {
			t.Errorf("keyPath of an element that escapes to %d bytes = %q", 3*len(long), got)
		}
	}
}

func TestForeignNames(t *testing.T) {
	for _, name := range []string{".tmp", ".hidden", "a.d", "a%", "a%2", "a%41", "a%2E", "%2e", "%25.d", "a%2Ed.d", ".d"} {
		if elem, ok := elementOf(name, false); ok {
			t.Errorf("file %q is taken for the element %q", name, elem)
		}
	}
	for _, name := range []string{".tmp", "a", "lost+found", ".d", "..d", "a%.d", ".x.d"} {
		if elem, ok := elementOf(name, true); ok {
			t.Errorf("folder %q is taken for the element %q", name, elem)
		}
	}
}

// pathKey is the inverse that List computes element by element.
func pathKey(p string) (string, bool) {
	elems := strings.Split(p, "/")
	for i, name := range elems {
		elem, ok := elementOf(name, i < len(elems)-1)
		if !ok {
			return "", false
		}
		elems[i] = elem
	}
	return strings.Join(elems, "/"), true
}

// FuzzKeyPath: no two keys share a path, no key is the path of another's folder, and none leaves the root or meets the temp folder.
func FuzzKeyPath(f *testing.F) {
	for _, key := range []string{"a", "l0/7f/x.seg", "a.d/b", ".d", "%", "%2E", "%252E/.x", "a.d.d", "..a/...", "a%2Ed/x", "é/.tmp"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if objectstore.ValidateKey(key) != nil {
			return
		}
		p := keyPath(key)
		if p == "" {
			return
		}
		if back, ok := pathKey(p); !ok || back != key {
			t.Fatalf("key %q has path %q, which is the key %q (%v)", key, p, back, ok)
		}
		if path.Clean(p) != p || strings.HasPrefix(p, ".") || strings.HasPrefix(p, "/") {
			t.Fatalf("key %q has path %q", key, p)
		}
		if strings.HasSuffix(p, dirSuffix) {
			t.Fatalf("object %q has the name of a folder: %q", key, p)
		}
	})
}
