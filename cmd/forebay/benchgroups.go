package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/bench"
)

type benchGroupsCmd struct {
	benchFlags
	Groups     int           `help:"Consumer groups." default:"1000"`
	Members    int           `help:"Members of each." default:"10"`
	Partitions int           `help:"Partitions of the topic, if it is to be made." default:"10"`
	Prefix     string        `help:"How the groups' names begin (default: one that nobody has)."`
	Session    time.Duration `help:"Session timeout of the members, who heartbeat three times as often." default:"10s"`
	Clients    int           `help:"Joins in flight at most, and heartbeats. A join waits for others of its group now and then: with too few in flight those others cannot come." default:"4096"`
	Backlog    int64         `help:"Records a partition of the topic has at least; what is missing is published first." default:"1000"`
	Duration   time.Duration `help:"How long to measure each kind of load." default:"10s"`
	Warmup     time.Duration `help:"How long to run before that." default:"2s"`
	Commits    float64       `help:"Commits a second (open loop: latency counts from when a commit was due); 0 = as fast as answers come (closed loop); below 0 = none." default:"10000"`
	InFlight   int           `help:"Commits in flight at most." default:"1000"`
	Publish    float64       `help:"Records a second that are published beside the groups, and alone before they come; 0 = as fast as answers come; below 0 = none." default:"-1"`
	RecordSize int           `help:"Bytes of key and value of a record." default:"1024"`
	Batch      int           `help:"Records of a publish." default:"100"`
	Publishers int           `help:"Publishes in flight at most." default:"16"`
	Ops        string        `help:"Address of the node's ops port, for its CPU, memory and counters." placeholder:"URL"`
	Redis      string        `help:"The node's Redis, for the same." placeholder:"URL" secret:"url"`
	LoseRedis  bool          `help:"Empty that Redis in the end, with everything that anybody has there, and measure until all groups are stable again."`
	Transport  string        `help:"lean: an HTTP/1.1 connection that costs little of a machine which client and server share; standard: that of other clients, which --h2c and https:// need." enum:"lean,standard" default:"lean"`
	Keep       bool          `help:"Leave the groups behind."`
	Seed       uint64        `help:"Seed of keys and values." default:"1"`
	Progress   bool          `help:"Show progress on standard error, if it is a terminal." default:"true" negatable:""`
}

// idleConnections are kept for what is to come: a wave of joins needs many for a moment, which would count as memory of the groups after it.
const idleConnections = 256

func (c *benchGroupsCmd) Run(ctx context.Context, e *env) error {
	var opts []client.Option
	if c.Transport == "lean" && !c.H2C && strings.HasPrefix(c.Server, "http://") {
		opts = append(opts, client.WithHTTPClient(&http.Client{
			Transport: &bench.Transport{MaxIdle: idleConnections}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
	}
	cl, err := c.once(e, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if c.Prefix == "" {
		c.Prefix = "bench-" + strings.ToLower(rand.Text()[:8]) + "-"
	}
	o := bench.GroupsOptions{
		Client: cl, Topic: c.Topic, Groups: c.Groups, Members: c.Members, Prefix: c.Prefix, Session: c.Session, Clients: c.Clients, Backlog: c.Backlog,
		Warmup: c.Warmup, Duration: c.Duration, Commits: c.Commits, InFlight: c.InFlight, Publish: c.Publish, RecordSize: c.RecordSize, Batch: c.Batch,
		Publishers: c.Publishers, OpsURL: c.Ops, RedisURL: c.Redis, LoseRedis: c.LoseRedis, Keep: c.Keep, Seed: c.Seed,
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	if _, err := ensureTopic(ctx, cl, c.Topic, c.Partitions); err != nil {
		return err
	}
	if c.Progress && onTerminal(e.err) {
		p := &phaseBar{w: e.err}
		o.Progress = p.show
		defer p.end()
	}
	report, err := bench.Groups(ctx, o)
	return printResult(&c.benchFlags, e, report, err)
}

// phaseBar is a progress bar for a measurement of several phases, one after the other.
type phaseBar struct {
	w  io.Writer
	mu struct {
		sync.Mutex
		phase string
		bar   *progressbar.ProgressBar
	}
}

func (p *phaseBar) show(phase string, done, all int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if phase != p.mu.phase {
		p.endLocked()
		p.mu.phase = phase
		p.mu.bar = progressbar.NewOptions64(all,
			progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(fmt.Sprintf("%-20s", phase)),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	}
	p.mu.bar.ChangeMax64(all)
	_ = p.mu.bar.Set64(done)
}

func (p *phaseBar) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked()
}

func (p *phaseBar) endLocked() {
	if p.mu.bar != nil {
		_ = p.mu.bar.Finish()
		p.mu.bar = nil
	}
}
