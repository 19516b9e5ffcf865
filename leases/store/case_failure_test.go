package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/redistest"
	"github.com/forebaymq/forebay/metadata"
)

// R1: whatever else than an answer of our scripts comes is an error, never a success.
func TestUnexpectedReplies(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		r := miniRig(t)
		s := mustStore(t, Options{URL: fmt.Sprintf("%s?protocol=%d", r.url, protocol), Instance: fmt.Sprint("odd", protocol)})
		r.s = s
		q := queue(60)
		r.open(q, 0)
		rs := receipts(r.acquire(q, 2, at(0, 2)).Grants...)
		var answer atomic.Pointer[func(*server.Peer)]
		r.mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			f := answer.Load()
			if f == nil || !strings.EqualFold(cmd, "EVALSHA") {
				return false
			}
			(*f)(c)
			return true
		})
		for name, f := range map[string]func(*server.Peer){
			"nil":       func(c *server.Peer) { c.WriteNull() },
			"integer":   func(c *server.Peer) { c.WriteInt(1) },
			"ok":        func(c *server.Peer) { c.WriteOK() },
			"array":     func(c *server.Peer) { c.WriteLen(2); c.WriteBulk("OK"); c.WriteInt(1) },
			"empty":     func(c *server.Peer) { c.WriteBulk("") },
			"short":     func(c *server.Peer) { c.WriteBulk("OK 1 2") },
			"words":     func(c *server.Peer) { c.WriteBulk("OK a b c d e f g h i j") },
			"long list": func(c *server.Peer) { c.WriteBulk("OK 1 2 3 4 5 0 99999999999") },
			"negative":  func(c *server.Peer) { c.WriteBulk("OK 1 2 3 4 5 0 -1") },
			"results":   func(c *server.Peer) { c.WriteBulk("OK 1 -1 0 0 0 0 0 11111") },
			"type": func(c *server.Peer) {
				c.WriteError("WRONGTYPE Operation against a key holding the wrong kind of value")
			},
			"LOADING":     func(c *server.Peer) { c.WriteError("LOADING Redis is loading the dataset in memory") },
			"MASTERDOWN":  func(c *server.Peer) { c.WriteError("MASTERDOWN Link with MASTER is down") },
			"CLUSTERDOWN": func(c *server.Peer) { c.WriteError("CLUSTERDOWN The cluster is down") },
			"OOM":         func(c *server.Peer) { c.WriteError("OOM command not allowed when used memory > 'maxmemory'.") },
			"BUSY":        func(c *server.Peer) { c.WriteError("BUSY Redis is busy running a script.") },
			"MISCONF":     func(c *server.Peer) { c.WriteError("MISCONF Errors writing to the AOF file") },
		} {
			answer.Store(&f)
			ctx := t.Context()
			for what, call := range map[string]func() error{
				"acquire": func() error {
					_, err := s.Acquire(ctx, q, AcquireRequest{Max: 1, Visibility: time.Second, Fresh: []Fresh{at(0, 9)}})
					return err
				},
				"settle": func() error {
					_, err := s.Settle(ctx, q, OpAck, []Receipt{rs[0], {0, 1, "01OTHER"}}, SettleOptions{})
					return err
				},
				"extend": func() error {
					_, err := s.Settle(ctx, q, OpExtend, []Receipt{rs[0], {0, 1, "01OTHER"}}, SettleOptions{Visibility: time.Second})
					return err
				},
				"sweep":  func() error { _, err := s.Sweep(ctx, q); return err },
				"export": func() error { _, err := s.Export(ctx, q, []int32{0}); return err },
				"stats":  func() error { _, err := s.Stats(ctx, q); return err },
				"dead":   func() error { _, _, err := s.DeadLetters(ctx, q, "", 10); return err },
				"survey": func() error { _, err := s.Survey(ctx, q); return err },
				"due":    func() error { _, err := s.DueSubscriptions(ctx); return err },
				"audit":  func() error { _, _, err := s.Audit(ctx, q); return err },
			} {
				switch { // what these scripts may answer
				case name == "short" && (what == "stats" || what == "survey" || what == "dead" || what == "export"), name == "empty" && what == "due",
					name == "results" && what == "sweep", name == "negative" && what == "dead":
					continue
				}
				err := call()
				var e *api.Error
				if !errors.As(err, &e) || e.Code != api.CodeLeasesUnavailable {
					t.Errorf("RESP%d: %s answered %s gives %v", protocol, what, name, err)
				}
			}
		}
		answer.Store(nil)
		r.wantOK(q, OpAck, SettleOptions{}, "11", rs...)
		r.audit(q)
	}
}

// worker leases and acks until everything is settled, and opens the queue again when it must. It checks that no offset has two holders and that
// no ack of a live lease is answered twice.
type crew struct {
	*rig
	q           *Queue
	head        int64
	incarnation atomic.Int64
	opening     sync.Mutex
	held        struct {
		sync.Mutex
		by    map[int64]string
		acked map[int64]int
	}
}

func (c *crew) reopen(ctx context.Context) {
	c.opening.Lock()
	defer c.opening.Unlock()
	life := c.s.Life()
	have, err := c.s.Survey(ctx, c.q)
	if err != nil {
		return
	}
	for p := range int32(2) {
		_, keep := have[p]
		if err := c.s.Load(ctx, c.q, []LoadRequest{{Partition: p, Incarnation: c.incarnation.Add(1), Keep: keep}}); err != nil {
			return
		}
	}
	_ = c.s.Ready(ctx, c.q, life) // stale: the next call says so
}

func (c *crew) settled() int {
	c.held.Lock()
	defer c.held.Unlock()
	return len(c.held.acked)
}

func (c *crew) left(ctx context.Context) bool {
	all, err := c.s.Stats(ctx, c.q)
	if err != nil {
		return true
	}
	var sum int64
	for _, s := range all {
		sum += s.Frontier
	}
	return sum < 2*c.head
}

func (c *crew) work(ctx context.Context) {
	for ctx.Err() == nil && c.left(ctx) {
		a, err := c.s.Acquire(ctx, c.q, AcquireRequest{Max: 7, Visibility: time.Minute, Fresh: []Fresh{at(0, c.head), at(1, c.head)}})
		var nl *NotLoadedError
		if errors.As(err, &nl) {
			c.reopen(ctx)
			continue
		} else if err != nil {
			continue
		}
		rs := receipts(a.Grants...)
		c.held.Lock()
		for _, r := range rs {
			k := int64(r.Partition)<<40 | r.Offset
			if who := c.held.by[k]; who != "" {
				c.t.Errorf("%v is leased to %s as well", r, who)
			}
			c.held.by[k] = r.Nonce
		}
		c.held.Unlock()
		for len(rs) > 0 {
			// Let go before the ack takes effect: from then on nobody may get it anyway.
			out, err := c.s.Settle(ctx, c.q, OpAck, rs, SettleOptions{})
			if errors.As(err, &nl) {
				c.reopen(ctx)
				continue
			} else if err != nil {
				if ctx.Err() != nil {
					return
				}
				continue // repeating an ack is safe
			}
			c.held.Lock()
			for i, r := range rs {
				if !out.OK[i] {
					c.t.Errorf("the ack of %v was refused", r)
				}
				c.held.acked[int64(r.Partition)<<40|r.Offset]++
			}
			c.held.Unlock()
			break
		}
	}
}

// R2: scripts flushed under load: nothing twice, nothing lost, no restart.
func TestScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	c := &crew{rig: r, q: queue(61), head: 700}
	c.held.by, c.held.acked = map[int64]string{}, map[int64]int{}
	c.reopen(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { c.work(ctx) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	flushes, last := 0, 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
			// A flush whenever some work was done since the last one: otherwise a slow machine does nothing but load scripts.
			if n := c.settled(); n >= last+50 {
				r.server.FlushScripts()
				flushes, last = flushes+1, n
			}
			r.advance(2 * time.Millisecond)
		}
	}
	if len(c.held.acked) != 2*700 || r.s.Life() < 2 || flushes < 2 {
		t.Fatalf("%d settled, life %d, %d flushes", len(c.held.acked), r.s.Life(), flushes)
	}
	for k, n := range c.held.acked {
		if n != 1 {
			t.Fatalf("%d settled %d times", k, n)
		}
	}
	for ctx.Err() == nil {
		if _, err := r.s.Sweep(ctx, c.q); err == nil {
			break
		}
		c.reopen(ctx)
	}
	r.audit(c.q)
}

// R2: the primary is demoted while its connections stay open.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	replica := r.server.Replica(t)
	q := queue(62)
	r.open(q, 0)
	rs := receipts(r.acquire(q, 3, at(0, 9)).Grants...)
	replica.InSync()
	replica.Promote()
	r.server.Demote(replica)
	life := r.s.Life()
	_, err := r.s.Settle(t.Context(), q, OpAck, rs[:1], SettleOptions{})
	wantUnavailable(t, err)
	if r.s.Life() == life {
		t.Fatal("a demotion begins another life")
	}
	_, err = r.s.Settle(t.Context(), q, OpAck, rs[:1], SettleOptions{})
	wantNotLoaded(t, err)
	r.server.Promote()
	have, err := r.s.Survey(t.Context(), q)
	if err != nil || len(have) != 1 {
		t.Fatal(have, err)
	}
	r.load(q, LoadRequest{Partition: 0, Incarnation: 2, Keep: true})
	r.wantOK(q, OpAck, SettleOptions{}, "111", rs...)
	r.audit(q)
}

// R2: out of memory, nothing happens and the answer is 503; with memory it goes on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	r := realRig(t, 2, redistest.Config("maxmemory-policy", "noeviction"))
	q := queue(63)
	r.open(q, 0)
	rs := receipts(r.acquire(q, 3, at(0, 9)).Grants...)
	r.wantOK(q, OpNack, SettleOptions{Delay: time.Hour}, "1", rs[2])
	before := r.raw.HGetAll(t.Context(), r.s.prefix(q.ID)+keyShards).Val()
	r.server.Must("CONFIG", "SET", "maxmemory", "1")
	_, err := r.s.Acquire(t.Context(), q, AcquireRequest{Max: 1, Visibility: time.Minute, Fresh: []Fresh{at(0, 9)}})
	wantUnavailable(t, err)
	_, err = r.s.Settle(t.Context(), q, OpNack, rs[:2], SettleOptions{})
	wantUnavailable(t, err)
	if after := r.raw.HGetAll(t.Context(), r.s.prefix(q.ID)+keyShards).Val(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("changed from %v to %v", before, after)
	}
	r.server.Must("CONFIG", "SET", "maxmemory", "0")
	r.wantOK(q, OpAck, SettleOptions{}, "11", rs[:2]...)
	r.audit(q)
}

// R3: restarted empty, and flushed.
func TestLostState(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	q := queue(64)
	r.open(q, 0)
	rs := receipts(r.acquire(q, 3, at(0, 9)).Grants...)
	r.server.Kill()
	_, err := r.s.Settle(t.Context(), q, OpAck, rs, SettleOptions{})
	wantUnavailable(t, err)
	wantUnavailable(t, r.s.Ping(t.Context()))
	r.server.Restart()
	life := r.s.Life()
	_, err = r.s.Settle(t.Context(), q, OpAck, rs, SettleOptions{})
	wantNotLoaded(t, err)
	if r.s.Life() != life+1 {
		t.Fatal(life, r.s.Life())
	}
	if err := r.s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.open(q, 0)
	r.wantOK(q, OpAck, SettleOptions{}, "000", rs...)
	r.server.Flush()
	_, err = r.s.Settle(t.Context(), q, OpAck, rs, SettleOptions{})
	wantNotLoaded(t, err)
	if r.s.Life() != life+1 {
		t.Fatal("the same process")
	}
	r.open(q, 0)
	r.wantGrants(r.acquire(q, 3, at(0, 9)), "0:0+3/1")
	r.audit(q)
}

// A store of another process sees each loss for itself.
func TestEachInstanceSeesTheFlush(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	other := mustStore(t, Options{URL: r.url, Instance: "other"})
	q := queue(65)
	r.open(q, 0)
	_, err := other.Sweep(t.Context(), q)
	wantNotLoaded(t, err) // opened by the first, not by this one
	if err := other.Load(t.Context(), q, []LoadRequest{{Partition: 0, Incarnation: 2, Keep: true}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Ready(t.Context(), q, other.Life()); err != nil {
		t.Fatal(err)
	}
	r.server.FlushScripts()
	for _, s := range []*Store{r.s, other} {
		_, err := s.Sweep(t.Context(), q)
		wantNotLoaded(t, err)
		if s.Life() != 2 {
			t.Fatal(s.Life())
		}
	}
	r.server.FlushScripts()
	if ids, err := r.s.DueSubscriptions(t.Context()); err != nil || len(ids) != 0 {
		t.Fatal(ids, err)
	}
	if r.s.Life() != 3 {
		t.Fatal(r.s.Life())
	}
}

// A lease call without an answer: what it got is given back, not left to lapse.
func TestOrphansAreReleased(t *testing.T) {
	t.Parallel()
	r := realRig(t, 3)
	reg := prometheus.NewRegistry()
	r.s = mustStore(t, Options{URL: r.url, Instance: "orphan", Registerer: reg})
	q := queue(66)
	r.open(q, 0)
	r.acquire(q, 2, at(0, 9))
	r.server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := r.s.Acquire(ctx, q, AcquireRequest{Max: 3, Visibility: time.Hour, Fresh: []Fresh{at(0, 9)}})
	wantUnavailable(t, err)
	r.server.Resume()
	for r.stats(q, 0).InFlight != 2 || released(t, reg) == 0 {
		r.advance(10 * time.Millisecond)
	}
	a := r.acquire(q, 9, at(0, 9))
	if got := len(receipts(a.Grants...)); got != 7 || a.Grants[0].Attempt != 1 {
		t.Fatal(granted(a.Grants))
	}
	r.audit(q)
}

func released(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "forebay_leases_store_orphans_total" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == "released" {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// Cluster: every script and key of a subscription is in one slot; with a password.
func TestCluster(t *testing.T) {
	t.Parallel()
	node := redistest.Start(t, redistest.Config("cluster-enabled", "yes"), redistest.Password("pä/ss:@"))
	node.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for node.Must("CLUSTER", "INFO").(string)[:16] != "cluster_state:ok" {
		if t.Context().Err() != nil {
			t.Fatal("out of time")
		}
	}
	url := strings.Replace(strings.TrimSuffix(node.URL(), "/0"), "redis://", "redis+cluster://", 1)
	s := mustStore(t, Options{URL: url})
	r := &rig{t: t, s: s, server: node}
	for id := range 5 {
		q := queue(70 + metadata.SubscriptionID(id))
		q.Ordered, q.CopyDead, q.MaxAttempts = id == 1, id == 2, 1
		q.Fair = id == 3
		r.open(q, 0, 1)
		if q.Keyed() {
			r.admit(q, 0, 0, 1, 1, 2)
		}
		a := r.acquire(q, 3, at(0, 3), at(1, 3))
		rs := receipts(a.Grants...)
		r.settle(q, OpNack, SettleOptions{Reason: "r"}, rs[0])
		r.settle(q, OpAck, SettleOptions{}, rs[1:]...)
		r.audit(q)
		if ds := r.deadLetters(q); len(ds) != 1 {
			t.Fatalf("%+v", ds)
		}
		if err := s.Clean(t.Context(), q, []Exported{r.export(q, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	node.FlushScripts()
	if ids, err := s.IdleSubscriptions(t.Context(), 0); err != nil || len(ids) != 5 {
		t.Fatal(ids, err)
	}
	if s.Life() != 2 {
		t.Fatal(s.Life())
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}
