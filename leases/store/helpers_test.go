package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// rig is a Store on one kind of Redis, and how time passes there.
type rig struct {
	t       *testing.T
	s       *Store
	url     string
	raw     *redis.Client
	server  *redistest.Server // nil with the in-process one
	mini    *miniredis.Miniredis
	advance func(time.Duration)
	base    time.Time
}

func mustStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Fabric == "" {
		o.Fabric = "test"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if o.Instance == "" {
		o.Instance = "node-" + t.Name()
	}
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func miniRig(t *testing.T) *rig {
	t.Helper()
	m := miniredis.RunT(t)
	now := time.UnixMilli(1_800_000_000_000)
	m.SetTime(now)
	r := &rig{t: t, url: "redis://" + m.Addr(), mini: m, base: now}
	r.advance = func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		m.FastForward(d)
	}
	r.s = mustStore(t, Options{URL: r.url})
	r.raw = redis.NewClient(&redis.Options{Addr: m.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = r.raw.Close() })
	return r
}

func realRig(t *testing.T, protocol int, opts ...redistest.Option) *rig {
	t.Helper()
	server := redistest.Start(t, opts...)
	r := &rig{t: t, server: server, url: fmt.Sprintf("%s?protocol=%d", server.URL(), protocol)}
	r.s = mustStore(t, Options{URL: r.url})
	r.raw = redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = r.raw.Close() })
	r.advance = func(d time.Duration) {
		// Redis's own clock cannot be set: it is asked until it has moved far enough.
		end := r.redisNow() + d.Milliseconds() + 1
		for r.redisNow() < end {
			if t.Context().Err() != nil {
				t.Fatal("out of time")
			}
		}
	}
	return r
}

func (r *rig) redisNow() int64 {
	now, err := r.raw.Time(context.Background()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return now.UnixMilli()
}

// everywhere runs a test on each kind of Redis.
func everywhere(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *rig{
		"miniredis":   miniRig,
		"redis-resp2": func(t *testing.T) *rig { return realRig(t, 2) },
		"redis-resp3": func(t *testing.T) *rig { return realRig(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

// lease is a visibility that is long enough for a test's calls and short enough to wait for.
const lease = 300 * time.Millisecond

func queue(id metadata.SubscriptionID) *Queue {
	return &Queue{ID: id, MaxAttempts: 3, MaxInFlight: 1000, MaxAckedAhead: 1000,
		Backoff: api.Backoff{Initial: 20 * time.Millisecond, Max: time.Second, Multiplier: 2}}
}

// open puts partitions in place that begin at offset 0.
func (r *rig) open(q *Queue, partitions ...int32) {
	r.t.Helper()
	var rs []LoadRequest
	for _, p := range partitions {
		rs = append(rs, LoadRequest{Partition: p, Incarnation: 1})
	}
	r.load(q, rs...)
}

func (r *rig) load(q *Queue, rs ...LoadRequest) {
	r.t.Helper()
	for {
		life := r.s.Life()
		err := r.s.Load(r.t.Context(), q, rs)
		if err == nil {
			err = r.s.Ready(r.t.Context(), q, life)
		}
		if errors.Is(err, ErrStale) && r.s.Life() > life {
			continue // another life began meanwhile: start over, as the engine does
		}
		if err != nil {
			r.t.Fatal(err)
		}
		return
	}
}

func (r *rig) acquire(q *Queue, max int, fresh ...Fresh) *Acquired {
	r.t.Helper()
	return r.acquireFor(q, max, time.Minute, fresh...)
}

func (r *rig) acquireFor(q *Queue, max int, visibility time.Duration, fresh ...Fresh) *Acquired {
	r.t.Helper()
	a, err := r.s.Acquire(r.t.Context(), q, AcquireRequest{Max: max, Visibility: visibility, Fresh: fresh})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) settle(q *Queue, op Op, o SettleOptions, rs ...Receipt) *Settled {
	r.t.Helper()
	out, err := r.s.Settle(r.t.Context(), q, op, rs, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) wantOK(q *Queue, op Op, o SettleOptions, want string, rs ...Receipt) *Settled {
	r.t.Helper()
	out := r.settle(q, op, o, rs...)
	var got strings.Builder
	for _, ok := range out.OK {
		got.WriteByte(map[bool]byte{true: '1', false: '0'}[ok])
	}
	if got.String() != want {
		r.t.Fatalf("op %d of %v: OK %s, want %s", op, rs, got.String(), want)
	}
	return out
}

// receipts lists every receipt of grants.
func receipts(gs ...Grant) []Receipt {
	var rs []Receipt
	for _, g := range gs {
		for i := range int64(g.Count) {
			rs = append(rs, Receipt{g.Partition, g.Start + i, g.Nonce})
		}
	}
	return rs
}

// granted prints grants as "partition:start+count/attempt".
func granted(gs []Grant) string {
	var out []string
	for _, g := range gs {
		out = append(out, fmt.Sprintf("%d:%d+%d/%d", g.Partition, g.Start, g.Count, g.Attempt))
	}
	return strings.Join(out, " ")
}

func (r *rig) wantGrants(a *Acquired, want string) {
	r.t.Helper()
	if got := granted(a.Grants); got != want {
		r.t.Fatalf("granted %q, want %q", got, want)
	}
}

func (r *rig) stats(q *Queue, partition int32) ShardStats {
	r.t.Helper()
	all, err := r.s.Stats(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		if s.Partition == partition {
			return s
		}
	}
	r.t.Fatalf("no statistics of partition %d in %v", partition, all)
	return ShardStats{}
}

func (r *rig) sweep(q *Queue) *Effects {
	r.t.Helper()
	e, err := r.s.Sweep(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// audit expects that nothing has to be put right.
func (r *rig) audit(q *Queue) {
	r.t.Helper()
	rep, _, err := r.s.Audit(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	if rep != (Repairs{}) {
		r.t.Fatalf("the audit found %+v", rep)
	}
}

func (r *rig) deadLetters(q *Queue) []DeadLetter {
	r.t.Helper()
	ds, next, err := r.s.DeadLetters(r.t.Context(), q, "", 1000)
	if err != nil || next != "" {
		r.t.Fatal(next, err)
	}
	return ds
}

// export is the shard's state and pointers as the journal would have them.
func (r *rig) export(q *Queue, partition int32) Exported {
	r.t.Helper()
	es, err := r.s.Export(r.t.Context(), q, []int32{partition})
	if err != nil || len(es) != 1 {
		r.t.Fatal(es, err)
	}
	return es[0]
}

func wantNotLoaded(t testing.TB, err error) *NotLoadedError {
	t.Helper()
	var nl *NotLoadedError
	if !errors.As(err, &nl) {
		t.Fatalf("%v is not a NotLoadedError", err)
	}
	return nl
}

func wantUnavailable(t testing.TB, err error) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeLeasesUnavailable || e.RetryAfter <= 0 {
		t.Fatalf("%v is not LEASES_UNAVAILABLE with RetryAfter", err)
	}
	return e
}

func at(partition int32, head int64) Fresh { return Fresh{Partition: partition, Head: head} }

var _ = journal.Shard{}
