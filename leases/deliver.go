package leases

import (
	"context"
	"sync"

	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/segment"
)

const (
	// maxRounds bounds how often a group reserves more in place of records that turned out not to be there.
	maxRounds = 16
	// holeRun is how many more are reserved at once where a longer hole is known.
	holeRun = 1024
	// groupBytes bounds what a group reads at once, and runBytes is what each run may read at least.
	groupBytes = 32 << 20
	runBytes   = 1 << 20
)

// Reasons of skips. They are metric labels, and the store keeps them.
const (
	reasonHole       = "hole"
	reasonUnreadable = "unreadable"
	reasonExpired    = "expired"
)

// found is records of one grant for one waiter.
type found struct {
	grant   *store.Grant
	records []segment.Record
}

// leftover is what a group reserved and does not hand out.
type leftover struct {
	skip     map[string][]store.Receipt // by reason
	schedule []store.ScheduleRequest
	release  []store.Receipt
}

// deliver reads what was reserved and hands it over. What is not there, or not due, is settled, and more reserved in its place.
func (g *group) deliver() {
	for round := 1; len(g.grants) > 0; round++ {
		grants := g.grants
		g.grants = nil
		holes, dropped := g.distribute(grants)
		if dropped == 0 || len(g.waiters) == 0 || g.err != nil {
			break
		}
		if round == maxRounds {
			g.q.line.stir() // there may be more behind it
			break
		}
		if err := g.reserveMore(holes); err != nil && g.waiters[0].count == 0 {
			g.fail(err)
		}
	}
	g.finish()
}

// reserveMore reserves what is missing. Where a hole is known to go on, as much of it as one call may take is reserved with it, so that it
// is passed in few calls.
func (g *group) reserveMore(holes map[int32]int64) error {
	want := 0
	for _, w := range g.waiters {
		want += max(1, g.q.demand(w)-w.count)
	}
	want = min(want, groupRecords)
	l, err := g.e.choose(g.q, false, false)
	if err != nil {
		return err
	}
	for i, f := range l.fresh {
		if beyond := holes[f.Partition]; beyond > 0 {
			l.fresh[0], l.fresh[i] = l.fresh[i], l.fresh[0]
			want += int(min(beyond, holeRun))
			break
		}
	}
	return g.reserve(want, l)
}

// distribute reads the grants and gives their records to the waiters in order. holes are how many more offsets of a partition are known not to
// be there; dropped is how many of the grants' were not handed out for such reasons.
func (g *group) distribute(grants []store.Grant) (holes map[int32]int64, dropped int) {
	rs, of := runs(grants)
	g.read(rs, grants)
	var rest leftover
	for i := range grants {
		dropped += g.assign(&grants[i], of[i], &rest)
	}
	for _, r := range rs {
		if r.err != nil {
			g.fail(r.err)
		}
		if r.at > r.to && r.err == nil {
			if holes == nil {
				holes = map[int32]int64{}
			}
			holes[r.partition] = r.at - r.to
		}
	}
	// First this: whoever has an answer may ask again at once, and shall find what was not for it.
	g.e.settleLeftover(g.q, &rest)
	for _, w := range g.ready {
		g.handOver(w)
	}
	g.ready = nil
	return holes, dropped
}

// read reads the runs. Leases that are waited for so long that they might lapse meanwhile are extended: nobody has seen them yet.
func (g *group) read(rs []*run, grants []store.Grant) {
	budget := int64(0)
	for _, w := range g.waiters {
		budget += w.maxBytes - w.bytes
	}
	per := max(runBytes, min(budget, groupBytes)/int64(len(rs)))
	for {
		ctx, cancel := g.e.bounded(g.ctx, g.visibility/3)
		if len(rs) == 1 {
			rs[0].read(ctx, g.e, g.q, per)
		} else {
			var all sync.WaitGroup
			for _, r := range rs {
				if r.at < r.to {
					all.Go(func() { r.read(ctx, g.e, g.q, per) })
				}
			}
			all.Wait()
		}
		cut := ctx.Err() != nil && g.ctx.Err() == nil
		cancel()
		if !cut {
			return
		}
		again := false
		for _, r := range rs {
			if r.err != nil {
				r.err, again = nil, true
			}
		}
		if !again {
			return
		}
		var receipts []store.Receipt
		for i := range grants {
			receipts = appendReceipts(receipts, &grants[i], grants[i].Start)
		}
		if _, err := g.extend(receipts); err != nil {
			for _, r := range rs {
				r.err = err
			}
			return
		}
	}
}

// appendReceipts appends the receipts of a grant from an offset on.
func appendReceipts(to []store.Receipt, grant *store.Grant, from int64) []store.Receipt {
	for o := from; o < grant.Start+int64(grant.Count); o++ {
		to = append(to, store.Receipt{Partition: grant.Partition, Offset: o, Nonce: grant.Nonce})
	}
	return to
}

// assign gives the records of a grant to the waiters. dropped is how many are not there, or not due.
func (g *group) assign(grant *store.Grant, r *run, rest *leftover) (dropped int) {
	i, _ := r.find(grant.Start)
	for o := grant.Start; o < grant.Start+int64(grant.Count); o++ {
		v := r.judge(i, o)
		if v == unknown && r.err == nil && len(g.waiters) > 0 {
			// The byte limit of the read was too low for the waiters.
			r.read(g.ctx, g.e, g.q, runBytes)
			v = r.judge(i, o)
		}
		receipt := store.Receipt{Partition: grant.Partition, Offset: o, Nonce: grant.Nonce}
		switch v {
		case unknown:
			rest.release = appendReceipts(rest.release, grant, o)
			return dropped
		case hole:
			rest.drop(reasonHole, receipt)
			dropped++
			continue
		case unreadable:
			rest.drop(reasonUnreadable, receipt)
			dropped++
			continue
		case expired:
			rest.drop(reasonExpired, receipt)
			dropped++
			continue
		}
		record := &r.records[i]
		i++
		if record.DeliverAt != segment.NoTime && record.DeliverAt > g.now {
			rest.schedule = append(rest.schedule, store.ScheduleRequest{Receipt: receipt, Due: record.DeliverAt})
			dropped++
			continue
		}
		size := recordBytes(record)
		for len(g.waiters) > 0 && g.waiters[0].full(size) {
			g.ready = append(g.ready, g.waiters[0])
			g.waiters = g.waiters[1:]
		}
		if len(g.waiters) == 0 {
			rest.release = appendReceipts(rest.release, grant, o)
			return dropped
		}
		g.waiters[0].take(grant, r.records, i-1, size)
	}
	return dropped
}

// take adds records[i] to what w gets.
func (w *waiter) take(grant *store.Grant, records []segment.Record, i int, size int64) {
	w.count++
	w.bytes += size
	if n := len(w.found); n > 0 && w.found[n-1].grant == grant {
		last := &w.found[n-1]
		if k := len(last.records); k < cap(last.records) && &last.records[:k+1][k] == &records[i] {
			last.records = last.records[:k+1]
			return
		}
	}
	w.found = append(w.found, found{grant: grant, records: records[i : i+1]})
}

func (rest *leftover) drop(reason string, r store.Receipt) {
	if rest.skip == nil {
		rest.skip = map[string][]store.Receipt{}
	}
	rest.skip[reason] = append(rest.skip[reason], r)
}

// settleLeftover settles what was reserved and not handed out. When the store cannot be reached the leases lapse by themselves.
func (e *Engine) settleLeftover(q *queue, rest *leftover) {
	if len(rest.skip) == 0 && len(rest.schedule) == 0 && len(rest.release) == 0 {
		return
	}
	ctx, cancel := e.bounded(e.ctx, e.o.CallTimeout)
	defer cancel()
	for reason, receipts := range rest.skip {
		e.skipped(q, reason, receipts[0].Partition, receipts[0].Offset, len(receipts))
		if _, err := e.settle(ctx, q, store.OpSkip, receipts, store.SettleOptions{Reason: reason}); err != nil {
			e.o.Logger.Warn("records could not be skipped", "id", q.id, "error", err)
		}
	}
	if len(rest.schedule) > 0 {
		var f *store.Effects
		err := e.call(ctx, q, func(ctx context.Context) (err error) {
			f, err = e.o.Store.Schedule(ctx, &q.store, rest.schedule)
			return err
		})
		if err != nil {
			e.o.Logger.Warn("delayed records could not be set aside", "id", q.id, "error", err)
		} else {
			e.m.scheduled.Add(float64(len(rest.schedule)))
			e.effects(q, f)
			e.announce(q, f.NextDue)
		}
	}
	e.release(ctx, q, rest.release)
}

// skipped counts what is passed without delivery, and says so unless that is as usual as a hole.
func (e *Engine) skipped(q *queue, reason string, partition int32, first int64, n int) {
	e.m.skipped[reason].Add(float64(n))
	if reason != reasonHole && n > 0 {
		e.o.Logger.Warn("records of a subscription are skipped", "tenant", q.sub.Tenant, "topic", q.sub.Topic, "subscription", q.sub.Name,
			"reason", reason, "records", n, "partition", partition, "first", first)
	}
}

// release gives leases back as if they had never been handed out.
func (e *Engine) release(ctx context.Context, q *queue, receipts []store.Receipt) {
	if len(receipts) == 0 {
		return
	}
	e.m.released.Add(float64(len(receipts)))
	if _, err := e.settle(ctx, q, store.OpRelease, receipts, store.SettleOptions{}); err != nil {
		e.o.Logger.Warn("leases could not be given back", "id", q.id, "leases", len(receipts), "error", err)
	}
}

// extend gives leases that nobody has seen yet their whole time again.
func (g *group) extend(receipts []store.Receipt) (*store.Settled, error) {
	return g.e.settle(g.ctx, g.q, store.OpExtend, receipts, store.SettleOptions{Visibility: g.visibility})
}

// handOver gives w what was found for it. The lease clock starts here: leases that were reserved a while ago are extended first.
func (g *group) handOver(w *waiter) {
	e := g.e
	ms := w.build()
	var receipts []store.Receipt
	late := e.o.Clock.Since(g.begun) > e.o.HandoverSlack
	if late || w.requestID != "" {
		receipts = receiptsOf(ms)
	}
	if late {
		s, err := g.extend(receipts)
		if err != nil {
			g.giveUp(w, receipts, err)
			return
		}
		ms, receipts = keepLive(ms, receipts, s)
		if len(ms) == 0 {
			if g.q.line.putBack(w, false) {
				e.dispatch(g.q.active)
			}
			return
		}
	}
	if w.requestID != "" {
		if err := e.remember(g.ctx, g.q, w, receipts); err != nil {
			g.giveUp(w, receipts, err)
			return
		}
	}
	again := 0
	for i := range ms {
		if ms[i].Attempt > 1 {
			again++
		}
	}
	size := w.bytes / int64(len(ms))
	if !g.q.line.handOver(w, ms) {
		ctx, cancel := e.bounded(e.ctx, e.o.CallTimeout)
		defer cancel()
		e.release(ctx, g.q, receiptsOf(ms))
		return
	}
	e.m.leased.Add(float64(len(ms)))
	e.m.redelivered.Add(float64(again))
	if old := g.q.recordBytes.Load(); old > 0 {
		size = (7*old + size) / 8
	}
	g.q.recordBytes.Store(max(size, 1))
}

// giveUp answers w with an error and gives its leases back.
func (g *group) giveUp(w *waiter, receipts []store.Receipt, err error) {
	if g.ctx.Err() != nil {
		err = unavailable(err)
	}
	g.q.line.fail(w, err)
	ctx, cancel := g.e.bounded(g.e.ctx, g.e.o.CallTimeout)
	defer cancel()
	g.e.release(ctx, g.q, receipts)
}

// build makes the messages of what was found.
func (w *waiter) build() []Message {
	ms := make([]Message, 0, w.count)
	var text receiptText
	text.buf = make([]byte, 0, w.count*48)
	text.ends = make([]int, 0, w.count)
	for _, f := range w.found {
		for i := range f.records {
			text.add(f.grant.Partition, f.records[i].Offset, f.grant.Nonce)
			ms = append(ms, Message{Partition: f.grant.Partition, Attempt: f.grant.Attempt, ExpiresAt: f.grant.Expires, Record: f.records[i]})
		}
	}
	text.assign(ms)
	return ms
}

// receiptsOf gives the receipts of messages that the engine made.
func receiptsOf(ms []Message) []store.Receipt {
	out := make([]store.Receipt, 0, len(ms))
	for i := range ms {
		if r, ok := parseReceipt(ms[i].Receipt); ok {
			out = append(out, r)
		}
	}
	return out
}

// keepLive leaves out the messages whose leases were lost, and sets the new deadlines.
func keepLive(ms []Message, receipts []store.Receipt, s *store.Settled) ([]Message, []store.Receipt) {
	n := 0
	for i := range ms {
		if s.OK[i] {
			ms[n], receipts[n] = ms[i], receipts[i]
			ms[n].ExpiresAt = s.Expires[i]
			n++
		}
	}
	return ms[:n], receipts[:n]
}
