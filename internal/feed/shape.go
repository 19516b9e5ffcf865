package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/forebaymq/forebay/client"
)

// Shape says how a line becomes a record.
type Shape struct {
	Kind        client.Kind     // KindJSON or KindText
	KeyField    string          // path of the key in a JSON line: "path", "user.id" or a JSON pointer "/user/id"; "" = no key
	KeyOptional bool            // a line without the KeyField is published without a key; else it is an error
	Key         []byte          // key of every record, where there is no KeyField; nil = none
	Tombstone   string          // "change=D": a JSON line whose field has this value becomes a tombstone of its key; "" = none
	Headers     []client.Header // of every record
}

// Validate reports every fault.
func (s Shape) Validate() error {
	var errs []error
	if s.Kind != client.KindJSON && (s.KeyField != "" || s.Tombstone != "") {
		errs = append(errs, errors.New("key-field and tombstone-field look into JSON: they need value-as json"))
	}
	if s.KeyField != "" && s.Key != nil {
		errs = append(errs, errors.New("key and key-field exclude each other"))
	}
	if s.Tombstone != "" {
		if field, _, ok := strings.Cut(s.Tombstone, "="); !ok || field == "" {
			errs = append(errs, fmt.Errorf("tombstone-field %q: want FIELD=VALUE", s.Tombstone))
		}
		if s.KeyField == "" && s.Key == nil {
			errs = append(errs, errors.New("tombstone-field needs a key: a tombstone without one deletes nothing"))
		}
	}
	return errors.Join(errs...)
}

// Record makes the record of a line. Its Value is the line itself.
func (s Shape) Record(text []byte) (client.Record, error) {
	r := client.Record{Value: text, Kind: s.Kind, Key: s.Key, Headers: s.Headers}
	if s.Kind == client.KindText {
		if !utf8.Valid(text) {
			return r, errors.New("is not UTF-8")
		}
		return r, nil
	}
	if !json.Valid(text) {
		return r, errors.New("is not JSON (--value-as text takes any line)")
	}
	if s.KeyField != "" {
		key, found, err := field(text, s.KeyField)
		if err != nil {
			return r, err
		}
		switch {
		case found:
			r.Key = key
		case !s.KeyOptional:
			return r, fmt.Errorf("has no field %q for its key (--key-optional publishes such lines without a key)", s.KeyField)
		}
	}
	if s.Tombstone != "" {
		name, want, _ := strings.Cut(s.Tombstone, "=")
		got, found, err := field(text, name)
		if err != nil {
			return r, err
		}
		if found && string(got) == want {
			if r.Key == nil {
				return r, errors.New("would be a tombstone, but has no key")
			}
			r.Value, r.Kind = nil, 0
		}
	}
	return r, nil
}

// field finds a value by path. A string gives its text, null is as good as absent, and anything else gives its JSON text.
func field(text []byte, path string) (value []byte, found bool, err error) {
	raw := json.RawMessage(text)
	for _, name := range steps(path) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, false, nil // not an object: it has no fields
		}
		next, ok := object[name]
		if !ok {
			return nil, false, nil
		}
		raw = next
	}
	raw = bytes.TrimSpace(raw)
	if bytes.Equal(raw, []byte("null")) {
		return nil, false, nil
	}
	if raw[0] != '"' {
		return raw, true, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, false, fmt.Errorf("field %s: %w", path, err)
	}
	return []byte(s), true, nil
}

// steps splits a path: a JSON pointer where it begins with a slash, else at its dots.
func steps(path string) []string {
	if !strings.HasPrefix(path, "/") {
		return strings.Split(path, ".")
	}
	parts := strings.Split(path[1:], "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts
}
