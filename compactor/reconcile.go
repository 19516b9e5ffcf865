package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// pass is one comparison of the whole bucket with the metadata, over as many rounds as it takes.
type pass struct {
	running  bool
	started  time.Time
	prefixes []string // left to be listed; [0] is being listed
	after    string   // in prefixes[0]
	seen     map[ulid.ULID]struct{}
}

const (
	// maxStats bounds how many objects a pass asks for one by one.
	maxStats = 1000
	// rulesAhead: what a rule deletes so soon is left to it.
	rulesAhead = 36 * time.Hour
	// justWritten: an object so young may be younger than the page that should have had it.
	justWritten = time.Minute
)

// prefixes are where segments are. Nothing else in the bucket is looked at or touched.
func prefixes() []string {
	out := []string{"l0/"}
	for _, c := range Classes() {
		out = append(out, c+"/")
	}
	return out
}

// list goes on with the pass for a bounded number of pages.
func (k *collecting) list(ctx context.Context) error {
	p := &k.pass
	if !p.running {
		*p = pass{running: true, started: k.c.o.Clock.Now(), prefixes: prefixes(), seen: map[ulid.ULID]struct{}{}}
	}
	for n := 0; n < k.c.o.Collect.Pages && len(p.prefixes) > 0; n++ {
		page, err := k.c.o.Store.List(ctx, p.prefixes[0], p.after, objectstore.MaxListKeys)
		if err != nil {
			return fmt.Errorf("list %s: %w", p.prefixes[0], err)
		}
		k.c.m.listed.Add(float64(len(page.Objects)))
		for i := range page.Objects {
			k.look(&page.Objects[i])
		}
		if p.after = page.Next; p.after == "" {
			p.prefixes = p.prefixes[1:]
		}
	}
	if len(p.prefixes) > 0 {
		return nil
	}
	if err := k.findMissing(ctx); err != nil {
		return err // the end of the pass is tried again
	}
	k.c.m.passes.Inc()
	p.running = false
	return nil
}

// look files one object of the bucket.
func (k *collecting) look(o *objectstore.Info) {
	name, err := segment.ParseKey(o.Key)
	if err != nil {
		return // not ours
	}
	id := ulid.ULID(name.ID)
	if use, live := k.c.o.Log.Segment(id); live {
		if objectKey(&use.SegmentRef) == o.Key {
			k.pass.seen[id] = struct{}{}
			delete(k.garbage, id)
		}
		return
	}
	now := k.c.o.Clock.Now()
	if k.rules {
		if at, ok := expiry(name.Class, int64(id.Time())); ok && at <= now.Add(rulesAhead).UnixMilli() {
			return // the bucket's rule does it
		}
	}
	if k.garbage[id] == nil && len(k.garbage) < maxGarbage {
		k.garbage[id] = &garbage{id: id, key: o.Key, size: o.Size, since: now}
		k.c.m.orphans.WithLabelValues("found").Inc()
	}
}

// findMissing looks for live objects that the pass has not seen in the bucket. Each is asked for by name before it is believed.
func (k *collecting) findMissing(ctx context.Context) error {
	asked := 0
	for shard := range k.c.o.Log.Shards() {
		for _, s := range k.c.segments(shard) {
			if _, ok := k.pass.seen[s.ID]; ok || int64(s.ID.Time()) > k.pass.started.Add(-justWritten).UnixMilli() {
				delete(k.missing, s.ID)
				continue
			}
			if k.missing[s.ID] {
				continue
			}
			if asked++; asked > maxStats {
				return nil // an emptied bucket need not be counted to the last object at once
			}
			if err := k.ask(ctx, &s.SegmentRef); err != nil {
				return err
			}
		}
	}
	for id := range k.missing {
		if _, live := k.c.o.Log.Segment(id); !live {
			delete(k.missing, id)
		}
	}
	k.c.m.missing.Set(float64(len(k.missing)))
	return nil
}

func (k *collecting) ask(ctx context.Context, s *metadata.SegmentRef) error {
	_, err := k.c.o.Store.Stat(ctx, objectKey(s))
	if !errors.Is(err, objectstore.ErrNotFound) {
		if err != nil {
			return fmt.Errorf("stat %s: %w", objectKey(s), err)
		}
		return nil
	}
	if err := k.c.o.Log.Sync(ctx); err != nil {
		return err
	}
	if _, live := k.c.o.Log.Segment(s.ID); !live {
		return nil // replaced or trimmed meanwhile
	}
	k.missing[s.ID] = true
	k.c.m.missing.Set(float64(len(k.missing)))
	k.c.o.Logger.Error("an object that live batches refer to is missing from the bucket", "object", objectKey(s), "size", s.Size)
	return nil
}
