package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/metadata"
)

// fill opens subscriptions with shards each, flushes them so often, and gives the bytes of a record of each key.
func fill(t testing.TB, j *fixture, subscriptions, shards, flushes int) (live int) {
	t.Helper()
	incarnations := map[ShardKey]int64{}
	for s := range subscriptions {
		var entries []Entry
		for p := range shards {
			entries = append(entries, opening(at(metadata.SubscriptionID(s+1), int32(p)), 0, Shard{}))
		}
		for i, o := range j.must(t, entries...) {
			incarnations[entries[i].Key] = o + 1
		}
	}
	for f := range int64(flushes) {
		for s := range subscriptions {
			var entries []Entry
			for p := range shards {
				k := at(metadata.SubscriptionID(s+1), int32(p))
				entries = append(entries, flush(k, Version{incarnations[k], f + 1}, f*10, Range{f*10 + 2, f*10 + 4}))
			}
			entries = append(entries, pointer(entries[0].Key, entries[0].Shard.Version, Pointer{Offset: f, Kind: Dead, Attempts: 5, Reason: "no"}))
			j.must(t, entries...)
		}
	}
	j.log.compact(false)
	return j.log.live()
}

// Rebuilding many subscriptions reads each partition of the journal once, and then what is new.
func TestRebuildReadsEachPartitionOnce(t *testing.T) {
	const subscriptions, shards = 1000, 5
	log := newMemLog()
	writer := open(t, log, nil)
	live := fill(t, writer, subscriptions, shards, 3)
	before, _ := log.readCalls(tenant)
	begin := time.Now()
	fresh := open(t, log, nil)
	found := 0
	for s := range subscriptions {
		found += len(fresh.loaded(t, metadata.SubscriptionID(s+1)).Shards)
	}
	if found != subscriptions*shards {
		t.Errorf("%d shards, want %d", found, subscriptions*shards)
	}
	records, bytes := value(t, fresh.m.readRecords), value(t, fresh.m.readBytes)
	t.Logf("%d shards of %d subscriptions: %d records and %d KiB read of %d records, %d scans, %s in memory, %s",
		found, subscriptions, records, bytes>>10, live, value(t, fresh.m.scans), fmt.Sprint(value(t, fresh.m.cached)>>10, " KiB"), time.Since(begin).Round(time.Millisecond))
	if records != live {
		t.Errorf("%d records were read, the journal has %d", records, live)
	}
	if n := value(t, fresh.m.scans); n != DefaultPartitions {
		t.Errorf("%d scans of %d partitions", n, DefaultPartitions)
	}
	after, from := log.readCalls(tenant)
	for p := range after {
		zero := 0
		for _, o := range from[p][before[p]:] {
			if o == 0 {
				zero++
			}
		}
		if zero != 1 {
			t.Errorf("partition %d was read from its start %d times", p, zero)
		}
	}
	// Tails only from here on.
	fresh.must(t, flush(at(1, 0), Version{1, 9}, 99))
	fresh.loaded(t, 1)
	if n := value(t, fresh.m.readRecords); n != records+1 {
		t.Errorf("%d records were read for one that is new", n-records)
	}
}

// Calls that come while a read runs share the next one.
func TestConcurrentLoadsShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		writer := open(t, log, nil)
		fill(t, writer, 40, 2, 1)
		fresh := open(t, log, func(o *Options) { o.Partitions = DefaultPartitions })
		p := partitionOf(1, DefaultPartitions)
		gate := make(chan struct{})
		log.onRead = func(number int32, _ int64) error {
			if number == p {
				<-gate
			}
			return nil
		}
		before, _ := log.readCalls(tenant)
		var wg sync.WaitGroup
		load := func() {
			wg.Go(func() {
				if l := fresh.loaded(t, 1); len(l.Shards) != 2 {
					t.Errorf("%d shards", len(l.Shards))
				}
			})
		}
		load()
		synctest.Wait() // it reads
		for range 500 {
			load()
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		after, _ := log.readCalls(tenant)
		if n := after[p] - before[p]; n != 2 {
			t.Errorf("%d reads for 501 loads, want one for the first and one for those who came meanwhile", n)
		}
	})
}

// Who comes after a read began must not get its answer: the read may have missed what was acknowledged before the call.
func TestLoadIsLinearizable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		j, other := open(t, log, nil), open(t, log, nil)
		j.must(t, flush(at(1, 0), Version{1, 1}, 1))
		entered, gate := make(chan struct{}, 9), make(chan struct{})
		log.onRead = func(int32, int64) error {
			entered <- struct{}{}
			<-gate
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { j.loaded(t, 1) })
		<-entered
		other.must(t, flush(at(1, 0), Version{1, 2}, 2))
		wg.Go(func() {
			if s := j.loaded(t, 1).Shards[0]; s.Frontier != 2 {
				t.Errorf("frontier %d: written before the call, not seen by it", s.Frontier)
			}
		})
		synctest.Wait()
		close(gate)
		wg.Wait()
	})
}

// The end of one caller's context does not fail the others of its round.
func TestLeaderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		j := open(t, log, nil)
		j.must(t, flush(at(1, 0), Version{1, 1}, 1))
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan struct{})
		var once sync.Once
		log.onRead = func(int32, int64) error {
			var err error
			once.Do(func() {
				<-first
				err = ctx.Err()
			})
			return err
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := j.Load(ctx, tenant, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { j.loaded(t, 1) })
		synctest.Wait()
		// A third one gives up while it waits.
		gone, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := j.Load(gone, tenant, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		leave()
		cancel()
		close(first)
		wg.Wait()
	})
}

// The cache holds its bound, and what does not fit is read again.
func TestCacheHoldsItsBound(t *testing.T) {
	const subscriptions, shards, limit = 400, 3, 64 << 10
	log := newMemLog()
	writer := open(t, log, nil)
	fill(t, writer, subscriptions, shards, 2)
	small := open(t, log, func(o *Options) { o.CacheBytes, o.ReadBytes = limit, 1000 })
	whole := open(t, log, nil)
	for round := range 2 {
		for s := range subscriptions {
			id := metadata.SubscriptionID(s + 1)
			if diff := cmp.Diff(whole.loaded(t, id), small.loaded(t, id)); diff != "" {
				t.Fatalf("round %d, subscription %d: %s", round, id, diff)
			}
			// The notes of what is absent are all that may be beyond it.
			if n := value(t, small.m.cached); n > limit+subscriptions*absentOverhead {
				t.Fatalf("%d bytes are cached, the bound is %d", n, limit)
			}
		}
	}
	if value(t, small.m.evicted) == 0 {
		t.Error("nothing left the cache: the test sees nothing")
	}
	if n := value(t, whole.m.evicted); n != 0 {
		t.Errorf("%d left a cache with room", n)
	}
	// A subscription in use stays: it is read from memory.
	small.loaded(t, 7)
	scans := value(t, small.m.scans)
	for range 5 {
		small.loaded(t, 7)
	}
	if n := value(t, small.m.scans); n != scans {
		t.Errorf("%d scans for a subscription in use", n-scans)
	}
	// Everything goes when everything is dropped.
	for s := range subscriptions {
		if err := small.DropSubscription(t.Context(), tenant, metadata.SubscriptionID(s+1)); err != nil {
			t.Fatal(err)
		}
	}
	small.clock.Advance(2 * maxAge)
	for s := range subscriptions {
		small.loaded(t, metadata.SubscriptionID(s+1))
	}
	if n := value(t, small.m.cached); n != 0 {
		t.Errorf("%d bytes are counted for nothing", n)
	}
}

// One larger than the whole cache is read each time, and is right.
func TestSubscriptionLargerThanTheCache(t *testing.T) {
	log := newMemLog()
	writer := open(t, log, nil)
	var entries []Entry
	for o := range int64(3000) {
		entries = append(entries, pointer(at(1, 0), Version{1, 1}, Pointer{Offset: o, Kind: Dead}))
	}
	writer.must(t, append(entries, flush(at(1, 0), Version{1, 1}, 3000))...)
	j := open(t, log, func(o *Options) { o.CacheBytes = 10_000 })
	for range 3 {
		if n := len(j.loaded(t, 1).Pointers[0]); n != 3000 {
			t.Fatalf("%d pointers", n)
		}
		if n := value(t, j.m.cached); n > 10_000 {
			t.Errorf("%d bytes stay in memory", n)
		}
	}
}

// A read that fails in the middle goes on where it was, and one from the start for a single subscription leaves nothing half done.
func TestFailedReads(t *testing.T) {
	log := newMemLog()
	writer := open(t, log, nil)
	fill(t, writer, 30, 3, 2)
	j := open(t, log, func(o *Options) { o.ReadBytes, o.CacheBytes, o.Partitions = 500, 4000, DefaultPartitions })
	whole := open(t, log, nil)
	n := 0
	log.onRead = func(int32, int64) error {
		if n++; n%4 == 0 {
			return errors.New("no")
		}
		return nil
	}
	failed := 0
	for range 3 {
		for s := range 30 {
			id := metadata.SubscriptionID(s + 1)
			got, err := j.Load(t.Context(), tenant, id)
			if err != nil {
				failed++
				continue
			}
			hook := log.onRead
			log.onRead = nil
			if diff := cmp.Diff(whole.loaded(t, id), got); diff != "" {
				t.Fatalf("subscription %d: %s", id, diff)
			}
			log.onRead = hook
		}
	}
	if failed == 0 {
		t.Error("no read failed: the test sees nothing")
	}
}

// Concurrency, for the race detector: many writers and readers of a few subscriptions, with a cache that is too small.
func TestTogether(t *testing.T) {
	log := newMemLog()
	j := open(t, log, func(o *Options) { o.CacheBytes, o.ReadBytes = 5000, 700 })
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range int64(40) {
				k := at(metadata.SubscriptionID(i%5+1), int32(w))
				v := Version{1, i + 1}
				j.must(t, flush(k, v, i), pointer(k, v, Pointer{Offset: i, Kind: Retry}), removal(k, v, i-1+btoi(i == 0)))
				if s := j.loaded(t, k.Subscription).Shards[int32(w)]; s == nil || s.Frontier < i {
					t.Errorf("wrote frontier %d, loaded %+v", i, s)
				}
			}
		})
	}
	wg.Wait()
	for id := range 5 {
		for p, s := range j.loaded(t, metadata.SubscriptionID(id+1)).Shards {
			if want := int64(35 + id); s.Frontier != want {
				t.Errorf("subscription %d partition %d: frontier %d, want %d", id+1, p, s.Frontier, want)
			}
		}
	}
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
