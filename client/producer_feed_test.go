package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// TestProducerSendAt: a feed that is begun anew skips what the topic has, and nothing else.
func TestProducerSendAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 3, producerFaults{})
		skipped := 0
		for run := range 3 {
			p, err := NewProducer(s.client(), "t", WithProducerID("feed"), WithProducerBatchRecords(7))
			if err != nil {
				t.Fatal(err)
			}
			for n := range 100 * (run + 1) {
				r := textRecord(fmt.Sprint("k", n%10), fmt.Sprint(n))
				if n%5 == 0 {
					r.Key = nil
				}
				d, err := p.SendAt(t.Context(), r, int64(n))
				if err != nil {
					t.Fatal(err)
				}
				if n < 100*run {
					if at, err := d.Wait(t.Context()); err != nil || at.Offset != -1 || !d.Duplicate() {
						t.Fatalf("line %d was sent again: %v %v", n, at, err)
					}
					skipped++
				}
			}
			if _, err := p.SendAt(t.Context(), textRecord("k", "x"), 5); err == nil {
				t.Error("a position that falls is accepted")
			}
			if _, err := p.Send(t.Context(), textRecord("k", "x")); err == nil {
				t.Error("Send after SendAt is accepted")
			}
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		total := 0
		for q := range 3 {
			total += len(s.values(q))
		}
		if total != 300 || skipped != 300 {
			t.Errorf("%d lines are there, %d were skipped", total, skipped)
		}
		at, err := mustProducer(t, s, WithProducerID("feed")).Positions(t.Context())
		if err != nil || len(at) != 3 {
			t.Errorf("positions %v: %v", at, err)
		}
	})
}

func mustProducer(t *testing.T, s *producerServer, opts ...ProducerOption) *Producer {
	t.Helper()
	p, err := NewProducer(s.client(), "t", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProducerSendAtRefuses: where it could not keep what it says, it says so.
func TestProducerSendAtRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 3, producerFaults{})
		for name, p := range map[string]*Producer{
			"no session": mustProducer(t, s, WithoutProducerIdempotence()),
			"after Send": mustProducer(t, s),
			"hidden":     mustProducer(t, s),
		} {
			s.mu.hidden = name == "hidden"
			if name == "after Send" {
				if _, err := p.Publish(t.Context(), textRecord("k", "x")); err != nil {
					t.Fatal(err)
				}
			}
			_, err := p.SendAt(t.Context(), textRecord("k", "x"), 1)
			if outcome, _ := Classify(err); outcome != Definite {
				t.Errorf("%s: %s %v", name, outcome, err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestProducerFeedProperty: a feed over a bad network, whose process dies again and again, ends with every line once and in order.
func TestProducerFeedProperty(t *testing.T) {
	runs := 0
	for seed := range producerSeeds(t) / 3 {
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runs += runFeed(t, seed) })
		}) {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d runs of feeds", runs)
}

func runFeed(t *testing.T, seed uint64) (runs int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	scale := rng.Float64() * 0.3
	s := newProducerServer(seed, 1+rng.IntN(5), producerFaults{
		loseRequest: scale, loseAnswer: rng.Float64() * scale, ghost: rng.Float64(), refuse: rng.Float64() * scale, unknown: rng.Float64() * scale,
		slow: rng.Float64() * scale,
	})
	lines := 50 + rng.IntN(200)
	var zombies []*Producer
	deliveries := map[int][]*Delivery{}
	for done := false; !done && runs < 200; runs++ {
		p := mustProducer(t, s, WithProducerID("feed"), WithProducerBatchRecords(1+rng.IntN(20)), WithProducerInFlight(1+rng.IntN(4)),
			WithProducerBuffer(int64(100+rng.IntN(3000))), WithProducerDeadline([]time.Duration{500 * time.Millisecond, 20 * time.Second}[rng.IntN(2)]))
		until := lines
		if runs < 5 {
			until = rng.IntN(lines)
		}
		var err error
		for n := 0; n < until && err == nil; n++ {
			r := textRecord(fmt.Sprint("k", n%7), fmt.Sprint("line", ":", n))
			if n%7 == 3 {
				r.Key = nil
			}
			var d *Delivery
			if d, err = p.SendAt(t.Context(), r, int64(n)); err == nil {
				deliveries[n] = append(deliveries[n], d)
			}
		}
		switch {
		case rng.IntN(3) == 0: // it lives on, and does not know yet that it has a successor
			zombies = append(zombies, p)
		case rng.IntN(2) == 0:
			now, cancel := context.WithCancel(t.Context())
			cancel()
			_ = p.Close(now)
		default:
			done = p.Close(t.Context()) == nil && err == nil && until == lines
		}
	}
	for _, p := range zombies {
		_ = p.Close(context.Background())
	}
	s.ghosts.Wait()
	seen := map[string]int{}
	for q := range s.mu.partitions {
		last := -1
		for _, v := range s.values(q) {
			seen[v]++
			n, err := strconv.Atoi(strings.TrimPrefix(v, "line:"))
			if err != nil || n <= last {
				t.Errorf("partition %d: %s is behind %d", q, v, last)
			}
			last = n
		}
	}
	for n := range lines {
		for _, d := range deliveries[n] {
			if at, err := d.Wait(t.Context()); err == nil && at.Offset >= 0 && s.values(int(at.Partition))[at.Offset] != fmt.Sprint("line:", n) {
				t.Errorf("line %d is not at %v", n, at)
			}
		}
		if seen[fmt.Sprint("line:", n)] != 1 {
			t.Errorf("line %d is there %d times after %d runs", n, seen[fmt.Sprint("line:", n)], runs)
		}
	}
	return runs
}

// TestProducerSendAtHalf: a successor has sent one of the two lines of a request that was lost, under the same position. The other is not there.
func TestProducerSendAtHalf(t *testing.T) {
	inBubble(t, 2, producerFaults{}, []ProducerOption{WithProducerID("p"), WithProducerInFlight(1)}, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, _ func() *http.Response) (*http.Response, error) {
			if n > 1 {
				return nil, nil
			}
			t.s.succeed("p")
			t.s.mu.Lock()
			defer t.s.mu.Unlock()
			if _, err := t.s.publishLocked(&forebayv1.PublishRequest{
				Records: []*forebayv1.Record{{Partition: new(int32(1)), Value: []byte("1")}}, Producer: &forebayv1.Producer{Id: "p", Epoch: 2, Sequence: 1},
			}); err != nil {
				t.Error(err)
			}
			return nil, errReset
		})
		var d [2]*Delivery
		for n := range 2 {
			var err error
			if d[n], err = t.p.SendAt(t.Context(), Record{Pinned: true, Partition: int32(n), Value: fmt.Append(nil, n)}, int64(n)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d[0].Wait(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("line 0 is not there: %v", err)
		}
	})
}
