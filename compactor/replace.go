package compactor

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata"
)

// Replaces of one transaction.
const (
	replaceBytes = 256 << 10 // encoded, estimated
	replaceCount = 512
)

// commit submits the Replaces of the groups whose output is durable.
//
// The groups of one partition that is cleaned are replaced strictly in their order, one a transaction, and not at all after one was
// refused. Otherwise a tombstone could become clean before what it deletes has gone, lose its life at its horizon, and what it deleted would
// be back.
func (m *merger) commit(ctx context.Context) error {
	ordered := m.job.Kind == KindClean
	for {
		var ready []*pending
		left := m.waiting[:0]
		seen := map[metadata.PartitionKey]bool{}
		size := 0
		for _, p := range m.waiting {
			key := metadata.PartitionKey{Topic: p.group.Topic.ID, Partition: p.group.Partition}
			switch full := len(ready) == replaceCount || size >= replaceBytes; {
			case ordered && m.stopped[key]:
				m.stats.refused++
			case full || !p.done || p.open > 0 || ordered && seen[key]:
				left = append(left, p)
				seen[key] = true
			default:
				ready = append(ready, p)
				seen[key] = true
				size += 64 + 12*len(p.group.Entries) + 96*len(p.pieces)
			}
		}
		clear(m.waiting[len(left):])
		m.waiting = left
		if len(ready) == 0 {
			return nil
		}
		if err := m.replace(ctx, ready); err != nil {
			return err
		}
	}
}

// replace submits one transaction. A group that changed since it was planned is adapted once; one whose topic has gone is forgotten.
func (m *merger) replace(ctx context.Context, ready []*pending) error {
	failpoint.Hit(failpoint.CompactorBeforeReplace)
	for attempt := 0; len(ready) > 0; attempt++ {
		cmds := make([]metadata.Command, len(ready))
		for i, p := range ready {
			cmds[i] = m.command(p)
		}
		results, err := m.c.o.Log.DoAll(ctx, cmds, &metadata.Guard{Claim: m.claim.Name, Epoch: m.claim.Epoch})
		if err != nil {
			return fmt.Errorf("replace merged batches: %w", err)
		}
		var again []*pending
		for i, r := range results {
			p := ready[i]
			switch code := api.CodeOf(r.Err); {
			case r.Err == nil:
				m.stats.replaced++
				m.stats.removed += len(p.group.Entries)
				m.stats.added += len(p.pieces)
			case code == api.CodeUnknownTopic, code == api.CodeUnknownPartition:
				m.stats.gone++
			case code == api.CodeConflict && attempt == 0:
				changed, err := m.adapt(p)
				switch {
				case err != nil || len(p.group.Entries) == 0:
					m.stats.gone++
				case changed:
					again = append(again, p)
				default:
					m.refuse(p, r.Err)
				}
			default:
				m.refuse(p, r.Err)
			}
		}
		ready = again
	}
	failpoint.Hit(failpoint.CompactorAfterReplace)
	return nil
}

func (m *merger) refuse(p *pending, err error) {
	m.stats.refused++
	m.stopped[metadata.PartitionKey{Topic: p.group.Topic.ID, Partition: p.group.Partition}] = true
	m.c.m.refused.WithLabelValues(string(m.job.Kind)).Inc()
	m.c.o.Logger.Warn("replacing merged batches was refused", "kind", m.job.Kind, "topicID", uint64(p.group.Topic.ID), "partition", p.group.Partition,
		"from", p.group.Entries[0].Base, "batches", len(p.group.Entries), "error", err)
}

func (m *merger) command(p *pending) *metadata.Replace {
	g := p.group
	first, last := p.span()
	c := &metadata.Replace{
		TopicID: g.Topic.ID, Partition: g.Partition, From: first, Through: last, Claim: m.claim.Name, ClaimEpoch: m.claim.Epoch,
		Remove: make([]metadata.ReplaceRef, len(g.Entries)), Add: make([]metadata.IndexEntry, len(p.pieces)),
	}
	for i := range g.Entries {
		c.Remove[i] = metadata.ReplaceRef{Segment: g.Entries[i].Segment.ID, Pos: g.Entries[i].Ref.Pos}
	}
	for i := range p.pieces {
		c.Add[i] = p.pieces[i].entry
	}
	return c
}

// span is the range of offsets that the group had when it was read.
func (p *pending) span() (first, last int64) {
	if p.from == nil {
		n := len(p.group.Entries) - 1
		p.from = &[2]int64{p.group.Entries[0].Base, p.group.Entries[n].Last}
	}
	return p.from[0], p.from[1]
}

// adapt drops from the group what retention has trimmed meanwhile. Any other change is not ours to explain: unchanged. What is live
// is always a part of what was read then, so the output still fits: apply leaves out what is below logStart.
func (m *merger) adapt(p *pending) (changed bool, err error) {
	g := p.group
	first, last := p.span()
	live, _, err := m.c.o.Log.Locate(g.Topic.ID, g.Partition, first, len(g.Entries)+1)
	if err != nil {
		return false, err
	}
	type place struct {
		id  ulid.ULID
		pos uint64
	}
	at := map[place]bool{}
	for i := range live {
		if live[i].Base > last {
			break
		}
		at[place{live[i].Segment.ID, live[i].Ref.Pos}] = true
	}
	n := len(at)
	kept := g.Entries[:0:0]
	for i := range g.Entries {
		if at[place{g.Entries[i].Segment.ID, g.Entries[i].Ref.Pos}] {
			kept = append(kept, g.Entries[i])
		}
	}
	if len(kept) != n || len(kept) == len(g.Entries) {
		return false, nil // something else lives there, or nothing was trimmed
	}
	g.Entries = kept
	return true, nil
}
