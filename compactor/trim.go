package compactor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// The housekeeper of the metadata log drops whole index entries whose newest record is too old, or that the size bound does not need. An
// entry of a long run spans much time and many bytes; so the compactor moves logStart within the run that the bound falls into, to a record.
// It reads the index of the object, and one batch where the index alone is not exact enough.

// trimCandidate is a partition whose first live batch is a run that a bound falls into.
type trimCandidate struct {
	key    metadata.PartitionKey
	info   metadata.PartitionInfo
	entry  metadata.IndexEntry
	before int64         // Unix ms: what was appended before it goes; 0 = no bound
	keep   int64         // stored bytes of the run that the size bound needs; -1 = no bound
	every  time.Duration // how exact it has to be
	step   int64         // the same in bytes
}

const (
	minTrimEvery = time.Second
	maxTrimEvery = 15 * time.Minute
	// retainSlack: a bound of bytes is kept to one part of so many.
	retainSlack = 64
)

// newTrimCandidate looks at a partition. now is Unix ms.
func newTrimCandidate(x *metadata.PartitionScan, now int64) (trimCandidate, bool) {
	c := x.Topic.Config
	if !c.Cleanup.Deletes() || x.Ordinals[0] != 0 || !x.Entries[0].Sparse {
		return trimCandidate{}, false
	}
	e := &x.Entries[0]
	t := trimCandidate{key: metadata.PartitionKey{Topic: x.Topic.ID, Partition: x.Partition}, info: x.Info, entry: *e, keep: -1}
	if c.RetentionTime > 0 {
		// A hundredth of the retention is exact enough: each trim costs two GETs.
		t.every = min(max(c.RetentionTime/100, minTrimEvery), maxTrimEvery)
		if before := now - c.RetentionTime.Milliseconds(); e.FirstTime < before-t.every.Milliseconds() {
			t.before = before
		}
	}
	if c.RetentionBytes > 0 {
		rest := x.Info.Bytes - e.LiveBytes(x.Info.LogStart)
		t.step = max(c.RetentionBytes/retainSlack, 1)
		if rest < c.RetentionBytes && x.Info.Bytes > c.RetentionBytes+t.step {
			t.keep = c.RetentionBytes - rest
		}
	}
	return t, t.before != 0 || t.keep >= 0
}

// trimMemory remembers how far runs were trimmed: the metadata knows offsets only.
type trimMemory struct {
	mu struct {
		sync.Mutex
		m map[metadata.PartitionKey]trimmed
	}
}

type trimmed struct {
	segment ulid.ULID
	before  int64
	keep    int64
}

// maxTrimMemory bounds it. What is forgotten is read again.
const maxTrimMemory = 1 << 16

// done says whether a trim of this run has gone far enough.
func (m *trimMemory) done(t *trimCandidate) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.mu.m[t.key]
	return ok && last.segment == t.entry.Segment.ID && (t.before == 0 || t.before-last.before < t.every.Milliseconds()) &&
		(t.keep < 0 || last.keep >= 0 && last.keep-t.keep < t.step)
}

func (m *trimMemory) note(t *trimCandidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.m == nil || len(m.mu.m) >= maxTrimMemory {
		m.mu.m = map[metadata.PartitionKey]trimmed{}
	}
	m.mu.m[t.key] = trimmed{t.entry.Segment.ID, t.before, t.keep}
}

// trimBatch is how many trims go into one transaction.
const trimBatch = 256

// trimExactly moves logStarts within runs.
func (c *Compactor) trimExactly(ctx context.Context, claim *metadata.HeldClaim, shard int, list []trimCandidate) error {
	var cmds []metadata.Command
	var which []*trimCandidate
	submit := func() error {
		results, err := c.o.Log.DoAll(ctx, cmds, &metadata.Guard{Claim: claim.Name, Epoch: claim.Epoch})
		if err != nil {
			return fmt.Errorf("trim within runs: %w", err)
		}
		for i, r := range results {
			if code := api.CodeOf(r.Err); r.Err != nil && code != api.CodeUnknownTopic {
				return fmt.Errorf("trim within runs: %w", r.Err)
			}
			c.trims.note(which[i])
			c.m.trims.Inc()
		}
		cmds, which = nil, nil
		return nil
	}
	for i := range list {
		t := &list[i]
		to, err := c.newStart(ctx, t)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err = c.trimFault(ctx, shard, t, err)
			if err != nil {
				return err
			}
			continue
		}
		if to <= t.info.LogStart {
			c.trims.note(t)
			continue
		}
		cmds = append(cmds, &metadata.Trim{TopicID: t.key.Topic, Partition: t.key.Partition, LogStart: to, Claim: claim.Name, ClaimEpoch: claim.Epoch})
		which = append(which, t)
		if len(cmds) == trimBatch {
			if err := submit(); err != nil {
				return err
			}
		}
	}
	if len(cmds) == 0 {
		return nil
	}
	return submit()
}

// trimFault reports a run that cannot be read; other errors end the round.
func (c *Compactor) trimFault(ctx context.Context, shard int, t *trimCandidate, err error) error {
	if bad, ok := unreadable(&t.entry.Segment, err).(*UnreadableError); ok {
		return c.quarantine(ctx, shard, bad)
	}
	return fmt.Errorf("trim within %s: %w", objectKey(&t.entry.Segment), err)
}

// newStart finds the first offset of a run that its bounds keep.
func (c *Compactor) newStart(ctx context.Context, t *trimCandidate) (int64, error) {
	x, err := c.index(ctx, &t.entry.Segment)
	if err != nil {
		return 0, err
	}
	var run []segment.BatchInfo
	for i := range x.Batches {
		if b := &x.Batches[i]; b.Ref.Pos >= t.entry.Ref.Pos && b.Ref.Pos < t.entry.Ref.Pos+uint64(t.entry.Ref.Len) {
			run = append(run, *b)
		}
	}
	if len(run) == 0 {
		return 0, corruptEntry(&t.entry, "the object's index has no batch of the run")
	}
	to := t.info.LogStart
	if t.keep >= 0 {
		at, err := c.startBySize(ctx, t, run)
		if err != nil {
			return 0, err
		}
		to = max(to, at)
	}
	if t.before == 0 {
		return to, nil
	}
	for i := range run {
		b := &run[i]
		if b.LastTime < t.before {
			to = max(to, b.LastOffset+1)
			continue
		}
		if b.FirstTime >= t.before {
			return max(to, b.FirstOffset), nil
		}
		d, err := c.batch(ctx, &t.entry.Segment, b.Ref)
		if err != nil {
			return 0, err
		}
		it := d.Iter()
		var r segment.RawRecord
		if it.SkipToTime(t.before) && it.NextRaw(&r) {
			return max(to, r.Offset), nil
		}
		if err := it.Err(); err != nil {
			return 0, err
		}
	}
	return to, nil
}

// startBySize finds the first record that the bytes to be kept need. Where the batch that it is in is no longer than what need not be exact,
// that is the first of the batch.
func (c *Compactor) startBySize(ctx context.Context, t *trimCandidate, run []segment.BatchInfo) (int64, error) {
	left := int64(t.entry.Ref.Len)
	for i := range run {
		b := &run[i]
		size := int64(b.Ref.Len)
		if left-size >= t.keep {
			left -= size
			continue
		}
		if left-t.keep <= t.step {
			return b.FirstOffset, nil
		}
		d, err := c.batch(ctx, &t.entry.Segment, b.Ref)
		if err != nil {
			return 0, err
		}
		// The records share the stored bytes of the batch as they share its payload.
		spare := float64(left-t.keep) / float64(size) * float64(d.Header().RawBytes)
		at := b.FirstOffset
		it := d.Iter()
		var r segment.RawRecord
		for it.NextRaw(&r) {
			at = r.Offset
			if spare -= float64(len(r.Encoding)); spare < 0 {
				break
			}
		}
		return at, it.Err()
	}
	return t.info.LogStart, nil
}
