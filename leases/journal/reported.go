package journal

import (
	"context"
	"fmt"

	"github.com/forebaymq/forebay/metadata"
)

// LoadReported is Load, and says of each shard up to which version changes are in the journal: a state of Redis that is not older has
// everything that the journal has. An opening alone changes nothing; whoever wrote it may not have put it in place yet, or never will. A seek does.
func (j *Journal) LoadReported(ctx context.Context, tenant string, id metadata.SubscriptionID) (*Loaded, map[int32]Version, error) {
	rs, err := j.load(ctx, tenant, id)
	if err != nil {
		return nil, nil, fmt.Errorf("load subscription %d: %w", id, err)
	}
	reported := make(map[int32]Version, len(rs.shards))
	for p, s := range rs.shards {
		reported[p] = s.reported()
	}
	return rs.loaded(), reported, nil
}

func (s *shardRecords) reported() Version {
	v := Version{Incarnation: s.seek.incarnation}
	for i := range s.reports {
		if w := (Version{s.reports[i].incarnation, s.reports[i].sequence}); v.Less(w) {
			v = w
		}
	}
	return v
}
