package proof

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// GroupHistory is what the members of one group asked of one topic, what they were answered, and what they processed, in one process's time, to be
// judged by Check. All times are nanoseconds since its start.
type GroupHistory struct {
	start time.Time

	mu      sync.Mutex
	calls   []*groupCall
	batches []groupBatch
	breaks  []span // times at which Redis lost what it had
}

// groupFate is what came of a call.
type groupFate uint8

const (
	groupOK      groupFate = iota // 2xx
	groupRefused                  // an answer that says that nothing has happened
	groupUnknown                  // no answer, or one that does not know
)

// groupCall is one request of the group's interface, each attempt by itself.
type groupCall struct {
	who          string // the process that asked
	op           string // "join", "heartbeat", "leave", "commit", "poll", "offsets"
	member       string // that it names; of a join, that it was answered
	generation   int64  // that it names
	holds        map[int]bool
	says         bool          // heartbeat: it says what it holds
	offsets      map[int]int64 // commit: what it commits; offsets: what it was answered
	began, ended int64
	fate         groupFate
	code         string        // of a refusal
	told         int64         // join, heartbeat: the generation that it was answered
	assigned     map[int]int64 // join, heartbeat: what the member owns, and where to go on
	revoked      map[int]bool  // heartbeat: what it owns still and is to let go
}

// String tells a call, in milliseconds.
func (c *groupCall) String() string {
	ms := func(n int64) int64 { return n / int64(time.Millisecond) }
	return fmt.Sprintf("{%s by %s, %d to %d: generation %d, offsets %v, %s %s, told %d %v revoke %v}", c.op, c.who, ms(c.began), ms(c.ended), c.generation, c.offsets,
		[...]string{"OK", "refused", "unknown"}[c.fate], c.code, c.told, c.assigned, c.revoked)
}

// owns says whether the answer names a partition as the member's, to be let go or not.
func (c *groupCall) owns(p int) bool {
	_, ok := c.assigned[p]
	return ok || c.revoked[p]
}

// news says whether where to go on with a partition, as an answer has it, was looked up for this call: it is for what the member did not have.
func (c *groupCall) news(p int) (int64, bool) {
	at, ok := c.assigned[p]
	return at, ok && c.fate == groupOK && (c.op == "join" || c.says && !c.holds[p])
}

// groupBatch is what a process did with records [from, to) of a partition.
type groupBatch struct {
	who       string
	partition int
	from, to  int64
	asked     int64 // when it asked for them; -1 = it has gone on from where a join or a heartbeat told it; byKey: when it began with it
	at        int64 // when it was done with them
	byKey     bool  // one record, of a process that keeps the order of each path only
}

func newGroupHistory() *GroupHistory { return &GroupHistory{start: time.Now()} }

func (h *GroupHistory) now() int64 { return int64(time.Since(h.start)) }

func (h *GroupHistory) add(c *groupCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

// processed notes records that a process is done with.
func (h *GroupHistory) processed(b groupBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.at = h.now()
	h.batches = append(h.batches, b)
}

// broken notes that Redis has lost what it had between two moments.
func (h *GroupHistory) broken(what string, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaks = append(h.breaks, span{from, to, what})
}

// groupRules says what Check may rely on.
type groupRules struct {
	session time.Duration   // of every member
	heads   []int64         // by partition: all of it is to be processed, and committed; nil = the history is of a part of the work
	slack   time.Duration   // how exact sessions are
	records map[slot]origin // what stands where, to tell paths apart; nil = no paths
}

// groupReport is what Check found.
type groupReport struct {
	problems    []string
	generations int // that somebody was told
	commits     int // accepted
	zombies     int // commits of a generation that was over, refused
	lapsed      int // heartbeats that were told to join again
	repeats     int64
}

func (r *groupReport) problem(format string, args ...any) {
	if len(r.problems) < 20 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// Check judges the history by these rules:
//
//	fence       a commit or a poll of a generation is not accepted any more when a later one was told to anybody
//	rise        a generation that is told is no lower than one that was told before; higher, if Redis has lost what it had in between
//	owner       no two members own a partition at one moment, and nobody commits what is another's
//	register    the committed offset of a partition behaves like one cell that only rises and that only the present generation writes: what is read, by
//	            anybody, by a member that is given a partition, and by one that begins to process it, is what the cell holds
//	order       a process goes on where it was, or begins at the committed offset; nothing is processed before what comes before it: in its partition, or,
//	            by those that process several records at a time, in its path
//	honest      nothing is committed that was not processed
//	whole       in the end all is processed and committed
func (h *GroupHistory) Check(rules groupRules) *groupReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &groupReport{}
	slices.SortFunc(h.calls, func(a, b *groupCall) int { return int(a.began - b.began) })
	slices.SortFunc(h.batches, func(a, b groupBatch) int { return int(a.at - b.at) })
	c := &groupCheck{GroupHistory: h, groupReport: r, rules: rules, told: map[int64]int64{}, paths: map[string]int{}, news: map[newsOf][]*groupCall{}}
	for _, call := range h.calls {
		if call.fate == groupOK && (call.op == "join" || call.op == "heartbeat") {
			if at, ok := c.told[call.told]; !ok || call.ended < at {
				c.told[call.told] = call.ended
			}
			for p := range call.assigned {
				c.partitions = max(c.partitions, p+1)
				if _, ok := call.news(p); ok {
					c.news[newsOf{call.who, p}] = append(c.news[newsOf{call.who, p}], call)
				}
			}
		}
	}
	for g := range c.told {
		c.order = append(c.order, g)
	}
	slices.Sort(c.order)
	r.generations = len(c.order)
	c.partitions = max(c.partitions, len(rules.heads))
	c.fence()
	c.rise()
	for p := range c.partitions {
		c.owner(p)
		ops := c.processing(p)
		ops = append(ops, c.offsets(p)...)
		c.register(p, ops)
	}
	return r
}

// groupCheck is one check under way.
type groupCheck struct {
	*GroupHistory
	*groupReport
	rules      groupRules
	told       map[int64]int64 // by generation: when the first answer with it had come
	order      []int64         // the generations of told, ascending
	partitions int
	paths      map[string]int          // the next record of each path that nobody has processed yet
	news       map[newsOf][]*groupCall // by when they began: answers that told a process where to go on with a partition
}

// over says when a generation is known to be over: when a later one was told. ok is false when it may be the present one.
func (c *groupCheck) over(generation int64) (at, by int64, ok bool) {
	at = math.MaxInt64
	for _, g := range c.order {
		if g > generation && c.told[g] < at {
			at, by, ok = c.told[g], g, true
		}
	}
	return at, by, ok
}

func (c *groupCheck) fence() {
	for _, call := range c.calls {
		if call.op == "heartbeat" && call.fate == groupRefused && call.code == "STALE_GENERATION" {
			c.lapsed++
		}
		if call.op != "commit" && call.op != "poll" {
			continue
		}
		at, by, over := c.over(call.generation)
		switch old := over && call.began > at; {
		case old && call.fate == groupOK:
			c.problem("%s of an old generation was accepted: %d was told before: %v", call.op, by, call)
		case old && call.op == "commit" && call.fate == groupRefused:
			c.zombies++
		}
		if call.op == "commit" && call.fate == groupOK {
			c.commits++
		}
	}
}

func (c *groupCheck) rise() {
	highest := c.byEnd(func(call *groupCall) (int64, bool) {
		return call.told, call.fate == groupOK && (call.op == "join" || call.op == "heartbeat")
	})
	for _, call := range c.calls {
		if call.fate == groupOK && (call.op == "join" || call.op == "heartbeat") {
			if before, by := highest(call.began); before > call.told {
				c.problem("generation %d was told before %d: %v, then %v", before, call.told, by, call)
			}
			for _, b := range c.breaks {
				if before, by := highest(b.from); b.to < call.began && before >= call.told {
					c.problem("generation %d was told before Redis lost it (%s), and %d after that: %v, then %v", before, b.what, call.told, by, call)
				}
			}
		}
	}
}

// byEnd gives a function that gives the highest value of all calls that had ended by a moment.
func (c *groupCheck) byEnd(value func(*groupCall) (int64, bool)) func(at int64) (int64, *groupCall) {
	type known struct {
		at, value int64
		by        *groupCall
	}
	var all []known
	for _, call := range c.calls {
		if v, ok := value(call); ok {
			all = append(all, known{call.ended, v, call})
		}
	}
	slices.SortFunc(all, func(a, b known) int { return int(a.at - b.at) })
	for i := 1; i < len(all); i++ {
		if all[i-1].value > all[i].value {
			all[i].value, all[i].by = all[i-1].value, all[i-1].by
		}
	}
	return func(at int64) (int64, *groupCall) {
		i := sort.Search(len(all), func(i int) bool { return all[i].at >= at })
		if i == 0 {
			return math.MinInt64, nil
		}
		return all[i-1].value, all[i-1].by
	}
}

// tenure is a time at which a member owned a partition without doubt.
type tenure struct {
	member   string
	from, to int64
	by       *groupCall
}

// tenures lists the times at which a partition had an owner without doubt: from an answer that says so until the session that began with the question is
// over, or the member begins a call that may end its ownership.
func (c *groupCheck) tenures(p int) (out []tenure) {
	ends := map[string][]*groupCall{} // by member: calls that may end its ownership of p
	for _, call := range c.calls {
		switch {
		case call.op == "leave",
			call.op == "heartbeat" && call.says && !call.holds[p],
			(call.op == "heartbeat" || call.op == "join") && (call.fate == groupRefused && call.code == "STALE_GENERATION" || call.fate == groupOK && !call.owns(p)):
			ends[call.member] = append(ends[call.member], call)
		}
	}
	for _, call := range c.calls {
		if call.fate != groupOK || call.op != "join" && call.op != "heartbeat" || !call.owns(p) {
			continue
		}
		t := tenure{call.member, call.ended, call.began + int64(c.rules.session-c.rules.slack), call}
		for _, e := range ends[call.member] {
			if e != call && e.ended > call.began {
				t.to = min(t.to, e.began)
			}
		}
		if t.to > t.from {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b tenure) int { return int(a.from - b.from) })
	return out
}

func (c *groupCheck) owner(p int) {
	all := c.tenures(p)
	var last *tenure // the one of all before that goes on longest
	for i := range all {
		t := &all[i]
		if last != nil && last.member != t.member && last.to > t.from {
			c.problem("partition %d has two owners at %v: %v and %v", p, time.Duration(t.from), last.by, t.by)
		}
		if last == nil || t.to > last.to {
			last = t
		}
	}
	for _, call := range c.calls {
		if _, ok := call.offsets[p]; !ok || call.op != "commit" || call.fate != groupOK {
			continue
		}
		for i := range all {
			if all[i].from > call.began {
				break
			}
			if all[i].member != call.member && all[i].to >= call.ended {
				c.problem("partition %d was committed by who does not own it: %v while %v", p, call, all[i].by)
			}
		}
	}
}

// Operations on the register of a partition.
type (
	groupFence  struct{ from, to int64 } // the generation after from begins
	groupCommit struct {
		generation, offset int64
		known              bool // it was answered OK
	}
	groupRead struct{ generation, offset int64 } // no earlier than in generation; 0 = in any
)

// groupCell is the state of the register.
type groupCell struct{ generation, offset int64 }

// groupModel is the sequential specification of a committed offset. A commit whose outcome is not known may be put where it changes nothing, at the end.
func groupModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return groupCell{} },
		Step: func(state, input, _ any) (bool, any) {
			s := state.(groupCell)
			switch in := input.(type) {
			case groupFence:
				return s.generation == in.from, groupCell{in.to, s.offset}
			case groupCommit:
				if s.generation == in.generation && in.offset >= s.offset {
					return true, groupCell{s.generation, in.offset}
				}
				return !in.known, s
			default:
				read := in.(groupRead)
				return s.generation >= read.generation && s.offset == read.offset, s
			}
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%T%+v", input, input) },
	}
}

// register judges the operations on the committed offset of a partition, reads and commits.
func (c *groupCheck) register(p int, ops []porcupine.Operation) {
	if !c.rises(p, ops) {
		return // that says it better
	}
	before := int64(0)
	for i, g := range c.order {
		// It began after everything that earlier generations have committed.
		f := porcupine.Operation{ClientId: len(ops), Input: groupFence{before, g}, Return: c.told[g]}
		for _, later := range c.order[i:] {
			f.Return = min(f.Return, c.told[later])
		}
		for _, call := range c.calls {
			if call.op == "commit" && call.fate == groupOK && call.generation < g {
				f.Call = max(f.Call, call.began)
			}
		}
		f.Call = min(f.Call, f.Return)
		ops = append(ops, f)
		before = g
	}
	for i := range ops {
		ops[i].ClientId = i
	}
	switch res := porcupine.CheckOperationsTimeout(groupModel(), ops, 20*time.Second); res {
	case porcupine.Ok:
	case porcupine.Illegal:
		sort.Slice(ops, func(i, j int) bool { return ops[i].Call < ops[j].Call })
		text := ""
		for _, o := range ops[:min(len(ops), 200)] {
			text += fmt.Sprintf("\n  %d to %d ms: %T%+v", o.Call/int64(time.Millisecond), o.Return/int64(time.Millisecond), o.Input, o.Input)
		}
		c.problem("partition %d: no order of commits and generations explains what was read:%s", p, text)
	default:
		c.problem("partition %d: %s about %d operations in time", p, res, len(ops))
	}
}

// rises says whether what is committed or read is never below what was committed or read before.
func (c *groupCheck) rises(p int, ops []porcupine.Operation) bool {
	type seen struct {
		call, ret, value int64
		input            any
	}
	var all []seen
	for _, o := range ops {
		switch in := o.Input.(type) {
		case groupCommit:
			if in.known {
				all = append(all, seen{o.Call, o.Return, in.offset, in})
			}
		case groupRead:
			all = append(all, seen{o.Call, o.Return, in.offset, in})
		}
	}
	slices.SortFunc(all, func(a, b seen) int { return int(a.ret - b.ret) })
	highest := make([]seen, len(all))
	ok := true
	for i, s := range all {
		if highest[i] = s; i > 0 && highest[i-1].value > s.value {
			highest[i] = highest[i-1]
		}
		if k := sort.Search(i, func(k int) bool { return all[k].ret >= s.call }); k > 0 && highest[k-1].value > s.value {
			b := highest[k-1]
			c.problem("partition %d: the committed offset regressed: %T%+v at %v to %v, then %T%+v at %v to %v", p, b.input, b.input, time.Duration(b.call), time.Duration(b.ret),
				s.input, s.input, time.Duration(s.call), time.Duration(s.ret))
			ok = false
		}
	}
	return ok
}

// offsets lists the operations on the register of a partition that calls are.
func (c *groupCheck) offsets(p int) (ops []porcupine.Operation) {
	for _, call := range c.calls {
		o := porcupine.Operation{Call: call.began, Return: call.ended}
		at, has := call.offsets[p]
		switch {
		case call.op == "commit" && has && call.fate != groupRefused:
			o.Input = groupCommit{call.generation, at, call.fate == groupOK}
			if call.fate == groupUnknown {
				o.Return = math.MaxInt64
			}
		case call.op == "offsets" && has && call.fate == groupOK:
			o.Input = groupRead{0, at}
		default:
			told, ok := call.news(p)
			if !ok {
				continue
			}
			o.Input = groupRead{call.told, told}
		}
		ops = append(ops, o)
	}
	return ops
}

// processing judges what was done with the records of a partition, and gives the reads of the committed offset that it implies.
func (c *groupCheck) processing(p int) (ops []porcupine.Operation) {
	done := int64(0) // all below it is processed
	seen := map[int64]bool{}
	reached := [][2]int64{{}}            // when done came to what
	at := map[string]int64{}             // by process: where it goes on
	began := map[string]map[int64]bool{} // by process that goes by key: what it has processed since it was told where to begin
	toldTo := map[string]*groupCall{}
	for _, b := range c.batches {
		if b.partition != p {
			continue
		}
		switch was, ok := at[b.who]; {
		case b.byKey:
			told, offset := c.toldWhere(p, b.who, b.asked)
			if told != toldTo[b.who] || began[b.who] == nil {
				toldTo[b.who], began[b.who] = told, map[int64]bool{}
			}
			if told == nil || b.from < offset {
				c.problem("partition %d: %s processed %d, and was told to begin at %d: %v", p, b.who, b.from, offset, told)
			}
			if began[b.who][b.from] {
				c.problem("partition %d: %s processed %d twice", p, b.who, b.from)
			}
			began[b.who][b.from] = true
		case b.from > done:
			c.problem("partition %d: %s processed %d to %d before %d was processed", p, b.who, b.from, b.to, done)
		case !ok || was != b.from:
			if b.asked < 0 {
				if told, _ := c.toldWhere(p, b.who, b.at); told != nil {
					b.asked = told.began
				}
			}
			ops = append(ops, porcupine.Operation{Input: groupRead{0, b.from}, Call: max(b.asked, 0), Return: b.at})
		}
		at[b.who] = b.to
		for offset := b.from; offset < b.to; offset++ {
			if seen[offset] {
				c.repeats++
				continue
			}
			seen[offset] = true
			c.path(slot{p, offset}, b.who)
		}
		for seen[done] {
			done++
		}
		if done > reached[len(reached)-1][1] {
			reached = append(reached, [2]int64{b.at, done})
		}
	}
	final := int64(-1)
	var finalAt int64
	for _, call := range c.calls {
		offset, ok := call.offsets[p]
		if !ok {
			continue
		}
		if call.op == "commit" {
			i := sort.Search(len(reached), func(i int) bool { return reached[i][0] > call.began })
			if offset > reached[i-1][1] {
				c.problem("partition %d: %v, but nothing after %d was processed", p, call, reached[i-1][1])
			}
		} else if call.fate == groupOK && call.ended >= finalAt {
			final, finalAt = offset, call.ended
		}
	}
	if c.rules.heads != nil && (done != c.rules.heads[p] || final != done) {
		c.problem("partition %d: processed up to %d, committed up to %d, and its head is %d", p, done, final, c.rules.heads[p])
	}
	return ops
}

// path judges that a record is processed for the first time: that comes after the one before it of its path.
func (c *groupCheck) path(s slot, who string) {
	from, ok := c.rules.records[s]
	if !ok {
		return
	}
	if next := c.paths[from.key]; from.index != next {
		c.problem("path %s: %s processed its record %d (%v) before its record %d", from.key, who, from.index, s, next)
	}
	c.paths[from.key] = max(c.paths[from.key], from.index+1)
}

// toldWhere gives the answer in which a process was told, the last time before a moment, where to go on with a partition.
func (c *groupCheck) toldWhere(p int, who string, before int64) (told *groupCall, offset int64) {
	for _, call := range c.news[newsOf{who, p}] {
		if call.ended <= before {
			told, offset = call, call.assigned[p]
		}
	}
	return told, offset
}

type newsOf struct {
	who       string
	partition int
}
