package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/forebaymq/forebay/metadata"
)

// Watch implements metadata.Driver. The client joins the fragments of a large answer, so that an answer holds whole revisions; it
// goes on by itself after a broken connection. After a member has lost its leader, or the watch was cancelled, another is started here
// from the next revision.
func (d *Driver) Watch(ctx context.Context, from int64, fn func(metadata.Events) error) error {
	for wait := watchRetryMin; ; wait = min(2*wait, watchRetryMax) {
		next, err := d.watchOnce(ctx, from, fn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d.ctx.Err() != nil:
			return fmt.Errorf("%w: driver closed", metadata.ErrNoQuorum)
		}
		var stop *stopError
		if errors.As(err, &stop) {
			return stop.cause
		}
		if next > from {
			from, wait = next, watchRetryMin
		}
		d.log.Debug("etcd watch ended, starting again", "from", from, "error", err)
		select {
		case <-d.clock.After(wait):
		case <-ctx.Done():
		case <-d.ctx.Done():
		}
	}
}

// stopError ends a Watch: its caller must act.
type stopError struct{ cause error }

func (e *stopError) Error() string { return e.cause.Error() }

// watchOnce watches until the watch ends, and returns the revision to go on from.
func (d *Driver) watchOnce(ctx context.Context, from int64, fn func(metadata.Events) error) (next int64, err error) {
	ctx, cancel := context.WithCancel(leader(ctx))
	defer cancel()
	ch := d.c.Watch(ctx, d.keys.logs(), clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithFilterDelete(),
		clientv3.WithProgressNotify(), clientv3.WithFragment())
	for {
		var r clientv3.WatchResponse
		var ok bool
		select {
		case r, ok = <-ch:
		case <-d.ctx.Done():
			return from, d.ctx.Err()
		}
		if !ok {
			return from, errors.New("watch closed")
		}
		if err := r.Err(); err != nil {
			if r.CompactRevision != 0 || errors.Is(err, rpctypes.ErrCompacted) {
				return from, &stopError{fmt.Errorf("%w: from %d, compacted to %d", metadata.ErrCompacted, from, r.CompactRevision)}
			}
			return from, err
		}
		ev := metadata.Events{Through: from - 1}
		for _, e := range r.Events {
			if e.Type != clientv3.EventTypePut {
				continue
			}
			entry, err := d.decodeEntry(e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
			if err != nil {
				return from, &stopError{err}
			}
			if entry.Revision < from {
				return from, fmt.Errorf("watch went back to %d from %d", entry.Revision, from)
			}
			ev.Entries = append(ev.Entries, entry)
			ev.Through = max(ev.Through, entry.Revision)
		}
		// A progress notification says that everything up to its revision was sent. The header of an answer with events does not: it is
		// the store's revision, and events of other revisions may still follow.
		if r.IsProgressNotify() {
			ev.Through = max(ev.Through, r.Header.Revision)
		}
		if ev.Through < from {
			continue
		}
		metadata.SortEntries(ev.Entries)
		if err := fn(ev); err != nil {
			return from, &stopError{err}
		}
		from = ev.Through + 1
	}
}
