package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// queueLoad is a crowd of workers that compete for one subscription and behave badly in turn.
type queueLoad struct {
	topic, sub string
	workers    int
	batch      int
	visibility time.Duration
	seed       uint64
	pace       time.Duration // how long a worker works on a batch
	nodes      []*rest
	// Chances in percent: that a worker refuses a record, and that it works on a batch for longer than its leases live, or drops it half done
	// as if it had died. The rest is acked.
	nack, stall, die int
	poison           func(slot) bool // nacked whenever delivered; nil = none
	records          map[slot]origin
	h                *QueueHistory
}

// origin is what was published at a slot.
type origin struct {
	key   string
	index int // among the records of its key
}

type queueMessage struct {
	Receipt        string    `json:"receipt"`
	Partition      int       `json:"partition"`
	Offset         int64     `json:"offset"`
	Attempt        int       `json:"attempt"`
	LeaseExpiresAt time.Time `json:"leaseExpiresAt"`
	Key            string    `json:"key"`
}

type settleAnswer struct {
	Results []struct {
		Receipt string `json:"receipt"`
		Code    string `json:"code"`
	} `json:"results"`
}

type queueStats struct {
	Partitions []struct {
		Partition   int   `json:"partition"`
		Frontier    int64 `json:"frontier"`
		Head        int64 `json:"head"`
		InFlight    int64 `json:"inFlight"`
		AckedAhead  int64 `json:"ackedAhead"`
		Delayed     int64 `json:"delayed"`
		Lag         int64 `json:"lag"`
		DeadLetters int64 `json:"deadLetters"`
	} `json:"partitions"`
}

func (l *queueLoad) path(what string) string {
	return "/v1/topics/" + l.topic + "/subscriptions/" + l.sub + what
}

// origins reads the whole topic and tells what stands where.
func origins(ctx context.Context, t *testing.T, node *rest, topic string, partitions int) map[slot]origin {
	t.Helper()
	all, seen := map[slot]origin{}, map[string]int{}
	for p := range partitions {
		for next := int64(0); ; {
			var out struct {
				Records []struct {
					Offset int64  `json:"offset"`
					Key    string `json:"key"`
				} `json:"records"`
				NextOffset, Head int64
			}
			if err := node.call(ctx, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&limit=5000", topic, p, next), nil, &out); err != nil {
				t.Fatal(err)
			}
			for _, r := range out.Records {
				all[slot{p, r.Offset}] = origin{r.Key, seen[r.Key]}
				seen[r.Key]++
			}
			if next = out.NextOffset; next >= out.Head {
				break
			}
		}
	}
	return all
}

// stats asks for the subscription's statistics.
func (l *queueLoad) stats(ctx context.Context, node *rest) (*queueStats, error) {
	var out queueStats
	if err := node.call(ctx, "GET", l.path(""), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// settledAll says whether nothing is left: every frontier is at its head and nothing is leased.
func (l *queueLoad) settledAll(ctx context.Context, node *rest) error {
	s, err := l.stats(ctx, node)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, p := range s.Partitions {
		total += p.Head
		if p.Frontier != p.Head || p.InFlight != 0 || p.Lag != 0 || p.AckedAhead != 0 {
			return fmt.Errorf("partition %d: %+v", p.Partition, p)
		}
	}
	if total != int64(len(l.records)) {
		return fmt.Errorf("heads sum to %d, want %d", total, len(l.records))
	}
	return nil
}

// run works until everything is settled or ctx ends.
func (l *queueLoad) run(ctx context.Context, t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(l.seed, 1<<32))
	if err := l.workUntil(ctx, t, func() error {
		return within(ctx, func() error { return l.settledAll(ctx, l.nodes[rng.IntN(len(l.nodes))]) })
	}); err != nil {
		t.Errorf("not everything was settled: %v", err)
	}
}

// workUntil has the workers work until f returns.
func (l *queueLoad) workUntil(ctx context.Context, t *testing.T, f func() error) error {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range l.workers {
		wg.Go(func() { l.work(ctx, t, rand.New(rand.NewPCG(l.seed, uint64(i))), done) })
	}
	err := f()
	close(done)
	wg.Wait()
	return err
}

// pause waits as part of the workload; false when the work is over.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return false
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// work is one worker. Like any careful consumer it takes an answer that never came for unknown and goes on.
func (l *queueLoad) work(ctx context.Context, t *testing.T, rng *rand.Rand, done <-chan struct{}) {
	for pause(ctx, done, 0) {
		node := l.nodes[rng.IntN(len(l.nodes))]
		var out struct {
			Messages []queueMessage `json:"messages"`
		}
		asked := l.h.now()
		err := node.call(ctx, "POST", l.path("/lease"), map[string]any{"max": 1 + rng.IntN(l.batch), "wait": "1s", "visibility": l.visibility.String()}, &out)
		if err != nil {
			var p *problem
			if errors.As(err, &p) && p.Status != 503 && p.Status != 504 {
				t.Errorf("lease: %v", err)
			}
			pause(ctx, done, 20*time.Millisecond)
			continue
		}
		received := l.h.now()
		var acks, nacks []*delivery
		mood := rng.IntN(100)
		stalls, dies := mood < l.stall, mood >= l.stall && mood < l.stall+l.die
		for _, m := range out.Messages {
			s := slot{m.Partition, m.Offset}
			from, ok := l.records[s]
			if !ok || from.key != m.Key {
				t.Errorf("%v was delivered with key %q, published was %q", s, m.Key, from.key)
			}
			d := &delivery{slot: s, receipt: m.Receipt, attempt: m.Attempt, key: from.key, index: from.index, asked: asked, received: received, expires: l.h.at(m.LeaseExpiresAt)}
			l.h.add(d)
			switch {
			case dies && rng.IntN(2) == 0: // never heard of again
			case l.poison != nil && l.poison(s), rng.IntN(100) < l.nack:
				nacks = append(nacks, d)
			default:
				acks = append(acks, d)
			}
		}
		if stalls && !pause(ctx, done, l.visibility+100*time.Millisecond) {
			return
		}
		pause(ctx, done, l.pace)
		l.settle(ctx, t, l.nodes[rng.IntN(len(l.nodes))], "nack", nacks, map[string]any{"delay": "0s", "reason": "refused by the worker"})
		l.settle(ctx, t, l.nodes[rng.IntN(len(l.nodes))], "ack", acks, map[string]any{})
	}
}

// settle sends one settle call and notes the outcomes.
func (l *queueLoad) settle(ctx context.Context, t *testing.T, node *rest, what string, ds []*delivery, body map[string]any) {
	if len(ds) == 0 {
		return
	}
	receipts := make([]string, len(ds))
	for i, d := range ds {
		receipts[i] = d.receipt
	}
	body["receipts"] = receipts
	began := l.h.now()
	var out settleAnswer
	if err := node.call(ctx, "POST", l.path("/"+what), body, &out); err != nil {
		var p *problem
		if errors.As(err, &p) && p.Status != 503 && p.Status != 504 {
			t.Errorf("%s: %v", what, err)
		}
		for _, d := range ds {
			l.h.settled(d, what, began, fateUnknown)
		}
		return
	}
	if len(out.Results) != len(ds) {
		t.Errorf("%s of %d receipts answers %d results", what, len(ds), len(out.Results))
		return
	}
	for i, d := range ds {
		switch res := out.Results[i]; {
		case res.Receipt != d.receipt:
			t.Errorf("result %d of %s is for %s, want %s", i, what, res.Receipt, d.receipt)
		case res.Code == "OK":
			l.h.settled(d, what, began, fateOK)
		case res.Code == "LEASE_LOST":
			l.h.settled(d, what, began, fateLost)
		default:
			b, _ := json.Marshal(res)
			t.Errorf("%s: %s", what, b)
		}
	}
}

// publishChanges publishes the real input with the product's own command.
func publishChanges(t *testing.T, addr, tokenFile, topic string) {
	t.Helper()
	cmd := start(t, "publish", "", []string{"FOREBAY_SERVER=http://" + addr, "FOREBAY_TOKEN_FILE=" + tokenFile},
		"publish", topic, "--file", changesFile, "--key-field", "path", "--producer-id", "importer", "--batch", "500", "--output", "json")
	<-cmd.exited
	if cmd.err != nil {
		t.Fatalf("publish: %v\n%s", cmd.err, cmd.log.tail())
	}
}
