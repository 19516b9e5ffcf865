package leases

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/segment"
)

// run is adjacent grants of one partition, read together.
type run struct {
	partition int32
	from, to  int64

	records    []segment.Record // ascending
	at         int64            // every offset below it is read, or known not to be there
	expired    int64            // every offset below it was deleted by retention
	unreadable []span           // ascending
	err        error            // why reading stopped before to, but for the byte limit
}

type span struct{ from, to int64 }

// verdict says what reading found at an offset.
type verdict uint8

const (
	there      verdict = iota
	hole               // compaction took it away
	unreadable         // it can never be read
	expired            // retention took it away
	unknown            // not read: reading failed, or was enough
)

// runs joins the grants into what is read at once. of[i] is the run of grant i.
func runs(grants []store.Grant) (rs []*run, of []*run) {
	order := make([]int, len(grants))
	for i := range order {
		order[i] = i
	}
	if len(grants) > 1 {
		slices.SortFunc(order, func(i, j int) int {
			a, b := &grants[i], &grants[j]
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Start, b.Start))
		})
	}
	of = make([]*run, len(grants))
	var r *run
	for _, i := range order {
		g := &grants[i]
		end := g.Start + int64(g.Count)
		// Records that were settled in between are read for nothing: a few cost less than another read.
		if r == nil || r.partition != g.Partition || g.Start > r.to+runGap {
			r = &run{partition: g.Partition, from: g.Start, to: end, at: g.Start}
			rs = append(rs, r)
		}
		r.to = max(r.to, end)
		of[i] = r
	}
	return rs, of
}

const runGap = 16

// read reads on from where the run stands, until its end or about maxBytes.
func (r *run) read(ctx context.Context, e *Engine, q *queue, maxBytes int64) {
	synced := false
	for r.at < r.to && maxBytes > 0 {
		records, next, err := e.o.Reader.Read(ctx, q.sub.Tenant, q.sub.TopicID, r.partition, r.at, int(r.to-r.at), maxBytes)
		if err != nil {
			if !r.pass(err) {
				// The lease may be of a record that this node has not heard of: another node knew a higher head.
				if api.CodeOf(err) == api.CodeOffsetOutOfRange && !synced {
					synced = true
					if err = e.o.View.Sync(ctx); err == nil {
						continue
					}
				}
				r.err = err
				return
			}
			continue
		}
		if next <= r.at {
			if synced {
				r.err = api.Errorf(api.CodeInternal, "offset %d of partition %d was leased and is not in the log", r.at, r.partition)
				return
			}
			synced = true
			if r.err = e.o.View.Sync(ctx); r.err != nil {
				return
			}
			continue
		}
		n := sort.Search(len(records), func(i int) bool { return records[i].Offset >= r.to })
		if n < len(records) {
			next = records[n].Offset // the holes end there
			records = records[:n]
		}
		for i := range records {
			maxBytes -= recordBytes(&records[i])
		}
		if r.records == nil {
			r.records = records // as the reader gave them: no copy
		} else {
			r.records = append(slices.Clip(r.records), records...)
		}
		r.at = next
	}
}

// pass goes on behind what can never be read. It is false for other errors.
func (r *run) pass(err error) bool {
	var bad *UnreadableError
	if errors.As(err, &bad) && bad.Next > r.at {
		r.unreadable = append(r.unreadable, span{r.at, bad.Next})
		r.at = bad.Next
		return true
	}
	var coded *api.Error
	if errors.As(err, &coded) && coded.Code == api.CodeOffsetOutOfRange {
		if start, ok := coded.Extra["logStart"].(int64); ok && start > r.at {
			r.expired, r.at = start, start
			return true
		}
	}
	return false
}

// find says what is at an offset; i is its place among the records, or where it would be.
func (r *run) find(offset int64) (i int, v verdict) {
	i = sort.Search(len(r.records), func(i int) bool { return r.records[i].Offset >= offset })
	return i, r.judge(i, offset)
}

func (r *run) judge(i int, offset int64) verdict {
	switch {
	case i < len(r.records) && r.records[i].Offset == offset:
		return there
	case offset >= r.at:
		return unknown
	case offset < r.expired:
		return expired
	}
	for _, s := range r.unreadable {
		if s.from <= offset && offset < s.to {
			return unreadable
		}
	}
	return hole
}

// recordBytes is what a record counts against a byte limit: keys, values and headers.
func recordBytes(r *segment.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return int64(n)
}
