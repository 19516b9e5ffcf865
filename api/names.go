package api

import (
	"strings"
)

// ValidName says whether s may name a topic, a subscription or a group: ^[A-Za-z0-9._-]{1,200}$, not "." or "..", and not in the
// reserved space that starts with "__".
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxNameLength || s == "." || s == ".." || strings.HasPrefix(s, "__") {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckName returns an INVALID_REQUEST that names the field and the remedy when s is not a valid name.
func CheckName(field, s string) error {
	if ValidName(s) {
		return nil
	}
	e := Errorf(CodeInvalidRequest, "%s is not a valid name: use 1 to 200 of A-Z a-z 0-9 . _ -, not \".\" or \"..\", not starting with \"__\"", field)
	e.Fields = []FieldError{{Pointer: field, Detail: "must match ^[A-Za-z0-9._-]{1,200}$ and not start with __"}}
	return e
}
