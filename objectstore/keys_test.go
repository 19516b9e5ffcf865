package objectstore_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/forebaymq/forebay/objectstore"
)

func FuzzValidateKey(f *testing.F) {
	for _, key := range []string{"", "a", "a/b", "/", "a/", "//", ".", "..", "...", "a/../b", "\x00", "é", "\xff", "a\u0085", strings.Repeat("a/", 600), strings.Repeat("x", 241)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		err := objectstore.ValidateKey(key)
		good := key != "" && len(key) <= objectstore.MaxKeyBytes && utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
		for _, elem := range strings.Split(key, "/") {
			good = good && elem != "" && elem != "." && elem != ".." && len(elem) <= objectstore.MaxElementBytes
		}
		if good != (err == nil) || err != nil && !errors.Is(err, objectstore.ErrInvalidKey) {
			t.Errorf("key %q: %v, want valid: %v", key, err, good)
		}
	})
}
