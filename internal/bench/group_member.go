package bench

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebaymq/forebay/client"
)

// benchGroup is one group of a measurement.
type benchGroup struct {
	name    string
	members []*benchMember

	mu struct {
		sync.Mutex
		floor  int64 // a member counts once it has heard of a generation above this one
		stable bool
		acked  map[client.TopicPartition]*ackedOffset
	}
}

// benchMember is one member. mu guards what its heartbeats change; committing is held while it commits: a member commits one at a time.
type benchMember struct {
	group  *benchGroup
	number int
	due    time.Time // of the next call; owned by whoever has it from the heap

	mu struct {
		sync.Mutex
		id         string
		generation int64
		joined     bool
		revoked    bool // it has been told to let go, and has not yet said that it has
		owned      []client.TopicPartition
	}
	committing sync.Mutex
	commits    int64 // guarded by committing
}

// who gives who speaks, and for what.
func (m *benchMember) who() (client.GroupMember, []client.TopicPartition, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return client.GroupMember{ID: m.mu.id, Generation: m.mu.generation}, m.mu.owned, m.mu.joined
}

// beats makes the members join and heartbeat: few goroutines for many members. Each member calls when it is due: it joins, heartbeats at the
// interval that it is told, lets go of what it is to let go at once, and joins again when it must. Joins, which take a generation, have
// goroutines of their own: as with members of separate processes, no session ends because others join.
type beats struct {
	r    *groupsRun
	wake [2]chan struct{} // the heap has a new first

	mu struct {
		sync.Mutex
		due      [2]dueHeap // of heartbeats, and of joins
		beat     *recorder
		join     *recorder
		answered int // members that have joined
		stable   int // groups
		begin    time.Time
		half     time.Duration
		whole    time.Duration
		joined   time.Duration
		done     chan struct{} // closed when all groups are stable
		errors   map[string]int64
	}
}

func newBeats(r *groupsRun) *beats {
	b := &beats{r: r, wake: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
	b.mu.beat, b.mu.join, b.mu.errors = newRecorder(), newRecorder(), map[string]int64{}
	return b
}

// start lets members call until stop, which waits. No member is due yet.
func (b *beats) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for kind := range b.wake {
		work := make(chan *benchMember)
		wg.Go(func() { b.dispatch(ctx, kind, work) })
		for range b.r.o.Clients {
			wg.Go(func() {
				for m := range work {
					b.call(ctx, m)
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}

// dispatch hands out members as they become due.
func (b *beats) dispatch(ctx context.Context, kind int, work chan<- *benchMember) {
	defer close(work)
	for ctx.Err() == nil {
		m, wait := b.next(kind)
		if m == nil {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-b.wake[kind]:
			case <-ctx.Done():
			}
			t.Stop()
			continue
		}
		select {
		case work <- m:
		case <-ctx.Done():
		}
	}
}

// next takes the first member if it is due; else it says how long there is to wait.
func (b *beats) next(kind int) (*benchMember, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := &b.mu.due[kind]
	if len(*due) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until((*due)[0].due); wait > 0 {
		return nil, wait
	}
	return heap.Pop(due).(*benchMember), 0
}

// put makes a member due at a time.
func (b *beats) put(m *benchMember, at time.Time) {
	kind := 0
	if _, _, joined := m.who(); !joined {
		kind = 1
	}
	b.mu.Lock()
	m.due = at
	heap.Push(&b.mu.due[kind], m)
	first := b.mu.due[kind][0] == m
	b.mu.Unlock()
	if first {
		select {
		case b.wake[kind] <- struct{}{}:
		default:
		}
	}
}

// begin makes everybody's generations up to now count for nothing, and measures from here until all groups are stable.
func (b *beats) begin() (done <-chan struct{}) {
	b.mu.Lock()
	b.mu.stable, b.mu.answered, b.mu.begin = 0, 0, time.Now()
	b.mu.half, b.mu.whole, b.mu.joined = 0, 0, 0
	b.mu.done = make(chan struct{})
	b.mu.join = newRecorder()
	done = b.mu.done
	b.mu.Unlock()
	for _, g := range b.r.groups {
		floor := int64(0)
		for _, m := range g.members {
			who, _, _ := m.who()
			floor = max(floor, who.Generation)
		}
		g.mu.Lock()
		g.mu.floor, g.mu.stable = floor, false
		g.mu.Unlock()
	}
	return done
}

// call makes the call that a member owes.
func (b *beats) call(ctx context.Context, m *benchMember) {
	who, owned, joined := m.who()
	if !joined {
		b.join(ctx, m, who.ID)
		return
	}
	m.mu.Lock()
	lettingGo := m.mu.revoked
	m.mu.Unlock()
	answer, err := b.r.o.Client.Heartbeat(ctx, m.group.name, who, owned)
	done := time.Now()
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, client.ErrStaleGeneration):
		m.mu.Lock()
		m.mu.joined = false
		m.mu.Unlock()
		b.failed(err)
		b.put(m, done)
		return
	case err != nil:
		b.failed(err)
		b.put(m, done.Add(pauseAfter(err)))
		return
	}
	if !lettingGo {
		b.recorder(false).success(done, done.Sub(m.due), 1, 0)
	}
	b.took(m, answer)
	at := m.due.Add(b.r.o.Session / 3)
	if len(answer.Revoke) > 0 || at.Before(done) {
		at = done
	}
	b.put(m, at)
}

// join makes a member join. Its first heartbeat comes at any point of its interval, as those of members that were not started at once would.
func (b *beats) join(ctx context.Context, m *benchMember, id string) {
	answer, err := b.r.o.Client.JoinGroup(ctx, m.group.name, client.JoinOptions{
		Topics: []string{b.r.o.Topic}, MemberID: id, SessionTimeout: b.r.o.Session, Start: "earliest",
	})
	done := time.Now()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		b.failed(err)
		b.put(m, done.Add(pauseAfter(err)))
		return
	}
	b.recorder(true).success(done, done.Sub(m.due), 1, 0)
	first := answer.MemberID != id
	b.took(m, answer)
	b.mu.Lock()
	b.mu.answered++
	if b.mu.answered == len(b.r.members) {
		b.mu.joined = done.Sub(b.mu.begin)
	}
	n := b.mu.answered
	b.mu.Unlock()
	if first {
		b.r.progress("joins", int64(n), int64(len(b.r.members)))
	}
	interval := answer.HeartbeatInterval
	if interval <= 0 {
		interval = b.r.o.Session / 3
	}
	b.put(m, done.Add(rand.N(interval)))
}

// took notes what a member was told, and whether its group is stable now.
func (b *beats) took(m *benchMember, answer *client.Membership) {
	owned := make([]client.TopicPartition, len(answer.Assignment))
	for i, a := range answer.Assignment {
		owned[i] = client.TopicPartition{Topic: a.Topic, Partition: a.Partition}
	}
	m.mu.Lock()
	if answer.MemberID != "" {
		m.mu.id = answer.MemberID
	}
	m.mu.generation, m.mu.joined, m.mu.revoked, m.mu.owned = answer.Generation, true, len(answer.Revoke) > 0, owned
	m.mu.Unlock()
	g := m.group
	g.mu.Lock()
	became := !g.mu.stable && g.stableLocked(b.r.partitions)
	g.mu.stable = g.mu.stable || became
	g.mu.Unlock()
	if !became {
		return
	}
	b.mu.Lock()
	b.mu.stable++
	n, all := b.mu.stable, len(b.r.groups)
	took, tell := time.Since(b.mu.begin), b.mu.answered >= len(b.r.members)
	if n == (all+1)/2 {
		b.mu.half = took
	}
	if n == all {
		b.mu.whole = took
		close(b.mu.done)
	}
	b.mu.Unlock()
	if tell { // one thing at a time: before that, joins are
		b.r.progress("groups stable", int64(n), int64(all))
	}
}

// stableLocked says whether the members own all partitions among them, each as many as it is to.
func (g *benchGroup) stableLocked(partitions int) bool {
	sum := 0
	for _, m := range g.members {
		m.mu.Lock()
		n, ok := len(m.mu.owned), m.mu.joined && !m.mu.revoked && m.mu.generation > g.mu.floor
		m.mu.Unlock()
		if !ok || n < partitions/len(g.members) || n > (partitions+len(g.members)-1)/len(g.members) {
			return false
		}
		sum += n
	}
	return sum == partitions
}

func (b *beats) recorder(join bool) *recorder {
	b.mu.Lock()
	defer b.mu.Unlock()
	if join {
		return b.mu.join
	}
	return b.mu.beat
}

func (b *beats) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.errors[codeOf(err)]++
}

// reset forgets the heartbeats that were measured.
func (b *beats) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.beat = newRecorder()
}

func (b *beats) latency() Latency { return b.recorder(false).latency() }

func (b *beats) errors() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.mu.errors)
}

// assemble makes everybody join.
func (r *groupsRun) assemble(ctx context.Context) (err error) {
	r.report.Join, err = r.assembly(ctx, func() error {
		now := time.Now()
		for _, m := range r.members {
			r.beats.put(m, now)
		}
		return nil
	})
	return err
}

// lose empties Redis, and waits until the groups are as they were.
func (r *groupsRun) lose(ctx context.Context) (err error) {
	r.report.Recovery, err = r.assembly(ctx, func() error {
		return r.gauges.redis.empty(ctx)
	})
	return err
}

// assembleLimit is how long groups may take to become stable: sessions end meanwhile, and every one of them needs a generation or two.
const assembleLimit = 10 * time.Minute

func (r *groupsRun) assembly(ctx context.Context, start func() error) (*Assembly, error) {
	before, err := r.gauges.read(ctx)
	if err != nil {
		return nil, err
	}
	done := r.beats.begin()
	if err := start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, assembleLimit, fmt.Errorf("the groups are not stable after %s", assembleLimit))
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		b := r.beats
		b.mu.Lock()
		defer b.mu.Unlock()
		return nil, fmt.Errorf("%d of %d groups are stable; errors %v: %w", b.mu.stable, len(r.groups), b.mu.errors, context.Cause(ctx))
	}
	after, err := r.gauges.read(ctx)
	if err != nil {
		return nil, err
	}
	b := r.beats
	joins := b.recorder(true).latency()
	b.mu.Lock()
	defer b.mu.Unlock()
	return &Assembly{Answered: b.mu.joined.Seconds(), Half: b.mu.half.Seconds(), Stable: b.mu.whole.Seconds(), Joins: joins, Cost: after.since(before)}, nil
}

// dueHeap has the member that is due first in front.
type dueHeap []*benchMember

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(*benchMember)) }

// Pop is for container/heap.
func (h *dueHeap) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}
