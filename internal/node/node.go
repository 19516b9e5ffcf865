package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
)

// Node is one node. Made by New.
type Node struct {
	c    Config
	auth authentication

	// parts are made by Start, in this order, and ended by Stop in the opposite one. A part that was not reached is nil.
	parts struct {
		tracing *tracing
		store   objectstore.Store
		driver  metadata.Driver
		log     *metadata.Log
		compact *compactor.Compactor
		fetch   *fetch.Fetcher
		ingest  *ingest.Ingester
		queues  *workQueues
		gateway *gateway.Server
	}

	mu struct {
		sync.Mutex
		phase phase
		err   error         // of Start or of Stop
		done  chan struct{} // closed when the present phase change has ended
	}
}

type phase int

const (
	phaseNew phase = iota
	phaseStarting
	phaseRunning
	phaseStopping
	phaseStopped
)

// New checks the configuration and the keys. Nothing is opened before Start.
func New(c Config) (*Node, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("node configuration: %w", err)
	}
	a, err := newAuthentication(c.Auth, c.Clock)
	if err != nil {
		return nil, err
	}
	n := &Node{c: c, auth: a}
	n.mu.done = make(chan struct{})
	close(n.mu.done)
	return n, nil
}

// Start opens the store and the metadata log, catches up, and serves. When it returns nil, the node is ready. A second call waits for the
// first and answers the same; after Stop it is an error. When it fails, what had been started is ended again.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	switch n.mu.phase {
	case phaseStopping, phaseStopped:
		n.mu.Unlock()
		return errors.New("start node: it was stopped")
	case phaseStarting, phaseRunning:
		done := n.mu.done
		n.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.mu.err
	}
	n.mu.phase = phaseStarting
	n.mu.done = make(chan struct{})
	n.mu.Unlock()

	err := n.start(ctx)
	if err != nil {
		// The caller's ctx may be what failed it; the end has its own time.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.c.DrainTimeout)
		err = errors.Join(err, n.stop(end))
		cancel()
	}
	n.mu.Lock()
	n.mu.err = err
	n.mu.phase = phaseRunning
	close(n.mu.done)
	n.mu.Unlock()
	return err
}

// start builds the node from the bottom up.
func (n *Node) start(ctx context.Context) (err error) {
	starting, cancel := context.WithTimeoutCause(ctx, n.c.StartupTimeout, fmt.Errorf("the node was not up within %s", n.c.StartupTimeout))
	defer cancel()
	reg, logger := n.c.Registry, n.c.Logger
	if err := n.registerProcess(); err != nil {
		return err
	}
	if n.parts.tracing, err = newTracing(starting, n.c); err != nil {
		return err
	}
	if n.parts.store, err = openStore(starting, n.c); err != nil {
		return err
	}
	if n.parts.driver, err = openDriver(starting, n.c); err != nil {
		return err
	}
	if n.parts.log, err = openLog(starting, n.c, n.parts.driver, n.parts.store); err != nil {
		return err
	}
	if n.parts.compact, err = newCompactor(n.c, n.parts.log, n.parts.store); err != nil {
		return err
	}
	if n.parts.fetch, err = fetch.New(fetch.Options{
		View: n.parts.log, Store: n.parts.store, CacheBytes: n.c.CacheBytes, Clock: n.c.Clock, Logger: logger, Registerer: reg,
	}); err != nil {
		return fmt.Errorf("start fetch: %w", err)
	}
	if n.parts.ingest, err = ingest.New(ingest.Options{
		Store: n.parts.store, Committer: n.parts.log, Sink: n.parts.fetch, Shards: n.parts.log.Shards(), SegmentBytes: n.c.SegmentBytes, Linger: n.c.Linger,
		MaxInFlightBytes: n.c.MemoryBytes, MaxTenantBytes: n.c.TenantBytes, Clock: n.c.Clock, Rand: n.c.Random, Logger: logger, Registerer: reg,
		TracerProvider: n.parts.tracing.provider(),
	}); err != nil {
		return fmt.Errorf("start ingest: %w", err)
	}
	if n.parts.queues, err = openQueues(starting, n.c, n.parts.log, n.parts.fetch, n.parts.ingest); err != nil {
		return err
	}
	server, err := gateway.New(gateway.Options{
		Listen: n.c.Listen, OpsListen: n.c.OpsListen, TLSCertFile: n.c.TLSCertFile, TLSKeyFile: n.c.TLSKeyFile,
		Authenticator: n.auth.authenticator, Authorizer: n.auth.authorizer,
		Appender: n.parts.ingest, Reader: n.parts.fetch, Topics: n.parts.log, Producers: n.parts.log, Health: n.parts.log,
		Queues: n.parts.queues.gateway(), Groups: n.parts.queues.groupsServed(), Degraded: n.parts.queues.degraded,
		Region: n.c.Region, Version: n.c.Version, Clock: n.c.Clock, Random: n.c.Random, Logger: logger,
		Registerer: reg, Gatherer: reg, TracerProvider: n.parts.tracing.provider(), DebugState: n.debugState,
		Debug: map[string]func() any{"storage": func() any { return n.storageReport() }},
	})
	if err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	n.parts.gateway = server
	n.parts.compact.Start(ctx)
	n.parts.queues.start()
	if err := server.Start(starting); err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	logger.Info("node is ready", slog.String("node", n.c.NodeID), slog.String("fabric", n.parts.log.Fabric().ID), slog.Int64("revision", n.parts.log.Revision()))
	return nil
}

// Addr is the bound address of the REST API, "" before Start has returned.
func (n *Node) Addr() string {
	if g := n.server(); g != nil {
		return g.Addr()
	}
	return ""
}

// OpsAddr is the bound address for operators, "" before Start has returned.
func (n *Node) OpsAddr() string {
	if g := n.server(); g != nil {
		return g.OpsAddr()
	}
	return ""
}

// Log is the node's view of the metadata log, nil before Start has returned, for tests that compare nodes.
func (n *Node) Log() *metadata.Log {
	if n.server() == nil {
		return nil
	}
	return n.parts.log
}

func (n *Node) server() *gateway.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.phase < phaseRunning || n.mu.err != nil {
		return nil
	}
	return n.parts.gateway
}

// debugState is what /debug/state shows of the node.
func (n *Node) debugState() any {
	return map[string]any{"node": n.c.NodeID, "region": n.c.Region, "fabric": n.parts.log.Fabric(), "hashes": n.parts.log.Hashes(), "queues": n.parts.queues.state(n.parts.log)}
}

// registerProcess adds the metrics of the Go runtime and of the process, once for all nodes of a registry.
func (n *Node) registerProcess() error {
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		var already prometheus.AlreadyRegisteredError
		if err := n.c.Registry.Register(c); err != nil && !errors.As(err, &already) {
			return fmt.Errorf("register process metrics: %w", err)
		}
	}
	return nil
}
