package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// groupLoad is one group that reads a topic, by members that behave badly in turn: each works on so many batches, and then dies without a word, stalls for
// longer than its session and comes back as a zombie, or leaves. Another one takes its seat.
type groupLoad struct {
	group, topic string
	seats        int
	batch        int           // records a poll or a read
	pace         time.Duration // how long a member works on a batch
	concurrency  int           // of a Consumer's handlers
	life         int           // batches before a member does something, about; 0 = all behave
	session      time.Duration
	seed         uint64
	token        string
	nodes        []string // base URLs; each call goes to one of them
	records      map[slot]origin
	heads        []int64
	h            *GroupHistory
	ends         [3]atomic.Int64 // how often a member has died, stalled, left
	took         time.Duration   // until everything was read
}

// What a member does when its life is over.
const (
	groupDies = iota
	groupStalls
	groupLeaves
)

// newGroupLoad is a group over records that stand in a topic.
func newGroupLoad(group, topic string, seats int, records map[slot]origin, token string, nodes ...string) *groupLoad {
	l := &groupLoad{group: group, topic: topic, seats: seats, concurrency: 8, session: time.Second, token: token, nodes: nodes, records: records, h: newGroupHistory()}
	l.heads = make([]int64, queuePartitions)
	for s := range records {
		l.heads[s.partition] = max(l.heads[s.partition], s.offset+1)
	}
	return l
}

// process is a new process that is tapped; rest speaks for it.
func (l *groupLoad) process(t *testing.T, who string) (*groupTap, *rest) {
	r := newRest("", l.token)
	tap := &groupTap{h: l.h, who: who, group: l.group, base: r.http.Transport}
	t.Cleanup(r.http.CloseIdleConnections)
	r.http.Transport = tap
	return tap, r
}

// groupState is a group as its description tells.
type groupState struct {
	Generation int64  `json:"generation"`
	State      string `json:"state"`
	Members    []struct {
		MemberID string `json:"memberId"`
	} `json:"members"`
	Partitions []struct {
		Partition int    `json:"partition"`
		Owner     string `json:"owner"`
		Committed *int64 `json:"committed"`
		Head      int64  `json:"head"`
		LogStart  int64  `json:"logStart"`
		Lag       int64  `json:"lag"`
		Gap       *struct{ From, To int64 }
	} `json:"partitions"`
}

// finished says whether a node describes the group as one that has read everything.
func (l *groupLoad) finished(ctx context.Context, node *rest) error {
	var s groupState
	if err := node.call(ctx, "GET", "/v1/groups/"+l.group, nil, &s); err != nil {
		return err
	}
	if len(s.Partitions) != len(l.heads) {
		return fmt.Errorf("%d partitions are described, want %d", len(s.Partitions), len(l.heads))
	}
	for _, p := range s.Partitions {
		if p.Head != l.heads[p.Partition] || p.Committed == nil || *p.Committed != p.Head || p.Lag != 0 {
			at := int64(-1)
			if p.Committed != nil {
				at = *p.Committed
			}
			return fmt.Errorf("partition %d: committed %d, head %d, want %d, lag %d, owner %q", p.Partition, at, p.Head, l.heads[p.Partition], p.Lag, p.Owner)
		}
	}
	return nil
}

// run has the members work until the group has read everything, and looks at the committed offsets meanwhile.
func (l *groupLoad) run(ctx context.Context, t *testing.T, seat func(ctx context.Context, t *testing.T, seat int, done <-chan struct{})) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range l.seats {
		wg.Go(func() { seat(ctx, t, i, done) })
	}
	_, observer := l.process(t, "observer")
	rng := rand.New(rand.NewPCG(l.seed, 1<<40))
	offsets := func() {
		observer.base = l.nodes[rng.IntN(len(l.nodes))]
		_ = observer.call(ctx, "GET", "/v1/groups/"+l.group+"/offsets", nil, nil) // the tap notes it
	}
	err := errors.New("not begun")
	for pause(ctx, nil, 100*time.Millisecond) {
		offsets()
		observer.base = l.nodes[rng.IntN(len(l.nodes))]
		if err = l.finished(ctx, observer); err == nil {
			break
		}
	}
	l.took = time.Duration(l.h.now())
	close(done)
	wg.Wait()
	if err != nil {
		t.Errorf("group %s has not read everything: %v", l.group, err)
	}
	if err := within(ctx, func() error { // also when all its members are gone
		offsets()
		return l.finished(ctx, observer)
	}); err != nil {
		t.Errorf("group %s: %v", l.group, err)
	}
}

// verdict fails the test for what the checker found, and says what the history was worth.
func (l *groupLoad) verdict(t *testing.T) *groupReport {
	t.Helper()
	r := l.h.Check(groupRules{session: l.session, slack: 20 * time.Millisecond, heads: l.heads, records: l.records})
	t.Logf("group %s: read in %v, %d generations, %d commits, %d commits of zombies refused, %d sessions lost, %d records processed again; %d deaths, %d stalls, %d leaves", l.group, l.took.Round(time.Millisecond),
		r.generations, r.commits, r.zombies, r.lapsed, r.repeats, l.ends[groupDies].Load(), l.ends[groupStalls].Load(), l.ends[groupLeaves].Load())
	for _, p := range r.problems {
		t.Errorf("group %s: %s", l.group, p)
	}
	return r
}

// groupMember is one process that is a member by calls of the REST interface alone.
type groupMember struct {
	*rest
	l          *groupLoad
	t          *testing.T
	rng        *rand.Rand
	who        string
	nodes      []string // base URLs: each call goes to one of them
	polls      bool     // it reads by polls, else from the offsets that it is told
	id         string
	generation int64
	at         map[int]int64 // what it owns, and where it goes on
	pending    map[int]bool  // what it has processed and not committed
	revoked    map[int]bool
	foreign    int       // a partition that was another's when it was last told; -1 = none
	beat       time.Time // when its last heartbeat began
}

// rawSeat is a seat that members take one after the other.
func (l *groupLoad) rawSeat(ctx context.Context, t *testing.T, seat int, done <-chan struct{}) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(seat)))
	id := ""
	for n := 0; pause(ctx, done, 0); n++ {
		m, tap := l.member(t, rng, fmt.Sprintf("%s/%d.%d", l.group, seat, n))
		m.id, m.polls = id, seat%2 == 0
		end := (seat + n) % 3
		if !m.work(ctx, done, max(l.life/2, 1)+rng.IntN(max(l.life, 1))) { // the work is over
			m.leave(ctx)
			return
		}
		l.ends[end].Add(1)
		id = ""
		switch end {
		case groupDies:
			tap.kill()
			pause(ctx, done, time.Duration(rng.IntN(1000))*time.Millisecond)
		case groupStalls:
			if id = m.stall(ctx, done); rng.IntN(2) == 0 {
				id = "" // or as somebody new
			}
		case groupLeaves:
			m.leave(ctx)
		}
		m.http.CloseIdleConnections()
	}
}

// member is a new process that will be a member.
func (l *groupLoad) member(t *testing.T, rng *rand.Rand, who string) (*groupMember, *groupTap) {
	tap, r := l.process(t, who)
	return &groupMember{rest: r, l: l, t: t, rng: rng, who: who, nodes: l.nodes}, tap
}

// call goes to some node. What the contract permits at any time is an error for the caller alone.
func (m *groupMember) call(ctx context.Context, method, path string, in, out any) error {
	m.base = m.nodes[m.rng.IntN(len(m.nodes))]
	err := m.rest.call(ctx, method, path, in, out)
	var p *problem
	if errors.As(err, &p) && p.Status != 409 && p.Status != 503 && p.Status != 504 {
		m.t.Errorf("%s: %s %s: %v", m.who, method, path, err)
	}
	return err
}

// ask calls the group.
func (m *groupMember) ask(ctx context.Context, what string, in map[string]any, out any) error {
	in["memberId"] = m.id
	method := "POST"
	if what == "offsets" {
		method = "PUT"
	}
	return m.call(ctx, method, "/v1/groups/"+m.l.group+"/"+what, in, out)
}

func code(err error) string {
	var p *problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// join makes it a member, the one that it was if it can be, and has it go on from the committed offsets.
func (m *groupMember) join(ctx context.Context, done <-chan struct{}) bool {
	for {
		began := time.Now()
		var out groupBody
		in := map[string]any{"topics": []string{m.l.topic}, "start": "earliest", "sessionTimeout": m.l.session.String()}
		if err := m.ask(ctx, "join", in, &out); err == nil {
			m.id, m.generation, m.beat = out.MemberID, out.Generation, began
			m.at, m.pending, m.revoked = groupPlaces(out.Assignment), map[int]bool{}, map[int]bool{}
			m.look()
			return true
		}
		if !pause(ctx, done, 50*time.Millisecond) {
			return false
		}
	}
}

// look finds a partition of somebody else.
func (m *groupMember) look() {
	m.foreign = -1
	for p := range m.l.heads {
		if _, ok := m.at[p]; !ok {
			m.foreign = p
			return
		}
	}
}

// heartbeat says what it holds: not what it was told to let go, once all of that is committed. In a new generation it commits what is left to commit.
func (m *groupMember) heartbeat(ctx context.Context, done <-chan struct{}) bool {
	owned := []groupPlace{}
	for p := range m.at {
		if !m.revoked[p] || m.pending[p] {
			owned = append(owned, groupPlace{Topic: m.l.topic, Partition: p})
		} else {
			delete(m.at, p)
		}
	}
	began := time.Now()
	var out groupBody
	in := map[string]any{"generation": m.generation, "owned": placesOnly(owned)}
	switch err := m.ask(ctx, "heartbeat", in, &out); {
	case code(err) == "STALE_GENERATION":
		return m.join(ctx, done)
	case err != nil:
		return true // the session may still last
	}
	m.beat = began
	before := m.generation
	m.generation, m.revoked = out.Generation, groupSet(out.Revoke)
	assigned := groupPlaces(out.Assignment)
	for p := range m.at {
		if _, ok := assigned[p]; !ok && !m.revoked[p] {
			delete(m.at, p)
			delete(m.pending, p)
		}
	}
	for p, at := range assigned {
		if _, ok := m.at[p]; !ok {
			m.at[p] = at
		}
	}
	m.look()
	if before != m.generation {
		if m.rng.IntN(4) == 0 && len(m.at) > 0 { // it was told, and commits as if it was not
			m.commit(ctx, before, false)
		}
		m.commit(ctx, m.generation, false)
	}
	return true
}

// placesOnly leaves the offsets out, which the interface does not know here.
func placesOnly(all []groupPlace) []map[string]any {
	out := make([]map[string]any, len(all))
	for i, p := range all {
		out[i] = map[string]any{"topic": p.Topic, "partition": p.Partition}
	}
	return out
}

// commit commits what it has processed; everything, where nothing is pending and the generation is old. With foreign it adds a partition of another member.
func (m *groupMember) commit(ctx context.Context, generation int64, foreign bool) error {
	var offsets []groupPlace
	for p, at := range m.at {
		if m.pending[p] || generation != m.generation {
			offsets = append(offsets, groupPlace{m.l.topic, p, at})
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	if foreign {
		offsets = append(offsets, groupPlace{m.l.topic, m.foreign, 0})
	}
	err := m.ask(ctx, "offsets", map[string]any{"generation": generation, "offsets": offsets}, nil)
	if err == nil {
		clear(m.pending)
	}
	return err
}

func (m *groupMember) leave(ctx context.Context) {
	_ = m.ask(ctx, "leave", map[string]any{}, nil)
}

// work reads, processes and commits so many batches; false when the work is over.
func (m *groupMember) work(ctx context.Context, done <-chan struct{}, batches int) bool {
	if !m.join(ctx, done) {
		return false
	}
	for m.l.life == 0 || batches > 0 {
		if !pause(ctx, done, 0) {
			return false
		}
		if time.Since(m.beat) > m.l.session/3 && !m.heartbeat(ctx, done) {
			return false
		}
		found, err := m.some(ctx)
		switch {
		case code(err) == "STALE_GENERATION":
			if !m.heartbeat(ctx, done) {
				return false
			}
			continue
		case err != nil: // the answer of a poll may have been lost
			if !m.join(ctx, done) {
				return false
			}
			continue
		case !found && !pause(ctx, done, 50*time.Millisecond):
			return false
		case !found:
			continue
		}
		batches--
		if !pause(ctx, done, m.l.pace) {
			return false
		}
		if m.foreign >= 0 && m.rng.IntN(20) == 0 {
			if err := m.commit(ctx, m.generation, true); err == nil {
				m.t.Errorf("%s: a commit of partition %d, which is another's, was accepted", m.who, m.foreign)
			}
		}
		if err := m.commit(ctx, m.generation, false); code(err) == "STALE_GENERATION" && !m.heartbeat(ctx, done) {
			return false
		}
	}
	return true
}

// stall reads once more and then sleeps for longer than its session lasts. It comes back, processes what it has read, commits it, and asks for more, all of it in
// the generation that it knows. It gives its ID.
func (m *groupMember) stall(ctx context.Context, done <-chan struct{}) string {
	_, _ = m.some(ctx)
	if !pause(ctx, done, m.l.session+time.Duration(300+m.rng.IntN(700))*time.Millisecond) {
		return m.id
	}
	for p := range m.at {
		m.pending[p] = true
	}
	_ = m.commit(ctx, m.generation, false)
	_ = m.ask(ctx, "poll", map[string]any{"generation": m.generation}, nil)
	_ = m.ask(ctx, "heartbeat", map[string]any{"generation": m.generation}, nil)
	_ = m.commit(ctx, m.generation, false)
	return m.id
}

// some reads and processes a batch, by its way of reading.
func (m *groupMember) some(ctx context.Context) (found bool, err error) {
	type record struct {
		Offset int64  `json:"offset"`
		Key    string `json:"key"`
	}
	process := func(p int, records []record, next, asked int64) {
		if len(records) == 0 {
			return
		}
		for i, rec := range records {
			if want, ok := m.l.records[slot{p, rec.Offset}]; !ok || want.key != rec.Key || rec.Offset != records[0].Offset+int64(i) {
				m.t.Errorf("%s: record %d of partition %d has key %q, published was %q (%v); it is the %d. from %d on", m.who, rec.Offset, p, rec.Key, want.key, ok, i, records[0].Offset)
			}
		}
		if last := records[len(records)-1].Offset + 1; last != next {
			m.t.Errorf("%s: partition %d: after %d comes %d", m.who, p, last, next)
		}
		m.l.h.processed(groupBatch{who: m.who, partition: p, from: records[0].Offset, to: next, asked: asked})
		m.at[p], m.pending[p], found = next, true, true
	}
	if m.polls {
		var out struct {
			Partitions []struct {
				Partition  int      `json:"partition"`
				Records    []record `json:"records"`
				NextOffset int64    `json:"nextOffset"`
			} `json:"partitions"`
		}
		asked := m.l.h.now()
		if err := m.ask(ctx, "poll", map[string]any{"generation": m.generation, "maxRecords": m.l.batch, "wait": "200ms"}, &out); err != nil {
			return false, err
		}
		for _, p := range out.Partitions {
			if _, ok := m.at[p.Partition]; !ok {
				m.t.Errorf("%s: a poll gave records of partition %d, which it was not assigned", m.who, p.Partition)
				continue
			}
			process(p.Partition, p.Records, p.NextOffset, asked)
		}
		return found, nil
	}
	left := 4
	for p, at := range m.at {
		if m.revoked[p] || at >= m.l.heads[p] || left == 0 {
			continue
		}
		left--
		var out struct {
			Records    []record `json:"records"`
			NextOffset int64    `json:"nextOffset"`
		}
		if m.call(ctx, "GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&limit=%d", m.l.topic, p, at, max(m.l.batch/4, 1)), nil, &out) == nil {
			process(p, out.Records, out.NextOffset, -1)
		}
	}
	return found, nil
}
