package work

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/client"
)

func TestPrint(t *testing.T) {
	q := newFakeQueue(25)
	var got []string
	stats, err := Print(t.Context(), PrintOptions{
		Queue: q, Lease: client.LeaseOptions{Max: 10, Wait: time.Hour}, UntilEmpty: true,
		Print: func(messages []client.RawMessage) error {
			for _, m := range messages {
				got = append(got, string(m.JSON))
			}
			return nil
		},
	})
	if diff := cmp.Diff(Stats{Leased: 25, Acked: 25}, stats); err != nil || diff != "" || len(got) != 25 || got[24] != "v24" {
		t.Errorf("%v, %d printed\n%s", err, len(got), diff)
	}
	q.expect(t, 25)
}

// TestPrintThatFails: what may not have been printed is not acked.
func TestPrintThatFails(t *testing.T) {
	q := newFakeQueue(3)
	full := errors.New("disk full")
	stats, err := Print(t.Context(), PrintOptions{
		Queue: q, Lease: client.LeaseOptions{Max: 2}, Once: true, Print: func([]client.RawMessage) error { return full },
	})
	if diff := cmp.Diff(Stats{Leased: 2, GivenBack: 2}, stats); !errors.Is(err, full) || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	q.expect(t, 0)
	if len(q.ready) != 3 {
		t.Errorf("%d records are ready", len(q.ready))
	}
}

func TestPrintDrainsWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		begin := time.Now()
		stats, err := Print(t.Context(), PrintOptions{Queue: newFakeQueue(0), Lease: client.LeaseOptions{Max: 1, Wait: 20 * time.Second}, Drain: drain})
		if err != nil || stats != (Stats{}) || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v after %s", stats, err, time.Since(begin))
		}
	})
}
