package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// submission is what one caller wants done: a commit, or control commands. It becomes one part a shard, all in one transaction.
type submission struct {
	parts   []part
	guard   *Guard
	size    int       // estimate of the encoded bytes
	since   time.Time // when it was queued
	results []Result  // one a part
	// attempted: an earlier transaction of it had its effect, but the results were lost. It must not be refused as if nothing had happened.
	attempted bool
	done      func([]Result, error) // called once, by whoever learns the outcome
}

// part is what a submission says to one shard.
type part struct {
	shard int
	cmd   Command
}

// slot is the place of a part in an entry.
type slot struct {
	sub  *submission
	part int
}

// txKey names the entries of one transaction of this node.
type txKey struct {
	stream Stream
	seq    uint64
}

// transaction is one Append: at most one entry a shard.
type transaction struct {
	key     txKey
	entries []LogEntry
	slots   map[int][]slot // by shard, in the order of the entry's commands
	subs    []*submission
	guard   *Guard
	built   int64         // revision that this node had applied before the first attempt
	known   chan struct{} // closed when the outcome is known and the submissions are resolved

	// Guarded by awaiting's mutex.
	missing map[int]bool // shards whose entry has not been applied here
	answer  int64        // revision that Append answered; 0 = not yet
}

// awaiting are the transactions whose results are not known: the one in flight, and those that wait for the watch.
type awaiting struct {
	sync.Mutex
	m map[txKey]*transaction
}

// queue holds submissions in order, until the submitter takes them.
type queue struct {
	sync.Mutex
	items  []*submission
	closed bool
	kick   chan struct{} // capacity 1
}

// enqueue queues s, or refuses it at once and definitely.
func (l *Log) enqueue(s *submission) {
	s.since = l.o.Clock.Now()
	if err := l.Available(); err != nil {
		s.fail(err)
		return
	}
	l.queue.Lock()
	if l.queue.closed {
		l.queue.Unlock()
		s.fail(unavailable(nil, "this node is shutting down"))
		return
	}
	l.queue.items = append(l.queue.items, s)
	l.queue.Unlock()
	select {
	case l.queue.kick <- struct{}{}:
	default:
	}
}

// refuseQueued fails everything that was never attempted.
func (l *Log) refuseQueued(err error, closing bool) {
	l.queue.Lock()
	items := l.queue.items
	l.queue.items = nil
	l.queue.closed = l.queue.closed || closing
	l.queue.Unlock()
	for _, s := range items {
		s.fail(err)
	}
}

// take removes what fits one transaction from the front of the queue.
func (l *Log) take() []*submission {
	l.queue.Lock()
	defer l.queue.Unlock()
	shards := map[int]bool{}
	n, size := 0, 0
	for _, s := range l.queue.items {
		if n > 0 && (s.guard != nil || size+s.size > maxTxnBytes) {
			break
		}
		fresh := 0
		for _, p := range s.parts {
			if !shards[p.shard] {
				fresh++
			}
		}
		if n > 0 && 2*(len(shards)+fresh) > maxTxnOps {
			break
		}
		for _, p := range s.parts {
			shards[p.shard] = true
		}
		n, size = n+1, size+s.size
		if s.guard != nil {
			break
		}
	}
	taken := l.queue.items[:n:n]
	l.queue.items = l.queue.items[n:]
	if len(l.queue.items) == 0 {
		l.queue.items = nil
	}
	return taken
}

// submitter runs one transaction at a time: this makes the order of the stream the order of its sequence, and the queue that grows
// meanwhile the next group commit.
func (l *Log) submitter() {
	for {
		subs := l.take()
		if len(subs) == 0 {
			select {
			case <-l.queue.kick:
				continue
			case <-l.closing:
				return
			}
		}
		_ = l.submit(subs) // whoever submitted was told
		select {
		case <-l.ctx.Done():
			return
		default:
		}
	}
}

// submit writes submissions in one transaction, or in several where one of them does not fit or is not well-formed: it halves until that one is
// alone, so that only that one fails. It returns METADATA_UNAVAILABLE when the store was not there: what comes behind must not be tried then,
// because commits take effect in their order or not at all.
func (l *Log) submit(subs []*submission) error {
	tx, err := l.build(subs)
	if err == nil {
		err = l.run(tx)
	}
	away := func() bool { return api.CodeOf(err) == api.CodeMetadataUnavailable }
	switch {
	case err == nil:
		return nil
	case len(subs) > 1 && !away() && !errors.Is(err, ErrClaimLost):
		half := len(subs) / 2
		if err = l.submit(subs[:half]); err == nil {
			return l.submit(subs[half:])
		}
		subs = subs[half:]
	}
	for _, s := range subs {
		s.fail(definite(err))
	}
	if away() {
		return err
	}
	return nil
}

// fail ends s without an effect, or without knowing it where an attempt was made before.
func (s *submission) fail(err error) {
	if s.attempted {
		err = outcomeUnknown(err)
	}
	s.done(nil, err)
}

func outcomeUnknown(cause error) error {
	return &api.Error{Code: api.CodeOutcomeUnknown, Detail: "the metadata log lost sight of the request; it may have taken effect", Cause: cause}
}

func (l *Log) build(subs []*submission) (*transaction, error) {
	tx := &transaction{slots: map[int][]slot{}, subs: subs, guard: subs[0].guard, built: l.applied.get(), known: make(chan struct{}), missing: map[int]bool{}}
	cmds := map[int][]Command{}
	var order []int
	for _, s := range subs {
		s.results = make([]Result, len(s.parts))
		for i, p := range s.parts {
			if !tx.missing[p.shard] {
				tx.missing[p.shard] = true
				order = append(order, p.shard)
			}
			tx.slots[p.shard] = append(tx.slots[p.shard], slot{s, i})
			cmds[p.shard] = append(cmds[p.shard], p.cmd)
		}
	}
	l.seq++
	tx.key = txKey{l.stream, l.seq}
	for _, shard := range order {
		value, err := AppendCommands(nil, cmds[shard])
		if err != nil {
			return nil, fmt.Errorf("encode commands of shard %d: %w", shard, err)
		}
		tx.entries = append(tx.entries, LogEntry{Shard: shard, Stream: tx.key.stream, Seq: tx.key.seq, Value: value})
	}
	return tx, nil
}

// run appends tx until its outcome is known, and returns an error only where it definitely had no effect and nobody is resolved.
//
//	attempt --ok, or seen by the watch---------> committed: the apply loop resolves
//	        --indefinite-----------------------> attempt again, same key, for as long as it takes
//	        --no quorum, nothing indefinite yet-> attempt again until StuckAfter, then definitely failed
//	        --claim lost, too large------------> definitely failed
//	        --StuckAfter without an answer-----> the log is stuck: the queue is refused, the attempts go on
func (l *Log) run(tx *transaction) error {
	l.awaiting.Lock()
	l.awaiting.m[tx.key] = tx
	l.awaiting.Unlock()
	begin := l.o.Clock.Now()
	l.health.begin(begin)
	l.metrics.transactions.Inc()
	l.metrics.commands.Add(float64(len(tx.subs)))
	overdue := l.o.Clock.NewTimer(l.o.StuckAfter)
	defer overdue.Stop()
	indefinite := false
	stuck := false
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		answer := make(chan appended, 1)
		l.wg.Go(func() { answer <- l.attempt(tx) })
		var r appended
	waiting:
		for {
			select {
			case r = <-answer:
				break waiting
			case <-tx.known:
				l.health.end(true, l.o.Clock.Now())
				return nil
			case <-overdue.Chan():
				stuck = true
				l.stuckOn(tx, begin)
			case <-l.ctx.Done():
				return nil // Close resolves what is left
			}
		}
		switch err := r.err; {
		case err == nil:
			l.answered(tx, r.revision)
			l.metrics.append.Observe(l.o.Clock.Since(begin).Seconds())
			l.health.end(true, l.o.Clock.Now())
			return nil
		case errors.Is(err, ErrTooLarge), errors.Is(err, ErrClaimLost):
			// An earlier indefinite attempt cannot take effect later either: it had the same size, or the same guard, and epochs never recur.
			l.forget(tx)
			l.health.end(true, l.o.Clock.Now())
			return err
		case IsIndefinite(err):
			indefinite = true
			l.o.Logger.Warn("metadata append: outcome unknown, trying again", "seq", tx.key.seq, "error", err)
			if failpoint.Enabled(failpoint.NoCommitDedup) {
				l.rekey(tx)
			}
		case !indefinite && (stuck || !errors.Is(err, ErrNoQuorum) || l.o.Clock.Since(begin) >= l.o.StuckAfter):
			l.forget(tx)
			l.health.end(false, l.o.Clock.Now())
			l.health.setDown()
			failure := unavailable(err, "the metadata log has no quorum")
			l.refuseQueued(failure, false)
			return failure // wraps ErrNoQuorum or what else the driver said
		}
		select {
		case <-l.o.Clock.After(wait):
		case <-tx.known:
			l.health.end(true, l.o.Clock.Now())
			return nil
		case <-overdue.Chan():
			stuck = true
			l.stuckOn(tx, begin)
		case <-l.ctx.Done():
			return nil
		}
	}
}

// definite is the error of a submission that can never be written.
func definite(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return &api.Error{Code: api.CodeTooLarge, Detail: "the request needs more metadata than one transaction may hold", Cause: err}
	}
	return err
}

type appended struct {
	revision int64
	err      error
}

func (l *Log) attempt(tx *transaction) appended {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.SubmitTimeout)
	defer cancel()
	rev, err := l.o.Driver.Append(ctx, tx.entries, tx.guard)
	return appended{rev, err}
}

// stuckOn refuses what waits behind a transaction without an answer. It was never attempted, so that is definite.
func (l *Log) stuckOn(tx *transaction, begin time.Time) {
	l.health.setStuck()
	l.metrics.stuck.Inc()
	l.o.Logger.Error("metadata log is stuck: a transaction has no answer", "seq", tx.key.seq, "since", l.o.Clock.Since(begin))
	l.refuseQueued(unavailable(nil, "the metadata log does not answer"), false)
}

// forget removes tx, which definitely had no effect.
func (l *Log) forget(tx *transaction) {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	delete(l.awaiting.m, tx.key)
}

// answered records that the store has tx. The results come from apply, or came already. A transaction that is still awaited at or below the
// settled revision was swallowed by a reload; at or below the applied one its results may be on their way.
func (l *Log) answered(tx *transaction, revision int64) {
	l.awaiting.Lock()
	tx.answer = revision
	l.awaiting.Unlock()
	if settled := l.settled.Load(); revision <= settled {
		l.resubmitLost(settled)
	}
}

// rekey gives tx a new key: the fence of create-if-absent removed, for a build that must be caught.
func (l *Log) rekey(tx *transaction) {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	if l.awaiting.m[tx.key] != tx {
		return // the watch has shown it meanwhile
	}
	delete(l.awaiting.m, tx.key)
	l.seq++
	tx.key.seq = l.seq
	entries := append([]LogEntry(nil), tx.entries...)
	for i := range entries {
		entries[i].Seq = l.seq
	}
	tx.entries = entries
	l.awaiting.m[tx.key] = tx
}
