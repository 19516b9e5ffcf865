package leases

import (
	"context"
	"sync"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

const (
	// redriveStep is the most that one call to the store redrives.
	redriveStep = 1000
	// taskProgress is how often the progress of a task is journalled, and cancellations of other nodes are looked for.
	taskProgress = time.Second
	// noteShare bounds the part of its time that a runner spends on that.
	noteShare = 10
	// runnerLease is how long a runner that is not heard of keeps others from the task.
	runnerLease = 5 * time.Second
	// taskRetry is the pause after a step that failed.
	taskRetry = time.Second
	// partingTimeout bounds what background work still does when its node is closed.
	partingTimeout = time.Second
	// endedTasks and endedTaskAge bound the tasks of a subscription that are kept to be looked at after they ended.
	endedTasks   = 100
	endedTaskAge = 7 * 24 * time.Hour
)

// runners are the tasks that this node works on, by ID.
type runners struct {
	sync.Mutex
	running map[string]*runner
}

// runner works on one task on this node.
type runner struct {
	e      *Engine
	q      *queue
	cancel context.CancelCauseFunc
	ended  chan struct{}
	mu     struct {
		sync.Mutex
		task journal.Task
	}
}

// view gives the task as far as this node has come with it.
func (r *runner) view() journal.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.task
}

// Redrive starts a task that makes dead letters deliverable again, with no attempt counted, at most ratePerSecond of them each second (0 = the
// default). The frontier does not move. All means those that were dead when the call began. The task survives the end of this node, of all nodes, and the
// loss of Redis; a record is redriven once for it, or, where what was done last was lost, again.
func (e *Engine) Redrive(ctx context.Context, n Name, sel DeadLetterSelection, ratePerSecond int) (*Task, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := checkSelection(q, sel); err != nil {
		return nil, err
	}
	if ratePerSecond == 0 {
		ratePerSecond = api.DefaultRedriveRate
	}
	if ratePerSecond < 1 || ratePerSecond > api.MaxRedriveRate {
		return nil, fieldError(api.CodeInvalidRequest, "/ratePerSecond", "%d is not a rate: give 1 to %d records a second", ratePerSecond, api.MaxRedriveRate)
	}
	created, err := e.storeNow(ctx, q)
	if err != nil {
		return nil, err
	}
	id, err := e.newID()
	if err != nil {
		return nil, err
	}
	t := journal.Task{
		ID: id, Subscription: q.id, State: taskRunning, All: sel.All, Offsets: distinct(sel.Offsets), Rate: int32(ratePerSecond),
		Created: created, Updated: created,
	}
	if t.Total, err = e.countDead(ctx, q, &t); err != nil {
		return nil, err
	}
	if t.Total == 0 {
		t.State = taskDone
	}
	if err := e.o.Journal.PutTask(ctx, q.sub.Tenant, t); err != nil {
		return nil, err
	}
	if t.State == taskRunning {
		e.startRunner(q, t)
	}
	return taskView(t), nil
}

// distinct gives targets in order, each once.
func distinct(ts []Target) []journal.Target {
	if len(ts) == 0 {
		return nil
	}
	seen := make(map[Target]struct{}, len(ts))
	out := make([]journal.Target, 0, len(ts))
	for _, t := range ts {
		if _, ok := seen[t]; !ok {
			seen[t] = struct{}{}
			out = append(out, journal.Target{Partition: t.Partition, Offset: t.Offset})
		}
	}
	return out
}

// countDead counts what is left of a task's selection.
func (e *Engine) countDead(ctx context.Context, q *queue, t *journal.Task) (n int64, err error) {
	for selection := range taskSelections(t) {
		var some int64
		err := e.call(ctx, q, func(ctx context.Context) (err error) {
			some, err = e.o.Store.CountDead(ctx, &q.store, selection)
			return err
		})
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// taskSelections cuts the selection of a task into what one call to the store may carry.
func taskSelections(t *journal.Task) func(yield func(store.Selection) bool) {
	return func(yield func(store.Selection) bool) {
		s := selectionOf(t)
		if s.All {
			yield(s)
			return
		}
		for targets := s.Targets; len(targets) > 0; {
			n := min(len(targets), redriveStep)
			s.Targets = targets[:n]
			if !yield(s) {
				return
			}
			targets = targets[n:]
		}
	}
}

// Task gives a task of a subscription. NOT_FOUND.
func (e *Engine) Task(ctx context.Context, n Name, id string) (*Task, error) {
	q, t, err := e.task(ctx, n, id)
	if err != nil {
		return nil, err
	}
	if t.State == taskRunning {
		e.startRunner(q, t) // if no other node does it
		if r := e.runner(id); r != nil {
			t.Done = max(t.Done, r.view().Done)
		}
	}
	return taskView(t), nil
}

// CancelTask ends a task that runs, and answers what it is then; one that has ended is only shown. What was redriven stays so. The cancellation is
// journalled; a hint in Redis tells the node that works on the task at once, and without it that node sees it within a second or so. NOT_FOUND.
func (e *Engine) CancelTask(ctx context.Context, n Name, id string) (*Task, error) {
	q, t, err := e.task(ctx, n, id)
	if err != nil {
		return nil, err
	}
	if t.State != taskRunning {
		return taskView(t), nil
	}
	now := max(e.now(), t.Updated)
	if err := e.o.Journal.PutTask(ctx, q.sub.Tenant, cancelMark(&t, now)); err != nil {
		return nil, err
	}
	e.stop(ctx, q, id)
	if _, last, err := e.task(ctx, n, id); err == nil {
		return taskView(last), nil
	}
	t.State, t.Updated = taskCancelled, now // it is, whatever the second look came upon
	return taskView(t), nil
}

const (
	// stopHint is how long a hint that a task was cancelled stays.
	stopHint = time.Minute
	// stopPoll and stopPolls bound how long a cancellation waits for the node that works on the task.
	stopPoll  = 50 * time.Millisecond
	stopPolls = 30
)

// stop tells the node that works on a task that it is cancelled, and waits a moment until it has stopped. It is a courtesy: the cancellation is
// journalled before.
func (e *Engine) stop(ctx context.Context, q *queue, id string) {
	if r := e.runner(id); r != nil {
		r.cancel(errTaskCancelled)
		select {
		case <-r.ended:
		case <-ctx.Done():
		}
		return
	}
	if _, err := e.o.Store.Lock(ctx, &q.store, stopName(id), e.admin.holder, stopHint); err != nil {
		return
	}
	for range stopPolls {
		if holder, err := e.o.Store.Held(ctx, &q.store, runnerName(id)); err != nil || holder == "" || !e.pause(ctx, stopPoll) {
			return
		}
	}
}

// runnerName and stopName are the hints that somebody works on a task, and that it was cancelled.
func runnerName(id string) string { return "redrive:" + id }

func stopName(id string) string { return "stop:" + id }

// task finds a task, linearizably.
func (e *Engine) task(ctx context.Context, n Name, id string) (*queue, journal.Task, error) {
	q, err := e.resolve(ctx, n)
	if err != nil {
		return nil, journal.Task{}, err
	}
	loaded, err := e.o.Journal.Load(ctx, q.sub.Tenant, q.id)
	if err != nil {
		return nil, journal.Task{}, err
	}
	t, ok := taskOf(loaded.Tasks, id)
	if !ok {
		return nil, t, api.Errorf(api.CodeNotFound, "subscription %s has no task %q: it never had, or it ended long ago", n.Subscription, id)
	}
	return q, t, nil
}

func (e *Engine) runner(id string) *runner {
	e.admin.tasks.Lock()
	defer e.admin.tasks.Unlock()
	return e.admin.tasks.running[id]
}

// startRunner works on a task on this node, unless it does so already.
func (e *Engine) startRunner(q *queue, t journal.Task) {
	ctx, cancel := context.WithCancelCause(e.life.loops)
	r := &runner{e: e, q: q, cancel: cancel, ended: make(chan struct{})}
	r.mu.task = t
	e.admin.tasks.Lock()
	defer e.admin.tasks.Unlock()
	if _, ok := e.admin.tasks.running[t.ID]; ok {
		cancel(nil)
		return
	}
	started := e.spawn(func() {
		defer func() {
			cancel(nil)
			e.admin.tasks.Lock()
			delete(e.admin.tasks.running, t.ID)
			e.admin.tasks.Unlock()
			close(r.ended)
		}()
		r.run(ctx)
	})
	if !started {
		cancel(nil)
		return
	}
	e.admin.tasks.running[t.ID] = r
}
