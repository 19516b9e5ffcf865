package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

const (
	// copyStep is how many dead letters are copied in one publish at most, and copyBytes after how many bytes it ends.
	copyStep  = 200
	copyBytes = 4 << 20
	// copiersAtOnce is how many subscriptions a node makes copies for at the same time.
	copiersAtOnce = 4
	// copyRetry is the pause before copies that failed are tried again, and before a subscription is looked at whose copies another node makes.
	copyRetry = time.Second
	// copyLease is how long a copier that is not heard of keeps others from the subscription.
	copyLease = 30 * time.Second
)

// errCopiedElsewhere: another node makes the copies of the subscription.
var errCopiedElsewhere = errors.New("another node copies the dead letters")

// copiers are the subscriptions for which this node makes copies, or is about to: true when something came up meanwhile.
type copiers struct {
	sync.Mutex
	busy map[metadata.SubscriptionID]bool
}

// enter says whether the caller is the one to make the copies. The others are sure that somebody looks after they came.
func (c *copiers) enter(id metadata.SubscriptionID) bool {
	c.Lock()
	defer c.Unlock()
	_, busy := c.busy[id]
	c.busy[id] = busy
	return !busy
}

// leave says whether somebody came meanwhile.
func (c *copiers) leave(id metadata.SubscriptionID) (again bool) {
	c.Lock()
	defer c.Unlock()
	again = c.busy[id]
	delete(c.busy, id)
	return again
}

// copyLoop makes the copies of dead letters of all the queues that have some to be made. A copy is committed before its dead letter is settled: a node that
// dies in between leaves one that is copied again, with the same event ID.
func (e *Engine) copyLoop(ctx context.Context) {
	slots := make(chan struct{}, copiersAtOnce)
	for {
		queues := e.copies.wait(ctx)
		if queues == nil {
			return
		}
		for _, q := range queues {
			if !e.admin.copiers.enter(q.id) {
				continue
			}
			e.spawn(func() {
				again := false
				select {
				case slots <- struct{}{}:
					again = !e.tryCopies(ctx, q)
					<-slots
				case <-ctx.Done():
				}
				if again {
					e.pause(ctx, copyRetry)
				}
				if e.admin.copiers.leave(q.id) || again {
					e.copies.add(q)
				}
			})
		}
	}
}

// tryCopies makes the copies of a queue; false when it is to be tried again.
func (e *Engine) tryCopies(ctx context.Context, q *queue) bool {
	err := e.copyDead(ctx, q)
	switch {
	case err == nil, gone(err), ctx.Err() != nil:
		return true
	case errors.Is(err, errCopiedElsewhere):
		return false
	}
	e.admin.m.copies.failed.Inc()
	e.o.Logger.Warn("dead letters are not copied yet", "tenant", q.sub.Tenant, "topic", q.sub.Topic, "subscription", q.sub.Name, "error", err)
	return false
}

// copyDead copies the dead letters of a queue that wait for it, until none does.
func (e *Engine) copyDead(ctx context.Context, q *queue) (err error) {
	const name = "copies"
	defer func(q *queue) {
		if errors.Is(err, errCopiedElsewhere) {
			return
		}
		ctx, cancel := e.bounded(context.WithoutCancel(ctx), partingTimeout) // another node shall go on at once when this one ends
		defer cancel()
		if unlocked := e.o.Store.Unlock(ctx, &q.store, name, e.admin.holder); err == nil {
			err = unlocked
		}
	}(q)
	for {
		held, err := e.o.Store.Lock(ctx, &q.store, name, e.admin.holder, copyLease)
		if err != nil {
			return err
		}
		if !held {
			return errCopiedElsewhere
		}
		if q, err = e.byID(q.id); err != nil { // as it is now
			return err
		}
		var pending []store.DeadLetter
		err = e.call(ctx, q, func(ctx context.Context) (err error) {
			pending, err = e.o.Store.PendingCopies(ctx, &q.store, copyStep)
			return err
		})
		if err != nil || len(pending) == 0 {
			return err
		}
		copied, lost, err := e.copySome(ctx, q, pending)
		if err != nil {
			return err
		}
		if err := e.mark(ctx, q, lost, e.o.Store.MarkExpired); err != nil {
			return err
		}
		e.admin.m.copies.expired.Add(float64(len(lost)))
		if err := e.mark(ctx, q, append(copied, lost...), e.o.Store.Buried); err != nil {
			return err
		}
	}
}

// copySome copies as many dead letters as one publish takes: copied are those that are in the dead-letter topic now, or that cannot be copied because
// there is no such topic any more, and lost those whose record cannot be read any more. A queue is not held up for ever by a topic that somebody
// deleted: the dead letters are there all the same.
func (e *Engine) copySome(ctx context.Context, q *queue, dead []store.DeadLetter) (copied, lost []journal.Target, err error) {
	to, err := e.copyTarget(q)
	if err != nil {
		return nil, nil, err
	}
	if to == nil {
		e.admin.m.copies.refused.Add(float64(len(dead)))
		for i := range dead {
			copied = append(copied, journal.Target{Partition: dead[i].Partition, Offset: dead[i].Offset})
		}
		return copied, nil, nil
	}
	positions := make([]Target, len(dead))
	for i := range dead {
		positions[i] = Target{dead[i].Partition, dead[i].Offset}
	}
	read, err := e.readSome(ctx, q, positions, copyBytes)
	if err != nil {
		return nil, nil, err
	}
	var records []segment.Record
	var partitions []int32
	for i := range dead {
		d := &dead[i]
		r, reached := read[positions[i]]
		at := journal.Target{Partition: d.Partition, Offset: d.Offset}
		switch {
		case !reached:
		case r == nil:
			lost = append(lost, at)
		default:
			c, partition := deadCopy(q.sub, d, r, to)
			records, partitions, copied = append(records, c), append(partitions, partition), append(copied, at)
		}
	}
	if len(records) > 0 {
		if _, err := e.o.Publisher.Publish(ctx, to, records, partitions); err != nil {
			return nil, nil, err
		}
		e.admin.m.copies.done.Add(float64(len(records)))
	}
	return copied, lost, nil
}

// readSome reads the records at positions, and says nil of one that cannot be read any more. Positions that were not come to are absent; one
// is come to at least.
func (e *Engine) readSome(ctx context.Context, q *queue, positions []Target, maxBytes int64) (map[Target]*segment.Record, error) {
	out := map[Target]*segment.Record{}
	records, reached, err := e.records(ctx, q, positions, maxBytes)
	if err != nil {
		return nil, err
	}
	for _, t := range positions[:reached] {
		out[t] = records[t]
	}
	return out, nil
}

// copyTarget gives the topic that copies go to, or nil when there is none to which they may go.
func (e *Engine) copyTarget(q *queue) (*metadata.Topic, error) {
	name := q.sub.Config.DeadLetterTopic
	if name == "" {
		return nil, nil
	}
	to, err := e.o.View.Topic(q.sub.Tenant, name)
	switch {
	case api.CodeOf(err) == api.CodeUnknownTopic, err == nil && !mayCopy(q.topic, to):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return to, nil
}

// mark tells the store something about dead letters.
func (e *Engine) mark(ctx context.Context, q *queue, targets []journal.Target,
	say func(context.Context, *store.Queue, []journal.Target) (*store.Effects, error)) error {
	if len(targets) == 0 {
		return nil
	}
	var f *store.Effects
	if err := e.call(ctx, q, func(ctx context.Context) (err error) { f, err = say(ctx, &q.store, targets); return err }); err != nil {
		return err
	}
	e.effects(q, f)
	return nil
}
