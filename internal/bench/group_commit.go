package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebaymq/forebay/client"
)

// ackedOffset is what was committed on one partition of a group.
type ackedOffset struct {
	acked bool
	last  committed   // the newest that was acknowledged
	maybe []committed // sent after it, with an unknown outcome
}

// committed tells one commit from every other: by its metadata, however often the offset has been the same.
type committed struct {
	offset   int64
	metadata string
}

// noteCommit notes the outcome of a commit of one member, which commits one at a time.
func (g *benchGroup) noteCommit(offsets []client.GroupOffset, err error) {
	outcome, _ := client.Classify(err)
	if err != nil && outcome == client.Definite {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.acked == nil {
		g.mu.acked = map[client.TopicPartition]*ackedOffset{}
	}
	for _, o := range offsets {
		at := client.TopicPartition{Topic: o.Topic, Partition: o.Partition}
		a := g.mu.acked[at]
		if a == nil {
			a = &ackedOffset{}
			g.mu.acked[at] = a
		}
		c := committed{o.Offset, o.Metadata}
		if err != nil {
			a.maybe = append(a.maybe, c)
			continue
		}
		a.acked, a.last, a.maybe = true, c, nil
	}
}

// judge compares what the server has with what was acknowledged.
func (g *benchGroup) judge(have []client.GroupOffset) (partitions int, faults []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := len(g.mu.acked)
	for _, o := range have {
		a := g.mu.acked[client.TopicPartition{Topic: o.Topic, Partition: o.Partition}]
		if a == nil {
			continue
		}
		left--
		if !a.acked {
			continue
		}
		partitions++
		if c := (committed{o.Offset, o.Metadata}); c != a.last && !slices.Contains(a.maybe, c) {
			faults = append(faults, fmt.Sprintf("group %s partition %d: the server has offset %d (%s), and has acknowledged %d (%s) last",
				g.name, o.Partition, o.Offset, o.Metadata, a.last.offset, a.last.metadata))
		}
	}
	if left > 0 {
		faults = append(faults, fmt.Sprintf("group %s: the server has no offset of %d partitions that were committed", g.name, left))
	}
	return partitions, faults
}

// commitLoad commits for the members of all groups in turn, each all that it owns.
type commitLoad struct {
	r                *groupsRun
	begin, from, end time.Time
	interval         time.Duration // in an open loop
	next             atomic.Int64
	rec              *recorder
}

func newCommitLoad(r *groupsRun, begin, from, end time.Time) *commitLoad {
	l := &commitLoad{r: r, begin: begin, from: from, end: end, rec: newRecorder()}
	if r.o.Commits > 0 {
		l.interval = time.Duration(float64(time.Second) / r.o.Commits)
	}
	return l
}

func (l *commitLoad) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range l.r.o.InFlight {
		wg.Go(func() { l.client(ctx) })
	}
	wg.Wait()
}

func (l *commitLoad) client(ctx context.Context) {
	for ctx.Err() == nil {
		n := l.next.Add(1) - 1
		intended := time.Now()
		if l.interval > 0 {
			intended = l.begin.Add(time.Duration(n) * l.interval)
		}
		if !intended.Before(l.end) || !sleepUntil(ctx, intended) {
			return
		}
		// Neighbours in time are of different groups, as those of independent consumers mostly are.
		g := l.r.groups[n%int64(len(l.r.groups))]
		m := g.members[n/int64(len(l.r.groups))%int64(len(g.members))]
		sent, err := m.commit(ctx, l.r.o.Client, l.r.head)
		done := time.Now()
		if ctx.Err() != nil {
			return
		}
		if sent && !intended.Before(l.from) {
			if err != nil {
				l.rec.failure(err)
			} else {
				l.rec.success(done, done.Sub(intended), 1, 0)
			}
		}
		if (err != nil || !sent) && l.interval == 0 && !sleepUntil(ctx, done.Add(pauseAfter(err))) {
			return
		}
	}
}

// commit commits the next offset on every partition that a member owns, up to the head. sent says whether it owns any.
func (m *benchMember) commit(ctx context.Context, c *client.Client, head []int64) (sent bool, err error) {
	m.committing.Lock()
	defer m.committing.Unlock()
	who, owned, joined := m.who()
	if !joined || len(owned) == 0 {
		return false, nil
	}
	m.commits++
	offsets := make([]client.GroupOffset, len(owned))
	for i, at := range owned {
		offsets[i] = client.GroupOffset{Topic: at.Topic, Partition: at.Partition, Offset: min(m.commits, head[at.Partition]), Metadata: strconv.FormatInt(m.commits, 10)}
	}
	err = c.CommitOffsets(ctx, m.group.name, who, offsets)
	m.group.noteCommit(offsets, err)
	return true, err
}

func (l *commitLoad) result() *Commits {
	out := &Commits{Loop: "closed", Millis: l.rec.latency(), Errors: l.rec.errors()}
	if l.interval > 0 {
		out.Loop = "open"
	}
	n, _, last := l.rec.totals()
	out.Count = n
	if took := last.Sub(l.from); took > 0 {
		out.PerSec = float64(n) / took.Seconds()
	}
	return out
}

// maxFaults bounds how many faults are told in words.
const maxFaults = 20

// verify reads the committed offsets of all groups and compares them with what was acknowledged; and it reads the list of groups.
func (r *groupsRun) verify(ctx context.Context) error {
	v := &r.report.Verified
	read, list := newRecorder(), newRecorder()
	faults := 0
	for i, g := range r.groups {
		begin := time.Now()
		have, err := r.o.Client.CommittedOffsets(ctx, g.name)
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		read.success(time.Now(), time.Since(begin), 1, 0)
		partitions, wrong := g.judge(have)
		v.Partitions += partitions
		faults += len(wrong)
		v.Faults = append(v.Faults, wrong[:min(len(wrong), max(0, maxFaults-len(v.Faults)))]...)
		r.progress("verified", int64(i+1), int64(len(r.groups)))
	}
	if faults > len(v.Faults) {
		v.Faults = append(v.Faults, fmt.Sprintf("and %d more", faults-len(v.Faults)))
	}
	for _, p := range r.report.Phases {
		if p.Commits != nil {
			v.Commits += p.Commits.Count
		}
	}
	listed := 0
	for cursor := ""; ; {
		begin := time.Now()
		page, err := r.o.Client.ListGroups(ctx, 1000, cursor)
		if err != nil {
			return fmt.Errorf("list groups: %w", err)
		}
		list.success(time.Now(), time.Since(begin), 1, 0)
		for i := range page.Items {
			if strings.HasPrefix(page.Items[i].Name, r.o.Prefix) {
				listed++
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if listed != len(r.groups) {
		v.Faults = append(v.Faults, fmt.Sprintf("%d of %d groups are in the list", listed, len(r.groups)))
	}
	v.Groups, v.Read, v.List = len(r.groups), read.latency(), list.latency()
	return nil
}

// dissolveLimit is how long the end may take.
const dissolveLimit = 5 * time.Minute

// dissolve makes everybody leave and deletes the groups, also when the run was interrupted.
func (r *groupsRun) dissolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dissolveLimit)
	defer cancel()
	begin := time.Now()
	leave, remove := newRecorder(), newRecorder()
	var gone, next atomic.Int64
	var errs struct {
		sync.Mutex
		first error
	}
	var wg sync.WaitGroup
	for range max(1, r.o.Clients/r.o.Members) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(r.groups)); i = next.Add(1) - 1 {
				if err := r.groups[i].end(ctx, r.o.Client, leave, remove); err != nil {
					errs.Lock()
					if errs.first == nil {
						errs.first = fmt.Errorf("remove group %s: %w", r.groups[i].name, err)
					}
					errs.Unlock()
				}
				r.progress("groups deleted", gone.Add(1), int64(len(r.groups)))
			}
		})
	}
	wg.Wait()
	r.report.Leave = &Dissolution{Seconds: time.Since(begin).Seconds(), Leaves: leave.latency(), Deletes: remove.latency()}
	return errs.first
}

// end makes the members of a group leave, together, and deletes it.
func (g *benchGroup) end(ctx context.Context, c *client.Client, leave, remove *recorder) error {
	var wg sync.WaitGroup
	met := false
	for _, m := range g.members {
		who, _, _ := m.who()
		if who.ID == "" {
			continue // it never joined
		}
		met = true
		wg.Go(func() {
			_ = persist(ctx, leave, func() error { return c.LeaveGroup(ctx, g.name, who.ID) }) // what is left over keeps the group from being deleted
		})
	}
	wg.Wait()
	if !met {
		return nil
	}
	return persist(ctx, remove, func() error { return c.DeleteGroup(ctx, g.name) })
}

// persist calls until the outcome is known. A group that is not there is as good as gone.
func persist(ctx context.Context, rec *recorder, call func() error) error {
	for {
		begin := time.Now()
		err := call()
		if err == nil || errors.Is(err, client.ErrUnknownGroup) {
			rec.success(time.Now(), time.Since(begin), 1, 0)
			return nil
		}
		if outcome, _ := client.Classify(err); outcome == client.Definite || !sleepUntil(ctx, time.Now().Add(pauseAfter(err))) {
			return err
		}
	}
}
