package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// printQueue is a queue in memory, for one caller at a time. Receipts are values.
type printQueue struct {
	ready, acked []string
	leased       []string
}

func newPrintQueue(n int) *printQueue {
	q := &printQueue{}
	for i := range n {
		q.ready = append(q.ready, fmt.Sprintf("v%d", i))
	}
	return q
}

func (q *printQueue) LeaseRaw(ctx context.Context, o client.LeaseOptions) ([]client.RawMessage, error) {
	n := min(o.Max, len(q.ready))
	if n == 0 && o.Wait > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := make([]client.RawMessage, n)
	for i, v := range q.ready[:n] {
		out[i] = client.RawMessage{Receipt: v, JSON: []byte(v)}
	}
	q.leased, q.ready = append(q.leased, q.ready[:n]...), q.ready[n:]
	return out, nil
}

func (q *printQueue) settle(receipts []string, to *[]string) []client.SettleResult {
	results := make([]client.SettleResult, len(receipts))
	for i, r := range receipts {
		results[i].Receipt = r
		if at := slices.Index(q.leased, r); at >= 0 {
			q.leased = slices.Delete(q.leased, at, at+1)
			*to = append(*to, r)
		} else {
			results[i].Code = client.ErrLeaseLost.Code
		}
	}
	return results
}

func (q *printQueue) Ack(_ context.Context, receipts []string) ([]client.SettleResult, error) {
	return q.settle(receipts, &q.acked), nil
}

func (q *printQueue) Nack(_ context.Context, receipts []string, _ client.NackOptions) ([]client.SettleResult, error) {
	return q.settle(receipts, &q.ready), nil
}

func TestPrint(t *testing.T) {
	q := newPrintQueue(25)
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
	if diff := cmp.Diff(client.WorkerStats{Leased: 25, Acked: 25}, stats); err != nil || diff != "" || len(got) != 25 || got[24] != "v24" {
		t.Errorf("%v, %d printed\n%s", err, len(got), diff)
	}
	if len(q.acked) != 25 {
		t.Errorf("%d records are acked", len(q.acked))
	}
}

// TestPrintThatFails: what may not have been printed is not acked.
func TestPrintThatFails(t *testing.T) {
	q := newPrintQueue(3)
	full := errors.New("disk full")
	stats, err := Print(t.Context(), PrintOptions{
		Queue: q, Lease: client.LeaseOptions{Max: 2}, Once: true, Print: func([]client.RawMessage) error { return full },
	})
	if diff := cmp.Diff(client.WorkerStats{Leased: 2, GivenBack: 2}, stats); !errors.Is(err, full) || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(q.acked) != 0 || len(q.ready) != 3 {
		t.Errorf("%d records are acked, %d ready", len(q.acked), len(q.ready))
	}
}

func TestPrintDrainsWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		begin := time.Now()
		stats, err := Print(t.Context(), PrintOptions{Queue: newPrintQueue(0), Lease: client.LeaseOptions{Max: 1, Wait: 20 * time.Second}, Drain: drain})
		if err != nil || stats != (client.WorkerStats{}) || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v after %s", stats, err, time.Since(begin))
		}
	})
}
