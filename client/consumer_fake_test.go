package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// fakeGroups is a server with one group, in memory: topics, membership, generations, commits, as the contract has them.
type fakeGroups struct {
	t          *testing.T
	mu         sync.Mutex
	topics     map[string][]*fakePartition
	made       map[string]int // topics of a name: the ID of the newest
	news       chan struct{}
	members    map[string]*fakeGroupMember
	slots      map[TopicPartition]*fakeSlot
	generation int64
	committed  map[TopicPartition]int64
	refused    map[api.Code]int // commits, by code
	accepted   int
	away       bool           // the lease store
	late       sync.WaitGroup // requests that arrive when nobody waits for them any more
	back       int            // late commits that put an offset back
	onCommit   func(member string, at TopicPartition, offset int64)
}

type fakePartition struct {
	start   int64
	records []*forebayv1.Record // from 0 on; nil = a hole
}

type fakeGroupMember struct {
	instance string
	session  time.Duration
	expires  time.Time
	absent   bool
}

type fakeSlot struct {
	owner, target string
	since         int64
}

func newFakeGroups(t *testing.T, topics map[string]int) *fakeGroups {
	f := &fakeGroups{t: t, topics: map[string][]*fakePartition{}, made: map[string]int{}, news: make(chan struct{}), members: map[string]*fakeGroupMember{},
		slots: map[TopicPartition]*fakeSlot{}, committed: map[TopicPartition]int64{}, refused: map[api.Code]int{}}
	for name, n := range topics {
		f.grow(name, n)
	}
	return f
}

// grow gives a topic n partitions.
func (f *fakeGroups) grow(topic string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := len(f.topics[topic]); p < n; p++ {
		f.topics[topic] = append(f.topics[topic], &fakePartition{})
		f.slots[TopicPartition{topic, int32(p)}] = &fakeSlot{}
	}
	if len(f.members) > 0 {
		f.changeLocked()
	}
}

// again deletes a topic and creates it with the same partitions: they begin at 0, and belong to whom the old ones belonged to.
func (f *fakeGroups) again(topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made[topic]++
	for p := range f.topics[topic] {
		f.topics[topic][p] = &fakePartition{}
		f.committed[TopicPartition{topic, int32(p)}] = 0
	}
	f.changeLocked()
}

// publish appends a record; key "" = none.
func (f *fakeGroups) publish(topic string, partition int, key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.topics[topic][partition]
	r := &forebayv1.Record{Value: []byte(value), Kind: forebayv1.ContentKind_CONTENT_KIND_TEXT, Offset: int64(len(p.records)), Partition: proto.Int32(int32(partition))}
	if key != "" {
		r.Key = []byte(key)
	}
	p.records = append(p.records, r)
	close(f.news)
	f.news = make(chan struct{})
}

func (f *fakeGroups) at(topic string, partition int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed[TopicPartition{topic, int32(partition)}]
}

// lag counts what is not committed.
func (f *fakeGroups) lag() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.slots {
		n += int64(len(f.topics[at.Topic][at.Partition].records)) - f.committed[at]
	}
	return n
}

func (f *fakeGroups) wentBack() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.back
}

func (f *fakeGroups) memberCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expireLocked()
	return len(f.members)
}

// set changes the server.
func (f *fakeGroups) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// loseLeases forgets all sessions: members must join again, and what they own is theirs for one session more.
func (f *fakeGroups) loseLeases() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.absent, m.expires = true, time.Now().Add(m.session)
	}
	f.generation++
}

func (f *fakeGroups) expireLocked() {
	gone := false
	for id, m := range f.members {
		if !time.Now().Before(m.expires) {
			f.removeLocked(id)
			gone = true
		}
	}
	if gone {
		f.changeLocked()
	}
}

func (f *fakeGroups) removeLocked(id string) {
	delete(f.members, id)
	for _, s := range f.slots {
		if s.owner == id {
			s.owner = ""
		}
		if s.target == id {
			s.target = ""
		}
	}
}

// changeLocked begins a generation.
func (f *fakeGroups) changeLocked() {
	f.generation++
	load := map[string]int{}
	for id := range f.members {
		load[id] = 0
	}
	order := sortedPartitions(f.slots)
	for _, at := range order {
		if s := f.slots[at]; s.target != "" {
			load[s.target]++
		}
	}
	least := func() (id string) {
		for _, m := range slices.Sorted(maps.Keys(load)) {
			if id == "" || load[m] < load[id] {
				id = m
			}
		}
		return id
	}
	for _, at := range order {
		if s := f.slots[at]; s.target == "" && len(load) > 0 {
			s.target = least()
			load[s.target]++
		}
	}
	for _, at := range order {
		if s := f.slots[at]; len(load) > 0 && load[s.target] > load[least()]+1 {
			load[s.target]--
			s.target = least()
			load[s.target]++
		}
	}
	for _, s := range f.slots {
		switch {
		case s.owner == "" || s.owner == s.target:
			s.owner, s.since = s.target, 0
		case s.since == 0:
			s.since = f.generation
		}
	}
}

func (f *fakeGroups) ownedLocked(id string) (assignment []GroupOffset, revoke []TopicPartition) {
	assignment, revoke = []GroupOffset{}, []TopicPartition{}
	for _, at := range sortedPartitions(f.slots) {
		if s := f.slots[at]; s.owner == id && s.target == id {
			assignment = append(assignment, GroupOffset{Topic: at.Topic, Partition: at.Partition, Offset: f.committed[at], TopicID: strconv.Itoa(f.made[at.Topic])})
		} else if s.owner == id {
			revoke = append(revoke, at)
		}
	}
	return assignment, revoke
}

func (f *fakeGroups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // v1/groups/g/join, v1/topics/t/partitions/0/records
	if path[1] == "topics" {
		partition, _ := strconv.Atoi(path[4])
		f.read(w, r, path[2], partition)
		return
	}
	var in struct {
		Topics         []string
		MemberID       string
		InstanceID     string
		SessionTimeout string
		Generation     int64
		Owned          []TopicPartition
		Offsets        []GroupOffset
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			f.t.Errorf("%s: %v", body, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away && len(path) > 3 {
		fakeProblem(w, 503, api.CodeLeasesUnavailable, nil)
		return
	}
	f.expireLocked()
	switch {
	case len(path) == 3:
		type member struct {
			MemberID   string `json:"memberId"`
			InstanceID string `json:"instanceId,omitempty"`
		}
		members := []member{}
		for _, id := range slices.Sorted(maps.Keys(f.members)) {
			members = append(members, member{id, f.members[id].instance})
		}
		fakeAnswer(w, map[string]any{"name": "g", "state": "stable", "generation": f.generation, "members": members, "partitions": []any{}})
	case path[3] == "join":
		for _, t := range in.Topics {
			if f.topics[t] == nil {
				fakeProblem(w, 404, api.CodeUnknownTopic, nil)
				return
			}
		}
		session, err := time.ParseDuration(in.SessionTimeout)
		if err != nil {
			f.t.Errorf("session %q", in.SessionTimeout)
		}
		m, again := f.members[in.MemberID]
		if !again || m.absent {
			for id, other := range f.members {
				if in.InstanceID != "" && other.instance == in.InstanceID && id != in.MemberID {
					delete(f.members, id)
					for _, s := range f.slots {
						if s.owner == id {
							s.owner = in.MemberID
						}
						if s.target == id {
							s.target = in.MemberID
						}
					}
				}
			}
			f.members[in.MemberID] = &fakeGroupMember{instance: in.InstanceID, session: session, expires: time.Now().Add(session)}
			f.changeLocked()
		} else {
			m.expires = time.Now().Add(session)
		}
		assignment, _ := f.ownedLocked(in.MemberID)
		fakeAnswer(w, map[string]any{"memberId": in.MemberID, "generation": f.generation, "assignment": assignment,
			"heartbeatInterval": fmt.Sprintf("%dms", session.Milliseconds()/3)})
	case path[3] == "heartbeat":
		m := f.members[in.MemberID]
		if m == nil || m.absent {
			fakeProblem(w, 409, api.CodeStaleGeneration, nil)
			return
		}
		m.expires = time.Now().Add(m.session)
		freed := false
		for at, s := range f.slots {
			if s.owner == in.MemberID && s.target != s.owner && s.since <= in.Generation && !slices.Contains(in.Owned, at) {
				s.owner, freed = "", true
			}
		}
		if freed {
			f.changeLocked()
		}
		assignment, revoke := f.ownedLocked(in.MemberID)
		fakeAnswer(w, map[string]any{"generation": f.generation, "assignment": assignment, "revoke": revoke})
	case path[3] == "leave":
		if f.members[in.MemberID] != nil {
			f.removeLocked(in.MemberID)
			f.changeLocked()
		}
		w.WriteHeader(204)
	case path[3] == "offsets":
		f.commitLocked(w, r.Header.Get("Late") != "", in.MemberID, in.Generation, in.Offsets)
	default:
		f.t.Errorf("%s %s", r.Method, r.URL.Path)
		w.WriteHeader(500)
	}
}

func (f *fakeGroups) commitLocked(w http.ResponseWriter, late bool, member string, generation int64, offsets []GroupOffset) {
	m := f.members[member]
	code := api.Code("")
	if m == nil || m.absent || generation != f.generation {
		code = api.CodeStaleGeneration
	}
	for _, o := range offsets {
		at := TopicPartition{o.Topic, o.Partition}
		switch {
		case code != "":
		case f.topics[o.Topic] == nil:
			code = api.CodeUnknownTopic
		case f.slots[at].owner != member:
			code = api.CodeNotOwner
		case o.Offset < 0 || o.Offset > int64(len(f.topics[o.Topic][o.Partition].records)):
			code = api.CodeInvalidRequest
		}
	}
	if code != "" {
		f.refused[code]++
		fakeProblem(w, api.Codes[code].Status, code, nil)
		return
	}
	for _, o := range offsets {
		at := TopicPartition{o.Topic, o.Partition}
		if o.Offset < f.committed[at] && late {
			f.back++
		} else if o.Offset < f.committed[at] {
			f.t.Errorf("the commit of %v went back from %d to %d", at, f.committed[at], o.Offset)
		}
		f.committed[at] = o.Offset
		if f.onCommit != nil {
			f.onCommit(member, at, o.Offset)
		}
	}
	f.accepted++
	w.WriteHeader(204)
}

func (f *fakeGroups) read(w http.ResponseWriter, r *http.Request, topic string, partition int) {
	q := r.URL.Query()
	offset, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
	limit, _ := strconv.Atoi(q.Get("limit"))
	maxBytes, _ := strconv.Atoi(q.Get("maxBytes"))
	wait, _ := time.ParseDuration(q.Get("wait"))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := false; ; {
		f.mu.Lock()
		if partition >= len(f.topics[topic]) {
			f.mu.Unlock()
			fakeProblem(w, 404, api.CodeUnknownTopic, nil)
			return
		}
		p := f.topics[topic][partition]
		head := int64(len(p.records))
		if offset < p.start || offset > head {
			start := p.start
			f.mu.Unlock()
			fakeProblem(w, 416, api.CodeOffsetOutOfRange, map[string]any{"logStart": start, "head": head})
			return
		}
		out := &forebayv1.ReadResponse{NextOffset: offset, Head: head, LogStart: p.start}
		size := 0
		for out.NextOffset < head && len(out.Records) < limit && (len(out.Records) == 0 || size < maxBytes) {
			if rec := p.records[out.NextOffset]; rec != nil {
				out.Records = append(out.Records, rec)
				size += len(rec.Key) + len(rec.Value)
			}
			out.NextOffset++
		}
		news := f.news
		f.mu.Unlock()
		if out.NextOffset > offset || over {
			raw, err := proto.Marshal(out)
			if err != nil {
				f.t.Error(err)
			}
			w.Header().Set("Content-Type", contentProtobuf)
			_, _ = w.Write(raw)
			return
		}
		select {
		case <-news:
		case <-timer.C:
			over = true
		case <-r.Context().Done():
			return
		}
	}
}

func fakeAnswer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func fakeProblem(w http.ResponseWriter, status int, code api.Code, more map[string]any) {
	doc := map[string]any{"code": code, "status": status, "title": "x"}
	maps.Copy(doc, more)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

// fakeWire is the network between one process and the server, with what goes wrong on it.
type fakeWire struct {
	f     *fakeGroups
	mu    sync.Mutex
	cut   bool // nothing comes through, nothing comes back
	cause func(op string) wireFault
}

type wireFault struct {
	delay  time.Duration // before it arrives
	back   time.Duration // of the answer
	before bool          // the connection breaks before the request arrives
	after  bool          // and after
	late   bool          // with delay: it arrives although the caller has left
}

var errWire = errors.New("connection reset")

func (n *fakeWire) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *fakeWire) setCause(cause func(op string) wireFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cause = cause
}

func (n *fakeWire) RoundTrip(r *http.Request) (*http.Response, error) {
	op := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] // join, heartbeat, leave, offsets, records
	n.mu.Lock()
	cut := n.cut
	var fault wireFault
	if n.cause != nil {
		fault = n.cause(op)
	}
	n.mu.Unlock()
	if cut {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if fault.before {
		return nil, errWire
	}
	if fault.late {
		body, _ := io.ReadAll(r.Body)
		again, _ := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, r.URL.String(), strings.NewReader(string(body)))
		again.Header.Set("Late", "yes")
		n.f.late.Go(func() {
			time.Sleep(fault.delay)
			n.f.ServeHTTP(httptest.NewRecorder(), again)
		})
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if !consumerSleep(r.Context(), time.Millisecond+fault.delay) {
		return nil, r.Context().Err()
	}
	done := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		n.f.ServeHTTP(w, r)
		done <- w.Result()
	}()
	resp := <-done
	consumerSleep(r.Context(), fault.back)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if fault.after {
		return nil, errWire
	}
	return resp, nil
}

// client makes a client of the fake server for one process.
func (f *fakeGroups) client(cause func(op string) wireFault, opts ...Option) (*Client, *fakeWire) {
	n := &fakeWire{f: f, cause: cause}
	c, err := New("http://forebay.test", append(opts, WithHTTPClient(&http.Client{Transport: n}))...)
	if err != nil {
		f.t.Fatal(err)
	}
	return c, n
}

// wireRandom makes a share of requests fail, by a seed.
func wireRandom(r *rand.Rand, share float64, slow time.Duration) func(op string) wireFault {
	return func(string) wireFault {
		fault := wireFault{delay: time.Duration(r.Int64N(int64(slow))), back: time.Duration(r.Int64N(int64(slow)))}
		switch x := r.Float64(); {
		case x < share/2:
			fault.before = true
		case x < share:
			fault.after = true
		}
		return fault
	}
}
