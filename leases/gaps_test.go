package leases

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
)

func TestGapError(t *testing.T) {
	err := gapError(Name{"t", "orders", "work"}, []store.Gap{{Partition: 7, From: 3, To: 9}, {Partition: 2, From: 0, To: 4}})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeRetentionGap {
		t.Fatalf("got %v", err)
	}
	got, err := json.Marshal(e.Extra["gaps"])
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"partition":2,"from":0,"to":4},{"partition":7,"from":3,"to":9}]`; string(got) != want {
		t.Fatalf("gaps are %s, want %s", got, want)
	}
}
