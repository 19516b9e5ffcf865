package outbox_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// fakeLog keeps the server's rules about producers, without a server: epochs fence, a sequence at or below the highest accepted one of a partition
// is a repetition or a conflict, a publish is accepted whole or not at all.
type fakeLog struct {
	mu     sync.Mutex
	topics map[string]*fakeTopic
	epochs map[string]int64
	rng    *rand.Rand
	lose   float64 // share of the answers that are lost after the effect
	drop   float64 // share of the requests that have no effect and a lost answer
	refuse func(topic string, rs []client.Record) api.Code
}

type fakeTopic struct {
	parts   [][]client.Record
	windows []map[string]*fakeWindow // by producer
}

type fakeWindow struct {
	last  int64
	count map[int64]int
}

func newFakeLog(topics ...string) *fakeLog {
	l := &fakeLog{topics: map[string]*fakeTopic{}, epochs: map[string]int64{}, rng: rand.New(rand.NewPCG(1, 1))}
	for _, name := range topics {
		l.create(name, 4)
	}
	return l
}

func (l *fakeLog) create(topic string, partitions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &fakeTopic{parts: make([][]client.Record, partitions)}
	for range partitions {
		t.windows = append(t.windows, map[string]*fakeWindow{})
	}
	l.topics[topic] = t
}

func refusal(code api.Code) error {
	return &client.Error{Op: "fake", Status: api.Codes[code].Status, Code: code}
}

var errLost = &client.Error{Op: "fake", Cause: errors.New("the connection broke")}

func (l *fakeLog) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

func (l *fakeLog) StartProducer(_ context.Context, id string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chance(l.drop) {
		return 0, errLost
	}
	l.epochs[id]++
	if l.chance(l.lose) {
		return 0, errLost
	}
	return l.epochs[id], nil
}

func (l *fakeLog) ProducerPositions(_ context.Context, id, topic string) ([]client.ProducerPosition, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chance(l.lose) {
		return nil, errLost
	}
	t := l.topics[topic]
	if t == nil {
		return nil, refusal(api.CodeUnknownTopic)
	}
	var out []client.ProducerPosition
	for p := range t.parts {
		if w := t.windows[p][id]; w != nil {
			out = append(out, client.ProducerPosition{Topic: topic, Partition: p, Sequence: w.last})
		}
	}
	return out, nil
}

func (l *fakeLog) Publish(ctx context.Context, topic string, rs []client.Record, producer *client.ProducerSequence) (*client.PublishResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &client.Error{Op: "fake", Cause: err}
	}
	if l.chance(l.drop) {
		return nil, errLost
	}
	res, err := l.publish(topic, rs, producer)
	if err == nil && l.chance(l.lose) {
		return nil, errLost
	}
	return res, err
}

func (l *fakeLog) publish(topic string, rs []client.Record, producer *client.ProducerSequence) (*client.PublishResult, error) {
	t := l.topics[topic]
	if t == nil {
		return nil, refusal(api.CodeUnknownTopic)
	}
	if l.refuse != nil {
		if code := l.refuse(topic, rs); code != "" {
			return nil, refusal(code)
		}
	}
	switch epoch := l.epochs[producer.ID]; {
	case producer.Epoch < epoch:
		return nil, refusal(api.CodeProducerFenced)
	case producer.Epoch > epoch:
		return nil, refusal(api.CodeInvalidRequest)
	}
	byPart := map[int][]client.Record{}
	for _, r := range rs {
		p := 0
		if r.Key != nil {
			p = api.PartitionForKey(r.Key, len(t.parts))
		}
		byPart[p] = append(byPart[p], r)
	}
	repeated := 0
	for p, some := range byPart {
		w := t.windows[p][producer.ID]
		if w == nil || producer.Sequence > w.last {
			continue
		}
		if w.count[producer.Sequence] != len(some) {
			return nil, refusal(api.CodeConflict)
		}
		repeated++
	}
	switch {
	case repeated == len(byPart):
		return &client.PublishResult{Duplicate: true}, nil
	case repeated > 0:
		return nil, refusal(api.CodeConflict)
	}
	for p, some := range byPart {
		t.parts[p] = append(t.parts[p], some...)
		w := t.windows[p][producer.ID]
		if w == nil {
			w = &fakeWindow{count: map[int64]int{}}
			t.windows[p][producer.ID] = w
		}
		w.last, w.count[producer.Sequence] = producer.Sequence, len(some)
	}
	return &client.PublishResult{}, nil
}

// all gives the records of a topic, in order per partition.
func (l *fakeLog) all(topic string) []client.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []client.Record
	for _, p := range l.topics[topic].parts {
		out = append(out, p...)
	}
	return out
}

func (l *fakeLog) values(topic, key string) []string {
	var out []string
	for _, r := range l.all(topic) {
		if string(r.Key) == key {
			out = append(out, string(r.Value))
		}
	}
	return out
}

// grow gives a topic more partitions: keys move to others.
func (l *fakeLog) grow(topic string, partitions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[topic]
	for len(t.parts) < partitions {
		t.parts = append(t.parts, nil)
		t.windows = append(t.windows, map[string]*fakeWindow{})
	}
}

// forget forgets all producers, as a server does after 7 days without use.
func (l *fakeLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.epochs)
	for _, t := range l.topics {
		for _, w := range t.windows {
			clear(w)
		}
	}
}

func (l *fakeLog) setRefuse(f func(topic string, rs []client.Record) api.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = f
}
