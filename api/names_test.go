package api

import (
	"errors"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"orders": true, "a": true, "A.b_c-9": true, strings.Repeat("x", 200): true, "_one": true, "...": true,
		"": false, ".": false, "..": false, "__internal": false, "__": false, strings.Repeat("x", 201): false,
		"a/b": false, "a b": false, "é": false, "a\x00": false, "a\n": false, "\xff": false,
	} {
		if ValidName(name) != want {
			t.Errorf("ValidName(%q) = %v", name, !want)
		}
		err := CheckName("topic", name)
		if want != (err == nil) {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Code != CodeInvalidRequest || len(e.Fields) != 1 || e.Fields[0].Pointer != "topic") {
			t.Errorf("CheckName(%q) does not name the field: %v", name, err)
		}
	}
}
