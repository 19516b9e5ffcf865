package s3bucket

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Settings are the query of a store's URL, taken one by one. Faults are gathered and told together.
type Settings struct {
	query url.Values
	known []string
	errs  []error
}

// NewSettings takes the query of a URL.
func NewSettings(query url.Values) *Settings { return &Settings{query: maps.Clone(query)} }

// Text takes a setting; "" if it is not there.
func (s *Settings) Text(name string) string {
	s.known = append(s.known, name)
	values := s.query[name]
	delete(s.query, name)
	switch {
	case len(values) > 1:
		s.errs = append(s.errs, fmt.Errorf("%s is given %d times", name, len(values)))
		return ""
	case len(values) == 0:
		return ""
	case values[0] == "":
		s.errs = append(s.errs, fmt.Errorf("%s is empty", name))
	}
	return values[0]
}

// Bool takes a setting that is true or false, or not there.
func (s *Settings) Bool(name string, otherwise bool) bool {
	text := s.Text(name)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s=%s: want true or false", name, text))
	}
	return v
}

// Err says what is wrong: bad values, and settings that nobody took, with those that there are.
func (s *Settings) Err() error {
	errs := slices.Clone(s.errs)
	if len(s.query) > 0 {
		slices.Sort(s.known)
		errs = append(errs, fmt.Errorf("unknown settings: %s; known are %s",
			strings.Join(slices.Sorted(maps.Keys(s.query)), ", "), strings.Join(s.known, ", ")))
	}
	return errors.Join(errs...)
}

// PrefixOf makes the prefix of all keys of a URL's path: "/a/b/" gives "a/b/".
func PrefixOf(path string) (string, error) {
	path = strings.Trim(path, "/")
	if path == "" {
		return "", nil
	}
	prefix := path + "/"
	return prefix, ValidatePrefix(prefix)
}
