package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

type strictBody struct {
	Epoch  int64             `json:"epoch"`
	Count  int               `json:"count"`
	Part   int32             `json:"part"`
	Maybe  *int64            `json:"maybe"`
	Name   string            `json:"name"`
	On     bool              `json:"on"`
	Wait   Duration          `json:"wait"`
	At     Time              `json:"at"`
	Nested struct{ X int64 } `json:"nested"`
	Items  []struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	} `json:"items"`
	Offsets map[string]int64 `json:"offsets"`
}

func TestDecodeStrict(t *testing.T) {
	got := strictBody{Name: "kept"}
	err := DecodeStrict([]byte(` {"epoch":9223372036854775807,"count":-3,"part":2147483647,"maybe":5,"on":true,"wait":"1m","at":"2026-03-04T05:06:07.008Z",
		"nested":{"X":0},"items":[{"partition":1,"offset":2}],"offsets":{"0":42}} `), &got)
	want := strictBody{Epoch: 9223372036854775807, Count: -3, Part: 2147483647, Name: "kept", On: true, Wait: Duration(time.Minute), At: 1772600767008,
		Offsets: map[string]int64{"0": 42}}
	want.Maybe = new(int64)
	*want.Maybe = 5
	want.Items = append(want.Items, struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := DecodeStrict([]byte(`{"maybe":null}`), &got); err != nil || got.Maybe != nil {
		t.Errorf("null in an optional member: %v, %v", got.Maybe, err)
	}
}

func TestDecodeStrictRefused(t *testing.T) {
	for in, pointer := range map[string]string{
		``:                              "",
		"\n":                            "",
		`null`:                          "",
		`[]`:                            "",
		`"a"`:                           "",
		`{"epoch":1`:                    "",
		`{"epoch":1}}`:                  "",
		`{"epoch":1}{}`:                 "",
		`{"epoch":1,"epoch":1}`:         "/epoch",
		`{"epoch":1,"\u0065poch":1}`:    "/epoch",
		`{"Epoch":1}`:                   "/Epoch",
		`{"x":1}`:                       "/x",
		`{"nested":{"y":1}}`:            "/nested/y",
		`{"items":[{"a~/b":1}]}`:        "/items/0/a~0~1b",
		`{"epoch":1e3}`:                 "/epoch",
		`{"epoch":1.5}`:                 "/epoch",
		`{"epoch":1.0}`:                 "/epoch",
		`{"epoch":-0}`:                  "/epoch",
		`{"epoch":"5"}`:                 "/epoch",
		`{"epoch":null}`:                "/epoch",
		`{"epoch":true}`:                "/epoch",
		`{"epoch":9223372036854775808}`: "/epoch",
		`{"count":1e0}`:                 "/count",
		`{"part":2147483648}`:           "/part",
		`{"maybe":1e3}`:                 "/maybe",
		`{"nested":{"X":1e3}}`:          "/nested/X",
		`{"items":[{"partition":0},{"partition":0.0}]}`: "/items/1/partition",
		`{"offsets":{"a":1,"b":-0}}`:                    "/offsets/b",
		`{"name":5}`:                                    "/name",
		`{"name":"\ud800"}`:                             "/name",
		"{\"name\":\"\xff\"}":                           "/name",
		"{\"\xff\":1}":                                  "",
		`{"on":"true"}`:                                 "/on",
		`{"on":1}`:                                      "/on",
		`{"items":{}}`:                                  "/items",
		`{"wait":5}`:                                    "/wait",
		`{"wait":"5"}`:                                  "/wait",
		`{"wait":null}`:                                 "/wait",
		`{"at":"today"}`:                                "/at",
		`{"at":5}`:                                      "/at",
	} {
		var into strictBody
		err := DecodeStrict([]byte(in), &into)
		if err == nil {
			t.Errorf("%s: accepted", in)
			continue
		}
		if code, at := faultOf(t, err); code != api.CodeInvalidRequest || at != pointer {
			t.Errorf("%s: %s at %q, want %q (%v)", in, code, at, pointer, err)
		}
	}
}
