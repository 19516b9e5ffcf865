package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// A worker publishes one shard, one batch at a time. How a batch gets into the log once, whatever ends at whatever moment:
//
//	take      the shard's owner is set in the database (members.go)
//	open      StartProducer: from now on no publish of an earlier session is taken. Then, in this order: look in a transaction that the
//	          shard is still ours, and what batch the last session had under way; ask for the producer's position, which is
//	          final now. It is that batch's sequence: the batch is in the log, mark it. It is not: the batch is not in the log and
//	          never will be, forget it.
//	assign    one transaction: mark the batch before, choose the next rows, write their IDs and a new sequence into the shard's row
//	publish   with the session's epoch and the sequence
//	mark      with the next assignment, or alone where there is none
//
// Every failure from assign on leads to open. Two workers for one shard, of which one has been asleep: each transaction looks at the
// owner, so the sleeper assigns and marks nothing; what it has assigned before it fell asleep is either in the log before the other's
// open, which then sees it, or refused after it.
//
// Sequences rise by random steps, so that a position that equals a batch's sequence can mean only that batch, also where the database
// was restored from a backup or copied.

// sequenceStep bounds the steps between sequences: 2^63 / 2^20 batches are enough for ever.
const sequenceStep = 1 << 20

// sessionAge is after how long without use a session is begun anew: the server forgets producers after 7 days.
const sessionAge = 12 * time.Hour

type worker struct {
	r     *Relay
	shard int
	owner string

	wake     chan struct{}
	quit     chan struct{}
	quitOnce sync.Once
	abort    context.CancelFunc
	done     chan struct{}

	// Of the goroutine alone.
	producer string
	session  *session
	refused  *refusal         // what became of the last publish, until open knows that it is not in the log
	lanes    map[string]*lane // topics that are not as they should be
	last     string           // topic of the last publish
}

type session struct {
	epoch    int64
	sequence int64  // newest in the shard's row
	acked    *batch // in the log, not marked
	fresh    bool   // nothing was published in it
	used     time.Time
}

// lane is a topic of the shard that had a refusal.
type lane struct {
	limit   int       // most rows a publish, while the one at fault is looked for; 0 = no limit
	blocked int64     // row that is refused; 0 = none
	err     error     // why
	until   time.Time // not tried again before
	pause   time.Duration
}

type refusal struct {
	sequence int64
	rows     []int64
	whole    bool // of the topic, not of a row
	err      error
}

func startWorker(ctx context.Context, r *Relay, shard int, owner string) *worker {
	w := &worker{r: r, shard: shard, owner: owner, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}), lanes: map[string]*lane{}}
	ctx, w.abort = context.WithCancel(ctx)
	w.signal()
	go func() {
		defer close(w.done)
		defer w.abort()
		w.run(ctx)
	}()
	return w
}

func (w *worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop ends the worker after the publish that it has under way.
func (w *worker) stop() { w.quitOnce.Do(func() { close(w.quit) }) }

func (w *worker) stopping() bool {
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *worker) run(ctx context.Context) {
	pause := w.r.o.minPause
	for {
		select {
		case <-w.quit:
			w.release(ctx)
			return
		case <-w.wake:
		}
		for !w.stopping() {
			more, err := w.step(ctx)
			if err == nil {
				pause = w.r.o.minPause
				w.r.report(w.shard, w.blocked())
				if !more {
					break
				}
				continue
			}
			w.session = nil
			if errors.Is(err, errNotOwner) || ctx.Err() != nil {
				w.r.o.hook("lost")
				return
			}
			if w.refused != nil { // open learns whether it counts
				continue
			}
			w.r.report(w.shard, err)
			w.r.o.log.Warn("outbox: cannot publish, trying again", "shard", w.shard, "pause", pause, "err", err)
			timer := time.NewTimer(pause/2 + rand.N(pause))
			select {
			case <-timer.C:
			case <-w.quit:
			}
			timer.Stop()
			pause = min(2*pause, w.r.o.maxPause)
		}
	}
}

// step publishes one batch. more: there may be another one.
func (w *worker) step(ctx context.Context) (more bool, err error) {
	if s := w.session; s == nil || s.acked == nil && time.Since(s.used) > sessionAge {
		if err := w.open(ctx); err != nil {
			return false, err
		}
	}
	b, err := w.assign(ctx)
	if err != nil || b == nil {
		return false, err
	}
	w.r.o.hook("assigned")
	s := w.session
	_, err = w.r.client.Publish(ctx, b.topic, b.records, &client.ProducerSequence{ID: w.producer, Epoch: s.epoch, Sequence: b.sequence})
	if err != nil {
		w.refused = judge(err, s, b)
		return false, err
	}
	w.r.o.hook("published")
	s.acked, s.fresh, s.used = b, false, time.Now()
	w.r.published.Add(int64(len(b.ids)))
	w.last = b.topic
	if l := w.lanes[b.topic]; l != nil {
		l.blocked, l.err, l.until, l.pause = 0, nil, time.Time{}, 0
		if l.limit *= 2; l.limit == 0 || l.limit >= w.r.o.rows {
			delete(w.lanes, b.topic)
		}
	}
	return true, nil
}

// blocked gives the refusal that holds records back; nil = none does.
func (w *worker) blocked() error {
	for _, l := range w.lanes {
		if l.err != nil {
			return l.err
		}
	}
	return nil
}

// judge says whether a failure is a refusal of these rows. In a session that has been used it may be the session that is refused, so only a
// fresh one counts.
func judge(err error, s *session, b *batch) *refusal {
	var e *client.Error
	if outcome, _ := client.Classify(err); outcome != client.Definite || !errors.As(err, &e) {
		return nil
	}
	whole := false
	switch e.Code {
	case api.CodeInvalidRequest, api.CodeTooLarge, api.CodeSchemaViolation, api.CodeUnknownPartition:
	case api.CodeUnknownTopic, api.CodeForbidden, api.CodeResidencyViolation:
		whole = true
	default: // nothing that another choice of rows would change
		return nil
	}
	if !s.fresh {
		return &refusal{} // matches no sequence: open begins a session, and the rows are tried again
	}
	return &refusal{sequence: b.sequence, rows: b.ids, whole: whole, err: err}
}

// open begins a session and finds out what became of the batch that the last one had under way.
func (w *worker) open(ctx context.Context) error {
	s := &w.r.store
	if w.producer == "" {
		if err := s.db.QueryRowContext(ctx, s.t.sql(`SELECT producer FROM {shards} WHERE shard = $1`), w.shard).Scan(&w.producer); err != nil {
			return fmt.Errorf("look up the producer of shard %d: %w", w.shard, err)
		}
	}
	refused := w.refused // where open fails it is forgotten: the rows are tried again and refused again
	w.refused = nil
	epoch, err := w.r.client.StartProducer(ctx, w.producer)
	if err != nil {
		return err
	}
	w.r.o.hook("opened")
	var row *shardRow
	if err := s.inTx(ctx, func(tx *sql.Tx) (err error) { row, err = s.lock(ctx, tx, w.shard, w.owner); return err }); err != nil {
		return err
	}
	next := &session{epoch: epoch, sequence: row.sequence, fresh: true, used: time.Now()}
	if row.batch == nil {
		w.session = next
		return nil
	}
	position, err := w.position(ctx, row.topic)
	if err != nil {
		return err
	}
	next.sequence = max(row.sequence, position)
	accepted := position == row.sequence
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		again, err := s.lock(ctx, tx, w.shard, w.owner)
		if err != nil {
			return err
		}
		if again.sequence != row.sequence {
			return errNotOwner
		}
		if accepted {
			if err := s.done(ctx, tx, row.batch); err != nil {
				return err
			}
		} else if refused != nil && refused.sequence == row.sequence {
			if err := w.blame(ctx, tx, row.topic, refused); err != nil {
				return err
			}
		}
		w.r.o.hook("settling")
		return s.setBatch(ctx, tx, w.shard, next.sequence, nil)
	})
	if err != nil {
		return fmt.Errorf("settle the batch under way in shard %d: %w", w.shard, err)
	}
	if accepted {
		w.r.settled.Add(int64(len(row.batch)))
	}
	w.session = next
	return nil
}

// position is the highest sequence that a topic has of the shard's producer; -1 = none.
func (w *worker) position(ctx context.Context, topic string) (int64, error) {
	positions, err := w.r.client.ProducerPositions(ctx, w.producer, topic)
	if errors.Is(err, client.ErrUnknownTopic) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	highest := int64(-1)
	for _, p := range positions {
		if p.Topic == topic || p.Topic == "" {
			highest = max(highest, p.Sequence)
		}
	}
	return highest, nil
}

// blame finds the row at fault for a refusal, by halves, and parks it or holds back what is behind it.
func (w *worker) blame(ctx context.Context, tx *sql.Tx, topic string, r *refusal) error {
	l := w.lanes[topic]
	if l == nil {
		l = &lane{}
		w.lanes[topic] = l
	}
	if len(r.rows) > 1 && !r.whole {
		l.limit = len(r.rows) / 2
		return nil
	}
	park := w.r.o.park && !r.whole
	if err := w.r.store.refuse(ctx, tx, r.rows[0], r.err.Error(), park); err != nil {
		return err
	}
	if park {
		w.r.o.log.Error("outbox: a record is refused and parked; the records behind it go on", "topic", topic, "row", r.rows[0], "err", r.err)
		return nil
	}
	l.pause = min(max(2*l.pause, w.r.o.minPause), w.r.o.maxPause)
	l.blocked, l.until = r.rows[0], time.Now().Add(l.pause)
	l.err = fmt.Errorf("row %d of topic %s: %w", r.rows[0], topic, r.err)
	w.r.o.log.Error("outbox: a record is refused, and all records of its topic behind it in the shard wait: remove the cause, or park it",
		"topic", topic, "row", r.rows[0], "shard", w.shard, "pause", l.pause, "err", r.err)
	return nil
}

// assign marks the batch before and gives the next one, durably; nil = there is none.
func (w *worker) assign(ctx context.Context) (b *batch, err error) {
	s, at := &w.r.store, w.session
	sequence := at.sequence
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		row, err := s.lock(ctx, tx, w.shard, w.owner)
		if err != nil {
			return err
		}
		if row.sequence != at.sequence {
			return fmt.Errorf("shard %d has sequence %d, not the %d of this relay: was the database restored?", w.shard, row.sequence, at.sequence)
		}
		if at.acked != nil {
			if err := s.done(ctx, tx, at.acked.ids); err != nil {
				return err
			}
		}
		if b, err = w.choose(ctx, tx); err != nil {
			return err
		}
		if b == nil && at.acked == nil {
			return nil
		}
		if b != nil {
			sequence = at.sequence + 1 + rand.Int64N(sequenceStep)
			b.sequence = sequence
		}
		w.r.o.hook("marking")
		return s.setBatch(ctx, tx, w.shard, sequence, b)
	})
	if err != nil {
		return nil, err
	}
	at.acked, at.sequence = nil, sequence
	return b, nil
}

// choose picks the rows of the next publish: topics take turns, rows of a topic come in the order of their IDs.
func (w *worker) choose(ctx context.Context, tx *sql.Tx) (*batch, error) {
	s := &w.r.store
	after, wrapped := w.last, w.last == ""
	for {
		topic, first, err := s.nextTopic(ctx, tx, w.shard, after)
		if err != nil {
			return nil, err
		}
		if topic == "" || wrapped && w.last != "" && topic > w.last {
			if wrapped {
				return nil, nil
			}
			after, wrapped = "", true
			continue
		}
		rows := w.r.o.rows
		if l := w.lanes[topic]; l != nil {
			if l.blocked != first { // published by nobody, but parked or deleted by hand
				l.blocked, l.err = 0, nil
			} else if time.Now().Before(l.until) {
				after = topic
				continue
			}
			if l.limit > 0 {
				rows = min(rows, l.limit)
			}
		}
		return s.load(ctx, tx, w.shard, topic, rows, w.r.o.bytes)
	}
}

// release marks what is in the log and frees the shard.
func (w *worker) release(ctx context.Context) {
	s := &w.r.store
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		row, err := s.lock(ctx, tx, w.shard, w.owner)
		if err != nil {
			return err
		}
		if at := w.session; at != nil && at.acked != nil && row.sequence == at.sequence {
			if err := s.done(ctx, tx, at.acked.ids); err != nil {
				return err
			}
			if err := s.setBatch(ctx, tx, w.shard, row.sequence, nil); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, s.t.sql(`UPDATE {shards} SET owner = NULL WHERE shard = $1`), w.shard)
		return err
	})
	if err != nil && !errors.Is(err, errNotOwner) {
		w.r.o.log.Warn("outbox: a shard is not given back", "shard", w.shard, "err", err)
	}
}
