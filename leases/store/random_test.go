package store

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// walk does random things to a queue in Redis and to the model, and compares everything after each.
type walk struct {
	*rig
	rnd      *rand.Rand
	q        *Queue
	m        *queueModel
	given    []Receipt // every lease ever granted
	frontier map[int32]int64
	epoch    int64
	trace    []string
}

func (w *walk) say(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *walk) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format, args...)
}

func TestRandomWalk(t *testing.T) {
	kinds := map[string]func(*Queue){
		"plain":         func(*Queue) {},
		"plain-copies":  func(q *Queue) { q.CopyDead = true },
		"ordered":       func(q *Queue) { q.Ordered = true },
		"ordered-copie": func(q *Queue) { q.Ordered, q.CopyDead = true, true },
		"fair":          func(q *Queue) { q.Fair = true },
	}
	for name, set := range kinds {
		t.Run(name, func(t *testing.T) {
			for seed := range walks(t) {
				w := &walk{rig: miniRig(t), rnd: rand.New(rand.NewPCG(seed, 4)), frontier: map[int32]int64{}, epoch: 1}
				w.q = queue(metadata.SubscriptionID(70 + seed))
				w.q.MaxInFlight, w.q.MaxAckedAhead = 3+w.rnd.IntN(8), 5+w.rnd.IntN(12)
				set(w.q)
				w.m = newModel(w.q, 0, 3)
				w.m.now = w.base.UnixMilli()
				w.open(w.q, w.m.partitions()...)
				w.say("seed %d, %+v", seed, *w.q)
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the last steps:\n%s", strings.Join(w.trace[max(0, len(w.trace)-40):], "\n"))
						t.Log(w.raw.HGetAll(context.Background(), w.s.prefix(w.q.ID)+keyShards).Val())
					}
				})
				for range steps {
					w.step()
					w.compare()
				}
			}
		})
	}
}

// steps is how many things a walk does. Most of its time goes into compiling the scripts anew for each of them, as the in-process Redis does.
const steps = 120

// walks is how many seeds a run takes: few, unless FOREBAY_STORE_WALKS says otherwise.
func walks(t *testing.T) uint64 {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("FOREBAY_STORE_WALKS"), "1"), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *walk) pass(d time.Duration) {
	w.advance(d)
	w.m.now += d.Milliseconds()
}

func (w *walk) some(n int) []Receipt {
	var rs []Receipt
	live := w.m.live()
	for range n {
		switch {
		case len(live) > 0 && w.rnd.IntN(5) > 0:
			rs = append(rs, live[w.rnd.IntN(len(live))])
		case len(w.given) > 0:
			rs = append(rs, w.given[w.rnd.IntN(len(w.given))])
		}
	}
	if w.rnd.IntN(2) == 0 {
		slices.SortFunc(rs, func(a, b Receipt) int {
			return int(a.Partition-b.Partition)*100000 + strings.Compare(a.Nonce, b.Nonce)*10000 + int(a.Offset-b.Offset)
		})
	}
	return rs
}

func (m *queueModel) live() (rs []Receipt) {
	for _, p := range m.partitions() {
		for o, r := range m.shards[p].records {
			if r.state == stLeased && r.expires > m.now {
				rs = append(rs, Receipt{p, int64(o), r.nonce})
			}
		}
	}
	return rs
}

func (w *walk) step() {
	ctx := w.t.Context()
	switch w.rnd.IntN(20) {
	case 0, 1, 2:
		for _, p := range w.m.partitions() {
			s := w.m.shards[p]
			for range w.rnd.IntN(8) {
				s.records = append(s.records, record{})
			}
		}
		if w.q.Keyed() {
			w.admit()
		}
	case 3, 4, 5, 6:
		most, visibility := 1+w.rnd.IntN(8), time.Duration(1+w.rnd.IntN(3000))*time.Millisecond
		w.m.lapse()
		var fresh []Fresh
		for _, p := range w.m.partitions() {
			fresh = append(fresh, at(p, int64(len(w.m.shards[p].records))))
		}
		a := w.acquireFor(w.q, most, visibility, fresh...)
		w.say("acquire %d: %s", most, granted(a.Grants))
		if err := w.m.grant(a, most, visibility.Milliseconds()); err != nil {
			w.fatal("%v", err)
		}
		w.given = append(w.given, receipts(a.Grants...)...)
	case 7, 8, 9, 10, 11, 12:
		op := []Op{OpAck, OpAck, OpAck, OpNack, OpNack, OpExtend, OpRelease, OpSkip}[w.rnd.IntN(8)]
		rs := w.some(1 + w.rnd.IntN(8))
		if len(rs) == 0 {
			return
		}
		o := SettleOptions{Delay: time.Duration(w.rnd.IntN(3)) * 400 * time.Millisecond, Visibility: time.Duration(1+w.rnd.IntN(2000)) * time.Millisecond, Reason: "no luck"}
		w.m.lapse()
		want := w.m.settle(op, rs, o, nil)
		out := w.settle(w.q, op, o, rs...)
		w.say("op %d of %v: %v", op, rs, out.OK)
		if !slices.Equal(out.OK, want) {
			w.fatal("answered %v, want %v", out.OK, want)
		}
	case 13:
		var rs []ScheduleRequest
		var just []Receipt
		for _, r := range w.some(1 + w.rnd.IntN(3)) {
			if !slices.Contains(just, r) {
				rs = append(rs, ScheduleRequest{r, w.m.now + int64(w.rnd.IntN(2000))})
				just = append(just, r)
			}
		}
		if len(rs) == 0 {
			return
		}
		w.m.lapse()
		w.m.settle(opSchedule, just, SettleOptions{}, func(i int) int64 { return rs[i].Due })
		if _, err := w.s.Schedule(ctx, w.q, rs); err != nil {
			w.t.Fatal(err)
		}
		w.say("schedule %v", rs)
	case 14, 15:
		d := time.Duration(w.rnd.IntN(1500)) * time.Millisecond
		w.pass(d)
		w.say("wait %v", d)
		if w.rnd.IntN(2) == 0 {
			n := w.m.lapse()
			if e := w.sweep(w.q); e.Lapsed != n {
				w.fatal("%d lapsed, want %d", e.Lapsed, n)
			}
			w.say("sweep")
		}
	case 16:
		w.dead()
	case 17:
		w.journal()
	case 18:
		w.m.lapse()
		w.audit(w.q)
		w.say("audit")
	case 19:
		if w.rnd.IntN(3) == 0 {
			w.rebuild()
		}
	}
}

func (w *walk) admit() {
	p := w.m.partitions()[w.rnd.IntN(2)]
	s := w.m.shards[p]
	r := AdmitRequest{Partition: p, Cursor: s.cursor, Through: min(int64(len(s.records)), s.cursor+int64(w.rnd.IntN(10)))}
	for o := r.Cursor; o < r.Through; o++ {
		if w.rnd.IntN(8) == 0 {
			continue // a hole
		}
		c := Candidate{Offset: o, KeyHash: uint64(o*7+1) % 4}
		if w.rnd.IntN(6) == 0 {
			c.DeliverAt = w.m.now + 800
		}
		if known := s.records[o]; known.known() {
			c.KeyHash = known.key
		}
		r.Records = append(r.Records, c)
	}
	w.m.lapse()
	w.m.admit(p, r)
	moved, _, err := w.s.Admit(w.t.Context(), w.q, r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.say("admit %+v: %v", r, moved)
}

func (w *walk) dead() {
	ctx := w.t.Context()
	ds := w.deadLetters(w.q)
	if len(ds) == 0 {
		return
	}
	d := ds[w.rnd.IntN(len(ds))]
	t := journal.Target{Partition: d.Partition, Offset: d.Offset}
	sel := Selection{Targets: []journal.Target{t}}
	w.m.lapse()
	var err error
	switch w.rnd.IntN(3) {
	case 0:
		want := w.m.redrive(t)
		var done int
		if done, _, _, err = w.s.Redrive(ctx, w.q, sel, 10, ""); (done == 1) != want {
			w.fatal("redrive of %v did %d", t, done)
		}
		w.say("redrive %v", t)
	case 1:
		want := w.m.discard(t)
		var done int
		if done, _, err = w.s.Discard(ctx, w.q, sel, 10); (done == 1) != want {
			w.fatal("discard of %v did %d", t, done)
		}
		w.say("discard %v", t)
	case 2:
		w.m.buried(t)
		_, err = w.s.Buried(ctx, w.q, sel.Targets)
		w.say("buried %v", t)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) journal() {
	es, err := w.s.Export(w.t.Context(), w.q, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.s.Clean(w.t.Context(), w.q, es); err != nil {
		w.t.Fatal(err)
	}
	again, err := w.s.Export(w.t.Context(), w.q, nil)
	if err != nil || len(again) != 0 {
		w.fatal("still dirty after Clean: %+v %v", again, err)
	}
	w.say("journalled %d", len(es))
}

// rebuild loses everything but what the journal has: every pointer and the settled ranges, read from the store as it is.
func (w *walk) rebuild() {
	var rs []LoadRequest
	w.epoch++
	for _, p := range w.m.partitions() {
		e := w.export(w.q, p)
		r := LoadRequest{Partition: p, Incarnation: w.epoch, Shard: e.Shard}
		all, err := w.raw.HGetAll(context.Background(), w.s.prefix(w.q.ID)+keyPointers+":"+strconv.Itoa(int(p))).Result()
		if err != nil {
			w.t.Fatal(err)
		}
		for o, v := range all {
			rep := &reply{rest: v}
			x := rep.pointer()
			x.Offset, _ = strconv.ParseInt(o, 10, 64)
			r.Pointers = append(r.Pointers, x)
		}
		rs = append(rs, r)
	}
	if w.rnd.IntN(2) == 0 {
		w.mini.FlushAll()
	}
	w.load(w.q, rs...)
	w.m.rebuilt()
	w.say("rebuild %+v", rs)
}

// compare reads every piece from Redis and counts.
func (w *walk) compare() {
	w.t.Helper()
	for _, p := range w.m.partitions() {
		s := w.m.shards[p]
		st := w.stats(w.q, p)
		// Records given back at the cursor are new again.
		for s.cursor > st.Cursor {
			r := &s.records[s.cursor-1]
			if !r.known() && (r.state != stOwed || r.pointer) {
				w.fatal("the cursor of %d is %d, but %d is %v", p, st.Cursor, s.cursor-1, r.state)
			}
			if !r.known() {
				*r = record{key: r.key}
			}
			s.cursor--
		}
		for s.cursor < st.Cursor {
			if !s.records[s.cursor].known() {
				w.fatal("the cursor of %d is %d, but %d was never given", p, st.Cursor, s.cursor)
			}
			s.cursor++
		}
		have := w.pieces(p)
		for o := range s.records {
			r := &s.records[o]
			want := r.state
			if got := have[int64(o)]; got != want.String() && !(w.q.Fair && (want == stOwed && got == "waiting" || want == stWaiting && got == "owed")) &&
				!(want == stOwed && got == "scheduled" && r.pointer) && !(want == stSettled && got == "" || want == stNew && got == "") {
				w.fatal("%d:%d is %v in the model and %q in Redis", p, o, want, got)
			}
		}
		f := s.frontier()
		scheduled := int64(0)
		for _, v := range have {
			if v == "scheduled" {
				scheduled++
			}
		}
		ahead := s.count(func(r *record) bool { return r.passed }) - f
		if st.Frontier != f || st.InFlight != s.in(stLeased) || st.DeadLetters != s.in(stDead) || st.AckedAhead != ahead ||
			st.Owed+st.Waiting+st.Delayed != s.in(stOwed, stWaiting, stScheduled) || st.Delayed != scheduled || st.Skipped != s.skipped {
			w.fatal("partition %d: %+v, want frontier %d, in flight %d, dead %d, ahead %d, owed, waiting and delayed %d, delayed %d, skipped %d", p, st, f,
				s.in(stLeased), s.in(stDead), ahead, s.in(stOwed, stWaiting, stScheduled), scheduled, s.skipped)
		}
		if f < w.frontier[p] {
			w.fatal("the frontier of %d went back from %d to %d", p, w.frontier[p], f)
		}
		w.frontier[p] = f
	}
	if ds := w.deadLetters(w.q); true {
		for _, d := range ds {
			if r := w.m.shards[d.Partition].records[d.Offset]; r.state != stDead || d.CopyPending != r.copying || d.Attempts != r.attempts {
				w.fatal("dead letter %+v, want %+v", d, r)
			}
		}
	}
}

// pieces says of every offset in which structure it is, and fails when it is in two.
func (w *walk) pieces(p int32) map[int64]string {
	w.t.Helper()
	ctx := context.Background()
	prefix, tail := w.s.prefix(w.q.ID), ":"+strconv.Itoa(int(p))
	have := map[int64]string{}
	put := func(o int64, what string) {
		if have[o] != "" {
			w.fatal("%d:%d is %s and %s", p, o, have[o], what)
		}
		have[o] = what
	}
	num := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	}
	pointers := w.raw.HGetAll(ctx, prefix+keyPointers+tail).Val()
	for _, block := range w.raw.HGetAll(ctx, prefix+keyBlocks+tail).Val() {
		_, extents, _ := strings.Cut(block, "|")
		for x := range strings.SplitSeq(extents, "|") {
			f := strings.Split(x, ",")
			for i := range num(f[1]) {
				state := f[3][0]
				if len(f[3]) > 1 {
					state = f[3][i]
				}
				if state == 'L' || state == 'M' {
					put(num(f[0])+i, "leased")
				}
			}
		}
	}
	for _, o := range w.raw.ZRange(ctx, prefix+keyOwed+tail, 0, -1).Val() {
		if strings.HasPrefix(pointers[o], "3") {
			put(num(o), "scheduled")
		} else {
			put(num(o), "owed")
		}
	}
	for _, m := range w.raw.ZRange(ctx, prefix+keyWaiting+tail, 0, -1).Val() {
		put(num(m[len(m)-16:]), "waiting")
	}
	for _, pair := range w.raw.ZRange(ctx, prefix+keyFairTurns, 0, -1).Val() {
		if strings.HasPrefix(pair, tail[1:]+":") {
			for _, o := range w.raw.ZRange(ctx, prefix+keyFairWaiting+":"+pair, 0, -1).Val() {
				put(num(o), "waiting")
			}
		}
	}
	for o, v := range pointers {
		if v[0] == '2' {
			put(num(o), "dead")
		}
	}
	return have
}
