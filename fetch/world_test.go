package fetch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testTopic     metadata.TopicID = 7
	testPartition int32            = 2
	// testNow is the time of appends: far in the past, so that data is old unless a test moves OldAge.
	testNow int64 = 1_700_000_000_000
)

// fakeView is the metadata of one partition.
type fakeView struct {
	mu       sync.Mutex
	info     metadata.PartitionInfo
	entries  []metadata.IndexEntry
	waiters  map[int64][]chan struct{} // by offset
	syncs    int
	syncErr  error
	locates  int
	onLocate func(n int)   // called before the nth Locate (from 1)
	waiting  chan struct{} // gets a token at each subscription, if not nil
	released atomic.Int64  // subscriptions that ended
	gone     bool          // the topic is deleted
}

func newFakeView() *fakeView { return &fakeView{waiters: map[int64][]chan struct{}{}} }

func (v *fakeView) Sync(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.syncs++
	return v.syncErr
}

func (v *fakeView) known(id metadata.TopicID, partition int32) error {
	if id != testTopic || v.gone {
		return api.Errorf(api.CodeUnknownTopic, "no topic")
	}
	if partition != testPartition {
		return api.Errorf(api.CodeUnknownPartition, "no partition")
	}
	return nil
}

func (v *fakeView) Partition(id metadata.TopicID, partition int32) (metadata.PartitionInfo, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.info, v.known(id, partition)
}

func (v *fakeView) Locate(id metadata.TopicID, partition int32, offset int64, limit int) ([]metadata.IndexEntry, metadata.PartitionInfo, error) {
	v.mu.Lock()
	v.locates++
	n, hook := v.locates, v.onLocate
	v.mu.Unlock()
	if hook != nil {
		hook(n)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.known(id, partition); err != nil {
		return nil, metadata.PartitionInfo{}, err
	}
	var out []metadata.IndexEntry
	for _, e := range v.entries {
		if e.Last >= offset && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, v.info, nil
}

func (v *fakeView) LocateTime(id metadata.TopicID, partition int32, ms int64) (metadata.IndexEntry, bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.entries {
		if e.AppendTime >= ms {
			return e, true, v.known(id, partition)
		}
	}
	return metadata.IndexEntry{}, false, v.known(id, partition)
}

func (v *fakeView) Changed(_ metadata.TopicID, _ int32, offset int64) (<-chan struct{}, func()) {
	v.mu.Lock()
	ch := make(chan struct{})
	if v.info.Head > offset || v.gone {
		close(ch)
	} else {
		v.waiters[offset] = append(v.waiters[offset], ch)
	}
	waiting := v.waiting
	v.mu.Unlock()
	if waiting != nil {
		waiting <- struct{}{}
	}
	return ch, func() { v.released.Add(1) }
}

func (v *fakeView) wakeLocked() {
	for offset, chans := range v.waiters {
		if v.info.Head > offset || v.gone {
			for _, ch := range chans {
				close(ch)
			}
			delete(v.waiters, offset)
		}
	}
}

// set changes the metadata and wakes whom it concerns.
func (v *fakeView) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	v.wakeLocked()
}

// countingStore counts GETs, can hold them at a gate, and can change their outcome.
type countingStore struct {
	objectstore.Store
	gets  atomic.Int64
	bytes atomic.Int64
	log   struct {
		sync.Mutex
		ranges []string
	}
	gate    chan struct{} // if not nil, a GET takes a token before it goes on
	entered chan struct{} // if not nil, a GET gives a token when it arrives
	fault   func(key string, off int64, b []byte, err error) ([]byte, error)
}

func (s *countingStore) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	s.gets.Add(1)
	s.log.Lock()
	s.log.ranges = append(s.log.ranges, fmt.Sprintf("%d+%d", off, n))
	s.log.Unlock()
	if s.entered != nil {
		s.entered <- struct{}{}
	}
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b, err := s.Store.GetRange(ctx, key, off, n)
	s.bytes.Add(int64(len(b)))
	if s.fault != nil {
		return s.fault(key, off, b, err)
	}
	return b, err
}

// world is a partition with its objects.
type world struct {
	t     testing.TB
	view  *fakeView
	store *countingStore
	ids   byte
	time  int64 // append time of the next batch
	// compress is how segments are written
	compress segment.Compression
	last     []byte // the newest object
	lastKey  string
}

func newWorld(t testing.TB) *world {
	return &world{t: t, view: newFakeView(), store: &countingStore{Store: mem.New(mem.Options{})}, time: testNow}
}

// fetcher makes a Fetcher over the world that treats all data as recent unless o says otherwise.
func (w *world) fetcher(o Options) *Fetcher {
	w.t.Helper()
	o.View, o.Store = w.view, w.store
	if o.OldAge == 0 {
		o.OldAge = 100 * 365 * 24 * 60 * 60 * 1e9
	}
	f, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return f
}

func rec(key, value string) segment.Record {
	return segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindText, Key: []byte(key), Value: []byte(value)}
}

func values(vs ...string) []segment.Record {
	out := make([]segment.Record, len(vs))
	for i, v := range vs {
		out[i] = rec("k", v)
	}
	return out
}

// write stores one segment of one batch per list of records and gives its ref.
func (w *world) write(level uint8, batches ...*segment.Batch) (metadata.SegmentRef, []segment.BatchRef) {
	w.t.Helper()
	w.ids++
	ref := metadata.SegmentRef{ID: ulid.ULID{0: 1, 15: w.ids}, Level: level}
	if level > 0 {
		ref.Class = "ttl=7d"
	}
	sw := segment.NewWriter(segment.WriterOptions{ID: ref.ID, Level: level, Created: testNow, Compression: w.compress})
	var refs []segment.BatchRef
	for _, b := range batches {
		r, _, err := sw.Append(b)
		if err != nil {
			w.t.Fatal(err)
		}
		refs = append(refs, r)
	}
	body, err := sw.Finish()
	if err != nil {
		w.t.Fatal(err)
	}
	ref.Size = int64(len(body))
	key := segment.Name{ID: ref.ID, Level: ref.Level, Class: ref.Class}.Key()
	if _, err := w.store.PutIfAbsent(context.Background(), key, body, "test"); err != nil {
		w.t.Fatal(err)
	}
	w.last, w.lastKey = body, key
	return ref, refs
}

func encode(records []segment.Record) [][]byte {
	out := make([][]byte, len(records))
	for i := range records {
		out[i] = segment.AppendRecord(nil, &records[i])
	}
	return out
}

// commit appends level-0 batches, all in one object.
func (w *world) commit(batches ...[]segment.Record) []metadata.IndexEntry {
	w.t.Helper()
	var bs []*segment.Batch
	for _, records := range batches {
		bs = append(bs, &segment.Batch{TopicID: uint64(testTopic), Partition: testPartition, Records: len(records), Chunks: encode(records)})
	}
	seg, refs := w.write(0, bs...)
	var added []metadata.IndexEntry
	w.view.set(func() {
		for i, ref := range refs {
			n := int64(len(batches[i]))
			e := metadata.IndexEntry{Segment: seg, Ref: ref, Base: w.view.info.Head, Last: w.view.info.Head + n - 1, Records: int32(n),
				AppendTime: w.time, FirstTime: w.time}
			w.view.entries = append(w.view.entries, e)
			w.view.info.Head += n
			w.view.info.LastAppend = w.time
			added = append(added, e)
		}
	})
	w.time += 1000
	return added
}

// compacted makes a sparse batch of records, which carry offset and time, and gives its index entry.
func (w *world) compacted(records ...segment.Record) metadata.IndexEntry {
	w.t.Helper()
	b := &segment.Batch{TopicID: uint64(testTopic), Partition: testPartition, Records: len(records), Chunks: encode(records)}
	for _, r := range records {
		b.Offsets, b.AppendTimes = append(b.Offsets, r.Offset), append(b.AppendTimes, r.AppendTime)
	}
	seg, refs := w.write(1, b)
	n := len(records) - 1
	return metadata.IndexEntry{Segment: seg, Ref: refs[0], Base: records[0].Offset, Last: records[n].Offset, Records: int32(n + 1),
		FirstTime: records[0].AppendTime, AppendTime: records[n].AppendTime, Sparse: true}
}

// replace swaps the whole index.
func (w *world) replace(entries ...metadata.IndexEntry) {
	w.view.set(func() { w.view.entries = slices.Clone(entries) })
}

func request(offset int64) ReadRequest {
	return ReadRequest{Tenant: "t", TopicID: testTopic, Partition: testPartition, Offset: offset, MaxRecords: 1000, MaxBytes: 1 << 20}
}

func (w *world) read(f *Fetcher, r ReadRequest) *ReadResult {
	w.t.Helper()
	res, err := f.Read(context.Background(), r)
	if err != nil {
		w.t.Fatalf("read at %d: %v", r.Offset, err)
	}
	return res
}

// shape is a compact picture of a result: "offset:value ... next n head h".
func shape(res *ReadResult) string {
	s := ""
	for _, r := range res.Records {
		s += fmt.Sprintf("%d:%s ", r.Offset, r.Value)
	}
	return s + fmt.Sprintf("next %d head %d start %d", res.NextOffset, res.Head, res.LogStart)
}

func (w *world) wantShape(res *ReadResult, want string) {
	w.t.Helper()
	if got := shape(res); got != want {
		w.t.Fatalf("read gave\n\t%s\nwant\n\t%s", got, want)
	}
}

// count reads a counter.
func count(m prometheus.Metric) float64 {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		panic(err)
	}
	return out.GetCounter().GetValue()
}
