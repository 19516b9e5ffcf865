package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

const (
	// custodyShare bounds the part of a node's time that custody takes: after a round it rests so many times as long as the round took.
	custodyShare = 4
	// custodyFailures in a row end a round.
	custodyFailures = 5
)

// ward is what this node knows of a subscription that it looked after in its last round.
type ward struct {
	stats *Stats
}

// burial is a deleted subscription to be looked for once more.
type burial struct {
	id     metadata.SubscriptionID
	tenant string
	due    int64 // Unix ms
}

// wards are the subscriptions that this node looks after.
type wards struct {
	sync.Mutex
	known   map[metadata.SubscriptionID]*ward           // of the last round
	seen    map[metadata.SubscriptionID]string          // tenants, of all the subscriptions that there were in the last round
	behind  map[metadata.SubscriptionID]map[int32]int64 // shards whose journal was ahead of Redis in the last round, with its incarnation
	burials []burial
	round   time.Duration // how long the last one took, and the rest after it
}

func (w *wards) setRound(d time.Duration) {
	w.Lock()
	defer w.Unlock()
	w.round = d
}

func (w *wards) lastRound() time.Duration {
	w.Lock()
	defer w.Unlock()
	return w.round
}

// deleted says that a subscription is to be looked for once more.
func (w *wards) deleted(id metadata.SubscriptionID, tenant string, due int64) {
	w.Lock()
	defer w.Unlock()
	delete(w.known, id)
	delete(w.seen, id)
	delete(w.behind, id)
	w.burials = append(w.burials, burial{id, tenant, due})
}

// due takes the burials that are due.
func (w *wards) due(now int64) []burial {
	w.Lock()
	defer w.Unlock()
	var due, later []burial
	for _, b := range w.burials {
		if b.due <= now {
			due = append(due, b)
		} else {
			later = append(later, b)
		}
	}
	w.burials = later
	return due
}

// custodyLoop looks after every subscription of the fabric, each by one node a round: redrives that nobody works on go on, dead letters that wait
// for their copy get it, those that retention is about to delete are saved, and the numbers for this node's metrics are taken. It also removes
// what deleted subscriptions have left.
func (e *Engine) custodyLoop(ctx context.Context) {
	rest := e.o.CustodyInterval / 10 // a node that was started may find much undone
	for e.pause(ctx, rest) {
		begun := e.o.Clock.Now()
		e.custody(ctx)
		took := e.o.Clock.Since(begun)
		rest = max(e.o.CustodyInterval, custodyShare*took)
		e.admin.wards.setRound(rest + took)
	}
}

// custody is one round.
func (e *Engine) custody(ctx context.Context) {
	seen := map[metadata.SubscriptionID]string{}
	known := map[metadata.SubscriptionID]*ward{}
	failures, row := 0, 0
	var last error
	for sub := range e.o.Catalog.AllSubscriptions() {
		seen[sub.ID] = sub.Tenant
		s, err := e.visit(ctx, sub)
		if ctx.Err() != nil {
			return
		}
		if err == nil || gone(err) || errors.Is(err, errElsewhere) {
			row = 0
			if err == nil {
				known[sub.ID] = &ward{stats: s}
			}
			continue
		}
		failures, row, last = failures+1, row+1, err
		if row == custodyFailures { // something is down: the next round is soon enough
			e.o.Logger.Warn("subscriptions are not looked after now", "error", last)
			return
		}
	}
	if failures > 0 {
		e.o.Logger.Warn("subscriptions were not looked after", "number", failures, "error", last)
	}
	w := &e.admin.wards
	w.Lock()
	before := w.seen
	w.seen, w.known = seen, known
	w.Unlock()
	for id, tenant := range before {
		if _, err := e.o.View.SubscriptionByID(id); gone(err) {
			w.deleted(id, tenant, e.now()) // with its topic, or on another node
		}
	}
	for _, b := range w.due(e.now()) {
		if err := e.bury(ctx, b.id, b.tenant); err != nil && ctx.Err() == nil {
			e.o.Logger.Warn("what a deleted subscription left is not removed yet", "tenant", b.tenant, "id", b.id, "error", err)
			w.deleted(b.id, b.tenant, e.now()+e.o.CustodyInterval.Milliseconds())
		}
	}
}

// errElsewhere: another node looks after the subscription in this round.
var errElsewhere = errors.New("another node looks after the subscription")

// visit looks after one subscription, if no other node has done it lately, and gives its numbers.
func (e *Engine) visit(ctx context.Context, sub *metadata.Subscription) (*Stats, error) {
	ctx, cancel := e.bounded(ctx, e.o.CallTimeout)
	defer cancel()
	glance, err := e.glance(sub)
	if err != nil {
		return nil, err
	}
	// The hint is not given back: it keeps other nodes away for this round. It is renewed by its holder in the next.
	held, err := e.o.Store.Lock(ctx, &glance.store, "custody", e.admin.holder, e.o.CustodyInterval+e.o.CustodyInterval/2)
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, errElsewhere
	}
	loaded, err := e.o.Journal.Load(ctx, sub.Tenant, sub.ID)
	if err != nil {
		return nil, err
	}
	if err := e.repair(ctx, sub, &glance.store, loaded); err != nil {
		return nil, err
	}
	if len(loaded.Tasks) > 0 || hasDead(loaded) {
		q, err := e.describe(sub)
		if err != nil {
			return nil, err
		}
		if err := e.resume(ctx, q, loaded.Tasks); err != nil {
			return nil, err
		}
		if pendingCopies(loaded) {
			e.copies.add(q)
		}
		if err := e.rescue(ctx, q, loaded); err != nil {
			return nil, err
		}
	}
	return e.stats(ctx, glance)
}

// repair opens the shards of which Redis has an older incarnation than the journal. A node that died between the two leaves such: what is settled in
// Redis then is void in the journal. An opening that is under way looks the same for a moment, so that only what was seen in the round before counts.
func (e *Engine) repair(ctx context.Context, sub *metadata.Subscription, q *store.Queue, loaded *journal.Loaded) error {
	have, err := e.o.Store.Survey(ctx, q)
	if err != nil {
		return err
	}
	behind := map[int32]int64{}
	for p, v := range have {
		if s := loaded.Shards[p]; s != nil && v.Incarnation < s.Incarnation {
			behind[p] = s.Incarnation
		}
	}
	w := &e.admin.wards
	w.Lock()
	before := w.behind[sub.ID]
	delete(w.behind, sub.ID)
	if len(behind) > 0 {
		w.behind[sub.ID] = behind
	}
	w.Unlock()
	var stuck []int32
	for p, incarnation := range behind {
		if before[p] == incarnation {
			stuck = append(stuck, p)
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	described, err := e.describe(sub)
	if err != nil {
		return err
	}
	e.o.Logger.Warn("the lease store has an older incarnation than the journal", "tenant", sub.Tenant, "subscription", sub.Name, "partitions", stuck)
	return e.open(ctx, described, stuck)
}

// glance gives a queue for looking at a subscription without counting it as one that this node uses.
func (e *Engine) glance(sub *metadata.Subscription) (*queue, error) {
	topic, err := e.o.View.TopicByID(sub.TopicID)
	if err != nil {
		return nil, err
	}
	return &queue{active: &active{id: sub.ID}, sub: sub, topic: topic, store: store.Queue{ID: sub.ID}}, nil
}

// hasDead says whether there are dead letters.
func hasDead(loaded *journal.Loaded) bool { return anyPointer(loaded, isDead) }

// pendingCopies says whether dead letters wait for their copy.
func pendingCopies(loaded *journal.Loaded) bool {
	return anyPointer(loaded, func(p *journal.Pointer) bool { return isDead(p) && p.CopyPending })
}

func isDead(p *journal.Pointer) bool { return p.Kind == journal.Dead }

func anyPointer(loaded *journal.Loaded, is func(*journal.Pointer) bool) bool {
	for _, pointers := range loaded.Pointers {
		for _, p := range pointers {
			if is(&p) {
				return true
			}
		}
	}
	return false
}

// bury removes what Redis and the journal have of a deleted subscription.
func (e *Engine) bury(ctx context.Context, id metadata.SubscriptionID, tenant string) error {
	dropped := e.o.Store.Drop(ctx, &store.Queue{ID: id})
	return errors.Join(dropped, e.o.Journal.DropSubscription(ctx, tenant, id))
}
