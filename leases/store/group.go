package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/metadata"
)

// DueSubscriptions are those of every group for which a lease lapses or a record becomes due by now.
func (s *Store) DueSubscriptions(ctx context.Context) ([]metadata.SubscriptionID, error) {
	return s.group(ctx, groupDue, 0)
}

// DirtySubscriptions are those with a change that is not journalled since olderThan.
func (s *Store) DirtySubscriptions(ctx context.Context, olderThan time.Duration) ([]metadata.SubscriptionID, error) {
	return s.group(ctx, groupDirty, olderThan)
}

// IdleSubscriptions are those that no consumer has touched since olderThan, to within ten seconds.
func (s *Store) IdleSubscriptions(ctx context.Context, olderThan time.Duration) ([]metadata.SubscriptionID, error) {
	return s.group(ctx, groupSubs, olderThan)
}

func (s *Store) groupKeys(kind string) []string {
	keys := make([]string, groups)
	for g := range keys {
		keys[g] = s.groupPrefix(uint64(g)) + kind
	}
	return keys
}

// keysAtOnce is how many groups one script may read: in a cluster each may be elsewhere.
func (s *Store) keysAtOnce() int {
	if _, cluster := s.c.(*redis.ClusterClient); cluster {
		return 1
	}
	return groups
}

// group asks all groups in one round trip. They are read by a script, since only Redis's clock counts; it has no effect, so it is asked again
// when the scripts were gone.
func (s *Store) group(ctx context.Context, kind string, olderThan time.Duration) ([]metadata.SubscriptionID, error) {
	for attempt := 0; ; attempt++ {
		e := s.edition.Load()
		if err := s.provide(ctx, e); err != nil {
			if errors.Is(err, errNewLife) && attempt == 0 {
				continue
			}
			return nil, unavailable(err)
		}
		start := s.o.Clock.Now()
		pipe := s.c.Pipeline()
		for keys := range slices.Chunk(s.groupKeys(kind), s.keysAtOnce()) {
			pipe.EvalSha(ctx, e.sha[scriptGroups], keys, ms(olderThan))
		}
		cmds, err := pipe.Exec(ctx)
		res := resultOK
		if err != nil {
			for _, cmd := range cmds {
				if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // a cluster may have lost the scripts of one node only
					err = cmd.Err()
				}
			}
			res, err = s.failed(ctx, e, scriptGroups, &Queue{}, err)
		}
		s.m.call(scriptGroups, res, s.o.Clock.Since(start))
		if (res == resultNoScript || res == resultNotLoaded) && attempt == 0 {
			continue
		}
		if res != resultOK {
			if _, ok := err.(*NotLoadedError); ok {
				err = unavailable(err)
			}
			return nil, err
		}
		var ids []metadata.SubscriptionID
		for _, cmd := range cmds {
			text, ok := cmd.(*redis.Cmd).Val().(string)
			if !ok {
				return nil, unavailable(errReply)
			}
			for word := range strings.FieldsSeq(text) {
				id, err := strconv.ParseUint(word, 10, 64)
				if err != nil {
					return nil, unavailable(errReply)
				}
				ids = append(ids, metadata.SubscriptionID(id))
			}
		}
		return ids, nil
	}
}
