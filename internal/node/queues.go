package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/gateway"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

// workQueues are the parts of a node that lease records and share partitions out among members of groups. Those that were not reached are nil.
type workQueues struct {
	redis  *embeddedRedis
	store  *store.Store
	health *redisHealth
	engine *leases.Engine
	groups *groups.Coordinator
}

// openQueues puts the work queues together, or answers nil where there is no Redis for them. A Redis that does not answer is no error: it may come.
func openQueues(ctx context.Context, c Config, log *metadata.Log, reader *fetch.Fetcher, appender ingest.Appender) (q *workQueues, err error) {
	if c.Redis == "" && !c.EmbeddedRedis {
		return nil, nil
	}
	q = &workQueues{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open work queues: %w", err), q.close(ctx))
			q = nil
		}
	}()
	url := c.Redis
	if c.EmbeddedRedis {
		if q.redis, err = startRedis(c.Clock, c.Random); err != nil {
			return q, err
		}
		url = q.redis.url
	}
	random := c.Random
	if random == nil {
		random = rand.Reader
	}
	instance, err := ulid.New(ulid.Timestamp(c.Clock.Now()), random)
	if err != nil {
		return q, err
	}
	if q.store, err = store.New(ctx, store.Options{
		URL: url, Fabric: log.Fabric().ID, Instance: c.NodeID + "-" + instance.String(), Clock: c.Clock, Rand: random, Logger: c.Logger, Registerer: c.Registry,
	}); err != nil {
		return q, err
	}
	if q.health, err = watchRedis(ctx, q.store.Ping, c); err != nil {
		return q, err
	}
	jl, err := newJournalLog(log, appender, reader, c.Logger, c.Registry)
	if err != nil {
		return q, err
	}
	j, err := journal.New(journal.Options{Log: jl, Clock: c.Clock, Rand: random, Logger: c.Logger, Registerer: c.Registry})
	if err != nil {
		return q, err
	}
	q.engine, err = leases.New(leases.Options{
		Store: q.store, Journal: j, View: log, Catalog: log, Reader: leaseReader{reader}, Publisher: leasePublisher{appender},
		Clock: c.Clock, Rand: random, Logger: c.Logger, Registerer: c.Registry,
	})
	if err != nil {
		return q, err
	}
	groupStore, err := store.NewGroupStore(q.store)
	if err != nil {
		return q, err
	}
	q.groups, err = groups.New(groups.Options{
		Store: groupStore, Journal: journal.NewGroups(j, jl), View: log, Catalog: log, Reader: groupReader{leaseReader{reader}},
		LagInterval: min(15*time.Second, 5*c.Compaction.RetentionEvery), // what makes gaps
		Clock:       c.Clock, Rand: random, Logger: c.Logger, Registerer: c.Registry,
	})
	return q, err
}

// close ends them from the top. The coordinator finishes the generations and commits under way, and the engine journals what has changed, so the log
// must still take records.
func (q *workQueues) close(ctx context.Context) error {
	var errs []error
	if q.groups != nil {
		errs = append(errs, q.groups.Close(ctx))
	}
	if q.engine != nil {
		errs = append(errs, q.engine.Close(ctx))
	}
	if q.health != nil {
		q.health.close()
	}
	if q.store != nil {
		errs = append(errs, q.store.Close())
	}
	if q.redis != nil {
		errs = append(errs, q.redis.Close())
	}
	return errors.Join(errs...)
}

// start begins the background work. All methods of nil are those of a node without work queues.
func (q *workQueues) start() {
	if q != nil {
		q.engine.Start()
		q.groups.Start()
	}
}

// gateway is what the gateway serves; nil and not a nil engine where there is nothing.
func (q *workQueues) gateway() gateway.Queues {
	if q == nil {
		return nil
	}
	return q.engine
}

// groupsServed is what the gateway serves of groups, nil as gateway's.
func (q *workQueues) groupsServed() gateway.Groups {
	if q == nil {
		return nil
	}
	return q.groups
}

func (q *workQueues) degraded() map[string]string {
	if q == nil {
		return nil
	}
	return q.health.degraded()
}

// queueState is what /debug/state shows of the work queues.
type queueState struct {
	Redis         bool   `json:"redis"`         // it answers
	Life          uint64 `json:"life"`          // how often this node has found another Redis than the one before
	Subscriptions int    `json:"subscriptions"` // of all tenants
}

func (q *workQueues) state(log *metadata.Log) *queueState {
	if q == nil {
		return nil
	}
	s := &queueState{Redis: len(q.health.degraded()) == 0, Life: q.store.Life()}
	for shard := range log.Shards() {
		s.Subscriptions += log.ShardStats(shard).Subscriptions
	}
	return s
}
