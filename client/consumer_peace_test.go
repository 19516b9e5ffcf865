package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestConsumersInPeaceRepeatNothing: members come, are closed, and come again, while one key in four is slow. Nobody dies, no session lapses, no handler fails, and
// there is time to finish: no record is handled twice, whatever the order of the events, and none is left out. Where the time is too short, exactly those that
// are counted are handled again.
func TestConsumersInPeaceRepeatNothing(t *testing.T) {
	drained, repeated := 0, 0
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			n, again := simulatePeace(t, seed, seed%3 == 2)
			drained, repeated = drained+n, repeated+again
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if drained == 0 || repeated == 0 {
		t.Errorf("%d records were handled while their partition was given up, %d handled again: the simulation is too kind", drained, repeated)
	}
}

// simulatePeace says how often a handler was called for a partition that was being given up, and how many records were handled again.
func simulatePeace(t *testing.T, seed uint64, hurry bool) (drained, repeated int) {
	s := &consumerSim{t: t, f: newFakeGroups(t, map[string]int{"a": simPartitions}), r: rand.New(rand.NewPCG(seed, 3)),
		done: map[TopicPartition]map[int64]int{}, runs: map[TopicPartition]map[string]context.Context{}, keys: map[TopicPartition][]string{}}
	for p := range int32(simPartitions) {
		s.runs[TopicPartition{"a", p}] = map[string]context.Context{}
	}
	s.f.onCommit = s.committed(map[TopicPartition]int64{})
	start := func() *simMember {
		c, n := s.f.client(wireRandom(rand.New(rand.NewPCG(s.r.Uint64(), 4)), 0, 20*time.Millisecond))
		order := ConsumerOrder(s.r.IntN(4) / 3)
		grace := time.Hour
		if hurry {
			grace = time.Duration(s.r.IntN(1000)) * time.Millisecond
		}
		k, err := NewConsumer(c, "g", []string{"a"}, WithConsumerStart("earliest"), WithConsumerConcurrency(1+s.r.IntN(8)), WithConsumerOrder(order),
			WithConsumerWindow(2+s.r.IntN(60)), WithConsumerCommit(time.Duration(1+s.r.IntN(1500))*time.Millisecond, s.r.IntN(20)), WithConsumerGrace(grace))
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
	end := func(m *simMember) {
		err := m.Close()
		_, unfinished := errors.AsType[*UnfinishedError](err)
		if ran := <-m.ended; ran != err && !errors.Is(ran, ErrConsumerClosed) || err != nil && !(unfinished && hurry) {
			t.Errorf("close: %v, run: %v", err, ran)
		}
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
			m := live[at]
			s.all.Go(func() { end(m) })
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
		end(m)
	}
	s.all.Wait()
	counted := 0
	for _, m := range all {
		c := m.Stats()
		if c.Lapses != 0 || c.Lost != 0 {
			t.Errorf("%+v", c)
		}
		counted += int(c.Repeats)
	}
	for at, done := range s.done {
		for _, n := range done {
			repeated += n - 1
		}
		if len(done) != len(s.keys[at]) {
			t.Errorf("%v: %d of %d records were handled", at, len(done), len(s.keys[at]))
		}
	}
	if repeated != counted || repeated != 0 && !hurry {
		t.Errorf("%d records were handled again, %d counted", repeated, counted)
	}
	return drained, repeated
}
