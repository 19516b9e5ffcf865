package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

// TestProducer: the client's Producer against two nodes behind one address, while the nodes are killed one after the other and the
// connections are cut in the middle. What it acknowledged is in the log once and where it said, what it refused is not, every key is in the
// order of Send; and a feed with positions that is interrupted and begun anew, again and again, ends with each line once, in order.
func TestProducer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := newCluster(ctx, t, 2)
	if err := c.client(0).createTopic(ctx, "sent", 6); err != nil {
		t.Fatal(err)
	}
	if err := c.client(0).createTopic(ctx, "fed", 4); err != nil {
		t.Fatal(err)
	}
	front := newAddress(t, c.rest[0])
	cl, err := client.New("http://"+front.l.Addr().String(), client.WithToken(c.token), client.WithTimeout(5*time.Second),
		client.WithRetry(client.RetryPolicy{Attempts: 100, Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()

	refusedAlone(ctx, t, cl, c.client(0))

	calm := make(chan struct{})
	var wg sync.WaitGroup
	l := &producerLoad{outcomes: map[string]producerOutcome{}}
	wg.Go(func() { l.send(ctx, t, cl, calm) })
	runs := 0
	wg.Go(func() { runs = feedAnew(ctx, t, cl, 3000) })

	rng := rand.New(rand.NewPCG(1, 5))
	kills := 0
	for ; kills < 3; kills++ { // the one that serves dies, and the other takes over; between, connections break
		for range 3 {
			_ = pause(ctx, nil, time.Duration(50+rng.IntN(150))*time.Millisecond)
			front.point(c.rest[kills%2])
		}
		c.nodes[kills%2].kill()
		front.point(c.rest[(kills+1)%2])
		c.startNode(kills % 2)
		if err := c.nodes[kills%2].ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(calm)
	wg.Wait()
	if t.Failed() {
		return
	}
	node := c.client(1)
	acked := l.verdict(ctx, t, node, 6)
	fed(ctx, t, node, 4, 3000)
	t.Logf("%d kills, %d records sent, %d acknowledged (%d by a repeat), feed of 3,000 lines in %d runs", kills, len(l.outcomes), acked, l.repeated, runs)
	if acked < 1000 || runs < 3 {
		t.Errorf("%d records acknowledged, %d runs of the feed: that proves little", acked, runs)
	}
}

// refusedAlone: records that the topic does not take fail by themselves, although they share a request with good ones.
func refusedAlone(ctx context.Context, t *testing.T, cl *client.Client, node *rest) {
	limit := 100
	if _, _, err := cl.PutTopic(ctx, "small", client.TopicSettings{Partitions: new(1), MaxRecordBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	p, err := client.NewProducer(cl, "small", client.WithProducerLinger(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	var deliveries []*client.Delivery
	for i := range 10 {
		value := fmt.Sprint(i)
		if i%4 == 1 {
			value = strings.Repeat("x", 101)
		}
		d, err := p.Send(ctx, client.Record{Value: []byte(value), Kind: client.KindText})
		if err != nil {
			t.Fatal(err)
		}
		deliveries = append(deliveries, d)
	}
	for i, d := range deliveries {
		_, err := d.Wait(ctx)
		if i%4 == 1 && !errors.Is(err, &client.Error{Code: "TOO_LARGE"}) || i%4 != 1 && err != nil {
			t.Errorf("record %d: %v", i, err)
		}
	}
	if err := p.Close(ctx); err == nil {
		t.Error("close says nothing of the failures")
	}
	texts, _, err := node.readAll(ctx, "small", 0, 0)
	if want := "0 2 3 4 6 7 8"; err != nil || strings.Join(texts, " ") != want {
		t.Errorf("the log has %v, want %s: %v", texts, want, err)
	}
}

// producerLoad is what a Producer was given and what it said.
type producerLoad struct {
	mu       sync.Mutex
	outcomes map[string]producerOutcome // by value "key:number"
	repeated int                        // acknowledged by a repeat of what had landed
}

type producerOutcome struct {
	at  client.Position
	err error
}

// send sends from several goroutines until all is calm, and waits for the outcomes.
func (l *producerLoad) send(ctx context.Context, t *testing.T, cl *client.Client, calm <-chan struct{}) {
	p, err := client.NewProducer(cl, "sent", client.WithProducerDeadline(30*time.Second), client.WithProducerBuffer(64<<10))
	if err != nil {
		t.Error(err)
		return
	}
	var wg sync.WaitGroup
	for sender := range 3 {
		wg.Go(func() {
			deliveries := map[string]*client.Delivery{}
			for n := 0; ; n++ {
				select {
				case <-calm:
					for value, d := range deliveries {
						at, err := d.Wait(ctx)
						l.mu.Lock()
						l.outcomes[value] = producerOutcome{at, err}
						if err == nil && d.Duplicate() {
							l.repeated++
						}
						l.mu.Unlock()
					}
					return
				default:
				}
				key := fmt.Sprintf("s%dk%d", sender, n%7)
				value := fmt.Sprintf("%s:%d", key, n)
				d, err := p.Send(ctx, client.Record{Key: []byte(key), Value: []byte(value), Kind: client.KindText})
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
				deliveries[value] = d
				if n%8 == 0 {
					_ = pause(ctx, nil, time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(ctx); err != nil {
		var e *client.DeliveryError
		if !errors.As(err, &e) {
			t.Errorf("close: %v", err)
		}
	}
}

// verdict holds the log against the outcomes and gives how many records were acknowledged.
func (l *producerLoad) verdict(ctx context.Context, t *testing.T, node *rest, partitions int) (acked int) {
	count := map[string]int{}
	for q := range partitions {
		texts, _, err := node.readAll(ctx, "sent", q, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]int{}
		for offset, text := range texts {
			count[text]++
			key, number, _ := strings.Cut(text, ":")
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil {
				t.Fatal(err)
			}
			if before, ok := last[key]; ok && n <= before {
				t.Errorf("partition %d: %s is behind number %d", q, text, before)
			}
			last[key] = n
			o, ok := l.outcomes[text]
			if !ok || o.err == nil && o.at.Offset >= 0 && o.at != (client.Position{Partition: int32(q), Offset: int64(offset)}) {
				t.Errorf("%s is at %d/%d, and was acknowledged at %v (%v)", text, q, offset, o.at, ok)
			}
		}
	}
	for value, o := range l.outcomes {
		outcome, _ := client.Classify(o.err)
		n := count[value]
		switch {
		case outcome == client.Succeeded && n != 1, outcome == client.Indefinite && n > 1,
			(outcome == client.Definite || outcome == client.Retriable) && n != 0:
			t.Errorf("%s is there %d times: %s %v", value, n, outcome, o.err)
		}
		if outcome == client.Succeeded {
			acked++
		}
	}
	return acked
}

// feedAnew feeds lines 0 to lines-1 by position, with a key each, and is interrupted every now and then: by a Close that waits for nothing,
// or by nothing at all but a successor, which fences the producer. Every run begins at the first line again.
func feedAnew(ctx context.Context, t *testing.T, cl *client.Client, lines int) (runs int) {
	rng := rand.New(rand.NewPCG(2, 3))
	var abandoned []*client.Producer
	defer func() {
		for _, p := range abandoned {
			_ = p.Close(ctx)
		}
	}()
	for {
		runs++
		p, err := client.NewProducer(cl, "fed", client.WithProducerID("feed"), client.WithProducerBatchRecords(50), client.WithProducerBuffer(20_000))
		if err != nil {
			t.Error(err)
			return runs
		}
		stopAt := lines
		if runs < 6 {
			stopAt = runs*lines/6 + rng.IntN(200)
		}
		for n := range min(stopAt, lines) {
			r := client.Record{Key: fmt.Append(nil, "k", n%13), Value: fmt.Append(nil, n), Kind: client.KindText}
			if _, err = p.SendAt(ctx, r, int64(n)); err != nil {
				break
			}
		}
		if err == nil && stopAt >= lines {
			if err = p.Close(ctx); err == nil {
				return runs
			}
		}
		if ctx.Err() != nil {
			t.Errorf("feed: %v", err)
			return runs
		}
		if runs%2 == 0 {
			now, cancel := context.WithCancel(ctx)
			cancel()
			_ = p.Close(now)
		} else {
			abandoned = append(abandoned, p)
		}
	}
}

// fed holds the log against the feed.
func fed(ctx context.Context, t *testing.T, node *rest, partitions, lines int) {
	seen := map[int]bool{}
	for q := range partitions {
		texts, _, err := node.readAll(ctx, "fed", q, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		for _, text := range texts {
			var n int
			if _, err := fmt.Sscan(text, &n); err != nil {
				t.Fatal(err)
			}
			if n <= last || seen[n] {
				t.Errorf("partition %d: line %d is behind line %d, there before: %v", q, n, last, seen[n])
			}
			last, seen[n] = n, true
		}
	}
	if len(seen) != lines {
		t.Errorf("%d of %d lines are there", len(seen), lines)
	}
}
