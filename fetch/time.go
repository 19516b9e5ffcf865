package fetch

import (
	"context"
	"errors"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// OffsetForTime implements Reader. Append times never fall within a partition, so the first batch whose newest record is late enough
// has the answer.
func (f *Fetcher) OffsetForTime(ctx context.Context, id metadata.TopicID, partition int32, ms int64) (offset int64, found bool, err error) {
	if err := f.o.View.Sync(ctx); err != nil {
		return 0, false, err
	}
	rd := &reading{position: position{topic: id, partition: partition}}
	for {
		info, err := f.o.View.Partition(id, partition)
		if err != nil {
			return 0, false, err
		}
		e, found, err := f.o.View.LocateTime(id, partition, ms)
		if err != nil || !found {
			return 0, false, err
		}
		if !e.Sparse {
			return max(e.Base, info.LogStart), true, nil // one time for the whole batch
		}
		if ms <= e.FirstTime && e.Base >= info.LogStart {
			return e.Base, true, nil
		}
		rd.next = max(e.Base, info.LogStart)
		offset, err := f.search(ctx, rd, &e, ms)
		if errors.Is(err, errRelocate) {
			rd.relocated = true
			if err := f.o.View.Sync(ctx); err != nil {
				return 0, false, err
			}
			continue
		}
		return offset, err == nil, err
	}
}

// search finds the first record of a sparse batch or run at or after both rd.next and ms.
func (f *Fetcher) search(ctx context.Context, rd *reading, run *metadata.IndexEntry, ms int64) (int64, error) {
	part, found, err := f.partForTime(ctx, rd, run, ms)
	if err != nil {
		return 0, err
	}
	if !found {
		return run.Last + 1, nil
	}
	e := &part
	loads, _ := f.lookup([]metadata.IndexEntry{*e})
	f.blocks.start(loads)
	defer f.blocks.release(loads)
	b, err := f.decoded(ctx, rd, &loads[0])
	if err != nil {
		return 0, err
	}
	f.keep(&loads[0], b)
	it := b.Iter()
	var r segment.Record
	if it.SkipTo(rd.next) && it.SkipToTime(ms) && it.Next(&r) {
		return r.Offset, nil
	}
	if err := it.Err(); err != nil {
		return 0, f.unreadable(rd, e, err)
	}
	return e.Last + 1, nil // the records that were late enough are gone: the next offset is the first at or after that time
}
