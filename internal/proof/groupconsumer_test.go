package proof

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client"
)

// consumerSeat is a seat that the client's Consumers take one after the other, by turns such that handle records of different paths at a time and such that
// handle batches of a partition. They die and leave like other members. One that stalls, its network and its handlers, is left alone: it has to find out what
// it has lost, and to come back, by itself.
func (l *groupLoad) consumerSeat(ctx context.Context, t *testing.T, seat int, done <-chan struct{}) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(seat)))
	for n := 0; pause(ctx, done, 0); n++ {
		who := fmt.Sprintf("%s/%d.%d", l.group, seat, n)
		tap, r := l.process(t, who)
		end := (seat + n) % 3
		k := &groupConsumer{l: l, t: t, tap: tap, over: make(chan struct{}, 1)}
		k.left.Store(l.consumerLife())
		ran := k.start(ctx, l.nodes[(seat+n)%len(l.nodes)], (seat+n)%2 == 0)
		over := false
		for lives := 0; !over; lives++ {
			select {
			case <-done:
				over = true
			case <-k.over:
				l.ends[end].Add(1)
				if over = end != groupStalls || lives == 1; over {
					break
				}
				goOn := tap.stall()
				held := make(chan struct{})
				k.held.Store(&held)
				pause(ctx, done, l.session+time.Duration(300+rng.IntN(700))*time.Millisecond)
				k.held.Store(nil)
				close(held)
				goOn()
				k.left.Store(l.consumerLife())
			case err := <-ran:
				t.Errorf("%s ended by itself: %v", who, err)
				return
			}
		}
		if end == groupDies && pause(ctx, done, 0) {
			tap.kill()
		}
		err := k.Close()
		if ended := <-ran; !tap.dead() {
			if err = errors.Join(err, ended); err != nil && !errors.Is(err, client.ErrConsumerClosed) {
				t.Logf("%s: %v", who, err) // what was not committed is another's now
			}
		}
		r.http.CloseIdleConnections()
		if end == groupDies {
			pause(ctx, done, time.Duration(rng.IntN(1000))*time.Millisecond)
		}
	}
}

// consumerLife is how many records a Consumer handles before it does something.
func (l *groupLoad) consumerLife() int64 {
	if l.life == 0 {
		return math.MaxInt64
	}
	return int64(l.life * l.batch)
}

// groupConsumer is one process that is a member by way of the client's Consumer.
type groupConsumer struct {
	*client.Consumer
	l    *groupLoad
	t    *testing.T
	tap  *groupTap
	left atomic.Int64 // records until its life is over
	over chan struct{}
	held atomic.Pointer[chan struct{}] // closed when its handlers go on; nil = they go on
}

// start runs it. The channel tells what Run returns.
func (k *groupConsumer) start(ctx context.Context, node string, byKey bool) <-chan error {
	c, err := client.New(node, client.WithToken(k.l.token), client.WithHTTPClient(&http.Client{Transport: k.tap}))
	if err != nil {
		k.t.Fatal(err)
	}
	k.Consumer, err = client.NewConsumer(c, k.l.group, []string{k.l.topic}, client.WithConsumerStart("earliest"), client.WithConsumerSession(k.l.session),
		client.WithConsumerConcurrency(k.l.concurrency), client.WithConsumerCommit(100*time.Millisecond, 0), client.WithConsumerGrace(5*time.Second))
	if err != nil {
		k.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() {
		if byKey {
			ran <- k.Run(ctx, func(ctx context.Context, r *client.GroupRecord) error {
				return k.handle(ctx, true, []*client.GroupRecord{r})
			})
		} else {
			ran <- k.RunBatches(ctx, k.l.batch, func(ctx context.Context, rs []*client.GroupRecord) error { return k.handle(ctx, false, rs) })
		}
	}()
	return ran
}

// handle processes records, which come one after the other in their partition.
func (k *groupConsumer) handle(ctx context.Context, byKey bool, records []*client.GroupRecord) error {
	b := groupBatch{who: k.tap.who, partition: int(records[0].Partition), from: records[0].Offset, to: records[0].Offset + int64(len(records)), asked: -1, byKey: byKey}
	work := k.l.pace
	if byKey {
		b.asked, work = k.l.h.now(), k.l.pace*time.Duration(k.l.concurrency)/time.Duration(k.l.batch)
	}
	for i, r := range records {
		want, ok := k.l.records[slot{int(r.Partition), r.Offset}]
		if !ok || want.key != string(r.Key) || int(r.Partition) != b.partition || r.Offset != b.from+int64(i) {
			k.t.Errorf("%s: record %d of partition %d has key %q, published was %q (%v); it is the %d. from %d on", b.who, r.Offset, r.Partition, r.Key, want.key, ok, i, b.from)
		}
	}
	pause(ctx, nil, work)
	if held := k.held.Load(); held != nil {
		<-*held
	}
	if k.tap.dead() {
		return errDead
	}
	k.l.h.processed(b) // whether or not the partition was lost meanwhile: what is done is done
	if k.left.Add(-int64(len(records))) <= 0 {
		select {
		case k.over <- struct{}{}:
		default:
		}
	}
	return nil
}
