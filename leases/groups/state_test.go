package groups

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

func member(id string, topics ...string) journal.GroupMember {
	return journal.GroupMember{ID: id, Topics: topics, Session: 10_000}
}

func topics(parts ...int) map[string]topicView {
	out := map[string]topicView{}
	for i, n := range parts {
		out[fmt.Sprintf("t%d", i)] = topicView{ID: metadata.TopicID(100 + i), Partitions: n}
	}
	return out
}

func owned(s *journal.GroupState, id string) (keeps, revoked int) {
	k, r := ownedBy(s, id)
	return len(k), len(r)
}

func TestAJoinTakesNothingBeforeItIsLetGo(t *testing.T) {
	ts := topics(4)
	s := next(nil, 1, ts, []event{joined{member("a", "t0")}})
	if k, r := owned(s, "a"); k != 4 || r != 0 || !settled(s) {
		t.Fatal(k, r)
	}
	s = next(s, 2, ts, []event{joined{member("b", "t0")}})
	if k, r := owned(s, "a"); k != 2 || r != 2 || settled(s) {
		t.Fatal(k, r)
	}
	if k, r := owned(s, "b"); k != 0 || r != 0 {
		t.Fatal(k, r)
	}
	keeps, revoked := ownedBy(s, "a")
	holds := map[journal.GroupPartition]bool{keeps[0].GroupPartition: true, keeps[1].GroupPartition: true, revoked[0].GroupPartition: true}
	if (letGo{"a", 1, holds}).released(s) != nil {
		t.Fatal("a heartbeat from before the revocation let go")
	}
	s = next(s, 3, ts, []event{letGo{"a", 2, holds}})
	if k, _ := owned(s, "b"); k != 1 {
		t.Fatal(k)
	}
	if _, r := owned(s, "a"); r != 1 {
		t.Fatal("it was let go without having been")
	}
	s = next(s, 4, ts, []event{left{"a"}})
	if k, r := owned(s, "b"); k != 4 || r != 0 || !settled(s) {
		t.Fatal(k, r)
	}
}

func TestAnInstanceTakesOver(t *testing.T) {
	ts := topics(4)
	a := member("a", "t0")
	a.Instance = "pod-1"
	s := next(nil, 1, ts, []event{joined{a}, joined{member("b", "t0")}})
	before, _ := ownedBy(s, "a")
	a.ID = "z"
	s = next(s, 2, ts, []event{joined{a}})
	after, _ := ownedBy(s, "z")
	if len(after) != 2 || !slices.Equal(before, after) || memberOf(s, "a") != nil || !settled(s) {
		t.Fatalf("%v became %v", before, after)
	}
}

func TestTopicsComeAndGo(t *testing.T) {
	ts := topics(2, 2)
	s := next(nil, 1, ts, []event{joined{member("a", "t0", "t1")}})
	if outdated(s, ts) {
		t.Fatal("outdated at once")
	}
	never := func(journal.GroupPartition) bool { return false }
	for _, b := range begins(nil, s, never) {
		if b.earliest {
			t.Fatal("a new topic begins at the latest record")
		}
	}
	ts = topics(3, 2)
	if !outdated(s, ts) {
		t.Fatal("a partition more is not seen")
	}
	was := s
	s = next(s, 2, ts, nil)
	if k, _ := owned(s, "a"); k != 5 {
		t.Fatal(k)
	}
	had := func(p journal.GroupPartition) bool { return p.Partition < 2 }
	if bs := begins(was, s, had); len(bs) != 1 || !bs[0].earliest || bs[0].Partition != 2 {
		t.Fatalf("a partition that was added begins at %+v", bs)
	}
	// The topic is deleted and made again: another one.
	delete(ts, "t0")
	if !outdated(s, ts) {
		t.Fatal("a deletion is not seen")
	}
	s = next(s, 3, ts, nil)
	if k, _ := owned(s, "a"); k != 2 || outdated(s, ts) {
		t.Fatal(k)
	}
	ts["t0"] = topicView{ID: 900, Partitions: 1}
	was = s
	s = next(s, 4, ts, nil)
	if bs := begins(was, s, had); len(bs) != 0 {
		t.Fatal(bs)
	}
	if bs := begins(was, s, never); len(bs) != 3 || bs[0].Topic != 900 || !bs[0].earliest || bs[1].earliest {
		t.Fatalf("%+v", bs)
	}
	// Nobody wants it any more: it is let go, and remembered.
	s = next(s, 5, ts, []event{joined{member("a", "t1")}})
	if k, r := owned(s, "a"); k != 2 || r != 1 {
		t.Fatal(k, r)
	}
	s = next(s, 6, ts, []event{letGo{member: "a", generation: 5}})
	if _, r := owned(s, "a"); r != 0 || len(s.Topics) != 2 || !settled(s) {
		t.Fatalf("%+v", s)
	}
}

// Deleted topics are remembered, but not without end.
func TestDeletedTopicsAreForgottenInTheEnd(t *testing.T) {
	var s *journal.GroupState
	var never map[string]topicView
	for i := range 3 * maxDeleted {
		name := fmt.Sprintf("d%d", i)
		s = next(s, int64(2*i+1), map[string]topicView{name: {ID: metadata.TopicID(i + 1), Partitions: 1}}, []event{joined{member("a", name)}})
		s = next(s, int64(2*i+2), never, []event{left{"a"}})
	}
	if len(s.Topics) != maxDeleted || slices.ContainsFunc(s.Topics, func(t journal.GroupTopic) bool { return t.ID <= 2*maxDeleted }) {
		t.Fatalf("%d: %+v", len(s.Topics), s.Topics)
	}
}

// client is a member as it sees itself. It may be wrong about that.
type client struct {
	id, instance string
	topics       []string
	member       bool // it has joined and was not told otherwise
	generation   int64
	holds        map[journal.GroupPartition]bool
	revoked      map[journal.GroupPartition]bool // to be let go
}

// beat is a heartbeat under way. It may arrive late, and more than once.
type beat struct {
	c     *client
	letGo letGo
}

// walk is a group with its clients, and everything that can happen to them, in any order.
type walk struct {
	t       *testing.T
	rng     *rand.Rand
	s       *journal.GroupState
	g       int64
	parts   []int
	ids     int
	clients []*client
	live    map[string]*client // sessions, by member
	flying  []beat
	log     []string
}

func (w *walk) step(events ...event) {
	w.g += 1 + int64(w.rng.IntN(3)) // generations that nobody saw
	w.s = next(w.s, w.g, topics(w.parts...), events)
	for id := range w.live {
		if memberOf(w.s, id) == nil {
			delete(w.live, id)
		}
	}
	w.check()
}

// answer is what a client is told.
func (w *walk) answer(c *client) {
	if w.s.Generation < c.generation {
		return // late
	}
	c.generation = w.s.Generation
	keeps, revoked := ownedBy(w.s, c.id)
	now := map[journal.GroupPartition]bool{}
	clear(c.revoked)
	for _, p := range keeps {
		now[p.GroupPartition] = true
	}
	for _, p := range revoked {
		if c.holds[p.GroupPartition] {
			now[p.GroupPartition], c.revoked[p.GroupPartition] = true, true
		}
	}
	c.holds = now
	w.check()
}

func (w *walk) stale(c *client) {
	c.member = false
	clear(c.holds)
	clear(c.revoked)
}

func (w *walk) join(c *client) {
	if c.id == "" || w.rng.IntN(8) == 0 && c.instance != "" {
		w.ids++
		c.id = fmt.Sprintf("m%03d", w.ids)
		clear(c.holds) // a new process
		clear(c.revoked)
	}
	m := member(c.id, c.topics...)
	m.Instance = c.instance
	w.step(joined{m})
	c.member = true
	if w.live[c.id] == nil {
		clear(c.holds) // its session had lapsed; what it went on to hold ends with this answer
	}
	w.live[c.id] = c
	w.answer(c)
}

func (w *walk) send(c *client) {
	b := beat{c, letGo{c.id, c.generation, maps.Clone(c.holds)}}
	w.flying = append(w.flying, b)
	if len(w.flying) > 20 {
		w.flying = w.flying[1:]
	}
}

func (w *walk) arrive(b beat, answered bool) {
	if w.live[b.letGo.member] == nil || memberOf(w.s, b.letGo.member).Absent {
		if answered && b.c.id == b.letGo.member {
			w.stale(b.c)
		}
		return
	}
	if len(b.letGo.released(w.s)) > 0 {
		w.step(b.letGo)
	}
	if answered && b.c.id == b.letGo.member && b.c.member {
		w.answer(b.c)
	}
}

func (w *walk) check() {
	w.t.Helper()
	holder := map[journal.GroupPartition]string{}
	for id, c := range w.live {
		if c.id != id {
			continue // another process is this member now
		}
		for p := range c.holds {
			if other, is := holder[p]; is {
				w.t.Fatalf("%s and %s hold %v: %v\n%+v", other, id, p, w.log, w.s)
			}
			holder[p] = id
		}
	}
	for ti := range w.s.Topics {
		for p, l := range w.s.Topics[ti].Slots {
			at := journal.GroupPartition{Topic: w.s.Topics[ti].ID, Partition: int32(p)}
			if l.Owner != "" && memberOf(w.s, l.Owner) == nil || l.Target != "" && memberOf(w.s, l.Target) == nil {
				w.t.Fatalf("%v belongs to strangers: %+v", at, l)
			}
			if h, is := holder[at]; is && h != l.Owner {
				w.t.Fatalf("%s holds %v of %q: %v", h, at, l.Owner, w.log)
			}
			if l.Owner != l.Target && (l.Since == 0 || l.Since > w.s.Generation) || l.Owner == "" && l.Target != "" {
				w.t.Fatalf("%v: %+v in generation %d", at, l, w.s.Generation)
			}
		}
	}
}

func (w *walk) random() {
	c := w.clients[w.rng.IntN(len(w.clients))]
	switch what := w.rng.IntN(20); {
	case !c.member:
		w.log = append(w.log, "join "+c.id)
		w.join(c)
	case what < 6:
		w.log = append(w.log, "send "+c.id)
		w.send(c)
	case what < 12 && len(w.flying) > 0:
		b := w.flying[w.rng.IntN(len(w.flying))]
		w.log = append(w.log, "arrive "+b.letGo.member)
		w.arrive(b, w.rng.IntN(3) > 0)
	case what < 15: // it finishes what it is to let go
		w.log = append(w.log, "finish "+c.id)
		for p := range c.revoked {
			if w.rng.IntN(2) == 0 {
				delete(c.holds, p)
				delete(c.revoked, p)
			}
		}
	case what == 15: // its session lapses and it does not know
		w.log = append(w.log, "lapse "+c.id)
		w.step(left{c.id})
	case what == 16:
		w.log = append(w.log, "leave "+c.id)
		w.stale(c)
		w.step(left{c.id})
	case what == 17 && w.rng.IntN(5) == 0: // Redis is lost
		w.log = append(w.log, "lost")
		var es []event
		for i := range w.s.Members {
			es = append(es, forgotten{w.s.Members[i].ID})
		}
		w.step(es...)
	case what == 18:
		w.log = append(w.log, "again "+c.id)
		w.join(c)
	case what == 19 && w.rng.IntN(3) == 0:
		i := w.rng.IntN(len(w.parts))
		w.parts[i]++
		w.log = append(w.log, "partition")
		w.step()
	}
}

// settle lets everybody do what they should.
func (w *walk) settle() {
	for range 5 {
		for _, c := range w.clients {
			if !c.member || w.live[c.id] != c || memberOf(w.s, c.id).Absent {
				w.stale(c)
				w.join(c)
			}
			for p := range c.revoked {
				delete(c.holds, p)
			}
			w.arrive(beat{c, letGo{c.id, c.generation, maps.Clone(c.holds)}}, true)
			for p := range c.revoked {
				delete(c.holds, p)
			}
			w.arrive(beat{c, letGo{c.id, c.generation, maps.Clone(c.holds)}}, true)
		}
		if alive := slices.Collect(maps.Keys(w.live)); len(alive) > len(w.clients) {
			for _, id := range alive { // processes that were replaced
				if w.live[id].id != id {
					w.step(left{id})
				}
			}
		}
	}
	if !settled(w.s) {
		w.t.Fatalf("it does not come to rest: %+v", w.s)
	}
	total := 0
	for _, c := range w.clients {
		keeps, _ := ownedBy(w.s, c.id)
		if len(keeps) != len(c.holds) {
			w.t.Fatalf("%s owns %d and holds %d", c.id, len(keeps), len(c.holds))
		}
		total += len(keeps)
	}
	all := 0
	for i, n := range w.parts {
		if slices.ContainsFunc(w.clients, func(c *client) bool { return slices.Contains(c.topics, fmt.Sprintf("t%d", i)) }) {
			all += n
		}
	}
	if total != all {
		w.t.Fatalf("%d of %d partitions are owned", total, all)
	}
}

// No partition is held by two whose sessions live, whatever comes late, twice or never; and when things calm down everything is owned and held.
func TestRandomWalks(t *testing.T) {
	for seed := range uint64(150) {
		w := &walk{t: t, rng: rand.New(rand.NewPCG(seed, 9)), parts: []int{1 + int(seed%7), 3}, live: map[string]*client{}}
		for i := range 2 + int(seed%5) {
			c := &client{topics: []string{"t0"}, holds: map[journal.GroupPartition]bool{}, revoked: map[journal.GroupPartition]bool{}}
			if i%2 == 0 {
				c.instance = fmt.Sprintf("i%d", i)
			}
			if w.rng.IntN(2) == 0 {
				c.topics = []string{"t0", "t1"}
			}
			w.clients = append(w.clients, c)
		}
		for range 300 {
			w.random()
		}
		w.settle()
	}
}
