package leases

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
)

// The states of a redrive. A task is running until it has gone through its selection and found nothing left of it, or somebody cancels it:
//
//	running -> done         the runner, after a pass over the selection that found nothing
//	running -> cancelled    CancelTask, on any node; the runner sees the mark within taskPoll
//
// A cancellation is a record of its own beside the task's (cancelMark): the runner writes the task's progress and nothing else, so that neither
// of them can undo what the other wrote. A task is cancelled when it is not done and the mark exists.
const (
	taskRunning   = "running"
	taskDone      = "done"
	taskCancelled = "cancelled"
)

// cancelSuffix makes the ID of a task's cancellation. No task's own ID ends with it.
const cancelSuffix = "!cancel"

// cancelMark is the record that cancels a task.
func cancelMark(t *journal.Task, now int64) journal.Task {
	return journal.Task{ID: t.ID + cancelSuffix, Subscription: t.Subscription, State: taskCancelled, Created: t.Created, Updated: now}
}

// taskOf gives what a caller sees of a task: its record and its cancellation, if there is one, taken together.
func taskOf(all map[string]journal.Task, id string) (journal.Task, bool) {
	t, ok := all[id]
	if !ok || isCancelMark(id) {
		return journal.Task{}, false
	}
	if mark, cancelled := all[id+cancelSuffix]; cancelled && t.State == taskRunning {
		t.State, t.Updated = taskCancelled, max(t.Updated, mark.Updated)
	}
	return t, true
}

func isCancelMark(id string) bool {
	return len(id) > len(cancelSuffix) && id[len(id)-len(cancelSuffix):] == cancelSuffix
}

// selectionOf is what a task redrives: what it names, as far as it was dead when the task was made. A record that was redriven and died again is
// not taken twice.
func selectionOf(t *journal.Task) store.Selection {
	return store.Selection{All: t.All, Targets: t.Offsets, Before: t.Created}
}

// taskView is the task as the API shows it.
func taskView(t journal.Task) *Task {
	return &Task{ID: t.ID, Total: t.Total, Done: t.Done, State: t.State, CreatedAt: t.Created, UpdatedAt: t.Updated}
}

// expiredTasks gives the IDs, cancellations included, of the tasks that ended so long ago that nobody will ask for them any more: those past the age
// (ms), and the oldest beyond a number to keep.
func expiredTasks(all map[string]journal.Task, now, age int64, keep int) []string {
	var ended []journal.Task
	var out []string
	for id, t := range all {
		if isCancelMark(id) {
			if _, ok := all[id[:len(id)-len(cancelSuffix)]]; !ok && t.Updated < now-age {
				out = append(out, id) // its task is gone
			}
			continue
		}
		if t, _ := taskOf(all, id); t.State != taskRunning {
			ended = append(ended, t)
		}
	}
	slices.SortFunc(ended, func(a, b journal.Task) int { return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(b.ID, a.ID)) })
	for i, t := range ended {
		if i >= keep || t.Updated < now-age {
			out = append(out, t.ID)
			if _, ok := all[t.ID+cancelSuffix]; ok {
				out = append(out, t.ID+cancelSuffix)
			}
		}
	}
	return out
}

// pace says how many records a task may redrive now. It is a bucket that fills at the task's rate and holds a fifth of a second's worth, at least
// one: a runner that was away does not make up for it.
type pace struct {
	perSecond float64
	size      float64
	tokens    float64
	filled    time.Time
}

func newPace(perSecond int32, now time.Time) *pace {
	r := float64(max(perSecond, 1))
	size := max(r/5, 1)
	return &pace{perSecond: r, size: size, tokens: size, filled: now}
}

// take gives how many records may go now, at most most, and where that is none, how long to wait until some may.
func (p *pace) take(now time.Time, most int) (n int, wait time.Duration) {
	p.tokens = min(p.tokens+p.perSecond*max(now.Sub(p.filled), 0).Seconds(), p.size)
	p.filled = now
	// Half a bucket a step, so that steps are few and none is lost by a late one.
	if enough := max(p.size/2, 1); p.tokens < enough {
		return 0, time.Duration(math.Ceil((enough - p.tokens) / p.perSecond * float64(time.Second)))
	}
	return min(int(p.tokens), most), 0
}

// took says how many did go.
func (p *pace) took(n int) { p.tokens -= float64(n) }
