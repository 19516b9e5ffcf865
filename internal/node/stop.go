package node

import (
	"context"
	"errors"
	"fmt"
)

// Stop ends the node and returns when everything has ended. ctx (and DrainTimeout) bound how long requests in flight may take; when that
// is over they are cut off, and the error says so. Nothing that was acknowledged depends on it. A second call waits for the first and
// answers the same.
func (n *Node) Stop(ctx context.Context) error {
	for {
		n.mu.Lock()
		was, done := n.mu.phase, n.mu.done
		if was == phaseStarting || was == phaseStopping {
			n.mu.Unlock()
			select {
			case <-done:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if was == phaseStopped {
			defer n.mu.Unlock()
			return n.mu.err
		}
		failed := n.mu.err != nil // Start has cleaned up after itself
		n.mu.phase, n.mu.done = phaseStopping, make(chan struct{})
		n.mu.Unlock()

		var err error
		if was == phaseRunning && !failed {
			bounded, cancel := context.WithTimeoutCause(ctx, n.c.DrainTimeout, fmt.Errorf("not drained within %s", n.c.DrainTimeout))
			err = n.stop(bounded)
			cancel()
		}
		n.mu.Lock()
		n.mu.phase, n.mu.err = phaseStopped, err
		close(n.mu.done)
		n.mu.Unlock()
		return err
	}
}

// stop is the order in which a node ends. Each step needs those below it and is needed by those above it:
//
//  1. gateway: no new requests; long polls answer what they have; publishes in flight wait for their acks, which need
//  2. work queues: groups first, whose generations and commits under way are finished, then leases, which journal what has changed, then Redis; the
//     journal needs
//  3. ingest: seals what is buffered, uploads, commits, acknowledges; it writes through into
//  4. fetch: no GET runs any more;
//  5. compactor: the job in the middle ends at its next step, its claims are given back through
//  6. metadata log: gives back its claim, ends its watch; it uses
//  7. etcd: the client, and the embedded member where there is one;
//  8. object store: nobody reads or writes any more;
//  9. spans of all of the above are sent.
//
// A step that fails does not keep the next from being taken.
func (n *Node) stop(ctx context.Context) error {
	var errs []error
	step := func(name string, present bool, end func() error) {
		if !present {
			return
		}
		if err := end(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", name, err))
		}
	}
	p := &n.parts
	step("gateway", p.gateway != nil, func() error { return p.gateway.Stop(ctx) })
	step("work queues", p.queues != nil, func() error { return p.queues.close(ctx) })
	step("ingest", p.ingest != nil, func() error { return p.ingest.Close(ctx) })
	step("fetch", p.fetch != nil, func() error { return p.fetch.Close() })
	step("compactor", p.compact != nil, func() error { return p.compact.Close() })
	step("metadata log", p.log != nil, func() error { return p.log.Close() })
	step("etcd", p.driver != nil && n.c.Driver == nil, func() error { return p.driver.Close() })
	step("object store", p.store != nil, func() error { return p.store.Close() })
	step("tracing", p.tracing != nil, func() error { return p.tracing.stop(ctx) })
	return errors.Join(errs...)
}
