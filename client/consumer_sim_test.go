package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
)

// consumerSim is a group with members that come, close, die, are cut off and come back, over a network that loses requests and answers.
type consumerSim struct {
	t    *testing.T
	f    *fakeGroups
	r    *rand.Rand
	mu   sync.Mutex
	done map[TopicPartition]map[int64]int              // by offset: how often its handling was completed
	runs map[TopicPartition]map[string]context.Context // by key: of the handler that runs
	keys map[TopicPartition][]string                   // by offset
	all  sync.WaitGroup
}

// simMember is one process.
type simMember struct {
	*running
	runs   map[string]int // handlers that run, by partition and key. Guarded by consumerSim.mu
	dead   chan struct{}  // closed: it does nothing any more
	killed bool
}

const simPartitions = 6

func (s *consumerSim) publish() {
	p := s.r.IntN(simPartitions)
	at := TopicPartition{"a", int32(p)}
	key := fmt.Sprint("k", s.r.IntN(4))
	if s.r.IntN(10) == 0 {
		key = ""
	}
	s.mu.Lock()
	s.keys[at] = append(s.keys[at], key)
	s.mu.Unlock()
	s.f.publish("a", p, key, "v")
}

// handle checks what a handler may rely on: every earlier record of its key has been completed by somebody, and no other one of the key is being handled
// by somebody who has not been told that he has lost the partition.
func (s *consumerSim) handle(m *simMember, delay time.Duration) func(ctx context.Context, r *GroupRecord) error {
	return func(ctx context.Context, r *GroupRecord) error {
		at, key := TopicPartition{r.Topic, r.Partition}, string(r.Key)
		s.mu.Lock()
		if key != "" {
			for o := int64(0); o < r.Offset; o++ {
				if s.keys[at][o] == key && s.done[at][o] == 0 {
					s.t.Errorf("record %d of %v (key %s) is handled before record %d", r.Offset, at, key, o)
				}
			}
			if other := s.runs[at][key]; other != nil && other.Err() == nil {
				s.t.Errorf("record %d of %v is handled while another one with key %s is", r.Offset, at, key)
			}
			s.runs[at][key] = ctx
			if m.runs[fmt.Sprint(at, key)]++; m.runs[fmt.Sprint(at, key)] > 1 {
				s.t.Errorf("record %d of %v is handled while another one with key %s is, by the same process", r.Offset, at, key)
			}
		}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			m.runs[fmt.Sprint(at, key)]--
			if key != "" && s.runs[at][key] == ctx {
				delete(s.runs[at], key)
			}
		}()
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-m.dead:
			<-ctx.Done()
			return context.Cause(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.done[at] == nil {
			s.done[at] = map[int64]int{}
		}
		s.done[at][r.Offset]++
		return nil
	}
}

// committed checks that nothing is committed that was not completed.
func (s *consumerSim) committed(from map[TopicPartition]int64) func(member string, at TopicPartition, offset int64) {
	return func(member string, at TopicPartition, offset int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for o := from[at]; o < offset; o++ {
			if s.done[at][o] == 0 {
				s.t.Errorf("%s committed %d of %v, but record %d is not done", member, offset, at, o)
			}
		}
		from[at] = offset
	}
}

func (s *consumerSim) start(opts ...ConsumerOption) *simMember {
	seed := s.r.Uint64()
	wire := rand.New(rand.NewPCG(seed, 2))
	var cause func(op string) wireFault
	if s.r.IntN(2) == 0 {
		cause = wireRandom(wire, 0.2, 200*time.Millisecond)
	} else {
		cause = wireRandom(wire, 0, 20*time.Millisecond)
	}
	c, n := s.f.client(cause, WithRetry(RetryPolicy{Attempts: 1000, MaxElapsed: time.Hour}))
	opts = append([]ConsumerOption{WithConsumerStart("earliest"), WithConsumerSession(4 * time.Second), WithConsumerConcurrency(1 + s.r.IntN(8)),
		WithConsumerWindow(2 + s.r.IntN(30)), WithConsumerCommit(time.Duration(1+s.r.IntN(1500))*time.Millisecond, s.r.IntN(20)),
		WithConsumerGrace(time.Duration(s.r.IntN(3000)) * time.Millisecond)}, opts...)
	k, err := NewConsumer(c, "g", []string{"a"}, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &simMember{running: &running{k, s.t, n, make(chan error, 1)}, dead: make(chan struct{}), runs: map[string]int{}}
	delay := time.Duration(s.r.IntN(300)) * time.Millisecond
	if s.r.IntN(6) == 0 {
		delay *= 10
	}
	handle := s.handle(m, delay)
	s.all.Go(func() {
		err := m.Run(s.t.Context(), handle)
		closed := errors.Is(err, ErrPartitionLost) || errors.Is(err, ErrConsumerClosed) || codeOf(err) == api.CodeOutcomeUnknown // while it could not commit
		if _, unfinished := errors.AsType[*UnfinishedError](err); unfinished {                                                   // its time to finish may be short
			closed = true
		}
		if err != nil && !m.killed && !closed {
			s.t.Errorf("run: %v", err)
		}
	})
	return m
}

func (m *simMember) kill() {
	m.killed = true
	close(m.dead)
	m.wire.setCut(true)
}

func simulateConsumers(t *testing.T, seed uint64) (stale int) {
	s := &consumerSim{t: t, f: newFakeGroups(t, map[string]int{"a": simPartitions}), r: rand.New(rand.NewPCG(seed, 1)),
		done: map[TopicPartition]map[int64]int{}, runs: map[TopicPartition]map[string]context.Context{}, keys: map[TopicPartition][]string{}}
	for p := range int32(simPartitions) {
		s.runs[TopicPartition{"a", p}] = map[string]context.Context{}
	}
	s.f.onCommit = s.committed(map[TopicPartition]int64{})
	var live, cut, dead []*simMember
	live = append(live, s.start(), s.start())
	for range 60 {
		for range s.r.IntN(30) {
			s.publish()
		}
		time.Sleep(time.Duration(s.r.IntN(1500)) * time.Millisecond)
		pick := func() (m *simMember) {
			if len(live) == 0 {
				return nil
			}
			i := s.r.IntN(len(live))
			m = live[i]
			live = append(live[:i:i], live[i+1:]...)
			return m
		}
		switch s.r.IntN(12) {
		case 0, 1:
			if len(live) < 5 {
				live = append(live, s.start())
			}
		case 2:
			if m := pick(); m != nil {
				s.all.Go(func() { _ = m.Close() })
			}
		case 3:
			if m := pick(); m != nil {
				m.kill()
				dead = append(dead, m)
			}
		case 4, 5: // cut off; its commit may be on its way
			if m := pick(); m != nil {
				delay := time.Duration(5+s.r.IntN(6)) * time.Second
				m.wire.mu.Lock()
				m.wire.cause = func(op string) wireFault {
					return wireFault{late: op == "offsets", delay: delay, before: op != "offsets"}
				}
				m.wire.mu.Unlock()
				cut = append(cut, m)
			}
		case 6, 7:
			for _, m := range cut {
				m.wire.setCause(nil)
			}
			live, cut = append(live, cut...), nil
		case 8:
			s.f.set(func() { s.f.away = !s.f.away })
		case 9:
			s.f.loseLeases()
		}
	}
	s.f.set(func() { s.f.away = false })
	for _, m := range append(cut, live...) {
		m.wire.setCause(nil)
	}
	live = append(live, cut...)
	if len(live) == 0 {
		live = append(live, s.start())
	}
	for _, m := range dead {
		s.all.Go(func() { _ = m.Close() })
	}
	within(t, 2*time.Hour, fmt.Sprintf("seed %d: everything is committed", seed), func() bool { return s.f.lag() == 0 })
	within(t, time.Minute, "it is calm", func() bool {
		n := 0
		for _, m := range live {
			n += m.Stats().Partitions
		}
		return n == simPartitions
	})
	for _, m := range live {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	s.all.Wait()
	s.f.late.Wait()
	for at, done := range s.done {
		if len(done) != len(s.keys[at]) {
			t.Errorf("%v: %d of %d records were handled", at, len(done), len(s.keys[at]))
		}
	}
	if n := s.f.memberCount(); n > len(dead) {
		t.Errorf("%d members are left", n)
	}
	return s.f.refused["STALE_GENERATION"]
}

// TestConsumerSimulation: whatever happens, by key each record is handled after those before it, nothing is committed that is not done, commits only rise,
// everything is handled, and what members commit that the group has given up is refused.
func TestConsumerSimulation(t *testing.T) {
	stale := 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { stale += simulateConsumers(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if stale == 0 {
		t.Error("no commit of an old generation was ever sent: the simulation is too kind")
	}
}
