package proof

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// QueueHistory is what the workers of one subscription saw, in one process's time, to be judged by Check. All times are nanoseconds since
// its start.
type QueueHistory struct {
	start time.Time

	mu         sync.Mutex
	deliveries []*delivery
	breaks     []span // times at which lease state may have been lost
}

type span struct {
	from, to int64
	what     string
}

// slot names one record of the topic.
type slot struct {
	partition int
	offset    int64
}

// fate is what came of a call that settles a lease.
type fate uint8

const (
	fateNone    fate = iota // never settled: the worker died or stalled
	fateOK                  // answered OK
	fateLost                // answered LEASE_LOST
	fateUnknown             // no answer
)

// delivery is one lease as its worker saw it.
type delivery struct {
	slot
	receipt  string
	attempt  int
	key      string // of the record
	index    int    // of the record among those of its key, in published order
	asked    int64  // when the lease call began
	received int64
	expires  int64
	settle   string // "ack", "nack", ""
	began    int64  // of the settle call
	ended    int64
	fate     fate
}

// String tells the life of a lease, in milliseconds.
func (d *delivery) String() string {
	ms := func(n int64) int64 { return n / int64(time.Millisecond) }
	outcome := [...]string{"never settled", "OK", "lost", "unknown"}[d.fate]
	return fmt.Sprintf("{%s attempt %d, asked %d, received %d, expires %d, %s %d to %d: %s}", d.receipt, d.attempt, ms(d.asked), ms(d.received), ms(d.expires), d.settle, ms(d.began), ms(d.ended), outcome)
}

func newQueueHistory() *QueueHistory { return &QueueHistory{start: time.Now()} }

func (h *QueueHistory) now() int64 { return int64(time.Since(h.start)) }

// at turns a wall-clock time of this machine into the history's.
func (h *QueueHistory) at(t time.Time) int64 { return int64(t.Sub(h.start)) }

func (h *QueueHistory) add(d *delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deliveries = append(h.deliveries, d)
}

// settled notes the outcome of a settle call that began at began.
func (h *QueueHistory) settled(d *delivery, what string, began int64, f fate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.settle, d.began, d.ended, d.fate = what, began, h.now(), f
}

// broken notes that lease state may have been lost between two moments.
func (h *QueueHistory) broken(what string, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaks = append(h.breaks, span{from, to, what})
}

// between tells of the breaks between two moments, for a reader of a problem.
func (h *QueueHistory) between(from, to int64) (out []string) {
	for _, b := range h.breaks {
		if b.to >= from && b.from <= to {
			out = append(out, fmt.Sprintf("%s %v to %v", b.what, time.Duration(b.from).Round(time.Millisecond), time.Duration(b.to).Round(time.Millisecond)))
		}
	}
	return out
}

// queueRules says what Check may permit.
type queueRules struct {
	maxAttempts int
	ordered     bool          // one live lease a key, and in order
	repeats     time.Duration // what was settled this long before a break may be delivered again; 0: nothing may
}

// queueReport is what Check found.
type queueReport struct {
	problems    []string
	deliveries  int
	acked       map[slot]int // OK acks by different receipts
	repeats     int          // records acked again after a break
	worstRepeat time.Duration
	lost        int // LEASE_LOST answers
}

func (r *queueReport) problem(format string, args ...any) {
	if len(r.problems) < 20 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// liveUntil is how long the lease was live without doubt: until its deadline, until a settle call began, or until a break.
func (d *delivery) liveUntil(breaks []span) int64 {
	end := d.expires
	if d.settle != "" {
		end = min(end, d.began)
	}
	for _, b := range breaks {
		if b.to >= d.asked { // the break may have come after the grant
			end = min(end, max(b.from, d.received))
		}
	}
	return end
}

// Check judges the history.
func (h *QueueHistory) Check(rules queueRules) *queueReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &queueReport{acked: map[slot]int{}, deliveries: len(h.deliveries)}
	sort.Slice(h.breaks, func(i, j int) bool { return h.breaks[i].from < h.breaks[j].from })
	bySlot := map[slot][]*delivery{}
	byKey := map[string][]*delivery{}
	receipts := map[string]*delivery{}
	for _, d := range h.deliveries {
		bySlot[d.slot] = append(bySlot[d.slot], d)
		byKey[d.key] = append(byKey[d.key], d)
		if other := receipts[d.receipt]; other != nil && other.slot != d.slot {
			r.problem("receipt %s was given for %v and %v", d.receipt, other.slot, d.slot)
		}
		receipts[d.receipt] = d
		if d.fate == fateLost {
			r.lost++
		}
		if d.attempt < 1 || d.attempt > rules.maxAttempts {
			r.problem("%v delivered with attempt %d of %d", d.slot, d.attempt, rules.maxAttempts)
		}
	}
	for s, ds := range bySlot {
		h.checkSlot(r, rules, s, ds)
	}
	if rules.ordered {
		for key, ds := range byKey {
			if key != "" {
				h.checkKey(r, key, ds)
			}
		}
	}
	return r
}

// overlaps reports pairs of leases that were live at one moment without doubt.
func (h *QueueHistory) overlaps(ds []*delivery, report func(a, b *delivery)) {
	slices.SortFunc(ds, func(a, b *delivery) int { return int(a.received - b.received) })
	var longest *delivery
	for _, d := range ds {
		if longest != nil && longest.receipt != d.receipt && d.received < longest.liveUntil(h.breaks) && d.received < d.liveUntil(h.breaks) {
			report(longest, d)
		}
		if longest == nil || d.liveUntil(h.breaks) > longest.liveUntil(h.breaks) {
			longest = d
		}
	}
}

func (h *QueueHistory) checkSlot(r *queueReport, rules queueRules, s slot, ds []*delivery) {
	h.overlaps(ds, func(a, b *delivery) {
		r.problem("%v: two live leases: %s until %v, %s since %v", s, a.receipt, time.Duration(a.liveUntil(h.breaks)), b.receipt, time.Duration(b.received))
	})
	acks := slices.DeleteFunc(slices.Clone(ds), func(d *delivery) bool { return d.settle != "ack" || d.fate != fateOK })
	slices.SortFunc(acks, func(a, b *delivery) int { return int(a.ended - b.ended) })
	for _, a := range acks {
		// Late by more than the clocks' grain: the deadline is a whole millisecond of Redis's clock.
		if late := a.began - a.expires; late > int64(20*time.Millisecond) {
			r.problem("%v: an ack %v after the lease lapsed was answered OK", s, time.Duration(late))
		}
	}
	for i, a := range acks {
		for _, b := range acks[i+1:] {
			if a.receipt != b.receipt && !h.mayRepeat(r, rules, a, b) {
				r.problem("%v: settled by %s and again by %s: %v; breaks: %v", s, a.receipt, b.receipt, ds, h.between(a.asked, b.ended))
			}
		}
	}
	distinct := map[string]bool{}
	for _, a := range acks {
		distinct[a.receipt] = true
	}
	if len(distinct) > 0 {
		r.acked[s] = len(distinct)
	}
	if len(distinct) > 1 {
		r.repeats++
	}
	// Attempts never fall, unless the failure that raised them came just before a break.
	slices.SortFunc(ds, func(a, b *delivery) int { return int(a.received - b.received) })
	for i := 1; i < len(ds); i++ {
		a, b := ds[i-1], ds[i]
		if b.attempt < a.attempt && a.received < b.asked && !h.breakAfter(failedAt(ds[:i-1], a), b.received, rules) {
			r.problem("%v: attempt %d after attempt %d: %v; breaks: %v", s, b.attempt, a.attempt, ds, h.between(a.asked, b.received))
		}
	}
}

// failedAt is when the delivery before d failed: during the call that nacked it, or when it lapsed. Deliveries whose answer was lost are not
// known, so that it may have been as late as d's own beginning.
func failedAt(before []*delivery, d *delivery) span {
	for _, p := range slices.Backward(before) {
		if p.attempt == d.attempt-1 {
			if p.settle == "nack" && p.fate == fateOK {
				return span{from: p.began, to: p.ended}
			}
			at := min(p.expires, d.asked)
			return span{from: at, to: at}
		}
	}
	return span{from: d.asked, to: d.asked}
}

// mayRepeat says whether the second ack is one of a record whose first ack was lost in a break.
func (h *QueueHistory) mayRepeat(r *queueReport, rules queueRules, first, second *delivery) bool {
	if rules.repeats == 0 {
		return false
	}
	for _, b := range h.breaks {
		if b.to >= first.began && b.from <= second.received {
			age := time.Duration(max(0, b.from-first.ended))
			if age <= rules.repeats {
				r.worstRepeat = max(r.worstRepeat, age)
				return true
			}
		}
	}
	return false
}

// breakAfter says whether a break before until may have taken back what happened at some moment of a span: it came after the span began, and
// not longer after its end than the rules permit.
func (h *QueueHistory) breakAfter(what span, until int64, rules queueRules) bool {
	for _, b := range h.breaks {
		if b.to >= what.from && b.from <= until && b.from-what.to <= int64(rules.repeats) {
			return true
		}
	}
	return false
}

// checkKey: a record of a key is delivered only after the one before it was acknowledged, and never beside another of its key.
func (h *QueueHistory) checkKey(r *queueReport, key string, ds []*delivery) {
	h.overlaps(ds, func(a, b *delivery) {
		r.problem("key %s: %v and %v leased at one time", key, a.slot, b.slot)
	})
	firstAck := map[int]int64{} // by index: when the first ack that was answered OK, or may have been done, began
	for _, d := range ds {
		if d.settle == "ack" && (d.fate == fateOK || d.fate == fateUnknown) {
			if at, ok := firstAck[d.index]; !ok || d.began < at {
				firstAck[d.index] = d.began
			}
		}
	}
	for _, d := range ds {
		if d.index == 0 {
			continue
		}
		if at, ok := firstAck[d.index-1]; !ok || at > d.received {
			r.problem("key %s: its record %d (%v) was delivered before record %d was settled", key, d.index, d.slot, d.index-1)
		}
	}
}
