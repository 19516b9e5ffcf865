package objectstore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the contract. They are the narrowest of the drivers', so that a key or ID that one store takes is taken by all.
const (
	// MaxKeyBytes is the length of a key (S3's limit).
	MaxKeyBytes = 1024
	// MaxElementBytes is the length of what stands between two slashes. The file driver keeps an element as a file name of at most
	// 255 bytes and needs a few of them for itself; an element full of characters that it must escape may be refused by it earlier.
	MaxElementBytes = 240
	// MaxIDBytes is the length of a writer's ID.
	MaxIDBytes = 128
	// MaxListKeys is how many keys one page of List has at most.
	MaxListKeys = 1000
	// MaxDeleteKeys is how many keys one Delete takes.
	MaxDeleteKeys = 1000
)

// ValidateKey says why a key cannot name an object; the error is ErrInvalidKey. A key is 1 to MaxKeyBytes bytes of valid UTF-8 without
// control characters: elements of 1 to MaxElementBytes bytes, none of them "." or "..", joined by single slashes.
//
// A key may be an object and at the same time a prefix of other keys up to a slash ("a" beside "a/b"), in every driver.
func ValidateKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidKey, len(key), MaxKeyBytes)
	}
	for rest, more := key, true; more; {
		var elem string
		elem, rest, more = strings.Cut(rest, "/")
		switch {
		case elem == "":
			return fmt.Errorf("%w %q: empty element (leading, trailing or double slash)", ErrInvalidKey, key)
		case elem == "." || elem == "..":
			return fmt.Errorf("%w %q: element %q", ErrInvalidKey, key, elem)
		case len(elem) > MaxElementBytes:
			return fmt.Errorf("%w %q: element of %d bytes, at most %d", ErrInvalidKey, key, len(elem), MaxElementBytes)
		}
	}
	if ascii(key) {
		return nil
	}
	if !utf8.ValidString(key) {
		return fmt.Errorf("%w %q: not UTF-8", ErrInvalidKey, key)
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%w %q: control character", ErrInvalidKey, key)
	}
	return nil
}

// ascii says whether every byte is printable ASCII or a space: the common case, for which the slower checks are not needed.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// ValidateID says why a string cannot be a writer's ID (1 to MaxIDBytes printable ASCII characters); the error is ErrInvalidArgument.
func ValidateID(id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return fmt.Errorf("%w: writer ID of %d bytes, want 1 to %d", ErrInvalidArgument, len(id), MaxIDBytes)
	}
	if !ascii(id) {
		return fmt.Errorf("%w: writer ID %q, want printable ASCII", ErrInvalidArgument, id)
	}
	return nil
}

// ValidatePut checks the arguments of PutIfAbsent and PutIfMatch.
func ValidatePut(key, id string) error {
	if err := ValidateKey(key); err != nil {
		return err
	}
	return ValidateID(id)
}

// ValidateRange checks the arguments of GetRange; the error is ErrInvalidRange.
func ValidateRange(off, n int64) error {
	if off < 0 || n <= 0 {
		return fmt.Errorf("%w: offset %d, length %d", ErrInvalidRange, off, n)
	}
	return nil
}

// ValidateListLimit checks the limit of List; the error is ErrInvalidArgument.
func ValidateListLimit(limit int) error {
	if limit < 1 || limit > MaxListKeys {
		return fmt.Errorf("%w: list limit %d, want 1 to %d", ErrInvalidArgument, limit, MaxListKeys)
	}
	return nil
}

// ValidateDelete checks how many keys a Delete has; the error is ErrInvalidArgument. Bad keys are KeyErrors, not this.
func ValidateDelete(keys []string) error {
	if len(keys) > MaxDeleteKeys {
		return fmt.Errorf("%w: delete of %d keys, at most %d", ErrInvalidArgument, len(keys), MaxDeleteKeys)
	}
	return nil
}
