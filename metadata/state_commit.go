package metadata

import (
	"bytes"
	"math"
	"slices"
	"sort"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/internal/failpoint"
)

// commitScratch is memory that applyCommit uses again.
type commitScratch struct {
	parts    []place // by batch
	starts   []int32 // by group: where its batches begin in members
	members  []int32 // batches by group
	groups   []groupState
	pending  map[pendingKey]int32 // newest batch of this commit for a partition and producer
	prior    []int32              // by batch: the one before it for the same partition and producer, or -1
	verdicts []verdict            // by batch
}

// place is where a batch goes; topic is nil when it goes nowhere.
type place struct {
	topic *topic
	part  *partition // nil until the first accepted batch
}

type groupState struct {
	err      error
	accepted bool
}

// pendingKey names a producer's window, which may not exist yet.
type pendingKey struct {
	topic  TopicID
	part   int32
	tenant string
	id     string
}

// verdict of one batch of a group.
type verdict struct {
	dup    bool
	of     int32 // the batch of this commit that it repeats, or -1
	answer accepted
}

// applyCommit makes the batches of a segment part of their partitions. It judges all groups first, in their order, so that a group
// is accepted or refused as one; gives offsets in the order of the batches, which is the order in the object; and then remembers the
// accepted sequences, again in the order of the groups.
func (s *State) applyCommit(c *Commit, a *Applied) Result {
	if s.applied.has(c.Segment.ID) && !failpoint.Enabled(failpoint.NoCommitDedup) {
		if results, ok := s.recent.find(c.Segment.ID); ok {
			return Result{Batches: results}
		}
		return Result{Err: ErrAlreadyApplied}
	}
	results := make([]BatchResult, len(c.Batches))
	if int64(c.Segment.ID.Time()) < s.boundary && !failpoint.Enabled(failpoint.NoGCBoundary) {
		if _, live := s.segments.find(c.Segment.ID); live {
			return Result{Err: ErrAlreadyApplied}
		}
		err := api.Errorf(api.CodeStorageUnavailable, "the records were sealed too long ago to be committed: send them again")
		for i := range results {
			results[i].Err = err
		}
		return Result{Batches: results}
	}
	s.advance(c.AppendTime)
	s.applied.add(c.Segment.ID)

	sc := &s.scratch
	s.locateBatches(c, results)
	verdicts := s.judgeGroups(c, results)
	seg := s.segments.put(c.Segment)
	for i := range c.Batches {
		if r := &results[i]; r.Err == nil && !r.Duplicate {
			s.accept(c, i, seg, r, a, verdicts)
		}
	}
	if s.segments.infos[seg].refs == 0 {
		s.segments.drop(seg)
	}
	added := s.rememberGroups(c, results, verdicts)
	s.sweepProducers(added)
	s.sweepDedupe()
	s.recent.add(c.Segment.ID, results)
	clear(sc.parts)
	clear(sc.groups)
	return Result{Batches: results}
}

// locateBatches finds the place of each batch, and judges what does not depend on its group.
func (s *State) locateBatches(c *Commit, results []BatchResult) {
	sc := &s.scratch
	sc.parts = slices.Grow(sc.parts[:0], len(c.Batches))[:len(c.Batches)]
	var records int64
	for i := range c.Batches {
		records += int64(c.Batches[i].Records)
	}
	var t *topic
	for i := range c.Batches {
		b := &c.Batches[i]
		if t == nil || t.id != b.TopicID {
			t = s.topics[b.TopicID]
		}
		switch {
		case t == nil || b.Group >= 0 && c.Groups[b.Group].Tenant != t.tenant.name:
			results[i].Err = errUnknownTopic()
			sc.parts[i] = place{}
		case int(b.Partition) >= t.config.Partitions:
			results[i].Err = errUnknownPartition(b.Partition, t.config.Partitions)
			sc.parts[i] = place{}
		default:
			p := t.find(b.Partition)
			sc.parts[i] = place{t, p}
			if p != nil && p.head > math.MaxInt64-records {
				results[i].Err = api.Errorf(api.CodeConflict, "partition %d has no offsets left", b.Partition)
			}
		}
	}
}

// judgeGroups decides each group as a whole. It sets Err or Duplicate of the results of refused and repeated batches.
func (s *State) judgeGroups(c *Commit, results []BatchResult) []verdict {
	if len(c.Groups) == 0 {
		return nil
	}
	sc := &s.scratch
	sc.sort(c)
	sc.verdicts = slices.Grow(sc.verdicts[:0], len(c.Batches))[:len(c.Batches)]
	clear(sc.verdicts)
	verdicts := sc.verdicts
	for g := range c.Groups {
		members := sc.members[sc.starts[g]:sc.starts[g+1]]
		err := s.judgeGroup(c, &c.Groups[g], members, results, verdicts)
		for _, i := range members {
			switch {
			case err != nil && results[i].Err == nil:
				results[i].Err = err
			case err == nil && verdicts[i].dup:
				results[i].Duplicate = true
			}
		}
		sc.groups[g] = groupState{err: err, accepted: err == nil && len(members) > 0 && !verdicts[members[0]].dup}
	}
	return verdicts
}

// sort lists the batches of each group.
func (sc *commitScratch) sort(c *Commit) {
	sc.starts = append(sc.starts[:0], make([]int32, len(c.Groups)+1)...)
	for i := range c.Batches {
		if g := c.Batches[i].Group; g >= 0 {
			sc.starts[g+1]++
		}
	}
	for g := range c.Groups {
		sc.starts[g+1] += sc.starts[g]
	}
	sc.members = slices.Grow(sc.members[:0], len(c.Batches))[:len(c.Batches)]
	next := slices.Clone(sc.starts)
	for i := range c.Batches {
		if g := c.Batches[i].Group; g >= 0 {
			sc.members[next[g]] = int32(i)
			next[g]++
		}
	}
	sc.groups = slices.Grow(sc.groups[:0], len(c.Groups))[:len(c.Groups)]
	sc.prior = slices.Grow(sc.prior[:0], len(c.Batches))[:len(c.Batches)]
	if sc.pending == nil {
		sc.pending = map[pendingKey]int32{}
	}
	clear(sc.pending)
}

func (s *State) judgeGroup(c *Commit, g *Group, members []int32, results []BatchResult, verdicts []verdict) error {
	for _, i := range members {
		if err := results[i].Err; err != nil {
			return err
		}
	}
	if g.Producer == nil {
		return nil
	}
	id := s.producers[producerKey{s.tenants[g.Tenant], g.Producer.ID}]
	if err := checkEpoch(id, g.Producer); err != nil {
		return err
	}
	if g.Producer.Sequence == NoSequence {
		return nil
	}
	if err := checkDistinct(c, members); err != nil {
		return err
	}
	dups := 0
	for _, i := range members {
		v, err := s.judgeSequence(c, g, id, i)
		if err != nil {
			return err
		}
		verdicts[i] = v
		if v.dup {
			dups++
		}
	}
	if dups > 0 && dups < len(members) {
		return api.Errorf(api.CodeConflict, "sequence %d was accepted by %d of the request's %d partitions only: it is not a repeat of one request",
			g.Producer.Sequence, dups, len(members))
	}
	if dups == 0 {
		for _, i := range members {
			k := pendingKeyOf(c, g, i)
			if j, ok := s.scratch.pending[k]; ok {
				s.scratch.prior[i] = j
			} else {
				s.scratch.prior[i] = -1
			}
			s.scratch.pending[k] = i
		}
	}
	return nil
}

// checkDistinct refuses two batches of one sequence for one partition, of which the second would be taken for a repeat of the first.
// Batches come sorted, so that neighbours tell; those that do not are compared by a map.
func checkDistinct(c *Commit, members []int32) error {
	rising := true
	for k := 1; k < len(members) && rising; k++ {
		a, b := &c.Batches[members[k-1]], &c.Batches[members[k]]
		rising = a.TopicID < b.TopicID || a.TopicID == b.TopicID && a.Partition < b.Partition
	}
	if rising {
		return nil
	}
	seen := make(map[PartitionKey]struct{}, len(members))
	for _, i := range members {
		k := PartitionKey{c.Batches[i].TopicID, c.Batches[i].Partition}
		if _, ok := seen[k]; ok {
			return api.Errorf(api.CodeInvalidRequest, "two batches of one sequence for partition %d", k.Partition)
		}
		seen[k] = struct{}{}
	}
	return nil
}

func pendingKeyOf(c *Commit, g *Group, i int32) pendingKey {
	return pendingKey{c.Batches[i].TopicID, c.Batches[i].Partition, g.Tenant, g.Producer.ID}
}

// judgeSequence compares a batch's sequence with those that this commit has already accepted, and then with the window.
func (s *State) judgeSequence(c *Commit, g *Group, id *producer, i int32) (verdict, error) {
	b, seq := &c.Batches[i], g.Producer.Sequence
	j, ok := s.scratch.pending[pendingKeyOf(c, g, i)]
	if ok && seq > c.Groups[c.Batches[j].Group].Producer.Sequence {
		return verdict{of: -1}, nil
	}
	for ; ok; j, ok = s.scratch.prior[j], s.scratch.prior[j] >= 0 {
		if at := c.Groups[c.Batches[j].Group].Producer.Sequence; at == seq {
			return verdict{dup: true, of: j}, checkCount(seq, b, c.Batches[j].Records)
		} else if at < seq {
			return verdict{}, errNeverAccepted(seq, b)
		}
	}
	p := s.scratch.parts[i].part
	if p == nil || p.more == nil {
		return s.unseen(c, g, i)
	}
	w := p.more.windows.find(id)
	if w == nil {
		return s.unseen(c, g, i)
	}
	switch v, a := w.judge(seq); v {
	case windowDuplicate:
		return verdict{dup: true, of: -1, answer: a}, checkCount(seq, b, a.records)
	case windowNever:
		return verdict{}, errNeverAccepted(seq, b)
	case windowForgotten:
		return verdict{}, api.Errorf(api.CodeConflict, "sequence %d is below what partition %d remembers of the producer: whether it was accepted can no longer be told",
			seq, b.Partition)
	}
	return s.unseen(c, g, i)
}

// unseen accepts a sequence that no window knows, unless this commit has accepted a higher one.
func (s *State) unseen(c *Commit, g *Group, i int32) (verdict, error) {
	if _, ok := s.scratch.pending[pendingKeyOf(c, g, i)]; ok {
		return verdict{}, errNeverAccepted(g.Producer.Sequence, &c.Batches[i])
	}
	return verdict{of: -1}, nil
}

func errNeverAccepted(seq int64, b *BatchDelta) error {
	return api.Errorf(api.CodeConflict, "sequence %d is below the highest accepted by partition %d and was never accepted itself", seq, b.Partition)
}

func checkCount(seq int64, b *BatchDelta, records int32) error {
	if records == b.Records {
		return nil
	}
	return api.Errorf(api.CodeConflict, "sequence %d was accepted by partition %d with %d records, and now has %d: it is not a repeat of one request",
		seq, b.Partition, records, b.Records)
}

// accept gives the batch its offsets.
func (s *State) accept(c *Commit, i int, seg uint32, r *BatchResult, a *Applied, verdicts []verdict) {
	b, at := &c.Batches[i], &s.scratch.parts[i]
	if at.part == nil {
		if at.part = at.topic.find(b.Partition); at.part == nil {
			at.part = s.addPartition(at.topic, b.Partition)
		}
	}
	p := at.part
	now := max(c.AppendTime, p.lastAppend)
	e := IndexEntry{Ref: b.Ref, Base: p.head, Records: b.Records, AppendTime: now, FirstTime: now}
	if b.IDHashes != nil && at.topic.config.DedupeWindow > 0 {
		r.Offsets, e.Dropped = s.dropDuplicates(at.topic, p, b.IDHashes, now)
	}
	r.Base, r.AppendTime = p.head, now
	if verdicts != nil {
		verdicts[i].answer = accepted{base: p.head, records: b.Records}
		if len(e.Dropped) > 0 {
			verdicts[i].answer.runs = runsOf(r.Offsets, e.Dropped)
		}
	}
	if r.Offsets != nil {
		r.Base = r.Offsets[0]
	}
	visible := int64(b.Records) - int64(len(e.Dropped))
	if visible == 0 {
		r.Duplicate = true
		return
	}
	e.Last = e.Base + visible - 1
	p.head += visible
	p.lastAppend = now
	s.segments.ref(seg)
	p.append(e, seg)
	s.entries++
	if key := (PartitionKey{b.TopicID, b.Partition}); len(a.Changed) == 0 || a.Changed[len(a.Changed)-1] != key {
		a.Changed = append(a.Changed, key)
	}
}

// rememberGroups records the sequences of the accepted groups and fills in the answers of the repeated ones.
func (s *State) rememberGroups(c *Commit, results []BatchResult, verdicts []verdict) (added int) {
	sc := &s.scratch
	for g := range c.Groups {
		gr := &c.Groups[g]
		if gr.Producer == nil || sc.groups[g].err != nil {
			continue
		}
		members := sc.members[sc.starts[g]:sc.starts[g+1]]
		if !sc.groups[g].accepted {
			for _, i := range members {
				s.answerDuplicate(i, &results[i], verdicts)
			}
			continue
		}
		if gr.Producer.Sequence == NoSequence { // a use of the session, if there is one, and nothing else
			if id := s.producers[producerKey{s.tenants[gr.Tenant], gr.Producer.ID}]; id != nil {
				s.touchSession(id)
			}
			continue
		}
		id := s.getProducer(s.getTenant(gr.Tenant), gr.Producer.ID)
		for _, i := range members {
			if s.remember(sc.parts[i].topic, sc.parts[i].part, id, gr.Producer.Sequence, verdicts[i].answer) {
				added++
			}
		}
		s.touchSession(id)
	}
	return added
}

// answerDuplicate gives the first answer again. Its append time is known while the batch is live.
func (s *State) answerDuplicate(i int32, r *BatchResult, verdicts []verdict) {
	v := &verdicts[i]
	if v.of >= 0 {
		v.answer = verdicts[v.of].answer
	}
	r.Base, r.Offsets = v.answer.base, v.answer.offsets()
	if r.Offsets != nil {
		r.Base = r.Offsets[0]
	}
	p := s.scratch.parts[i].part
	if p == nil {
		p = s.scratch.parts[v.of].part
	}
	if k := p.atOrAfter(r.Base); k < len(p.entries) && p.entries[k].base <= r.Base {
		r.AppendTime = p.entries[k].time
	}
}

// appliedSegments are the IDs of the segments at or above the GC boundary that were committed, ascending.
type appliedSegments struct{ ids []ulid.ULID }

func (a *appliedSegments) search(id ulid.ULID) (int, bool) {
	n := len(a.ids)
	if n == 0 || bytes.Compare(a.ids[n-1][:], id[:]) < 0 {
		return n, false
	}
	i := sort.Search(n, func(i int) bool { return bytes.Compare(a.ids[i][:], id[:]) >= 0 })
	return i, i < n && a.ids[i] == id
}

func (a *appliedSegments) has(id ulid.ULID) bool {
	_, ok := a.search(id)
	return ok
}

func (a *appliedSegments) add(id ulid.ULID) {
	if i, ok := a.search(id); !ok {
		a.ids = slices.Insert(a.ids, i, id)
	}
}

// forgetBefore drops the IDs with a time below ms.
func (a *appliedSegments) forgetBefore(ms int64) {
	n := sort.Search(len(a.ids), func(i int) bool { return int64(a.ids[i].Time()) >= ms })
	if n > 0 {
		a.ids = slices.Clone(a.ids[n:])
	}
}

// recentBatches bounds how many batch results are kept to answer commits that come twice.
const recentBatches = 4096

// recentCommits are the answers to the last commits. They are no part of the state: a node that loaded a snapshot has none.
type recentCommits struct {
	commits []recentCommit
	batches int
}

type recentCommit struct {
	id      ulid.ULID
	results []BatchResult
}

func (r *recentCommits) add(id ulid.ULID, results []BatchResult) {
	cost := len(results) + 1
	drop := 0
	for r.batches += cost; r.batches > recentBatches && drop < len(r.commits); drop++ {
		r.batches -= len(r.commits[drop].results) + 1
	}
	r.commits = slices.Delete(r.commits, 0, drop)
	if cost > recentBatches {
		r.batches -= cost
		return
	}
	r.commits = append(r.commits, recentCommit{id, results})
}

func (r *recentCommits) find(id ulid.ULID) ([]BatchResult, bool) {
	for i := range r.commits {
		if r.commits[i].id == id {
			return r.commits[i].results, true
		}
	}
	return nil, false
}
