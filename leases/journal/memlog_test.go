package journal

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// memLog is a log in memory, compacted on demand.
type memLog struct {
	mu struct {
		sync.Mutex
		topics map[string]*memTopic
		next   metadata.TopicID
	}
	// Hooks; nil = none. They are called without the lock.
	beforeAppend func(records []Record) error
	afterAppend  func(records []Record, offsets []int64) error
	onRead       func(partition int32, offset int64) error
	clock        clockwork.Clock // nil = tombstones go at once when compact is told so
}

type memTopic struct {
	id         metadata.TopicID
	partitions [][]Record // live records
	heads      []int64
	times      []map[int64]time.Time // when each was appended
	reads      []int                 // calls, by partition
	from       [][]int64             // offsets that were asked for, by partition
}

func newMemLog() *memLog {
	l := &memLog{}
	l.mu.topics = map[string]*memTopic{}
	return l
}

func (l *memLog) EnsureTopic(_ context.Context, tenant, name string, partitions int) (metadata.TopicID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.mu.topics[tenant+"/"+name]
	if t == nil {
		l.mu.next++
		t = &memTopic{id: l.mu.next, partitions: make([][]Record, partitions), heads: make([]int64, partitions), times: make([]map[int64]time.Time, partitions), reads: make([]int, partitions), from: make([][]int64, partitions)}
		l.mu.topics[tenant+"/"+name] = t
	}
	return t.id, nil
}

// remove deletes the topic of a tenant.
func (l *memLog) remove(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.topics, tenant+"/"+Topic)
}

func (l *memLog) Append(ctx context.Context, tenant, topic string, records []Record) ([]int64, error) {
	if l.beforeAppend != nil {
		if err := l.beforeAppend(records); err != nil {
			return nil, err
		}
	}
	offsets, err := l.store(tenant, topic, records)
	if err != nil {
		return nil, err
	}
	if l.afterAppend != nil {
		if err := l.afterAppend(records, offsets); err != nil {
			return nil, err
		}
	}
	return offsets, ctx.Err()
}

func (l *memLog) store(tenant, topic string, records []Record) ([]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.mu.topics[tenant+"/"+topic]
	if t == nil {
		return nil, api.Errorf(api.CodeUnknownTopic, "topic %s does not exist", topic)
	}
	offsets := make([]int64, len(records))
	for i, r := range records {
		r.Offset = t.heads[r.Partition]
		r.Key = bytes.Clone(r.Key)
		if r.Value != nil {
			r.Value = append([]byte{}, r.Value...)
		}
		t.heads[r.Partition]++
		t.partitions[r.Partition] = append(t.partitions[r.Partition], r)
		if l.clock != nil {
			if t.times[r.Partition] == nil {
				t.times[r.Partition] = map[int64]time.Time{}
			}
			t.times[r.Partition][r.Offset] = l.clock.Now()
		}
		offsets[i] = r.Offset
	}
	return offsets, nil
}

func (l *memLog) Read(ctx context.Context, _ string, topic metadata.TopicID, partition int32, offset, maxBytes int64) ([]Record, int64, int64, error) {
	if l.onRead != nil {
		if err := l.onRead(partition, offset); err != nil {
			return nil, 0, 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.mu.topics {
		if t.id != topic {
			continue
		}
		t.reads[partition]++
		t.from[partition] = append(t.from[partition], offset)
		var out []Record
		for _, r := range t.partitions[partition] {
			if r.Offset < offset {
				continue
			}
			if len(out) > 0 && maxBytes <= 0 {
				return out, r.Offset, t.heads[partition], ctx.Err()
			}
			out = append(out, r)
			maxBytes -= int64(len(r.Key) + len(r.Value))
		}
		return out, t.heads[partition], t.heads[partition], ctx.Err()
	}
	return nil, 0, 0, api.Errorf(api.CodeUnknownTopic, "no such topic")
}

// compact keeps the last record of each key, and of those no tombstones if told so and, with a clock, older than the cache may be.
func (l *memLog) compact(tombstones bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.mu.topics {
		for p, records := range t.partitions {
			last := map[string]int64{}
			for _, r := range records {
				last[string(r.Key)] = r.Offset
			}
			var kept []Record
			for _, r := range records {
				old := tombstones && (l.clock == nil || l.clock.Since(t.times[p][r.Offset]) > maxAge)
				if last[string(r.Key)] == r.Offset && (r.Value != nil || !old) {
					kept = append(kept, r)
				}
			}
			t.partitions[p] = kept
		}
	}
}

// live counts the records of all topics that are there.
func (l *memLog) live() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.mu.topics {
		for _, records := range t.partitions {
			n += len(records)
		}
	}
	return n
}

func (l *memLog) readCalls(tenant string) (calls []int, from [][]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.mu.topics[tenant+"/"+Topic]
	return append([]int(nil), t.reads...), append([][]int64(nil), t.from...)
}

const tenant = "acme"

// source makes numbers of writers that a test can repeat.
type source struct{ *rand.Rand }

func (s source) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return len(b), nil
}

type fixture struct {
	*Journal
	log   *memLog
	clock *clockwork.FakeClock
}

func open(t testing.TB, log *memLog, change func(*Options)) *fixture {
	t.Helper()
	clock := clockwork.NewFakeClock()
	o := Options{Log: log, Clock: clock, Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&o)
	}
	j, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{j, log, clock}
}

func (f *fixture) must(t testing.TB, entries ...Entry) []int64 {
	t.Helper()
	offsets, err := f.Write(t.Context(), tenant, entries)
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}

func (f *fixture) loaded(t testing.TB, id metadata.SubscriptionID) *Loaded {
	t.Helper()
	l, err := f.Load(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// value gives what a counter or gauge without labels stands at.
func value(t testing.TB, c prometheus.Collector) int {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
		t.Fatalf("gather: %v, %v", families, err)
	}
	m := families[0].Metric[0]
	return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
}
