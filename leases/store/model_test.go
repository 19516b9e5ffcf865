package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/forebaymq/forebay/leases/journal"
)

// The model says what becomes of every record of a queue, with none of the scripts' structures: one state a record and nothing else.

type recordState int

const (
	stNew recordState = iota
	stLeased
	stOwed
	stWaiting
	stScheduled
	stDead
	stSettled
)

func (s recordState) String() string {
	return [...]string{"new", "leased", "owed", "waiting", "scheduled", "dead", "settled"}[s]
}

type record struct {
	state    recordState
	passed   bool // the frontier does not wait for it
	pointer  bool // it is remembered by itself
	attempts int32
	due      int64
	key      uint64
	copying  bool // dead, its copy is awaited
	nonce    string
	attempt  int32
	expires  int64
}

type shardModel struct {
	records []record // by offset; its length is the head
	cursor  int64
	skipped int64
}

func (m *shardModel) frontier() int64 {
	for o := range m.records {
		if !m.records[o].passed {
			return int64(o)
		}
	}
	return int64(len(m.records))
}

func (m *shardModel) count(f func(*record) bool) (n int64) {
	for o := range m.records {
		if f(&m.records[o]) {
			n++
		}
	}
	return n
}

func (m *shardModel) in(states ...recordState) int64 {
	return m.count(func(r *record) bool { return slices.Contains(states, r.state) })
}

type queueModel struct {
	q      *Queue
	now    int64
	shards map[int32]*shardModel
	acked  map[Receipt]bool
}

func newModel(q *Queue, partitions ...int32) *queueModel {
	m := &queueModel{q: q, shards: map[int32]*shardModel{}, acked: map[Receipt]bool{}}
	for _, p := range partitions {
		m.shards[p] = &shardModel{}
	}
	return m
}

func (m *queueModel) partitions() []int32 { return slices.Sorted(maps.Keys(m.shards)) }

// active: a record that keeps its key from others.
func (r *record) active() bool {
	return r.state == stLeased || r.state == stOwed || r.state == stScheduled
}

func (m *queueModel) locked(s *shardModel, key uint64) bool {
	return m.q.Ordered && key != 0 && s.count(func(r *record) bool { return r.key == key && r.active() }) > 0
}

// unlock gives a key to the lowest record that waits for it.
func (m *queueModel) unlock(s *shardModel, key uint64) {
	if !m.q.Ordered || key == 0 || m.locked(s, key) {
		return
	}
	for o := range s.records {
		if r := &s.records[o]; r.key == key && r.state == stWaiting {
			m.owe(r, max(m.now, pointerDue(r)))
			return
		}
	}
}

func pointerDue(r *record) int64 {
	if r.pointer {
		return r.due
	}
	return 0
}

func (m *queueModel) owe(r *record, due int64) {
	r.state, r.nonce = stOwed, ""
	r.due = due
}

// deliverable makes a record owed, or waiting for its key.
func (m *queueModel) deliverable(s *shardModel, r *record, due int64) {
	if m.locked(s, r.key) {
		r.state, r.due = stWaiting, due
		return
	}
	m.owe(r, due)
}

func (m *queueModel) settled(s *shardModel, r *record) {
	r.state, r.passed, r.pointer, r.nonce = stSettled, true, false, ""
	m.unlock(s, r.key)
}

func (m *queueModel) fail(s *shardModel, r *record, due int64) {
	r.attempts, r.pointer = r.attempt, true
	if int(r.attempt) < m.q.MaxAttempts {
		m.owe(r, due)
		return
	}
	r.state, r.nonce = stDead, ""
	r.copying = m.q.CopyDead
	r.passed = r.passed || !r.copying
	m.unlock(s, r.key)
}

// lapse is what every script does first.
func (m *queueModel) lapse() (n int) {
	for _, p := range m.partitions() {
		s := m.shards[p]
		for o := range s.records {
			if r := &s.records[o]; r.state == stLeased && r.expires <= m.now {
				m.fail(s, r, m.now)
				n++
			}
		}
	}
	return n
}

// known: an offset at or behind the cursor that a rebuild has told of already.
func (r *record) known() bool { return r.passed || r.pointer }

// grant checks what was granted, and that nothing was withheld.
func (m *queueModel) grant(a *Acquired, most int, visibility int64) error {
	n := 0
	fresh := false
	for _, g := range a.Grants {
		s := m.shards[g.Partition]
		for o := g.Start; o < g.Start+int64(g.Count); o++ {
			n++
			r := &s.records[o]
			if r.state == stNew && !m.q.Keyed() {
				fresh = true
				for s.cursor < o && s.records[s.cursor].known() {
					s.cursor++
				}
				if s.cursor != o {
					return fmt.Errorf("%d:%d granted with the cursor at %d", g.Partition, o, s.cursor)
				}
				s.cursor++
			} else if due := r.state == stOwed || m.q.Fair && r.state == stWaiting || r.state == stScheduled; !due || r.due > m.now {
				return fmt.Errorf("%d:%d granted while %v, due in %d", g.Partition, o, r.state, r.due-m.now)
			}
			if g.Attempt != r.attempts+1 {
				return fmt.Errorf("%d:%d granted with attempt %d after %d", g.Partition, o, g.Attempt, r.attempts)
			}
			if g.Expires != m.now+visibility {
				return fmt.Errorf("%d:%d expires at %d", g.Partition, o, g.Expires)
			}
			r.state, r.nonce, r.attempt, r.expires = stLeased, g.Nonce, g.Attempt, g.Expires
		}
	}
	if n > most {
		return fmt.Errorf("%d granted of %d", n, most)
	}
	for p, s := range m.shards {
		full := s.in(stLeased) >= int64(m.q.MaxInFlight)
		if s.in(stLeased) > int64(m.q.MaxInFlight) || s.cursor-s.frontier() > int64(m.q.MaxAckedAhead) {
			return fmt.Errorf("partition %d is over its caps", p)
		}
		left := s.count(func(r *record) bool {
			return (r.state == stOwed || r.state == stScheduled || m.q.Fair && r.state == stWaiting) && r.due <= m.now
		})
		if left > 0 && !full && (n < most || fresh) {
			return fmt.Errorf("%d owed records of partition %d were not granted", left, p)
		}
		for s.cursor < int64(len(s.records)) && s.records[s.cursor].known() {
			s.cursor++
		}
		if !m.q.Keyed() && n < most && !full && s.cursor < int64(len(s.records)) && s.cursor-s.frontier() < int64(m.q.MaxAckedAhead) {
			return fmt.Errorf("new records of partition %d were not granted", p)
		}
	}
	return nil
}

// settle gives what each receipt must be answered.
func (m *queueModel) settle(op Op, rs []Receipt, o SettleOptions, due func(int) int64) []bool {
	ok := make([]bool, len(rs))
	done := map[Receipt]bool{}
	for i, rc := range rs {
		s := m.shards[rc.Partition]
		if v, again := done[rc]; again {
			ok[i] = v
			continue
		}
		if rc.Offset >= 0 && rc.Offset < int64(len(s.records)) {
			r := &s.records[rc.Offset]
			if r.state == stLeased && r.nonce == rc.Nonce && r.expires > m.now {
				ok[i] = true
				m.apply(s, r, rc, op, o, func() int64 { return due(i) })
			} else if op == OpAck || op == OpSkip {
				ok[i] = m.acked[rc]
			}
		}
		done[rc] = ok[i]
	}
	return ok
}

func (m *queueModel) apply(s *shardModel, r *record, rc Receipt, op Op, o SettleOptions, due func() int64) {
	switch op {
	case OpSkip, OpAck:
		if op == OpSkip {
			s.skipped++
		}
		m.acked[rc] = true
		m.settled(s, r)
	case OpNack:
		m.fail(s, r, m.now+ms(o.Delay))
	case OpExtend:
		r.expires = m.now + ms(o.Visibility)
	case OpRelease:
		m.owe(r, m.now)
	case opSchedule:
		r.passed, r.pointer = true, true
		r.state, r.due, r.nonce = stOwed, due(), ""
	}
}

// admit makes records from the cursor on deliverable, as far as the cap goes.
func (m *queueModel) admit(p int32, r AdmitRequest) {
	s := m.shards[p]
	in := map[int64]Candidate{}
	for _, c := range r.Records {
		in[c.Offset] = c
	}
	for ; s.cursor < r.Through && s.cursor-s.frontier() < int64(m.q.MaxAckedAhead); s.cursor++ {
		rec := &s.records[s.cursor]
		c, there := in[s.cursor]
		switch {
		case rec.known():
		case !there:
			s.skipped++
			m.settled(s, rec)
		default:
			rec.key = c.KeyHash
			if c.DeliverAt > m.now && !m.locked(s, rec.key) {
				rec.passed, rec.pointer = true, true
				m.owe(rec, c.DeliverAt)
			} else {
				m.deliverable(s, rec, m.now)
			}
		}
	}
}

func (m *queueModel) redrive(t journal.Target) bool {
	s := m.shards[t.Partition]
	r := &s.records[t.Offset]
	if r.state != stDead {
		return false
	}
	r.copying, r.passed, r.attempts, r.pointer = false, true, 0, true
	r.state = stWaiting // not active yet
	m.deliverable(s, r, m.now)
	return true
}

func (m *queueModel) discard(t journal.Target) bool {
	s := m.shards[t.Partition]
	r := &s.records[t.Offset]
	if r.state != stDead {
		return false
	}
	r.copying = false
	m.settled(s, r)
	return true
}

func (m *queueModel) buried(t journal.Target) {
	if r := &m.shards[t.Partition].records[t.Offset]; r.state == stDead {
		r.copying, r.passed = false, true
	}
}

// rebuilt is what is left when Redis is lost and the journal has everything: pointers and what is settled.
func (m *queueModel) rebuilt() {
	m.acked = map[Receipt]bool{}
	for _, s := range m.shards {
		for o := range s.records {
			r := &s.records[o]
			r.nonce = ""
			if !r.pointer && !r.passed {
				r.state = stNew
			} else if r.state != stDead && r.state != stSettled {
				r.state = stNew // until its turn below
			}
		}
		s.cursor = s.frontier()
		for o := range s.records {
			if r := &s.records[o]; r.pointer && r.state == stNew {
				m.deliverable(s, r, max(m.now, r.due))
			}
		}
	}
}
