package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestConsumersInPeaceRepeatNothing: members come, are closed, and come again, while one key in four is slow. Nobody dies, no session lapses, no handler fails, and
// there is time to finish: no record is handled twice, whatever the order of the events, and none is left out.
func TestConsumersInPeaceRepeatNothing(t *testing.T) {
	repeated := 0
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { repeated += simulatePeace(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if repeated == 0 {
		t.Error("no partition was let go while something waited before what was done: the simulation is too kind")
	}
}

// simulatePeace says how often a handler was called for a partition that was being given up.
func simulatePeace(t *testing.T, seed uint64) (drained int) {
	s := &consumerSim{t: t, f: newFakeGroups(t, map[string]int{"a": simPartitions}), r: rand.New(rand.NewPCG(seed, 3)),
		done: map[TopicPartition]map[int64]int{}, runs: map[TopicPartition]map[string]context.Context{}, keys: map[TopicPartition][]string{}}
	for p := range int32(simPartitions) {
		s.runs[TopicPartition{"a", p}] = map[string]context.Context{}
	}
	s.f.onCommit = s.committed(map[TopicPartition]int64{})
	start := func() *simMember {
		c, n := s.f.client(wireRandom(rand.New(rand.NewPCG(s.r.Uint64(), 4)), 0, 20*time.Millisecond))
		order := ConsumerOrder(s.r.IntN(4) / 3)
		k, err := NewConsumer(c, "g", []string{"a"}, WithConsumerStart("earliest"), WithConsumerConcurrency(1+s.r.IntN(8)), WithConsumerOrder(order),
			WithConsumerWindow(2+s.r.IntN(60)), WithConsumerCommit(time.Duration(1+s.r.IntN(1500))*time.Millisecond, s.r.IntN(20)), WithConsumerGrace(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		m := &simMember{running: &running{k, t, n, make(chan error, 1)}, dead: make(chan struct{}), runs: map[string]int{}}
		fast, slow := s.handle(m, time.Duration(s.r.IntN(20))*time.Millisecond), s.handle(m, time.Duration(s.r.IntN(1500))*time.Millisecond)
		s.all.Go(func() {
			m.ended <- m.Run(t.Context(), func(ctx context.Context, r *GroupRecord) error {
				for _, p := range k.Partitions() {
					if p.Partition == r.Partition && p.Revoked {
						s.mu.Lock()
						drained++
						s.mu.Unlock()
					}
				}
				if string(r.Key) == "k0" {
					return slow(ctx, r)
				}
				return fast(ctx, r)
			})
		})
		return m
	}
	var live, all []*simMember
	for range 40 {
		for range s.r.IntN(60) {
			s.publish()
		}
		time.Sleep(time.Duration(s.r.IntN(2000)) * time.Millisecond)
		switch i := s.r.IntN(6); {
		case i < 2 && len(live) < 5 || len(live) == 0:
			live = append(live, start())
			all = append(all, live[len(live)-1])
		case i < 4:
			at := s.r.IntN(len(live))
			s.all.Go(live[at].close)
			live = append(live[:at:at], live[at+1:]...)
		}
	}
	within(t, 2*time.Hour, fmt.Sprintf("seed %d: everything is committed", seed), func() bool {
		if len(live) == 0 {
			live = append(live, start())
			all = append(all, live[0])
		}
		return s.f.lag() == 0
	})
	for _, m := range live {
		m.close()
	}
	s.all.Wait()
	for _, m := range all {
		if c := m.Stats(); c.Repeats != 0 || c.Lapses != 0 || c.Lost != 0 {
			t.Errorf("%+v", c)
		}
	}
	for at, done := range s.done {
		twice := 0
		for _, n := range done {
			if n != 1 {
				twice++
			}
		}
		if twice > 0 || len(done) != len(s.keys[at]) {
			t.Errorf("%v: %d of %d records were handled, %d of them again", at, len(done), len(s.keys[at]), twice)
		}
	}
	return drained
}
