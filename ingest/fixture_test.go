package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// fakeStore is a bucket in memory whose writes a test can hold or refuse.
type fakeStore struct {
	objectstore.Store // the methods that ingest does not use
	// put, if set, runs before the n-th write (from 1) and may block or refuse it.
	put func(ctx context.Context, n int, key string) error
	// after, if set, runs when the object is there, and may turn the answer into an error.
	after func(n int, key string) error

	mu struct {
		sync.Mutex
		puts    int
		objects map[string][]byte
	}
}

func (s *fakeStore) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	s.mu.Lock()
	s.mu.puts++
	n := s.mu.puts
	s.mu.Unlock()
	if s.put != nil {
		if err := s.put(ctx, n, key); err != nil {
			return objectstore.Info{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	s.mu.Lock()
	if s.mu.objects == nil {
		s.mu.objects = map[string][]byte{}
	}
	if _, ok := s.mu.objects[key]; ok {
		s.mu.Unlock()
		return objectstore.Info{}, objectstore.ErrExists
	}
	s.mu.objects[key] = bytes.Clone(body)
	s.mu.Unlock()
	if s.after != nil {
		if err := s.after(n, key); err != nil {
			return objectstore.Info{}, err
		}
	}
	return objectstore.Info{Key: key, Size: int64(len(body)), ID: id}, nil
}

func (s *fakeStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.objects)
}

func (s *fakeStore) body(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.objects[key]
}

// fakeLog is a metadata log of one node: it answers every commit at once unless a test holds it.
type fakeLog struct {
	// hold, if set, gets every commit and the function that answers it.
	hold func(c *metadata.Commit, answer func(error))
	// decide, if set, may change the result of a batch.
	decide func(c *metadata.Commit, b int, r *metadata.BatchResult)

	mu struct {
		sync.Mutex
		down    error
		heads   map[topicPartition]int64
		commits []*metadata.Commit
		bases   [][]int64
	}
}

func (l *fakeLog) Available() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.down
}

func (l *fakeLog) setDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.down = err
}

func (l *fakeLog) SubmitCommit(c *metadata.Commit) *metadata.Pending {
	p := metadata.NewPending()
	answer := func(err error) {
		if err != nil {
			p.Resolve(nil, err)
			return
		}
		p.Resolve(l.apply(c), nil)
	}
	if l.hold != nil {
		l.hold(c, answer)
	} else {
		answer(nil)
	}
	return p
}

func (l *fakeLog) apply(c *metadata.Commit) []metadata.BatchResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.heads == nil {
		l.mu.heads = map[topicPartition]int64{}
	}
	out := make([]metadata.BatchResult, len(c.Batches))
	bases := make([]int64, len(c.Batches))
	for i, b := range c.Batches {
		tp := topicPartition{b.TopicID, b.Partition}
		bases[i] = l.mu.heads[tp]
		out[i] = metadata.BatchResult{Base: bases[i], AppendTime: c.AppendTime}
		if l.decide != nil {
			l.decide(c, i, &out[i])
		}
		if out[i].Err == nil {
			l.mu.heads[tp] += int64(b.Records)
		} else {
			bases[i] = -1
		}
	}
	l.mu.commits = append(l.mu.commits, c)
	l.mu.bases = append(l.mu.bases, bases)
	return out
}

func (l *fakeLog) commits() []*metadata.Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*metadata.Commit(nil), l.mu.commits...)
}

// fixture is one Ingester on fakes.
type fixture struct {
	*Ingester
	store *fakeStore
	log   *fakeLog
	reg   *prometheus.Registry
}

func start(t testing.TB, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{store: &fakeStore{}, log: &fakeLog{}, reg: prometheus.NewRegistry()}
	// The codec keeps encoders with channels for the whole process; made in one synctest bubble they could not be used in the next. What
	// compression does is the segment package's to test, and the tests here without a bubble run with it.
	o := Options{Store: f.store, Committer: f.log, Registerer: f.reg, Compression: segment.CompressNone}
	if change != nil {
		change(&o)
	}
	in, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f.Ingester = in
	t.Cleanup(func() {
		if err := in.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.mu.budget.used != 0 || len(in.mu.budget.tenants) != 0 || in.mu.meter.outstanding != 0 || in.mu.entering != 0 || in.mu.uploading != 0 {
			t.Errorf("left behind: %d bytes, tenants %v, %d outstanding, %d entering, %d uploading",
				in.mu.budget.used, in.mu.budget.tenants, in.mu.meter.outstanding, in.mu.entering, in.mu.uploading)
		}
	})
	return f
}

// metric gives the value of a counter or gauge, with its one label value or "".
func (f *fixture) metric(t testing.TB, name, label string) float64 {
	t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, fam := range families {
		if fam.GetName() != name {
			continue
		}
		for _, m := range fam.GetMetric() {
			if label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				if m.GetCounter() != nil {
					return m.GetCounter().GetValue()
				}
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func topic(id metadata.TopicID, partitions int) *metadata.Topic {
	c := api.DefaultTopicConfig()
	c.Partitions = partitions
	return &metadata.Topic{ID: id, Tenant: "t", Name: fmt.Sprintf("topic-%d", id), Config: c}
}

// publish makes a request of one topic: values[i] goes to partitions[i].
func publish(tp *metadata.Topic, values []string, partitions ...int32) *Request {
	tr := TopicRecords{Topic: tp, Partitions: partitions}
	for _, v := range values {
		tr.Records = append(tr.Records, record(v))
	}
	return &Request{Tenant: tp.Tenant, Topics: []TopicRecords{tr}}
}

func record(value string) segment.Record {
	return segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Value: []byte(value)}
}

// outcome of an Append that runs in its own goroutine.
type outcome struct {
	res *Result
	err error
}

func (f *fixture) async(ctx context.Context, q *Request) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		res, err := f.Append(ctx, q)
		ch <- outcome{res, err}
	}()
	return ch
}

func wantCode(t testing.TB, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return e
}

// stored reads back everything that the log has committed: the value at each offset of each topic-partition.
func (f *fixture) stored(t testing.TB) map[topicPartition]map[int64]string {
	t.Helper()
	out := map[topicPartition]map[int64]string{}
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	for i, c := range f.log.mu.commits {
		body := f.store.body(segment.Name{ID: c.Segment.ID}.Key())
		if int64(len(body)) != c.Segment.Size {
			t.Fatalf("segment %s has %d bytes, its commit says %d", c.Segment.ID, len(body), c.Segment.Size)
		}
		for j, b := range c.Batches {
			base := f.log.mu.bases[i][j]
			if base < 0 {
				continue
			}
			tp := topicPartition{b.TopicID, b.Partition}
			if out[tp] == nil {
				out[tp] = map[int64]string{}
			}
			for k, v := range batchValues(t, body, b) {
				at := base + int64(k)
				if old, ok := out[tp][at]; ok {
					t.Fatalf("offset %d of %v given twice: %q and %q", at, tp, old, v)
				}
				out[tp][at] = v
			}
		}
	}
	return out
}

func batchValues(t testing.TB, body []byte, b metadata.BatchDelta) []string {
	t.Helper()
	d, err := segment.DecodeBatch(body[b.Ref.Pos : b.Ref.Pos+uint64(b.Ref.Len)])
	if err != nil {
		t.Fatal(err)
	}
	if h := d.Header(); h.TopicID != uint64(b.TopicID) || h.Partition != b.Partition || h.Records != int(b.Records) || h.RawBytes != int(b.RawBytes) {
		t.Fatalf("commit says %+v, the batch %+v", b, h)
	}
	var values []string
	if err := d.Scan(func(_ int, r *segment.Record) bool {
		values = append(values, string(r.Value))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return values
}
