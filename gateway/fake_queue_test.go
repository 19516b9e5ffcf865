package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// queues are work queues in memory, without deadlines: leases end when they are settled, undone or lost by a test's hand.
type queues struct {
	f  *fabric
	mu sync.Mutex

	subs    map[leases.Name]*queue
	nextID  metadata.SubscriptionID
	nonce   int
	changed chan struct{} // closed and made anew when something became deliverable
	undone  []string
	leases  []leases.LeaseRequest
	settles []leases.SettleRequest
	seeks   []leases.SeekTarget
	starts  []leases.Start
	picked  []leases.DeadLetterSelection
	rates   []int
	before  []int                 // limits of the calls of DeadLetters
	granted func(context.Context) // called by Lease between the grant and the answer
}

type queue struct {
	sub    *metadata.Subscription
	ready  []leases.Message
	leased map[string]leases.Message
	acked  []string
	dead   []leases.DeadLetter
	tasks  map[string]*leases.Task
}

func newQueues(f *fabric) *queues {
	return &queues{f: f, subs: map[leases.Name]*queue{}, changed: make(chan struct{})}
}

func (q *queues) wakeLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// subscribe makes a subscription of tenantA.
func (q *queues) subscribe(topic, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.putLocked(leases.Name{Tenant: tenantA, Topic: topic, Subscription: name}, api.DefaultSubscriptionConfig())
}

func (q *queues) putLocked(n leases.Name, cfg api.SubscriptionConfig) *queue {
	s := q.subs[n]
	if s == nil {
		q.nextID++
		s = &queue{leased: map[string]leases.Message{}, tasks: map[string]*leases.Task{}}
		s.sub = &metadata.Subscription{ID: q.nextID, Tenant: n.Tenant, Topic: n.Topic, Name: n.Subscription, Created: q.f.now}
		q.subs[n] = s
	}
	next := *s.sub
	next.Config = cfg
	s.sub = &next
	return s
}

// offer makes records deliverable.
func (q *queues) offer(topic, name string, records ...segment.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.subs[leases.Name{Tenant: tenantA, Topic: topic, Subscription: name}]
	for _, r := range records {
		s.ready = append(s.ready, leases.Message{Attempt: 1, Record: r})
	}
	q.wakeLocked()
}

// lose ends every lease.
func (q *queues) lose(topic, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.subs[leases.Name{Tenant: tenantA, Topic: topic, Subscription: name}].leased)
}

// bury makes a dead letter.
func (q *queues) bury(topic, name string, d leases.DeadLetter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.subs[leases.Name{Tenant: tenantA, Topic: topic, Subscription: name}]
	s.dead = append(s.dead, d)
}

// held counts the leases that are out.
func (q *queues) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, s := range q.subs {
		n += len(s.leased)
	}
	return n
}

// enter finds a subscription, or answers what a test has put in the way.
func (q *queues) enter(method string, n leases.Name) (*queue, error) {
	if err := q.f.enter(method); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.subs[n]; s != nil {
		return s, nil
	}
	return nil, api.Errorf(api.CodeUnknownSubscription, "subscription %s does not exist", n.Subscription)
}

func (q *queues) PutSubscription(ctx context.Context, n leases.Name, start leases.Start, decide func(*metadata.Subscription) (api.SubscriptionConfig, error)) (*metadata.Subscription, bool, error) {
	if err := q.f.enter("PutSubscription"); err != nil {
		return nil, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var current *metadata.Subscription
	if s := q.subs[n]; s != nil {
		current = s.sub
	}
	cfg, err := decide(current)
	if err != nil {
		return nil, false, err
	}
	q.starts = append(q.starts, start)
	return q.putLocked(n, cfg).sub, current == nil, nil
}

func (q *queues) Subscription(ctx context.Context, n leases.Name) (*leases.Stats, error) {
	s, err := q.enter("Subscription", n)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return s.stats(), nil
}

func (s *queue) stats() *leases.Stats {
	headroom := 90 * time.Second
	return &leases.Stats{Subscription: s.sub, Partitions: []leases.PartitionStats{
		{
			Partition: 0, Frontier: 1, Head: 9, LogStart: 0, InFlight: int64(len(s.leased)), AckedAhead: 2, Owed: 1, Delayed: 3, Waiting: 4, Lag: int64(len(s.ready)),
			DeadLetters: int64(len(s.dead)), Skipped: 5, OldestUnackedAge: 1500 * time.Millisecond, RetentionHeadroom: &headroom, Gap: &leases.Gap{From: 1, To: 3},
		},
		{Partition: 1, Lag: -1},
	}}
}

func (q *queues) Subscriptions(ctx context.Context, tenant, topic, after string, limit int) ([]*metadata.Subscription, string, error) {
	if err := q.f.enter("Subscriptions"); err != nil {
		return nil, "", err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*metadata.Subscription
	for n, s := range q.subs {
		if n.Tenant == tenant && n.Topic == topic && n.Subscription > after {
			out = append(out, s.sub)
		}
	}
	slices.SortFunc(out, func(a, b *metadata.Subscription) int { return strings.Compare(a.Name, b.Name) })
	if len(out) > limit {
		return out[:limit], out[limit-1].Name, nil
	}
	return out, "", nil
}

func (q *queues) DeleteSubscription(ctx context.Context, n leases.Name) error {
	if _, err := q.enter("DeleteSubscription", n); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.subs, n)
	return nil
}

func (q *queues) Lease(ctx context.Context, r leases.LeaseRequest) ([]leases.Message, error) {
	s, err := q.enter("Lease", r.Name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.leases = append(q.leases, r)
	q.mu.Unlock()
	timer := time.NewTimer(r.Wait)
	defer timer.Stop()
	for {
		q.mu.Lock()
		out, changed := q.takeLocked(s, r.Max), q.changed
		q.mu.Unlock()
		if len(out) > 0 {
			if q.granted != nil {
				q.granted(ctx)
			}
			return out, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *queues) takeLocked(s *queue, most int) []leases.Message {
	n := min(most, len(s.ready))
	out := slices.Clone(s.ready[:n])
	s.ready = s.ready[n:]
	for i := range out {
		q.nonce++
		out[i].Receipt = fmt.Sprintf("%d:%d:n%d", out[i].Partition, out[i].Record.Offset, q.nonce)
		out[i].ExpiresAt = q.f.now + 30_000
		s.leased[out[i].Receipt] = out[i]
	}
	return out
}

func (q *queues) Undo(ctx context.Context, n leases.Name, receipts []string) {
	s, err := q.enter("Undo", n)
	if err != nil || ctx.Err() != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range receipts {
		if m, ok := s.leased[r]; ok {
			delete(s.leased, r)
			s.ready = append(s.ready, m)
		}
	}
	q.undone = append(q.undone, receipts...)
	q.wakeLocked()
}

func (q *queues) Settle(ctx context.Context, r leases.SettleRequest) ([]leases.SettleResult, error) {
	s, err := q.enter("Settle", r.Name)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settles = append(q.settles, r)
	out := make([]leases.SettleResult, len(r.Receipts))
	for i, receipt := range r.Receipts {
		out[i].Receipt = receipt
		m, ok := s.leased[receipt]
		switch {
		case r.Kind == leases.Ack && slices.Contains(s.acked, receipt):
		case !ok:
			out[i].Code = api.CodeLeaseLost
		case r.Kind == leases.Extend:
			out[i].ExpiresAt = m.ExpiresAt + 30_000
		default:
			delete(s.leased, receipt)
			if r.Kind == leases.Ack {
				s.acked = append(s.acked, receipt)
				continue
			}
			m.Attempt++
			s.ready = append(s.ready, m)
			q.wakeLocked()
		}
	}
	return out, nil
}

func (q *queues) Seek(ctx context.Context, n leases.Name, to leases.SeekTarget) (*leases.Stats, error) {
	s, err := q.enter("Seek", n)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seeks = append(q.seeks, to)
	return s.stats(), nil
}

func (q *queues) Peek(ctx context.Context, n leases.Name, most int) ([]leases.PeekedRecord, error) {
	s, err := q.enter("Peek", n)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []leases.PeekedRecord
	for i, m := range s.ready[:min(most, len(s.ready))] {
		out = append(out, leases.PeekedRecord{Partition: m.Partition, Attempt: m.Attempt, DueAt: int64(i) * q.f.now, Record: m.Record})
	}
	return out, nil
}

// DeadLetters names places by "after " and their number.
func (q *queues) DeadLetters(ctx context.Context, n leases.Name, after string, limit int, withRecords bool) ([]leases.DeadLetter, string, error) {
	s, err := q.enter("DeadLetters", n)
	if err != nil {
		return nil, "", err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.before = append(q.before, limit)
	from := 0
	if _, err := fmt.Sscanf(after, "after %d", &from); after != "" && err != nil {
		return nil, "", api.Errorf(api.CodeInvalidRequest, "no such place")
	}
	to := min(from+limit, len(s.dead))
	out := slices.Clone(s.dead[from:to])
	if !withRecords {
		for i := range out {
			out[i].Record = nil
		}
	}
	if to == len(s.dead) {
		return out, "", nil
	}
	return out, fmt.Sprintf("after %d", to), nil
}

func (q *queues) Redrive(ctx context.Context, n leases.Name, sel leases.DeadLetterSelection, rate int) (*leases.Task, error) {
	s, err := q.enter("Redrive", n)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.picked, q.rates = append(q.picked, sel), append(q.rates, rate)
	t := &leases.Task{ID: fmt.Sprintf("task-%d", len(s.tasks)+1), Total: int64(len(s.dead)), State: "running", CreatedAt: q.f.now, UpdatedAt: q.f.now}
	s.tasks[t.ID] = t
	return t, nil
}

func (q *queues) Task(ctx context.Context, n leases.Name, id string) (*leases.Task, error) {
	s, err := q.enter("Task", n)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := s.tasks[id]; t != nil {
		return t, nil
	}
	return nil, api.Errorf(api.CodeNotFound, "task %s does not exist", id)
}

func (q *queues) CancelTask(ctx context.Context, n leases.Name, id string) (*leases.Task, error) {
	t, err := q.Task(ctx, n, id)
	if err != nil {
		return nil, err
	}
	cancelled := *t
	cancelled.State = "cancelled"
	return &cancelled, nil
}

func (q *queues) Discard(ctx context.Context, n leases.Name, sel leases.DeadLetterSelection) (int64, error) {
	s, err := q.enter("Discard", n)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.picked = append(q.picked, sel)
	if sel.All {
		return int64(len(s.dead)), nil
	}
	return int64(len(sel.Offsets)), nil
}
