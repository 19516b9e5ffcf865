package store

import (
	"strings"
	"testing"
)

func TestGroupKeysAgainstTheDocument(t *testing.T) {
	t.Parallel()
	r := miniRig(t)
	g := r.groups()
	ctx := t.Context()
	if _, err := g.Lock(ctx, 70, "n", lease); err != nil {
		t.Fatal(err)
	}
	if err := g.Publish(ctx, 70, 1, nil, []GroupSession{{Member: "a", Session: lease}}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetPositions(ctx, 70, 1, "w", []GroupPosition{{Topic: 1}}); err != nil {
		t.Fatal(err)
	}
	var tails []string
	for _, k := range documented(t, "Keys of a consumer group") {
		if k == "sessions" {
			k = "fb:{test.g6}:sessions"
		} else {
			k = "fb:{test.g6}:g:70:" + k
		}
		tails = append(tails, k)
	}
	for _, k := range r.mini.Keys() {
		if !strings.Contains(" "+strings.Join(tails, " ")+" ", " "+k+" ") {
			t.Errorf("%s is not documented", k)
		}
	}
	if len(r.mini.Keys()) != len(tails) {
		t.Errorf("%v are documented, there are %v", tails, r.mini.Keys())
	}
}
