package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// groupPipe sends commands of many callers together. A command that comes alone goes at once; those that come while enough are under way wait, and
// go together as soon as one comes back. So the more there are, the fewer system calls each costs, on both sides. All of them may be sent in any
// order, and twice: a caller has one under way at a time wherever order matters.
type groupPipe struct {
	s *Store

	mu struct {
		sync.Mutex
		waiting []*pipedCmd
		flights int
	}
}

// pipedCmd is a command and its caller.
type pipedCmd struct {
	cmd  *redis.Cmd
	done chan struct{}
}

const (
	// maxPipes is how many pipelines are under way at most: one that Redis works on, one that is on its way, and some for a cluster's nodes.
	maxPipes = 4
	// maxPiped is how many commands one pipeline has at most: no caller waits for very many others, and all of them have the time that one has.
	maxPiped = 64
)

// errQueued says that a command was not sent, and will not be.
var errQueued = errors.New("others were before it")

// do sends a command and gives its error. When ctx ends first, cmd may still be in use: the caller must not look at it. errQueued says that it
// has no effect: what its caller does next must not be overtaken by what he has given up.
func (p *groupPipe) do(ctx context.Context, cmd *redis.Cmd) error {
	c := &pipedCmd{cmd: cmd, done: make(chan struct{})}
	p.mu.Lock()
	p.mu.waiting = append(p.mu.waiting, c)
	start := p.mu.flights < maxPipes
	if start {
		p.mu.flights++
	}
	p.mu.Unlock()
	if start {
		p.s.wg.Go(p.fly) // Close waits for it
	}
	select {
	case <-c.done:
		return cmd.Err()
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.mu.waiting, c); i >= 0 {
		p.mu.waiting = slices.Delete(p.mu.waiting, i, i+1)
		return fmt.Errorf("%w: %w", errQueued, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// fly sends what waits until nothing does.
func (p *groupPipe) fly() {
	for {
		p.mu.Lock()
		n := min(len(p.mu.waiting), maxPiped)
		batch := p.mu.waiting[:n:n]
		if p.mu.waiting = p.mu.waiting[n:]; len(p.mu.waiting) == 0 {
			p.mu.waiting = nil
		}
		if n == 0 {
			p.mu.flights--
		}
		p.mu.Unlock()
		if n == 0 {
			return
		}
		p.send(batch)
	}
}

func (p *groupPipe) send(batch []*pipedCmd) {
	if len(batch) == 1 {
		_ = p.s.c.Process(p.s.ctx, batch[0].cmd) // the command has the error
	} else {
		pipe := p.s.c.Pipeline()
		for _, c := range batch {
			_ = pipe.Process(p.s.ctx, c.cmd) // sent by Exec
		}
		if _, err := pipe.Exec(p.s.ctx); err != nil { // that of some command, or of all
			for _, c := range batch {
				if c.cmd.Err() == nil && c.cmd.Val() == nil {
					c.cmd.SetErr(err)
				}
			}
		}
	}
	for _, c := range batch {
		close(c.done)
	}
}
