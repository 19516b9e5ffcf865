package journal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

func at(id metadata.SubscriptionID, partition int32) ShardKey { return ShardKey{id, partition} }

func opening(k ShardKey, base int64, s Shard) Entry {
	s.Version = Version{Incarnation: base}
	return Entry{Key: k, Shard: &s, Open: true}
}

func seek(k ShardKey, frontier int64) Entry {
	return Entry{Key: k, Shard: &Shard{Frontier: frontier}, Open: true, Seek: true}
}

func flush(k ShardKey, v Version, frontier int64, settled ...Range) Entry {
	return Entry{Key: k, Shard: &Shard{Version: v, Frontier: frontier, Settled: settled}}
}

func pointer(k ShardKey, v Version, p Pointer) Entry {
	p.Version = v
	return Entry{Key: k, Pointer: &p}
}

func removal(k ShardKey, v Version, offset int64) Entry {
	return Entry{Key: k, Remove: offset, Version: v}
}

func TestWriteAndLoad(t *testing.T) {
	log := newMemLog()
	j := open(t, log, nil)
	if diff := cmp.Diff(&Loaded{Shards: map[int32]*Shard{}, Pointers: map[int32]map[int64]Pointer{}, Tasks: map[string]Task{}}, j.loaded(t, 7)); diff != "" {
		t.Fatal(diff)
	}
	inc := j.must(t, opening(at(7, 0), 0, Shard{Frontier: 3}), opening(at(7, 2), 0, Shard{}))
	a, b := inc[0]+1, inc[1]+1
	if a == 0 || b == 0 || a == b {
		t.Fatalf("incarnations %d and %d", a, b)
	}
	retry := Pointer{Offset: 12, Kind: Retry, Attempts: 2, FirstFailed: 1_700_000_000_000, LastFailed: 1_700_000_001_000, Due: 1_700_000_009_000, Reason: "bad gateway", KeyHash: 1<<63 + 5}
	dead := Pointer{Offset: 4, Kind: Dead, Attempts: 5, LastFailed: 9, CopyPending: true, Reason: "ünïcode"}
	later := Pointer{Offset: 1 << 40, Kind: Scheduled, Due: 5}
	j.must(t,
		flush(at(7, 0), Version{a, 4}, 10, Range{11, 12}, Range{13, 20}),
		pointer(at(7, 0), Version{a, 2}, retry), pointer(at(7, 0), Version{a, 3}, dead), pointer(at(7, 0), Version{a, 4}, later),
		flush(at(8, 1), Version{99, 1}, 5))
	task := Task{ID: "t1", Subscription: 7, State: "running", Offsets: []Target{{0, 4}, {2, 9}}, Rate: 50, Total: 2, Done: 1, Created: 5, Updated: 6}
	if err := j.PutTask(t.Context(), tenant, task); err != nil {
		t.Fatal(err)
	}
	retry.Version, dead.Version, later.Version = Version{a, 2}, Version{a, 3}, Version{a, 4}
	want := &Loaded{
		Shards: map[int32]*Shard{
			0: {Version: Version{a, 4}, Frontier: 10, Settled: []Range{{11, 12}, {13, 20}}},
			2: {Version: Version{b, 0}},
		},
		Pointers: map[int32]map[int64]Pointer{0: {12: retry, 4: dead, 1 << 40: later}},
		Tasks:    map[string]Task{"t1": task},
	}
	for _, f := range []*fixture{j, open(t, log, nil)} {
		if diff := cmp.Diff(want, f.loaded(t, 7)); diff != "" {
			t.Error(diff)
		}
	}
	other := j.loaded(t, 8)
	if diff := cmp.Diff(map[int32]*Shard{1: {Version: Version{99, 1}, Frontier: 5}}, other.Shards); diff != "" {
		t.Error(diff)
	}

	j.must(t, flush(at(7, 0), Version{a, 9}, 21), removal(at(7, 0), Version{a, 9}, 12))
	if err := j.RemoveTask(t.Context(), tenant, 7, "t1"); err != nil {
		t.Fatal(err)
	}
	want.Shards[0] = &Shard{Version: Version{a, 9}, Frontier: 21}
	delete(want.Pointers[0], 12)
	delete(want.Tasks, "t1")
	log.compact(true)
	j.clock.Advance(maxAge + time.Millisecond) // tombstones live longer than that
	for _, f := range []*fixture{j, open(t, log, nil)} {
		if diff := cmp.Diff(want, f.loaded(t, 7)); diff != "" {
			t.Error(diff)
		}
	}

	if err := j.DropSubscription(t.Context(), tenant, 7); err != nil {
		t.Fatal(err)
	}
	if l := j.loaded(t, 7); len(l.Shards)+len(l.Pointers)+len(l.Tasks) != 0 {
		t.Errorf("dropped, and yet: %+v", l)
	}
	log.compact(true)
	if n := log.live(); n != 1 { // of subscription 8
		t.Errorf("%d records are left", n)
	}
}

func TestWriteRefusesNonsense(t *testing.T) {
	j := open(t, newMemLog(), nil)
	for name, e := range map[string]Entry{
		"state without incarnation":   flush(at(1, 0), Version{}, 0),
		"negative frontier":           flush(at(1, 0), Version{1, 1}, -1),
		"range at the frontier":       flush(at(1, 0), Version{1, 1}, 5, Range{5, 6}),
		"empty range":                 flush(at(1, 0), Version{1, 1}, 5, Range{7, 7}),
		"adjacent ranges":             flush(at(1, 0), Version{1, 1}, 5, Range{7, 8}, Range{8, 9}),
		"negative partition":          flush(at(1, -1), Version{1, 1}, 5),
		"opening without state":       {Key: at(1, 0), Open: true},
		"seek without opening":        {Key: at(1, 0), Shard: &Shard{Version: Version{1, 0}}, Seek: true},
		"pointer without kind":        pointer(at(1, 0), Version{1, 1}, Pointer{Offset: 1}),
		"pointer without incarnation": pointer(at(1, 0), Version{}, Pointer{Offset: 1, Kind: Dead}),
		"removal without incarnation": removal(at(1, 0), Version{}, 1),
		"negative pointer":            pointer(at(1, 0), Version{1, 1}, Pointer{Offset: -1, Kind: Dead}),
	} {
		if _, err := j.Write(t.Context(), tenant, []Entry{flush(at(2, 0), Version{1, 1}, 1), e}); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if n := j.log.live(); n != 0 {
		t.Errorf("%d records were stored", n)
	}
	if _, err := j.Write(t.Context(), tenant, nil); err != nil {
		t.Error(err)
	}
	for _, task := range []Task{{}, {ID: "x", Done: -1}, {ID: "x", Offsets: []Target{{-1, 0}}}, {ID: string(make([]byte, 300))}} {
		if err := j.PutTask(t.Context(), tenant, task); err == nil {
			t.Errorf("task %+v: written", task)
		}
	}
}

func TestErrorsOfTheLogPassThrough(t *testing.T) {
	log := newMemLog()
	j := open(t, log, nil)
	unknown := api.Errorf(api.CodeOutcomeUnknown, "who knows")
	log.afterAppend = func([]Record, []int64) error { return unknown }
	if _, err := j.Write(t.Context(), tenant, []Entry{flush(at(1, 0), Version{1, 1}, 5)}); api.CodeOf(err) != api.CodeOutcomeUnknown {
		t.Errorf("got %v", err)
	}
	log.afterAppend = nil
	// It was stored, whatever the answer said. The same again is as good.
	j.must(t, flush(at(1, 0), Version{1, 1}, 5))
	if s := j.loaded(t, 1).Shards[0]; s == nil || s.Frontier != 5 {
		t.Errorf("got %+v", s)
	}
	log.onRead = func(int32, int64) error { return api.Errorf(api.CodeMetadataUnavailable, "no quorum") }
	if _, err := j.Load(t.Context(), tenant, 1); api.CodeOf(err) != api.CodeMetadataUnavailable {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log.onRead = func(int32, int64) error { return ctx.Err() }
	if _, err := j.Load(ctx, tenant, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTopicIsMadeAgain(t *testing.T) {
	log := newMemLog()
	j := open(t, log, nil)
	j.must(t, flush(at(1, 0), Version{1, 1}, 5))
	j.loaded(t, 1)
	log.remove(tenant)
	j.must(t, flush(at(1, 0), Version{1, 2}, 6))
	log.remove(tenant)
	if l := j.loaded(t, 1); len(l.Shards) != 0 {
		t.Errorf("got %+v", l)
	}
}

// An older state of the same process must not displace a newer one, should two flushes of it ever overtake one another.
func TestOlderStateOfTheSameWriterIsLeftOut(t *testing.T) {
	j := open(t, newMemLog(), nil)
	newer := j.must(t, flush(at(1, 0), Version{1, 9}, 50))
	older := j.must(t, flush(at(1, 0), Version{1, 8}, 40), pointer(at(1, 0), Version{1, 8}, Pointer{Offset: 3, Kind: Dead}))
	if older[0] != newer[0] {
		t.Errorf("offset %d, want that of the newer state, %d", older[0], newer[0])
	}
	j.log.compact(true)
	l := open(t, j.log, nil).loaded(t, 1)
	if s := l.Shards[0]; s.Frontier != 50 || len(l.Pointers[0]) != 1 {
		t.Errorf("got %+v", l)
	}
}

func TestOptions(t *testing.T) {
	_, err := New(Options{Partitions: -1, CacheBytes: -1, ReadBytes: -1, Grace: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"Log:", "Partitions:", "CacheBytes:", "ReadBytes:", "Grace:"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}
