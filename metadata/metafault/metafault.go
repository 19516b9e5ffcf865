package metafault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/forebaymq/forebay/metadata"
)

// Op names a method of the driver, or one delivery of a watch.
type Op string

// The operations that a Hook sees.
const (
	Init        Op = "init"
	Append      Op = "append"
	Head        Op = "head"
	Load        Op = "load"
	Watch       Op = "watch"  // a watch begins
	Deliver     Op = "events" // a watch is about to deliver events
	PutSnapshot Op = "putSnapshot"
	Compact     Op = "compact"
	Claim       Op = "claim"
	Release     Op = "release"
)

// ErrInjected is the cause of every injected failure that a hook did not name itself.
var ErrInjected = errors.New("injected fault")

// Call is what a hook is asked about.
type Call struct {
	Op      Op
	N       int                 // 1 for the first call of this operation
	Entries []metadata.LogEntry // of Append and Deliver
}

// Action is what shall happen to a call. The zero value lets it through.
type Action struct {
	Delay time.Duration   // first, by the injected clock
	Wait  <-chan struct{} // then, until it is closed or the call's context ends
	Err   error           // answered without any effect; for Deliver, what the watch ends with
	// Lost: the call has its effect, and its answer is lost. Writes answer an IndefiniteError, reads ErrNoQuorum.
	Lost bool
	// Late: as Lost, but the effect comes only when the channel is closed. Append only.
	Late <-chan struct{}
}

// Hook decides about one call.
type Hook func(Call) Action

// Driver is a metadata.Driver with faults.
type Driver struct {
	inner metadata.Driver
	clock clockwork.Clock
	wg    sync.WaitGroup // late effects
	stop  chan struct{}
	once  sync.Once
	mu    struct {
		sync.Mutex
		hook  Hook
		calls map[Op]int
	}
}

var _ metadata.Driver = (*Driver)(nil)

// Wrap puts faults in front of inner, which Close closes too. A nil clock is the real one; a nil hook lets everything through.
func Wrap(inner metadata.Driver, clock clockwork.Clock, hook Hook) *Driver {
	if clock == nil {
		clock = clockwork.NewRealClock()
	}
	d := &Driver{inner: inner, clock: clock, stop: make(chan struct{})}
	d.mu.hook, d.mu.calls = hook, map[Op]int{}
	return d
}

// SetHook replaces the hook. Counts of calls go on.
func (d *Driver) SetHook(h Hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.hook = h
}

// Calls says how often an operation was called.
func (d *Driver) Calls(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.calls[op]
}

// before asks the hook, and waits or fails as it says.
func (d *Driver) before(ctx context.Context, op Op, entries []metadata.LogEntry) (Action, error) {
	d.mu.Lock()
	d.mu.calls[op]++
	var a Action
	if d.mu.hook != nil {
		a = d.mu.hook(Call{Op: op, N: d.mu.calls[op], Entries: entries})
	}
	d.mu.Unlock()
	if a.Delay > 0 {
		select {
		case <-d.clock.After(a.Delay):
		case <-ctx.Done():
		case <-d.stop:
		}
	}
	if a.Wait != nil {
		select {
		case <-a.Wait:
		case <-ctx.Done():
		case <-d.stop:
		}
	}
	return a, a.Err
}

func lostWrite() error { return &metadata.IndefiniteError{Cause: ErrInjected} }

func lostRead() error { return fmt.Errorf("%w: %w", metadata.ErrNoQuorum, ErrInjected) }

// Init implements metadata.Driver.
func (d *Driver) Init(ctx context.Context, f metadata.Fabric) (metadata.Fabric, error) {
	a, err := d.before(ctx, Init, nil)
	if err != nil {
		return f, err
	}
	got, err := d.inner.Init(ctx, f)
	if err == nil && a.Lost {
		err = lostWrite()
	}
	return got, err
}

// Append implements metadata.Driver.
func (d *Driver) Append(ctx context.Context, entries []metadata.LogEntry, guard *metadata.Guard) (int64, error) {
	a, err := d.before(ctx, Append, entries)
	if err != nil {
		return 0, err
	}
	if a.Late != nil {
		d.wg.Go(func() {
			select {
			case <-a.Late:
				_, _ = d.inner.Append(context.WithoutCancel(ctx), entries, guard) // nobody is left to hear of it
			case <-d.stop:
			}
		})
		return 0, lostWrite()
	}
	rev, err := d.inner.Append(ctx, entries, guard)
	if err == nil && a.Lost {
		return 0, lostWrite()
	}
	return rev, err
}

// Head implements metadata.Driver.
func (d *Driver) Head(ctx context.Context) (int64, error) {
	a, err := d.before(ctx, Head, nil)
	if err != nil {
		return 0, err
	}
	rev, err := d.inner.Head(ctx)
	if err == nil && a.Lost {
		return 0, lostRead()
	}
	return rev, err
}

// Load implements metadata.Driver.
func (d *Driver) Load(ctx context.Context) (*metadata.Loaded, error) {
	a, err := d.before(ctx, Load, nil)
	if err != nil {
		return nil, err
	}
	l, err := d.inner.Load(ctx)
	if err == nil && a.Lost {
		return nil, lostRead()
	}
	return l, err
}

// Watch implements metadata.Driver.
func (d *Driver) Watch(ctx context.Context, from int64, fn func(metadata.Events) error) error {
	if _, err := d.before(ctx, Watch, nil); err != nil {
		return err
	}
	return d.inner.Watch(ctx, from, func(ev metadata.Events) error {
		if _, err := d.before(ctx, Deliver, ev.Entries); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(ev)
	})
}

// PutSnapshot implements metadata.Driver.
func (d *Driver) PutSnapshot(ctx context.Context, p metadata.SnapshotPointer, drop []metadata.LogEntry, guard metadata.Guard) error {
	a, err := d.before(ctx, PutSnapshot, drop)
	if err != nil {
		return err
	}
	err = d.inner.PutSnapshot(ctx, p, drop, guard)
	if err == nil && a.Lost {
		return lostWrite()
	}
	return err
}

// Compact implements metadata.Driver.
func (d *Driver) Compact(ctx context.Context, revision int64) error {
	a, err := d.before(ctx, Compact, nil)
	if err != nil {
		return err
	}
	err = d.inner.Compact(ctx, revision)
	if err == nil && a.Lost {
		return lostRead()
	}
	return err
}

// Claim implements metadata.Driver. A claim whose answer is lost is released, as a driver does that cannot tell its caller of it.
func (d *Driver) Claim(ctx context.Context, name, holder string, ttl time.Duration) (*metadata.HeldClaim, bool, error) {
	a, err := d.before(ctx, Claim, nil)
	if err != nil {
		return nil, false, err
	}
	c, held, err := d.inner.Claim(ctx, name, holder, ttl)
	if err == nil && a.Lost {
		if held {
			err = d.inner.Release(ctx, c)
		}
		return nil, false, errors.Join(lostWrite(), err)
	}
	return c, held, err
}

// Release implements metadata.Driver.
func (d *Driver) Release(ctx context.Context, c *metadata.HeldClaim) error {
	a, err := d.before(ctx, Release, nil)
	if err != nil {
		return err
	}
	err = d.inner.Release(ctx, c)
	if err == nil && a.Lost {
		return lostWrite()
	}
	return err
}

// Close implements metadata.Driver.
func (d *Driver) Close() error {
	d.once.Do(func() { close(d.stop) })
	d.wg.Wait()
	return d.inner.Close()
}
