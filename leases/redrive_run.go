package leases

import (
	"context"
	"errors"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

var (
	errTaskCancelled = errors.New("the task was cancelled")
	errTaskElsewhere = errors.New("another node works on the task")
	errTaskEnded     = errors.New("the task has ended")
)

// run works on the task until it has ended, another node has it, or this node is closed. What it does between two journallings of its progress
// is done again by another runner only where it finds it undone, so that two runners, or one that dies, harm nothing.
func (r *runner) run(ctx context.Context) {
	for {
		err := r.attempt(ctx)
		t := r.view()
		log := r.e.o.Logger.With("tenant", r.q.sub.Tenant, "subscription", r.q.sub.Name, "task", t.ID, "done", t.Done, "total", t.Total)
		switch {
		case err == nil:
			log.Info("redrive has ended", "state", t.State)
			return
		case ctx.Err() != nil, errors.Is(err, errTaskCancelled):
			r.giveBack(true)
			return
		case errors.Is(err, errTaskElsewhere), errors.Is(err, errTaskEnded), gone(err):
			return
		default:
			log.Warn("redrive goes on after a failure", "error", err)
		}
		if !r.e.pause(ctx, taskRetry) {
			r.giveBack(true)
			return
		}
	}
}

// attempt goes on with the task from its record in the journal.
func (r *runner) attempt(ctx context.Context) error {
	if err := r.keep(ctx); err != nil {
		return err
	}
	if err := r.refresh(ctx); err != nil {
		return err
	}
	if err := r.recount(ctx); err != nil {
		return err
	}
	t := r.view()
	// What dies again does so later than the task began, by a clock of milliseconds: so it is not selected twice.
	if !r.e.pause(ctx, 2*time.Millisecond) {
		return context.Cause(ctx)
	}
	now := r.e.o.Clock.Now()
	d := &drive{runner: r, pace: newPace(t.Rate, now), kept: now, noted: now, every: taskProgress}
	for {
		// Passes over the selection until one finds nothing: what a loss of Redis has brought back is found by the next.
		found := 0
		for selection := range taskSelections(&t) {
			n, err := d.all(ctx, selection)
			found += n
			if err != nil {
				return err
			}
		}
		if found == 0 {
			return r.finish(ctx)
		}
	}
}

// drive is what an attempt keeps.
type drive struct {
	*runner
	pace  *pace
	kept  time.Time // when the hint was renewed
	noted time.Time // when the progress was journalled
	every time.Duration
}

// all redrives a selection, and says how many that were.
func (d *drive) all(ctx context.Context, selection store.Selection) (found int, err error) {
	for cursor, more := "", true; more; more = cursor != "" {
		n, err := d.allowed(ctx, d.pace)
		if err != nil {
			return found, err
		}
		if err := d.stopped(ctx); err != nil {
			return found, err
		}
		var done int
		var f *store.Effects
		err = d.e.call(ctx, d.q, func(ctx context.Context) (err error) {
			done, cursor, f, err = d.e.o.Store.Redrive(ctx, &d.q.store, selection, n, cursor)
			return err
		})
		if err != nil {
			return found, err
		}
		d.pace.took(done)
		found += done
		d.progress(int64(done))
		d.e.admin.m.redriven.Add(float64(done))
		d.e.effects(d.q, f)
		if err := d.report(ctx); err != nil {
			return found, err
		}
	}
	return found, nil
}

// report renews the hint and journals the progress, where it is time.
func (d *drive) report(ctx context.Context) error {
	now := d.e.o.Clock.Now()
	if now.Sub(d.kept) >= taskProgress {
		d.kept = now
		if err := d.keep(ctx); err != nil {
			return err
		}
	}
	if now.Sub(d.noted) < d.every {
		return nil
	}
	if err := d.note(ctx); err != nil {
		return err
	}
	d.noted = d.e.o.Clock.Now()
	d.every = max(taskProgress, noteShare*d.noted.Sub(now)) // with very many dead letters a look at the journal takes its time
	return nil
}

// allowed waits until the pace lets some records go, and says how many.
func (r *runner) allowed(ctx context.Context, p *pace) (int, error) {
	for {
		n, wait := p.take(r.e.o.Clock.Now(), redriveStep)
		if n > 0 {
			return n, context.Cause(ctx)
		}
		if !r.e.pause(ctx, wait) {
			return 0, context.Cause(ctx)
		}
	}
}

// keep takes or renews the hint that this node works on the task.
func (r *runner) keep(ctx context.Context) error {
	held, err := r.e.o.Store.Lock(ctx, &r.q.store, r.lockName(), r.e.admin.holder, runnerLease)
	switch {
	case err != nil:
		return err
	case !held:
		return errTaskElsewhere
	}
	return nil
}

func (r *runner) lockName() string { return runnerName(r.view().ID) }

// stopped says whether the task was cancelled on another node, as far as Redis has it.
func (r *runner) stopped(ctx context.Context) error {
	holder, err := r.e.o.Store.Held(ctx, &r.q.store, stopName(r.view().ID))
	if err == nil && holder != "" {
		return r.refresh(ctx)
	}
	return err
}

// giveBack lets another node go on at once, and from where this one came.
func (r *runner) giveBack(note bool) {
	ctx, cancel := r.e.bounded(context.WithoutCancel(r.e.ctx), partingTimeout)
	defer cancel()
	if note {
		if err := r.e.o.Journal.PutTask(ctx, r.q.sub.Tenant, r.view()); err != nil {
			r.e.o.Logger.Debug("the last progress of a task is not journalled", "task", r.view().ID, "error", err)
		}
	}
	if err := r.e.o.Store.Unlock(ctx, &r.q.store, r.lockName(), r.e.admin.holder); err != nil {
		r.e.o.Logger.Debug("the hint on a task stays until it lapses", "task", r.view().ID, "error", err)
	}
}

// refresh reads the task again: its progress on other nodes, and whether it has ended.
func (r *runner) refresh(ctx context.Context) error {
	loaded, err := r.e.o.Journal.Load(ctx, r.q.sub.Tenant, r.q.id)
	if err != nil {
		return err
	}
	t, ok := taskOf(loaded.Tasks, r.view().ID)
	switch {
	case ok && t.State == taskCancelled:
		return errTaskCancelled
	case !ok || t.State != taskRunning:
		return errTaskEnded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.task.Done = max(r.mu.task.Done, t.Done)
	return nil
}

// progress counts what was redriven.
func (r *runner) progress(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.task.Done = min(r.mu.task.Done+n, r.mu.task.Total)
	r.mu.task.Updated = max(r.e.now(), r.mu.task.Updated)
}

// note journals the progress, and sees whether the task was cancelled.
func (r *runner) note(ctx context.Context) error {
	if err := r.refresh(ctx); err != nil {
		return err
	}
	return r.e.o.Journal.PutTask(ctx, r.q.sub.Tenant, r.view())
}

// recount counts what other runners did: one that died before it said so, or one that worked at the same time because the hint was lost with Redis.
func (r *runner) recount(ctx context.Context) error {
	t := r.view()
	left, err := r.e.countDead(ctx, r.q, &t)
	if err == nil {
		r.progress(max(t.Total-left-t.Done, 0))
	}
	return err
}

// finish journals that the task is done.
func (r *runner) finish(ctx context.Context) error {
	if err := r.refresh(ctx); err != nil {
		return err
	}
	if err := r.recount(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.mu.task.State = taskDone
	t := r.mu.task
	r.mu.Unlock()
	if err := r.e.o.Journal.PutTask(ctx, r.q.sub.Tenant, t); err != nil {
		r.mu.Lock()
		r.mu.task.State = taskRunning
		r.mu.Unlock()
		return err
	}
	r.giveBack(false)
	return nil
}

// pause waits by the engine's clock; false when ctx ended first.
func (e *Engine) pause(ctx context.Context, d time.Duration) bool {
	t := e.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.Chan():
		return true
	case <-ctx.Done():
		return false
	}
}

// resume goes on with the tasks of a subscription that no node works on, and forgets those that ended long ago.
func (e *Engine) resume(ctx context.Context, q *queue, tasks map[string]journal.Task) error {
	for id := range tasks {
		if t, ok := taskOf(tasks, id); ok && t.State == taskRunning {
			e.startRunner(q, t)
		}
	}
	var failed error
	for _, id := range expiredTasks(tasks, e.now(), endedTaskAge.Milliseconds(), endedTasks) {
		if err := e.o.Journal.RemoveTask(ctx, q.sub.Tenant, q.id, id); err != nil {
			failed = err
		}
	}
	return failed
}
