package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
)

// maxPartitions is how many journal partitions are remembered before those that hold nothing are forgotten.
const maxPartitions = 4096

// Journal reads and writes the journals of all tenants.
type Journal struct {
	o       Options
	m       *metrics
	cache   *cache
	writers [lanes]uint64 // in the keys of what this process writes, by lane; never 0

	mu struct {
		sync.Mutex
		topics     map[string]metadata.TopicID // by tenant
		partitions map[place]*partition
		busy       map[metadata.SubscriptionID]laneSet // lanes being written
		released   chan struct{}                       // closed and replaced when lanes become free
		notes      notes
		ends       endQueue
	}
}

type place struct {
	topic  metadata.TopicID
	number int32
}

// New makes a Journal.
func New(o Options) (*Journal, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("journal: register metrics: %w", err)
	}
	j := &Journal{o: o, m: m, cache: newCache(o.CacheBytes, m)}
	for lane := range j.writers {
		for j.writers[lane] == 0 {
			var b [8]byte
			if _, err := io.ReadFull(o.Rand, b[:]); err != nil {
				return nil, fmt.Errorf("journal: draw the writers' numbers: %w", err)
			}
			j.writers[lane] = binary.BigEndian.Uint64(b[:])
		}
	}
	j.mu.topics = map[string]metadata.TopicID{}
	j.mu.partitions = map[place]*partition{}
	j.mu.busy = map[metadata.SubscriptionID]laneSet{}
	j.mu.released = make(chan struct{})
	j.mu.notes.clear()
	return j, nil
}

// Load gives what the journal has of a subscription, everything that was acknowledged before the call among it. Of a subscription that was never
// written, that is nothing. The errors are those of the Log.
func (j *Journal) Load(ctx context.Context, tenant string, id metadata.SubscriptionID) (*Loaded, error) {
	rs, err := j.load(ctx, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("load subscription %d: %w", id, err)
	}
	return rs.loaded(), nil
}

func (j *Journal) load(ctx context.Context, tenant string, id metadata.SubscriptionID) (*records, error) {
	all, err := j.records(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	rs := resolve(all, id)
	if rs.bad > 0 {
		j.m.unreadable.Add(float64(rs.bad))
		j.o.Logger.Warn("journal has records of an unknown format: left out", "tenant", tenant, "subscription", id, "records", rs.bad)
	}
	return rs, nil
}

// records gives the newest record of each key of a subscription.
func (j *Journal) records(ctx context.Context, tenant string, id metadata.SubscriptionID) (all []raw, err error) {
	err = j.withTopic(ctx, tenant, func(topic metadata.TopicID) error {
		var via string
		if all, via, err = j.partition(tenant, topic, partitionOf(id, j.o.Partitions)).sync(ctx, id); err == nil {
			j.m.loads.WithLabelValues(via).Inc()
		}
		return err
	})
	return all, err
}

// withTopic calls f with the topic of a tenant's journal. Should the topic be gone, with its tenant, f is called again with the one that is
// there now.
func (j *Journal) withTopic(ctx context.Context, tenant string, f func(metadata.TopicID) error) error {
	for again := false; ; again = true {
		topic, err := j.topic(ctx, tenant)
		if err != nil {
			return err
		}
		err = f(topic)
		if again || api.CodeOf(err) != api.CodeUnknownTopic {
			return err
		}
		j.mu.Lock()
		if j.mu.topics[tenant] == topic {
			delete(j.mu.topics, tenant)
		}
		j.mu.Unlock()
	}
}

func (j *Journal) topic(ctx context.Context, tenant string) (metadata.TopicID, error) {
	j.mu.Lock()
	topic, ok := j.mu.topics[tenant]
	j.mu.Unlock()
	if ok {
		return topic, nil
	}
	topic, err := j.o.Log.EnsureTopic(ctx, tenant, Topic, j.o.Partitions)
	if err != nil {
		return 0, fmt.Errorf("make the topic of the journal: %w", err)
	}
	j.mu.Lock()
	j.mu.topics[tenant] = topic
	j.mu.Unlock()
	return topic, nil
}

func (j *Journal) partition(tenant string, topic metadata.TopicID, number int32) *partition {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := place{topic, number}
	p := j.mu.partitions[at]
	if p == nil {
		if len(j.mu.partitions) >= maxPartitions {
			j.forgetLocked()
		}
		p = newPartition(j, tenant, topic, number)
		j.mu.partitions[at] = p
	}
	return p
}

// forgetLocked forgets partitions that nobody reads and that hold nothing. Should somebody be about to read one, he reads it for himself.
func (j *Journal) forgetLocked() {
	for at, p := range j.mu.partitions {
		select {
		case p.turn <- struct{}{}:
			if len(p.subs) == 0 && len(p.absent) == 0 {
				delete(j.mu.partitions, at)
			}
			<-p.turn
		default:
		}
	}
}
