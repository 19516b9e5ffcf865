package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
)

// newTestProducer gives a producer that is closed, and whose ghosts are waited for, at the end of the bubble.
func newTestProducer(t *testing.T, s *producerServer, opts ...ProducerOption) *Producer {
	t.Helper()
	p, err := NewProducer(s.client(), "t", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()); s.ghosts.Wait() })
	return p
}

func textRecord(key, value string) Record {
	r := Record{Value: []byte(value), Kind: KindText}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

func TestProducerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 1, producerFaults{})
		p := newTestProducer(t, s)
		var ds []*Delivery
		for i := range 100 {
			d, err := p.Send(t.Context(), textRecord("k", fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			ds = append(ds, d)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, d := range ds {
			at, err := d.Wait(t.Context())
			if err != nil || at != (Position{0, int64(i)}) || d.Duplicate() {
				t.Fatalf("record %d is at %v: %v", i, at, err)
			}
		}
		if len(s.mu.sizes) != 1 || len(s.values(0)) != 100 {
			t.Errorf("requests of %v records, %d stored", s.mu.sizes, len(s.values(0)))
		}
	})
}
