package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/internal/redistest"
)

// groupServer serves one topic of four partitions and any groups. A member gets its partitions at once, where they are free, and else with a heartbeat.
// A fault of each kind can be had.
type groupServer struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		head   int64
		groups map[string]*servedGroup
		beats  int
	}
	loseCommits, forgetGroup bool // the faults
	stale                    int  // the heartbeat with this number is told to join again
	lost                     func() bool
}

type servedGroup struct {
	generation int64
	members    []string
	owner      [4]string
	told       map[string]int64 // the newest generation that a member has named
	offsets    map[int32]client.GroupOffset
}

func newGroupServer(t *testing.T) (*groupServer, *client.Client) {
	s := &groupServer{t: t}
	s.mu.groups = map[string]*servedGroup{}
	return s, connect(t, s.ServeHTTP)
}

func (s *groupServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/topics/t":
		fmt.Fprintf(w, `{"name":"t","partitions":4,"partitionInfo":[`)
		for p := range 4 {
			fmt.Fprintf(w, `%.*s{"partition":%d,"logStart":0,"head":%d}`, min(p, 1), ",", p, s.mu.head)
		}
		fmt.Fprint(w, `]}`)
		return
	case r.URL.Path == "/v1/topics/t/records":
		s.mu.head += 1000
		w.Header().Set("Content-Type", "application/x-protobuf")
		return
	case r.URL.Path == "/v1/groups":
		var items []string
		for name := range s.mu.groups {
			if !s.forgetGroup || len(items) > 0 || len(s.mu.groups) == 1 {
				items = append(items, fmt.Sprintf(`{"name":%q}`, name))
			}
			s.forgetGroup = false
		}
		fmt.Fprintf(w, `{"items":[%s],"nextCursor":null}`, strings.Join(items, ","))
		return
	}
	name, call, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/groups/"), "/")
	g := s.mu.groups[name]
	if g == nil {
		g = &servedGroup{generation: 1, told: map[string]int64{}, offsets: map[int32]client.GroupOffset{}}
		s.mu.groups[name] = g
	}
	var req struct {
		MemberID   string
		Generation int64
		Owned      []client.TopicPartition
		Offsets    []client.GroupOffset
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			s.t.Errorf("%s: %v", body, err)
		}
	}
	switch {
	case call == "join":
		if !slices.Contains(g.members, req.MemberID) {
			g.members = append(g.members, req.MemberID)
		}
		g.generation++
		g.settle()
		s.membership(w, g, req.MemberID, true)
	case call == "heartbeat":
		if s.lost != nil && s.lost() {
			for _, g := range s.mu.groups {
				g.members = nil
			}
		}
		if s.mu.beats++; s.mu.beats == s.stale || !slices.Contains(g.members, req.MemberID) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(409)
			_, _ = io.WriteString(w, `{"code":"STALE_GENERATION"}`)
			return
		}
		if g.told[req.MemberID] == g.generation && req.Generation == g.generation {
			for p := range g.owner {
				if g.owner[p] == req.MemberID && g.wants(p) != req.MemberID && !slices.Contains(req.Owned, client.TopicPartition{Topic: "t", Partition: int32(p)}) {
					g.owner[p] = ""
				}
			}
			g.settle()
		}
		s.membership(w, g, req.MemberID, false)
	case call == "leave":
		g.members = slices.DeleteFunc(g.members, func(m string) bool { return m == req.MemberID })
		w.WriteHeader(204)
	case call == "offsets" && r.Method == http.MethodPut:
		if req.Generation != g.generation {
			s.t.Errorf("a commit of generation %d in %d", req.Generation, g.generation)
		}
		for _, o := range req.Offsets {
			if g.owner[o.Partition] != req.MemberID {
				s.t.Errorf("%s commits %d, which %s owns", req.MemberID, o.Partition, g.owner[o.Partition])
			}
			if !s.loseCommits || g.offsets[o.Partition].Metadata == "" {
				g.offsets[o.Partition] = o
			}
		}
		w.WriteHeader(204)
	case call == "offsets":
		var all []string
		for _, o := range g.offsets {
			all = append(all, fmt.Sprintf(`{"topic":"t","partition":%d,"offset":%d,"metadata":%q}`, o.Partition, o.Offset, o.Metadata))
		}
		fmt.Fprintf(w, `{"offsets":[%s]}`, strings.Join(all, ","))
	case r.Method == http.MethodDelete:
		if len(g.members) > 0 {
			s.t.Errorf("group %s is deleted with %d members", name, len(g.members))
		}
		delete(s.mu.groups, name)
		w.WriteHeader(204)
	default:
		s.t.Errorf("%s %s", r.Method, r.URL.Path)
	}
}

func (g *servedGroup) wants(p int) string { return g.members[p*len(g.members)/4] }

// settle gives free partitions to whom they belong.
func (g *servedGroup) settle() {
	for p := range g.owner {
		if g.owner[p] == "" || !slices.Contains(g.members, g.owner[p]) {
			g.owner[p] = g.wants(p)
		}
	}
}

func (s *groupServer) membership(w http.ResponseWriter, g *servedGroup, member string, join bool) {
	var owned, revoke []string
	for p, who := range g.owner {
		at := fmt.Sprintf(`"topic":"t","partition":%d`, p)
		switch {
		case who != member:
		case g.wants(p) == member:
			owned = append(owned, "{"+at+`,"offset":0}`)
		default:
			revoke = append(revoke, "{"+at+"}")
		}
	}
	g.told[member] = g.generation
	fmt.Fprintf(w, `{"generation":%d,"assignment":[%s]`, g.generation, strings.Join(owned, ","))
	if join {
		fmt.Fprintf(w, `,"memberId":%q,"heartbeatInterval":"40ms"}`, member)
		return
	}
	fmt.Fprintf(w, `,"revoke":[%s]}`, strings.Join(revoke, ","))
}

func (s *groupServer) options(c *client.Client) GroupsOptions {
	return GroupsOptions{
		Client: c, Topic: "t", Groups: 3, Members: 2, Prefix: "b-", Session: time.Second, Clients: 4, Backlog: 50, Duration: 400 * time.Millisecond,
		Commits: 500, InFlight: 8, Publish: -1, RecordSize: 10, Batch: 1, Publishers: 1, Seed: 1,
	}
}

func TestGroups(t *testing.T) {
	s, cl := newGroupServer(t)
	s.stale = 3
	o := s.options(cl)
	var mu sync.Mutex
	phases := map[string]int64{}
	o.Progress = func(phase string, done, all int64) {
		mu.Lock()
		defer mu.Unlock()
		phases[phase] = max(phases[phase], done)
	}
	report, err := Groups(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Join == nil || report.Join.Stable <= 0 || report.Join.Joins.Count < 6 || report.Members != 6 || report.Partitions != 4 {
		t.Errorf("%+v", report)
	}
	if len(report.Phases) != 2 || report.Phases[0].Heartbeats.Count == 0 || report.Phases[1].Commits.Count < 100 || report.Phases[1].Commits.Loop != "open" {
		t.Errorf("%+v", report.Phases)
	}
	if v := report.Verified; len(v.Faults) > 0 || v.Groups != 3 || v.Partitions != 12 || v.Commits != report.Phases[1].Commits.Count {
		t.Errorf("%+v", v)
	}
	if report.Errors["STALE_GENERATION"] != 1 || len(s.mu.groups) != 0 {
		t.Errorf("errors %v, groups left %d", report.Errors, len(s.mu.groups))
	}
	for phase, want := range map[string]int64{"joins": 6, "verified": 3, "groups deleted": 3} {
		if phases[phase] < want {
			t.Errorf("progress of %q: %d", phase, phases[phase])
		}
	}
	var text bytes.Buffer
	report.Print(&text)
	for _, want := range []string{"3 groups, 6 members", "the server has the offsets that it has acknowledged", "1 STALE_GENERATION"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestGroupsFindsFaults: the verification notices a server that is wrong.
func TestGroupsFindsFaults(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*groupServer)
		want    string
	}{
		"an acknowledged commit is lost": {func(s *groupServer) { s.loseCommits = true }, "has acknowledged"},
		"a group is not in the list":     {func(s *groupServer) { s.forgetGroup = true }, "2 of 3 groups are in the list"},
	} {
		t.Run(name, func(t *testing.T) {
			s, cl := newGroupServer(t)
			c.prepare(s)
			o := s.options(cl)
			o.Commits, o.Keep, o.Duration = 0, true, 100*time.Millisecond
			report, err := Groups(t.Context(), o)
			if err == nil || report == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v", report, err)
			}
			if len(s.mu.groups) != 3 {
				t.Errorf("%d groups are left", len(s.mu.groups))
			}
		})
	}
}

// TestGroupsLoseRedis: members that a server has forgotten join again, and it is measured until they are all there.
func TestGroupsLoseRedis(t *testing.T) {
	s, cl := newGroupServer(t)
	store := redistest.Start(t)
	o := s.options(cl)
	o.Commits, o.RedisURL, o.LoseRedis = -1, store.URL(), true
	s.lost = func() bool { // this server has its members there
		return store.Must("SETNX", "members", "are here") == int64(1)
	}
	report, err := Groups(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Recovery == nil || report.Recovery.Stable <= 0 || report.Recovery.Joins.Count == 0 || report.Before.Redis == 0 || report.Phases[0].Cost.RedisCommands == 0 {
		t.Errorf("%+v, %+v", report, report.Recovery)
	}
}

func TestGroupsOptionsAreChecked(t *testing.T) {
	err := GroupsOptions{Warmup: -1, LoseRedis: true, Publish: 1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"groups", "members", "session", "clients", "in-flight", "backlog", "warmup", "duration", "lose-redis", "batch"} {
		if !strings.Contains(err.Error(), field+" must be") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

// TestGroupJudge: a commit whose outcome nobody knows may be there or not; what was refused may not.
func TestGroupJudge(t *testing.T) {
	at := func(offset int64, metadata string) []client.GroupOffset {
		return []client.GroupOffset{{Topic: "t", Partition: 1, Offset: offset, Metadata: metadata}}
	}
	g := &benchGroup{name: "g"}
	g.noteCommit(at(1, "1"), nil)
	g.noteCommit(at(2, "2"), &client.Error{Status: 409, Code: api.CodeStaleGeneration})
	g.noteCommit(at(3, "3"), io.ErrUnexpectedEOF)
	for _, c := range []struct {
		have []client.GroupOffset
		ok   bool
	}{{at(1, "1"), true}, {at(2, "2"), false}, {at(3, "3"), true}, {at(3, "1"), false}, {nil, false}} {
		if _, faults := g.judge(c.have); (len(faults) == 0) != c.ok {
			t.Errorf("%v: %v", c.have, faults)
		}
	}
	g.noteCommit(at(4, "4"), nil)
	if n, faults := g.judge(at(3, "3")); n != 1 || len(faults) != 1 {
		t.Errorf("%d, %v", n, faults)
	}
}

func TestParseSamples(t *testing.T) {
	s, err := parseSamples(strings.NewReader("# HELP a b\na 1\nb{op=\"put\",x=\"}\"} 2\nb{op=\"get\"} 4 1700000000000\nb_bucket{le=\"1\"} 8\nbc 16\n\n"))
	if err != nil || s.sum("a", "") != 1 || s.sum("b", "") != 6 || s.sum("b", `op="put`) != 2 || len(s) != 4 {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := parseSamples(strings.NewReader("a b\n")); err == nil {
		t.Error("rubbish is accepted")
	}
}
