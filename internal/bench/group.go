package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forebaymq/forebay/client"
)

// GroupsOptions say what Groups does.
type GroupsOptions struct {
	Client     *client.Client // with a retry policy of one attempt
	Topic      string         // must exist; every group reads the whole of it
	Groups     int
	Members    int           // of each group
	Prefix     string        // of the groups' names; they must not exist
	Session    time.Duration // of the members; they heartbeat three times as often
	Clients    int           // requests of members in flight at most: joins and heartbeats
	Backlog    int64         // records a partition of the topic has at least, so that there is something to commit; what is missing is published first
	Warmup     time.Duration // before each phase, not measured
	Duration   time.Duration // of each phase
	Commits    float64       // commits a second (open loop: latency counts from when one was due); 0 = as fast as answers come; below 0 = none
	InFlight   int           // commits in flight at most
	Publish    float64       // records a second beside the groups, and alone before them; 0 = as fast as answers come; below 0 = none
	RecordSize int           // of what is published beside
	Batch      int           // records of a publish
	Publishers int           // publishes in flight at most
	OpsURL     string        // of the node's ops port, for its CPU, memory and counters; "" = not asked
	RedisURL   string        // of its Redis, for the same; "" = not asked
	LoseRedis  bool          // empty that Redis in the end (FLUSHALL), and measure until all groups are stable again
	Keep       bool          // leave the groups behind
	Seed       uint64
	// Progress, if set, hears what goes on: a phase, and how much of it is done, of how much.
	Progress func(phase string, done, all int64)
}

// Validate reports every fault by field.
func (o GroupsOptions) Validate() error {
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s", field, want))
		}
	}
	check(o.Groups >= 1 && o.Groups <= 100_000, "groups", "1 to 100000")
	check(o.Members >= 1 && o.Members <= 1000, "members", "1 to 1000")
	check(o.Groups*o.Members <= 1_000_000, "groups", "so few that there are a million members at most")
	check(o.Session >= time.Second && o.Session <= 5*time.Minute, "session", "1s to 5m")
	check(o.Clients >= 1 && o.Clients <= 10_000, "clients", "1 to 10000")
	check(o.InFlight >= 1 && o.InFlight <= 10_000, "in-flight", "1 to 10000")
	check(o.Backlog >= 1, "backlog", "1 or more")
	check(o.Warmup >= 0, "warmup", "0 or more")
	check(o.Duration > 0, "duration", "above 0")
	check(!o.LoseRedis || o.RedisURL != "", "lose-redis", "given with redis-url")
	if o.Publish >= 0 {
		if err := o.publishing("").Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// publishing is the load beside the groups.
func (o *GroupsOptions) publishing(ops string) PublishOptions {
	return PublishOptions{
		Client: o.Client, Topic: o.Topic, RecordSize: o.RecordSize, Batch: o.Batch, Clients: o.Publishers, Duration: o.Duration, Warmup: o.Warmup,
		Rate: o.Publish, Compressible: 0.5, OpsURL: ops, Seed: o.Seed,
	}
}

// groupsRun is one measurement of groups.
type groupsRun struct {
	o          GroupsOptions
	gauges     gauges
	partitions int
	head       []int64 // of the topic, by partition, when the groups began
	groups     []*benchGroup
	members    []*benchMember
	beats      *beats
	report     *GroupsReport
}

// Groups runs the measurement: publishes alone, joins, heartbeats, then heartbeats with commits, with publishes, and with both; the committed offsets
// are compared with what was acknowledged; and the groups leave.
func Groups(ctx context.Context, o GroupsOptions) (*GroupsReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &groupsRun{o: o, gauges: gauges{ops: o.OpsURL}}
	r.report = &GroupsReport{
		Topic: o.Topic, Groups: o.Groups, Members: o.Groups * o.Members, SessionSeconds: o.Session.Seconds(), WantedCommits: max(0, o.Commits),
		Errors: map[string]int64{}, Phases: []*GroupPhase{}, Verified: Offsets{Faults: []string{}},
	}
	if o.RedisURL != "" {
		var err error
		if r.gauges.redis, err = newRedisOps(o.RedisURL); err != nil {
			return nil, err
		}
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	err := r.measure(ctx)
	if !o.Keep {
		err = errors.Join(err, r.dissolve(ctx))
	}
	r.report.Errors = r.beats.errors()
	for _, p := range r.report.Phases {
		if p.Commits != nil {
			for code, n := range p.Commits.Errors {
				r.report.Errors[code] += n
			}
		}
	}
	if err == nil && len(r.report.Verified.Faults) > 0 {
		err = fmt.Errorf("the groups are not as they should be: %s", strings.Join(r.report.Verified.Faults, "; "))
	}
	return r.report, err
}

// prepare fills the topic and makes the members, none of which has joined.
func (r *groupsRun) prepare(ctx context.Context) error {
	topic, err := r.o.Client.GetTopic(ctx, r.o.Topic)
	if err != nil {
		return err
	}
	r.partitions, r.report.Partitions = topic.Partitions, topic.Partitions
	for short := true; short; {
		short = false
		for _, p := range topic.PartitionInfo {
			short = short || p.Head < r.o.Backlog
		}
		if !short {
			break
		}
		// The records are spread by their keys: somewhat more is needed for the least of the partitions.
		all := int64(0)
		for _, p := range topic.PartitionInfo {
			all += p.Head - p.LogStart
		}
		want := max(all, r.o.Backlog*int64(topic.Partitions)) + r.o.Backlog*int64(topic.Partitions)/8 + 100
		err := fill(ctx, QueueOptions{Client: r.o.Client, Topic: r.o.Topic, Backlog: want, RecordSize: 64, Seed: r.o.Seed, Progress: func(done, all int64) {
			r.progress("records to commit", done, all)
		}})
		if err != nil {
			return err
		}
		if topic, err = r.o.Client.GetTopic(ctx, r.o.Topic); err != nil {
			return err
		}
	}
	for _, p := range topic.PartitionInfo {
		r.head = append(r.head, p.Head)
	}
	for i := range r.o.Groups {
		g := &benchGroup{name: fmt.Sprintf("%s%d", r.o.Prefix, i)}
		for range r.o.Members {
			m := &benchMember{group: g, number: len(r.members)}
			g.members = append(g.members, m)
			r.members = append(r.members, m)
		}
		r.groups = append(r.groups, g)
	}
	r.beats = newBeats(r)
	return nil
}

func (r *groupsRun) progress(phase string, done, all int64) {
	if r.o.Progress != nil {
		r.o.Progress(phase, done, all)
	}
}

func (r *groupsRun) measure(ctx context.Context) (err error) {
	publishes, commits := r.o.Publish >= 0, r.o.Commits >= 0
	if publishes {
		if err := r.phase(ctx, "publish alone", false, true); err != nil {
			return err
		}
	}
	if r.report.Before, err = r.gauges.memory(ctx); err != nil {
		return err
	}
	stop := r.beats.start(ctx)
	defer stop()
	if err := r.assemble(ctx); err != nil {
		return err
	}
	if r.report.Joined, err = r.gauges.memory(ctx); err != nil {
		return err
	}
	for _, p := range []struct {
		name               string
		commits, publishes bool
	}{{"heartbeats", false, false}, {"commits", true, false}, {"publish", false, true}, {"commits and publish", true, true}} {
		if p.commits && !commits || p.publishes && !publishes {
			continue
		}
		if err := r.phase(ctx, p.name, p.commits, p.publishes); err != nil {
			return err
		}
	}
	if r.report.After, err = r.gauges.memory(ctx); err != nil {
		return err
	}
	if r.o.LoseRedis {
		if err := r.lose(ctx); err != nil {
			return err
		}
	}
	return r.verify(ctx)
}

// phase measures one kind of load for a while. Heartbeats go on through all phases once the members have joined.
func (r *groupsRun) phase(ctx context.Context, name string, commits, publishes bool) error {
	phase := &GroupPhase{Name: name}
	begin := time.Now()
	from := begin.Add(r.o.Warmup)
	end := from.Add(r.o.Duration)
	load, ctx := errgroup.WithContext(ctx)
	if commits {
		c := newCommitLoad(r, begin, from, end)
		load.Go(func() error {
			c.run(ctx)
			return context.Cause(ctx)
		})
		defer func() { phase.Commits = c.result() }()
	}
	if publishes {
		load.Go(func() (err error) {
			phase.Publish, err = Publish(ctx, r.o.publishing(""))
			return err
		})
	}
	load.Go(func() error { return r.cost(ctx, phase, from, end) })
	load.Go(func() error {
		for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
			r.progress(name, int64(now.Sub(begin)/time.Millisecond), int64(end.Sub(begin)/time.Millisecond))
			sleepUntil(ctx, now.Add(200*time.Millisecond))
		}
		return context.Cause(ctx)
	})
	if err := load.Wait(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.report.Phases = append(r.report.Phases, phase)
	return nil
}

// cost reads the gauges at the beginning and the end of what is measured, and the heartbeats between.
func (r *groupsRun) cost(ctx context.Context, phase *GroupPhase, from, end time.Time) error {
	if !sleepUntil(ctx, from) {
		return context.Cause(ctx)
	}
	before, err := r.gauges.read(ctx)
	if err != nil {
		return err
	}
	r.beats.reset()
	if !sleepUntil(ctx, end) {
		return context.Cause(ctx)
	}
	took := time.Since(before.at)
	phase.Heartbeats = r.beats.latency()
	after, err := r.gauges.read(ctx)
	if err != nil {
		return err
	}
	phase.Seconds = took.Seconds()
	phase.HeartbeatsPerSec = float64(phase.Heartbeats.Count) / took.Seconds()
	phase.Cost = after.since(before)
	return nil
}
