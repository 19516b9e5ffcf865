package wire

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

func TestAppendProblem(t *testing.T) {
	e := api.Errorf(api.CodeOffsetOutOfRange, "offset 5 is below the first").With("logStart", int64(9007199254740993)).With("head", 7).
		With("status", 200).With("bad", math.NaN())
	e.Fields = []api.FieldError{{Pointer: "/a~1b", Detail: "no \"such\""}}
	status, body := AppendProblem(nil, fmt.Errorf("read: %w", e), "req-1")
	want := `{"type":"urn:forebay:error:OFFSET_OUT_OF_RANGE","title":"The offset is outside the partition","status":416,"code":"OFFSET_OUT_OF_RANGE",` +
		`"detail":"offset 5 is below the first","requestId":"req-1","errors":[{"pointer":"/a~1b","detail":"no \"such\""}],"head":7,"logStart":9007199254740993}`
	if status != 416 || string(body) != want {
		t.Error(cmp.Diff(want, string(body)))
	}
}

// Every code of the table is rendered with its own status and code, as valid JSON.
func TestAppendProblemTable(t *testing.T) {
	for code, info := range api.Codes {
		status, body := AppendProblem([]byte("x"), &api.Error{Code: code, Detail: "d\xff", RetryAfter: 1500 * time.Millisecond}, "")
		var got map[string]any
		if err := stdjson.Unmarshal(body[1:], &got); err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if status != info.Status || got["code"] != string(code) || got["status"] != float64(info.Status) || got["title"] != info.Title || got["detail"] == "" {
			t.Errorf("%s: %d %s", code, status, body)
		}
		retry := RetryAfter(&api.Error{Code: code, RetryAfter: 1500 * time.Millisecond})
		if want := map[bool]string{true: "2", false: ""}[status == 429 || status == 503]; retry != want {
			t.Errorf("%s: Retry-After %q, want %q", code, retry, want)
		}
	}
	for after, want := range map[time.Duration]string{0: "1", -5: "1", time.Millisecond: "1", time.Second: "1", 1000 * time.Hour: "3600"} {
		if got := RetryAfter(&api.Error{Code: api.CodeOverloaded, RetryAfter: after}); got != want {
			t.Errorf("%v: %q, want %q", after, got, want)
		}
	}
}

// Text that is not meant for clients does not reach them.
func TestAppendProblemHidesInternals(t *testing.T) {
	cause := errors.New("dial 10.0.0.7:2379 secret")
	for _, err := range []error{
		cause,
		fmt.Errorf("open segment: %w", cause),
		&api.Error{Code: api.CodeInternal, Detail: "secret", Extra: map[string]any{"x": "secret"}},
		&api.Error{Code: "SECRET_CODE", Detail: "secret"},
		nil,
	} {
		status, body := AppendProblem(nil, err, "r")
		if status != 500 || strings.Contains(strings.ToLower(string(body)), "secret") || !strings.Contains(string(body), `"INTERNAL"`) {
			t.Errorf("%v: %s", err, body)
		}
	}
	unreadable := api.Errorf(api.CodeInternal, "secret").With("firstOffset", 7).With("nextOffset", 9).With("object", "secret")
	if _, body := AppendProblem(nil, unreadable, "r"); !strings.Contains(string(body), `"firstOffset":7`) || !strings.Contains(string(body), `"nextOffset":9`) || strings.Contains(string(body), "secret") {
		t.Errorf("where records cannot be read is not said, or too much is: %s", body)
	}
	_, body := AppendProblem(nil, &api.Error{Code: api.CodeStorageUnavailable, Detail: "the store is away", Cause: cause}, "r")
	if strings.Contains(string(body), "secret") {
		t.Errorf("%s", body)
	}
}
