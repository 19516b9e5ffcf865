package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/metadata"
)

// Store is the lease store of one process. Its methods may be called by any number of goroutines.
type Store struct {
	o       Options
	c       redis.UniversalClient
	own     bool // c is ours to close
	cluster bool
	m       *metrics

	edition atomic.Pointer[edition]
	opened  struct {
		sync.RWMutex
		in map[metadata.SubscriptionID]uint64 // the life in which Ready was called
	}
	reload chan struct{} // holds one token: whoever has it loads scripts
	nonces nonces

	identity struct {
		sync.Mutex
		known  map[string]bool // run and replication IDs of primaries met; one but for a cluster
		closed bool            // the primaries of a cluster are known: another one is a failover
	}

	ctx     context.Context // of what runs in the background
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	orphans chan orphan
	closing sync.Once
}

// New connects, and loads the scripts where Redis answers. Where it does not, that is no error: calls answer LEASES_UNAVAILABLE until it does.
func New(ctx context.Context, o Options) (*Store, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, m: m, c: o.Client, reload: make(chan struct{}, 1), orphans: make(chan orphan, 1024)}
	s.opened.in = map[metadata.SubscriptionID]uint64{}
	s.identity.known = map[string]bool{}
	s.edition.Store(newEdition(o.Instance, 1))
	s.nonces.init(o.Rand, o.Clock)
	if s.c == nil {
		u, err := parseURL(o.URL)
		if err != nil {
			return nil, err
		}
		u.OnConnect = s.connected
		s.own = true
		s.c = client(u)
	}
	_, s.cluster = s.c.(*redis.ClusterClient)
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(s.releaseOrphans)
	if err := s.provide(ctx, s.edition.Load()); err != nil {
		o.Logger.Warn("the lease store does not answer yet", "error", err)
	}
	return s, nil
}

// Close ends what runs in the background and closes the connections.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		s.cancel()
		s.wg.Wait()
		if s.own {
			err = s.c.Close()
		}
	})
	return err
}

// Life counts the Redis processes that were met, from 1. It rises when the state may have been lost or rolled back.
func (s *Store) Life() uint64 { return s.edition.Load().life }

// Ping asks Redis whether it is there; a cluster, whether all its primaries are.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	if c, ok := s.c.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return n.Ping(ctx).Err() })
	} else {
		err = s.c.Ping(ctx).Err()
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// load puts an edition's scripts in place, on every primary.
func (s *Store) load(ctx context.Context, e *edition) error {
	put := func(ctx context.Context, c redis.Cmdable) error {
		pipe := c.Pipeline()
		for i := range scripts {
			pipe.ScriptLoad(ctx, e.text[i])
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
		for i, cmd := range cmds {
			if got := cmd.(*redis.StringCmd).Val(); got != e.sha[i] {
				return fmt.Errorf("load script %s: %w: %q", script(i), errReply, clip(got))
			}
		}
		return nil
	}
	if c, ok := s.c.(*redis.ClusterClient); ok {
		err := c.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return put(ctx, n) })
		if err == nil {
			s.identity.Lock()
			s.identity.closed = true
			s.identity.Unlock()
		}
		return err
	}
	return put(ctx, s.c)
}

// raise begins a new life, unless the one that the caller saw is over already: what the scripts of that one met says nothing about this one.
func (s *Store) raise(seen *edition, why string) *edition {
	next := newEdition(s.o.Instance, seen.life+1)
	if !s.edition.CompareAndSwap(seen, next) {
		return s.edition.Load()
	}
	s.m.lives.Inc()
	s.o.Logger.Info("another life of the lease store begins", "life", next.life, "why", why)
	return next
}

// provide loads an edition's scripts, once.
func (s *Store) provide(ctx context.Context, e *edition) error {
	if e.loaded.Load() {
		return nil
	}
	select {
	case s.reload <- struct{}{}:
		defer func() { <-s.reload }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if e.loaded.Load() {
		return nil
	}
	if err := s.load(ctx, e); err != nil {
		return err
	}
	e.loaded.Store(true)
	return nil
}

// renew answers NOSCRIPT to an edition that was loaded: a new life, and its scripts. The life rises before the scripts are there, so no call of
// the old life can meet them.
func (s *Store) renew(ctx context.Context, seen *edition) error {
	return s.provide(ctx, s.raise(seen, "scripts are gone"))
}

// errNewLife ends a connection to a Redis that was not known: the call that wanted it belongs to the life before.
var errNewLife = errors.New("another life of Redis")

// connected looks at whom a new connection reached. A replica that was promoted, and a primary that was restarted, have other IDs. Redis before 7
// hands scripts on to replicas, so NOSCRIPT alone would not tell.
func (s *Store) connected(ctx context.Context, cn *redis.Conn) error {
	text, err := cn.Info(ctx, "server").Result()
	if err != nil {
		return answered(err)
	}
	repl, err := cn.Info(ctx, "replication").Result()
	if err != nil {
		return answered(err)
	}
	run, id := infoField(text, "run_id"), infoField(repl, "master_replid")
	if run == "" || infoField(text, "redis_mode") == "sentinel" || infoField(repl, "role") != "master" {
		return nil
	}
	s.identity.Lock()
	defer s.identity.Unlock()
	if s.identity.known[run+id] {
		return nil
	}
	first := len(s.identity.known) == 0 || s.cluster && !s.identity.closed
	if !s.cluster {
		clear(s.identity.known)
	}
	s.identity.known[run+id] = true
	if first {
		return nil
	}
	s.raise(s.edition.Load(), "another primary")
	return errNewLife
}

// answered: a server that does not know INFO is no fault of the connection.
func answered(err error) error {
	var e redis.Error
	if errors.As(err, &e) {
		return nil
	}
	return err
}

func infoField(text, name string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
