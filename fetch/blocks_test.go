package fetch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func bigRecords(n, size int) []segment.Record {
	rng := rand.NewChaCha8([32]byte{2})
	out := make([]segment.Record, n)
	for i := range out {
		v := make([]byte, size)
		rng.Read(v)
		out[i] = rec("k", string(v))
		out[i].Kind = segment.KindData
	}
	return out
}

func TestOwnFlushesNeedNoGet(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b"))
	f := w.fetcher(Options{})
	var sink interface{ Put(string, []byte) } = f // what ingest wants
	sink.Put(w.lastKey, w.last)
	sink.Put("snap/0001/x.snap", []byte("not a segment"))
	w.wantShape(w.read(f, request(0)), "0:a 1:b next 2 head 2 start 0")
	if n := w.store.gets.Load(); n != 0 {
		t.Errorf("%d GETs", n)
	}
}

func TestPutDoesNotPinALargeBuffer(t *testing.T) {
	w := newWorld(t)
	e := w.commit(values("a"))[0]
	f := w.fetcher(Options{})
	f.Put(w.lastKey, append(make([]byte, 0, 1<<20), w.last...))
	x, ok := f.blocks.peek(blockKey{id: e.Segment.ID})
	if !ok || cap(x.data) > 2*len(x.data) {
		t.Errorf("cached %v with %d bytes of memory for %d", ok, cap(x.data), len(x.data))
	}
}

// What one GET brought is weighed and evicted as one piece: no block of it keeps memory that nobody counts.
func TestBlocksOfOneGet(t *testing.T) {
	w := newWorld(t)
	e := w.commit(bigRecords(100, 1000))[0]
	f := w.fetcher(Options{BlockBytes: 10_000})
	w.read(f, request(0))
	if n := w.store.gets.Load(); n != 1 {
		t.Fatalf("%d GETs for adjacent blocks: %v", n, w.store.log.ranges)
	}
	first, last := f.blocks.span(&e, false)
	whole, _ := f.blocks.peek(blockKey{id: e.Segment.ID, index: first})
	for i := first; i <= last; i++ {
		if x, ok := f.blocks.peek(blockKey{id: e.Segment.ID, index: i}); !ok || x != whole {
			t.Errorf("block %d: cached %v, in another piece %v", i, ok, x != whole)
		}
	}
	if n := f.blocks.bytes(); n != whole.weight() || n < int64(e.Ref.Len) {
		t.Errorf("the cache weighs %d, the piece %d", n, whole.weight())
	}
	r := request(0)
	r.Offset = 40
	if res := w.read(f, r); len(res.Records) != 60 || w.store.gets.Load() != 1 {
		t.Errorf("a second read: %d records, %d GETs", len(res.Records), w.store.gets.Load())
	}
}

func TestReadFetchesOnlyWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	var batches [][]segment.Record
	for range 50 {
		batches = append(batches, bigRecords(10, 1000))
	}
	w.commit(batches...)
	f := w.fetcher(Options{BlockBytes: 10_000})
	r := request(0)
	r.MaxBytes = 25_000
	if res := w.read(f, r); len(res.Records) != 24 {
		t.Fatalf("%d records", len(res.Records))
	}
	if n := w.store.bytes.Load(); n > 50_000 {
		t.Errorf("%d bytes were read for 25,000: %v", n, w.store.log.ranges)
	}
	before := w.store.bytes.Load()
	r = request(300)
	r.MaxRecords = 5
	w.read(f, r)
	if n := w.store.bytes.Load() - before; n > 30_000 {
		t.Errorf("%d bytes were read for 5 records: %v", n, w.store.log.ranges)
	}
}

func TestConcurrentMissesShareOneGet(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a", "b"))
	w.store.gate, w.store.entered = make(chan struct{}), make(chan struct{}, 100)
	f := w.fetcher(Options{})

	// The first reader starts the GET and goes away: the GET must go on for the others.
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := f.Read(ctx, request(0))
		gone <- err
	}()
	<-w.store.entered
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("the reader that went away: %v", err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			res, err := f.Read(context.Background(), request(0))
			if err != nil || len(res.Records) != 2 {
				t.Errorf("a waiting reader: %v", err)
			}
		})
	}
	w.store.gate <- struct{}{}
	wg.Wait()
	if n := w.store.gets.Load(); n != 1 {
		t.Errorf("%d GETs", n)
	}
}

// Readers that give up while their GETs wait for the pool leave no GETs behind, and those that stay are served.
func TestGetsOfGoneReadersAreGivenUp(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.commit(values(fmt.Sprint(i)))
	}
	w.store.gate, w.store.entered = make(chan struct{}), make(chan struct{}, 100)
	f := w.fetcher(Options{Reads: 1})
	one := func(i int) ReadRequest {
		r := request(int64(i))
		r.MaxRecords = 1
		return r
	}
	var wg sync.WaitGroup
	stay := func(i int) {
		wg.Go(func() {
			if res, err := f.Read(context.Background(), one(i)); err != nil || string(res.Records[0].Value) != fmt.Sprint(i) {
				t.Errorf("read %d: %v", i, err)
			}
		})
	}
	stay(0)
	<-w.store.entered // the pool is full
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := 1; i < 5; i++ {
		if _, err := f.Read(ctx, one(i)); !errors.Is(err, context.Canceled) {
			t.Fatalf("a reader that is gone: %v", err)
		}
	}
	stay(4) // joins a GET that nobody else wants, or starts it anew
	close(w.store.gate)
	wg.Wait()
	f.blocks.wg.Wait()
	if n := w.store.gets.Load(); n != 2 {
		t.Errorf("%d GETs, want 2", n)
	}
	if n := count(f.m.abandoned); n < 3 {
		t.Errorf("%v GETs were given up", n)
	}
}

func TestDeadlineWhileWaitingForStorage(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	w.store.gate = make(chan struct{})
	f := w.fetcher(Options{})
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	_, err := f.Read(ctx, request(0))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeStorageUnavailable || e.RetryAfter != time.Second {
		t.Errorf("%v", err)
	}
}

func TestGetTimeout(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	w.store.gate, w.store.entered = make(chan struct{}), make(chan struct{}, 1)
	clock := clockwork.NewFakeClockAt(time.UnixMilli(testNow))
	f := w.fetcher(Options{Clock: clock, GetTimeout: time.Second})
	failed := make(chan error, 1)
	go func() {
		_, err := f.Read(context.Background(), request(0))
		failed <- err
	}()
	<-w.store.entered
	clock.Advance(time.Second)
	if err := <-failed; api.CodeOf(err) != api.CodeStorageUnavailable {
		t.Errorf("%v", err)
	}
}

func TestCloseEndsReads(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	w.store.gate, w.store.entered = make(chan struct{}), make(chan struct{}, 1)
	f := w.fetcher(Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := f.Read(context.Background(), request(0))
		failed <- err
	}()
	<-w.store.entered
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-failed; api.CodeOf(err) != api.CodeStorageUnavailable {
		t.Errorf("the read in flight: %v", err)
	}
	if _, err := f.Read(context.Background(), request(0)); api.CodeOf(err) != api.CodeStorageUnavailable {
		t.Errorf("a read after Close: %v", err)
	}
}

// Old data may use up its pool: recent data is read all the same.
func TestOldDataHasItsOwnPool(t *testing.T) {
	w := newWorld(t)
	const old = 6
	for i := range old {
		w.commit(values(fmt.Sprint(i)))
	}
	w.time = testNow + 10*60_000
	recent := w.commit(values("recent"))[0]
	clock := clockwork.NewFakeClockAt(time.UnixMilli(w.time))
	w.store.gate, w.store.entered = make(chan struct{}), make(chan struct{}, 100)
	f := w.fetcher(Options{Clock: clock, OldAge: 2 * time.Minute, OldReads: 2})
	var wg sync.WaitGroup
	for i := range old {
		wg.Go(func() {
			r := request(int64(i))
			r.MaxRecords = 1
			if res, err := f.Read(context.Background(), r); err != nil || string(res.Records[0].Value) != fmt.Sprint(i) {
				t.Errorf("old read %d: %v", i, err)
			}
		})
	}
	<-w.store.entered
	<-w.store.entered // the pool is full, and held
	fault := make(chan struct{})
	w.store.fault = nil
	go func() {
		defer close(fault)
		w.wantShape(w.read(f, request(recent.Base)), "6:recent next 7 head 7 start 0")
	}()
	<-w.store.entered // the third GET is the recent one: no other may have started
	if n := w.store.gets.Load(); n != 3 {
		t.Errorf("%d GETs are running, want 2 old and 1 recent", n)
	}
	close(w.store.gate)
	<-fault
	wg.Wait()
	if n := f.m.levels.gets[1][0].Load(); n != old {
		t.Errorf("%v GETs of old data, want %d", n, old)
	}
	if n := f.m.levels.gets[0][0].Load(); n != 1 {
		t.Errorf("%v GETs of recent data, want 1", n)
	}
}

// One tenant's rate for old data holds back that tenant only, and only what is not cached.
func TestOldDataRate(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	for range 3 {
		w.commit(bigRecords(1, 6<<20))
	}
	w.time += 10 * 60_000
	clock := clockwork.NewFakeClockAt(time.UnixMilli(w.time))
	f := w.fetcher(Options{Clock: clock, OldAge: 2 * time.Minute, OldBytesPerSecond: 1 << 20, ReadAhead: -1})
	one := func(offset int64, tenant string) ReadRequest {
		r := request(offset)
		r.MaxRecords, r.Tenant = 1, tenant
		return r
	}
	w.read(f, one(0, "a")) // 6 of a burst of 8 MiB
	w.read(f, one(0, "a")) // cached: costs nothing
	done := make(chan *ReadResult, 1)
	go func() { done <- w.read(f, one(1, "a")) }()
	if err := clock.BlockUntilContext(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	w.read(f, one(2, "b")) // another tenant is not held back
	select {
	case <-done:
		t.Fatal("the rate does not hold")
	default:
	}
	clock.Advance(6 * time.Second)
	if res := <-done; len(res.Records) != 1 {
		t.Errorf("%d records", len(res.Records))
	}
	if n := count(f.m.throttled); n != 1 {
		t.Errorf("throttled %v times", n)
	}
	// A reader that gives up while it waits is told so, and gives its share back.
	ctx, cancel := context.WithCancel(context.Background())
	f.blocks.drop(&w.view.entries[0])
	failed := make(chan error, 1)
	go func() {
		_, err := f.Read(ctx, one(0, "a"))
		failed <- err
	}()
	if err := clock.BlockUntilContext(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A scan loads ahead what it will want next; a single read does not.
func TestReadAhead(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	for range 8 {
		w.commit(bigRecords(10, 1000)) // an object of about 10,000 bytes each
	}
	w.store.entered = make(chan struct{}, 100)
	f := w.fetcher(Options{BlockBytes: 20_000, ReadAhead: 1})
	r := request(0)
	r.MaxRecords = 10
	res := w.read(f, r)
	if n := w.store.gets.Load(); n != 1 {
		t.Fatalf("the first read made %d GETs: it is no scan yet", n)
	}
	r.Offset = res.NextOffset
	w.read(f, r) // batch 1, and now it is a scan: batches 2 and 3 come ahead
	for range 4 {
		<-w.store.entered
	}
	f.blocks.wg.Wait()
	if n := w.store.gets.Load(); n != 4 {
		t.Fatalf("%d GETs after the second read, want 2 and 2 ahead", n)
	}
	r.Offset = 20
	res = w.read(f, r)
	if len(res.Records) != 10 || res.Records[0].Offset != 20 {
		t.Fatal("wrong records")
	}
	if n := count(f.m.ahead); n < 2 {
		t.Errorf("%v blocks ahead", n)
	}
}

// However little each read of a scan takes, what is loaded ahead comes in large GETs.
func TestReadAheadMakesLargeGets(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	var batches [][]segment.Record
	for range 120 {
		batches = append(batches, bigRecords(1, 1000))
	}
	w.commit(batches...) // an object of about 125 blocks
	f := w.fetcher(Options{BlockBytes: 1000, ReadAhead: 40})
	r := request(0)
	r.MaxRecords = 1
	for r.Offset < 120 {
		r.Offset = w.read(f, r).NextOffset
		f.blocks.wg.Wait()
	}
	// At first one by one until it is a scan, then 20 and more at a time.
	if n := w.store.gets.Load(); n > 4+125/20 {
		t.Errorf("%d GETs", n)
	}
}

// Paging through a compressed batch decompresses it once.
func TestPagingDecodesOnce(t *testing.T) {
	for _, age := range []time.Duration{0, time.Nanosecond} { // recent, old
		w := newWorld(t)
		var vs []string
		for i := range 1000 {
			vs = append(vs, fmt.Sprintf(`{"event":"view","number":%d}`, i))
		}
		w.commit(values(vs...))
		f := w.fetcher(Options{OldAge: age})
		r := request(0)
		r.MaxRecords = 10
		for r.Offset < 1000 {
			r.Offset = w.read(f, r).NextOffset
		}
		if n := count(f.m.decoded.WithLabelValues("decode")); n != 1 {
			t.Errorf("age %v: decoded %v times", age, n)
		}
	}
}

// However much old data is scanned, the caches stay within their bound, and recent data stays cached.
func TestCacheBound(t *testing.T) {
	w := newWorld(t)
	w.compress = segment.CompressNone
	w.time = testNow
	for range 40 {
		w.commit(bigRecords(10, 1000))
	}
	w.time = testNow + 10*60_000
	e := w.commit(values("recent"))[0]
	recentBody, recentKey := w.last, w.lastKey
	const cache = 100_000
	f := w.fetcher(Options{Clock: clockwork.NewFakeClockAt(time.UnixMilli(w.time)), OldAge: time.Minute, BlockBytes: 4_000, CacheBytes: cache})
	f.Put(recentKey, recentBody)
	for offset := int64(0); offset < 400; {
		r := request(offset)
		r.MaxRecords = 7
		offset = w.read(f, r).NextOffset
		if n := f.blocks.bytes() + f.batches.size(); n > cache {
			t.Fatalf("caches hold %d bytes of %d", n, cache)
		}
	}
	before := w.store.gets.Load()
	w.wantShape(w.read(f, request(e.Base)), "400:recent next 401 head 401 start 0")
	if w.store.gets.Load() != before {
		t.Error("a backfill pushed out recent data")
	}
}

func TestOptions(t *testing.T) {
	if err := (Options{}).WithDefaults().Validate(); err == nil {
		t.Error("no view and no store is fine")
	}
	w := newWorld(t)
	bad := Options{View: w.view, Store: w.store, CacheBytes: 1, BlockBytes: 1 << 30, OldAge: -1, Reads: -1, OldReads: -1, GetTimeout: -1}
	err := bad.WithDefaults().Validate()
	for _, field := range []string{"CacheBytes", "BlockBytes", "OldAge", "Reads", "OldReads", "GetTimeout"} {
		if err == nil || !contains(err.Error(), field) {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
	if _, err := New(bad); err == nil {
		t.Error("New takes faulty options")
	}
}

// A cached copy that is shorter than the object, from a faulty upload, is noticed and read again.
func TestShortCachedCopy(t *testing.T) {
	w := newWorld(t)
	w.commit(bigRecords(20, 100))
	for _, block := range []int64{64, 1000, 1 << 20} {
		for _, cut := range []int{1, 100, 700, 1500, len(w.last) - 10} {
			f := w.fetcher(Options{BlockBytes: block})
			f.Put(w.lastKey, w.last[:len(w.last)-cut])
			if res := w.read(f, request(0)); len(res.Records) != 20 {
				t.Errorf("block %d, cut %d: %d records", block, cut, len(res.Records))
			}
		}
	}
}

func TestOldCacheForgetsWhatItEvicts(t *testing.T) {
	o, err := newOldCache(50_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		o.put(newExtent(ulid.ULID{byte(i)}, true, int64(i), 1000, make([]byte, 2500)))
		if o.size() > 50_000 {
			t.Fatalf("%d bytes", o.size())
		}
	}
	o.cache.CleanUp()
	kept := o.cache.EstimatedSize()
	if n := len(o.mu.index); n != 3*kept || kept == 0 || kept == 100 {
		t.Errorf("%d blocks are indexed for %d pieces of 3", n, kept)
	}
	x := newExtent(ulid.ULID{200}, true, 0, 1000, make([]byte, 2500))
	o.put(x)
	o.drop(x.keys[1])
	for _, k := range x.keys {
		if _, ok := o.get(k); ok {
			t.Errorf("block %d is still there", k.index)
		}
	}
}

// A replay of one partition reads about what it returns, not the neighbours that share its objects; and what was cached while recent serves
// it when it is old.
func TestOldDataIsReadInSmallBlocks(t *testing.T) {
	w := newWorld(t)
	w.time -= time.Hour.Milliseconds()
	e := w.commit(bigRecords(3, 1000), bigRecords(300, 1000))[0]
	f := w.fetcher(Options{BlockBytes: 1 << 20, OldBlockBytes: 1 << 10, OldAge: time.Minute})
	r := request(0)
	r.MaxRecords = 1
	w.read(f, r)
	if n := w.store.bytes.Load(); n > int64(e.Ref.Len)+2<<10 {
		t.Errorf("%d bytes were read for a batch of %d", n, e.Ref.Len)
	}
	f = w.fetcher(Options{BlockBytes: 1 << 20, OldBlockBytes: 1 << 10, OldAge: time.Minute})
	f.Put(w.lastKey, w.last)
	before := w.store.gets.Load()
	w.read(f, r)
	if n := w.store.gets.Load() - before; n != 0 {
		t.Errorf("%d GETs for old data that the recent cache has", n)
	}
}
