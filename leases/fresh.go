package leases

import (
	"context"
	"sync"
	"time"

	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

const (
	// freshMax is how many partitions one call to the store tries.
	freshMax = 128
	// wideTopic: from this many partitions on, heads are looked up at most every headsAge, and shards that this node knows to be
	// worked off are asked again only every recheckAge. Below, each look asks everything.
	wideTopic  = 256
	headsAge   = 20 * time.Millisecond
	recheckAge = time.Second
)

// shards is what this node knows of a subscription's partitions. Cursors are lower bounds, because they move forward only, but for a seek;
// so a partition whose head is above its cursor may hold new records, and one whose head is not held none when it was looked at.
type shards struct {
	mu struct {
		sync.Mutex
		infos     []metadata.PartitionInfo // shared by who uses them: read only
		at        time.Time                // when infos were taken
		cursors   []int64                  // by partition
		rechecked time.Time                // when every partition was last asked
		turn      int                      // where the next look begins
		capped    bool                     // the last answer showed a partition that its caps hold back
	}
}

// look is a choice of partitions.
type look struct {
	fresh []store.Fresh
	more  bool // there are others
}

// forget drops the cursors: shards were opened again, maybe further back.
func (s *shards) forget() {
	s.mu.Lock()
	s.mu.cursors = nil
	s.mu.Unlock()
}

// learn takes in where shards stand.
func (s *shards) learn(positions []store.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.capped = false
	for _, p := range positions {
		if int(p.Partition) >= len(s.mu.cursors) {
			continue
		}
		s.mu.cursors[p.Partition] = p.Cursor
		if p.Room <= 0 && s.mu.infos[p.Partition].Head > p.Cursor {
			s.mu.capped = true
		}
	}
}

// moved takes in that a shard's cursor is at least there.
func (s *shards) moved(p int32, cursor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(p) < len(s.mu.cursors) {
		s.mu.cursors[p] = max(s.mu.cursors[p], cursor)
	}
}

// capped says whether settling may free new records.
func (s *shards) capped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.capped
}

// refreshLocked takes the partitions' state from the view.
func (e *Engine) refreshLocked(q *queue, now time.Time) error {
	s := &q.shards
	infos, err := e.o.View.PartitionInfos(q.sub.TopicID)
	if err != nil {
		return err
	}
	s.mu.infos, s.mu.at = infos, now
	for p := len(s.mu.cursors); p < len(infos); p++ {
		s.mu.cursors = append(s.mu.cursors, q.sub.Start(int32(p)))
	}
	return nil
}

// choose gives the partitions to try next, each time beginning with another one. all: those too that this node believes to be worked
// off. It is in doubt about them after a seek, and their frontier may have been overtaken by retention.
func (e *Engine) choose(q *queue, all, renew bool) (look, error) {
	s := &q.shards
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.o.Clock.Now()
	if renew || s.mu.cursors == nil || len(s.mu.infos) < wideTopic || now.Sub(s.mu.at) > headsAge {
		if err := e.refreshLocked(q, now); err != nil {
			return look{}, err
		}
	}
	n := len(s.mu.infos)
	if all && n >= wideTopic {
		if now.Sub(s.mu.rechecked) < recheckAge {
			all = false
		} else {
			s.mu.rechecked = now
		}
	}
	var l look
	if n == 0 {
		return l, nil
	}
	s.mu.turn++
	for i := range n {
		p := int32((s.mu.turn + i) % n)
		info := &s.mu.infos[p]
		if info.Head <= s.mu.cursors[p] && !(all && info.Head > q.sub.Start(p)) {
			continue
		}
		if len(l.fresh) == freshMax && !all {
			l.more = true
			break
		}
		l.fresh = append(l.fresh, store.Fresh{Partition: p, LogStart: info.LogStart, Head: info.Head})
	}
	return l, nil
}

// acquire reserves up to want records in one call: what is owed, and new ones of the chosen partitions. Shards that are not loaded are opened.
func (e *Engine) acquire(ctx context.Context, q *queue, want int, visibility time.Duration, l look) (*store.Acquired, error) {
	for range maxOpens {
		var got *store.Acquired
		err := e.call(ctx, q, func(ctx context.Context) (err error) {
			got, err = e.o.Store.Acquire(ctx, &q.store, store.AcquireRequest{Max: want, Visibility: visibility, Fresh: l.fresh})
			return err
		})
		if err != nil {
			return nil, err
		}
		e.effects(q, &got.Effects)
		q.shards.learn(got.Positions)
		if len(got.Absent) == 0 {
			return got, nil
		}
		if len(got.Grants) > 0 {
			// Others had enough. Their consumers do not wait for the opening, but these partitions must get their turn too.
			e.spawn(func() {
				if err := e.open(e.ctx, q, got.Absent); err != nil {
					e.o.Logger.Warn("partitions of a subscription could not be opened", "id", q.id, "error", err)
				}
			})
			return got, nil
		}
		if err := e.open(ctx, q, got.Absent); err != nil {
			return nil, err
		}
	}
	return nil, errLosing()
}
