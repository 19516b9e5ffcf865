package auth

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestFromHeader(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{[]string{"Bearer a.b.c"}, "a.b.c"},
		{[]string{"bearer a.b.c"}, "a.b.c"},
		{[]string{"BEARER   a.b.c "}, "a.b.c"},
		{[]string{"Bearer " + strings.Repeat("a", api.MaxTokenBytes)}, strings.Repeat("a", api.MaxTokenBytes)},
		{[]string{"Bearer " + strings.Repeat("a", api.MaxTokenBytes+1)}, ""},
		{[]string{"Bearer " + strings.Repeat(".", 1_000_000)}, ""},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"Bearer"}, ""},
		{[]string{"Bearer "}, ""},
		{[]string{"Bearer a b"}, ""},
		{[]string{"Bearer a.b.c, Bearer d.e.f"}, ""},
		{[]string{"Bearera.b.c"}, ""},
		{[]string{"Basic YTpi"}, ""},
		{[]string{"a.b.c"}, ""},
		{[]string{"Bearer a.b.c", "Bearer a.b.c"}, ""},
		{[]string{"Bearer a.b.c", ""}, ""},
	} {
		got, err := FromHeader(http.Header{"Authorization": c.in})
		if got != c.want || (err == nil) != (c.want != "") || err != nil && api.CodeOf(err) != api.CodeUnauthenticated {
			t.Errorf("%.40q: %.40q, %v", c.in, got, err)
		}
	}
}
