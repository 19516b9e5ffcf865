package groups

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/segment"
)

// polling is one poll.
type polling struct {
	c      *Coordinator
	g      *group
	r      *PollRequest
	places []place
	at     []int64               // where each partition is read from
	noted  []store.GroupPosition // what Redis had of each partition when the poll began
	moved  []bool                // something of it was read
	turn   int                   // the one to begin with
	synced bool
	out    []Polled
	gaps   []partitionGap
}

// pollLook is how often Redis is asked whether the generation of polls that wait is over; once for all polls of a group on this node.
const pollLook = time.Second

// Poll reads from the partitions that a member owns, but for those that it is to let go, from where its last poll of this generation left off, or from
// the committed offset. The byte budget is shared among the partitions that have something, and which comes first goes round, so none
// waits for ever. A member whose poll was not answered joins again with its ID: polls go on from the committed offsets then. Polls of one member that
// come at the same time, on whatever nodes, read different records: one notes its place, and the others go on from there.
//
// STALE_GENERATION. What retention has overtaken stands in the answer with its gap, beside the records of other partitions; RETENTION_GAP with the
// gaps where there are no records: somebody has to commit an offset beyond them, or to seek.
func (c *Coordinator) Poll(ctx context.Context, r PollRequest) ([]Polled, error) {
	if r.MaxRecords == 0 {
		r.MaxRecords = api.DefaultReadRecords
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = api.DefaultReadBytes
	}
	if r.MaxRecords < 0 || r.MaxBytes < 0 || r.Wait < 0 {
		return nil, api.Errorf(api.CodeInvalidRequest, "limits must not be negative: %d records, %d bytes, a wait of %s", r.MaxRecords, r.MaxBytes, r.Wait)
	}
	var out []Polled
	err := c.with(ctx, r.Name, false, func(g *group) error {
		p := &polling{c: c, g: g, r: &r}
		if err := p.begin(ctx); err != nil {
			return err
		}
		err := p.run(ctx)
		out = p.out
		return err
	})
	c.m.poll(err)
	if err != nil {
		return nil, err
	}
	for i := range out {
		c.m.polled.Add(float64(len(out[i].Records)))
	}
	return out, nil
}

// begin finds out what to read, and from where.
func (p *polling) begin(ctx context.Context) error {
	s, err := p.c.member(ctx, p.g, p.r.MemberID, p.r.Generation, false)
	if err != nil {
		return err
	}
	if s.Generation != p.r.Generation {
		return staleGeneration(p.g.name(), s.Generation)
	}
	p.places = p.g.share(s, p.r.MemberID).keeps
	p.noted = make([]store.GroupPosition, len(p.places))
	for i := range p.places {
		p.noted[i] = store.GroupPosition{Topic: p.places[i].GroupPartition.Topic, Partition: p.places[i].GroupPartition.Partition}
	}
	if err := p.c.o.Store.Positions(ctx, p.g.meta.ID, p.noted); err != nil {
		return err
	}
	var offsets map[journal.GroupPartition]journal.GroupOffset
	p.at, p.moved = make([]int64, len(p.places)), make([]bool, len(p.places))
	p.out, p.gaps = nil, nil
	for i := range p.noted {
		// What retention has overtaken may have been decided by a commit beyond it.
		info, err := p.c.o.View.Partition(p.noted[i].Topic, p.noted[i].Partition)
		if p.at[i] = p.noted[i].Offset; p.at[i] >= 0 && (err != nil || p.at[i] >= info.LogStart) {
			continue
		}
		if offsets == nil {
			if offsets, err = p.c.loadOffsets(ctx, p.g); err != nil {
				return err
			}
		}
		p.at[i] = offsets[p.places[i].GroupPartition].Offset
	}
	p.g.mu.Lock()
	p.turn = p.g.mu.turn
	p.g.mu.turn++
	p.g.mu.Unlock()
	return nil
}

// run reads until there is something, or the wait is over.
func (p *polling) run(ctx context.Context) error {
	timer, looks := p.c.o.Clock.NewTimer(p.r.Wait), p.c.o.Clock.NewTicker(pollLook)
	defer timer.Stop()
	defer looks.Stop()
	for {
		changed, release := p.changes()
		found, err := p.read(ctx)
		again := false
		switch {
		case err != nil:
		case found:
			err = p.keep(ctx)
			if again = errors.Is(err, store.ErrMoved); again { // another poll of the member has read this: go on behind it
				err = p.begin(ctx)
			}
		case !p.synced: // before it says that there is nothing, it asks what else was acknowledged
			p.synced, again = true, true
			err = p.c.o.View.Sync(ctx)
		case len(p.gaps) > 0:
			err = gapError(p.r.Name, p.gaps)
		case p.r.Wait > 0:
			again, err = p.wait(ctx, changed, timer.Chan(), looks.Chan())
		}
		release()
		if err != nil || !again {
			return err
		}
	}
}

// wait waits until there may be something; again = false when the time is over. STALE_GENERATION once the generation is over, UNKNOWN_GROUP once the
// group is: in another one the member may own more, or less.
func (p *polling) wait(ctx context.Context, changed <-chan struct{}, timer, looks <-chan time.Time) (again bool, err error) {
	newer := p.g.after(p.r.Generation)
	for {
		select {
		case <-changed:
			return true, nil
		case <-newer:
			return false, staleGeneration(p.r.Name, p.g.state().Generation)
		case <-looks:
			if err := p.current(ctx); err != nil {
				return false, err
			}
		case <-timer:
			return false, nil
		case <-p.r.Enough:
			return false, nil
		case <-p.c.life.draining:
			return false, nil
		case <-ctx.Done():
			return false, unknownOutcome(ctx)
		}
	}
}

// current says whether the poll's generation is the present one. What it learns the other polls of the group learn as well.
func (p *polling) current(ctx context.Context) error {
	if _, err := p.c.o.Catalog.GroupByID(p.g.meta.ID); api.CodeOf(err) == api.CodeUnknownGroup {
		return errGone
	}
	if !p.g.looks(p.c.now(), pollLook) {
		return nil
	}
	l, err := p.c.o.Store.Look(ctx, p.g.meta.ID, p.r.Generation, false)
	if err != nil || l.Found && l.Generation == p.r.Generation {
		return err
	}
	if l.Found {
		if s, err := journal.DecodeGroupState(l.State); err == nil && s.Generation == l.Generation {
			p.g.adopt(s)
		}
	}
	return staleGeneration(p.r.Name, l.Generation)
}

// changes gives a channel that is closed when something changes in a topic that is polled.
func (p *polling) changes() (<-chan struct{}, func()) {
	if p.r.Wait == 0 {
		return nil, func() {}
	}
	changed, stop := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	var chans []<-chan struct{}
	var releases []func()
	for i := range p.places {
		if i > 0 && p.places[i].GroupPartition.Topic == p.places[i-1].GroupPartition.Topic {
			continue
		}
		if _, err := p.c.o.View.TopicByID(p.places[i].GroupPartition.Topic); err != nil {
			continue // it is gone, and would be said to change for ever
		}
		ch, release := p.c.o.View.TopicChanged(p.places[i].GroupPartition.Topic)
		chans, releases = append(chans, ch), append(releases, release)
	}
	release := func() {
		for _, r := range releases {
			r()
		}
	}
	switch len(chans) {
	case 0:
		return nil, release
	case 1:
		return chans[0], release
	}
	wake := make(chan struct{}, 1)
	running := 0
	ended := make(chan struct{}, len(chans))
	for _, ch := range chans {
		running++
		go func() {
			select {
			case <-ch:
				select {
				case wake <- struct{}{}:
				default:
				}
			case <-stop:
			}
			ended <- struct{}{}
		}()
	}
	go func() {
		defer close(done)
		select {
		case <-wake:
			close(changed)
		case <-stop:
		}
	}()
	return changed, func() {
		close(stop)
		for range running {
			<-ended
		}
		<-done
		release()
	}
}

// read reads from each partition that has something, as far as the limits go.
func (p *polling) read(ctx context.Context) (found bool, err error) {
	var ready []int
	var heads []int64
	p.gaps = nil
	for k := range p.places {
		i := (k + p.turn) % len(p.places)
		info, err := p.c.o.View.Partition(p.places[i].GroupPartition.Topic, p.places[i].GroupPartition.Partition)
		switch {
		case api.CodeOf(err) == api.CodeUnknownTopic:
			if err := p.c.dropTopics(ctx, p.g); err != nil {
				return false, err
			}
			return false, staleGeneration(p.r.Name, p.g.state().Generation)
		case err != nil:
			return false, err
		case p.at[i] < info.LogStart:
			p.gaps = append(p.gaps, partitionGap{p.places[i].TopicPartition.Topic, p.places[i].TopicPartition.Partition, p.at[i], info.LogStart})
		case p.at[i] < info.Head:
			ready, heads = append(ready, i), append(heads, info.Head)
		}
	}
	records, bytes := p.r.MaxRecords, p.r.MaxBytes
	for k, i := range ready {
		left := int64(len(ready) - k)
		if records <= 0 || bytes <= 0 {
			break
		}
		share := Polled{TopicPartition: p.places[i].TopicPartition, Head: heads[k]}
		most, mostBytes := max(records/int(left), 1), max(bytes/left, 1)
		if share.Records, share.NextOffset, err = p.some(ctx, i, most, mostBytes, heads[k]); err != nil {
			if len(p.out) > 0 {
				return true, nil // what there is; the next poll meets it again
			}
			return false, err
		}
		size := int64(0)
		for r := range share.Records {
			size += recordBytes(&share.Records[r])
		}
		if len(p.out) > 0 && size > bytes {
			continue // a record larger than its share waits until its partition comes first
		}
		p.moved[i] = p.moved[i] || share.NextOffset > p.at[i]
		p.at[i] = share.NextOffset
		records -= len(share.Records)
		bytes -= size
		if len(share.Records) > 0 {
			p.out = append(p.out, share)
		}
	}
	return len(p.out) > 0, nil
}

// some reads from one partition, over holes and what can never be read.
func (p *polling) some(ctx context.Context, i, most int, mostBytes, head int64) ([]segment.Record, int64, error) {
	at := p.at[i]
	for at < head {
		got, next, err := p.c.o.Reader.Read(ctx, p.r.Tenant, p.places[i].GroupPartition.Topic, p.places[i].GroupPartition.Partition, at, most, mostBytes)
		var lost *UnreadableError
		switch {
		case errors.As(err, &lost) && lost.Next > at:
			p.c.m.unreadable.Inc()
			p.c.o.Logger.Error("records can never be read: a poll passes them", "tenant", p.r.Tenant, "topic", p.places[i].TopicPartition.Topic,
				"partition", p.places[i].TopicPartition.Partition, "from", at, "to", lost.Next, "error", err)
			at = lost.Next
		case err != nil:
			return nil, at, err
		case len(got) > 0 || next <= at:
			return got, max(at, next), nil
		default:
			at = next
		}
	}
	return nil, at, nil
}

// keep notes how far the poll has come, unless nobody is there any more to take it, or the partitions are not the member's any more. store.ErrMoved: another
// poll has noted that it has read from one of the partitions, or the member has joined again, since this one began.
func (p *polling) keep(ctx context.Context) error {
	if ctx.Err() != nil {
		return unknownOutcome(ctx)
	}
	positions := make([]store.GroupPosition, 0, len(p.noted))
	for i, at := range p.noted {
		if p.moved[i] || at.Offset != p.at[i] && !p.lost(i) {
			at.Offset, at.Read = p.at[i], p.moved[i]
			positions = append(positions, at)
		}
	}
	err := p.c.o.Store.SetPositions(ctx, p.g.meta.ID, p.r.Generation, p.c.writer(), positions)
	switch {
	case errors.Is(err, store.ErrStale):
		return staleGeneration(p.r.Name, p.r.Generation+1)
	case store.Unknown(err):
		// The next poll may go on behind these records. It must not come before the member has joined again.
		return &api.Error{Code: api.CodeOutcomeUnknown, Detail: "records were read, and the next poll may go on behind them; join again with the same memberId to go on from the committed offsets", Cause: err}
	}
	if err != nil {
		return err
	}
	for _, gap := range p.gaps {
		p.out = append(p.out, Polled{TopicPartition: TopicPartition{gap.Topic, gap.Partition}, Gap: &Gap{From: gap.From, To: gap.To}})
	}
	slices.SortFunc(p.out, func(a, b Polled) int { return compare(a.TopicPartition, b.TopicPartition) })
	return nil
}

// lost says whether retention has overtaken a partition.
func (p *polling) lost(i int) bool {
	return slices.ContainsFunc(p.gaps, func(gap partitionGap) bool {
		return gap.Topic == p.places[i].TopicPartition.Topic && gap.Partition == p.places[i].TopicPartition.Partition
	})
}

// recordBytes is what a record counts for in a budget.
func recordBytes(r *segment.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// partitionGap is a range of a partition that retention deleted before the group read it, as the error names it.
type partitionGap struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func gapError(n Name, gaps []partitionGap) error {
	slices.SortFunc(gaps, func(a, b partitionGap) int {
		return compare(TopicPartition{a.Topic, a.Partition}, TopicPartition{b.Topic, b.Partition})
	})
	return api.Errorf(api.CodeRetentionGap, "retention has overtaken group %q on %d of the member's partitions: commit offsets at or after the end of each gap, or stop the members and seek", n.Group, len(gaps)).With("gaps", gaps)
}
