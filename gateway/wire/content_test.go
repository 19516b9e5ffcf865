package wire

import (
	"net/http"
	"testing"

	"github.com/forebaymq/forebay/api"
)

func TestParseContentType(t *testing.T) {
	const refused = ContentType(255)
	for _, c := range []struct {
		in   []string
		want ContentType
	}{
		{nil, JSON},
		{[]string{"application/json"}, JSON},
		{[]string{"Application/JSON; charset=UTF-8"}, JSON},
		{[]string{`application/json;charset="utf-8"`}, JSON},
		{[]string{"application/x-protobuf"}, Protobuf},
		{[]string{"application/protobuf; proto=forebay.v1.PublishRequest"}, Protobuf},
		{[]string{"application/json; charset=latin1"}, refused},
		{[]string{"application/json; charset"}, refused},
		{[]string{"text/json"}, refused},
		{[]string{"application/x-www-form-urlencoded"}, refused},
		{[]string{""}, refused},
		{[]string{"application/json, application/json"}, refused},
		{[]string{"application/json", "application/json"}, refused},
	} {
		got, err := ParseContentType(http.Header{"Content-Type": c.in})
		if c.want == refused {
			if api.CodeOf(err) != api.CodeUnsupportedMediaType {
				t.Errorf("%q: %v, %v", c.in, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q: %v, %v, want %v", c.in, got, err, c.want)
		}
	}
	if JSON.String() != "application/json" || Protobuf.String() != "application/x-protobuf" {
		t.Error("media types")
	}
}

func TestNegotiateAccept(t *testing.T) {
	const refused = ContentType(255)
	for _, c := range []struct {
		in   []string
		want ContentType
	}{
		{nil, JSON},
		{[]string{"*/*"}, JSON},
		{[]string{"application/json"}, JSON},
		{[]string{"application/x-protobuf"}, Protobuf},
		{[]string{"application/protobuf"}, Protobuf},
		{[]string{"application/*"}, JSON},
		{[]string{"text/html, application/json;q=0.5"}, JSON},
		{[]string{"application/json, application/x-protobuf"}, JSON},
		{[]string{"application/json;q=0.5, application/x-protobuf"}, Protobuf},
		{[]string{"application/json;q=0.5", "application/x-protobuf;q=0.6"}, Protobuf},
		{[]string{"application/x-protobuf, */*;q=0.1"}, Protobuf},
		{[]string{"*/*, application/json;q=0"}, Protobuf},
		{[]string{"application/*;q=0, */*"}, refused},
		{[]string{"text/html"}, refused},
		{[]string{"application/json;q=0"}, refused},
		{[]string{"application/json;q=2"}, refused},
		{[]string{"application/json;q=NaN"}, refused},
		{[]string{""}, refused},
	} {
		got, err := NegotiateAccept(http.Header{"Accept": c.in})
		if c.want == refused {
			if api.CodeOf(err) != api.CodeUnsupportedMediaType {
				t.Errorf("%q: %v, %v", c.in, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q: %v, %v, want %v", c.in, got, err, c.want)
		}
	}
}
