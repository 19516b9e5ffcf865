package groups

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
)

func bubble(t *testing.T, f func(t *testing.T, f *fabric)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFabric(t)) })
}

// Two members on two nodes share what one had; the second has nothing before the first has let go.
func TestJoinAndShare(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 4)
		a := n.peer("g", "orders").join()
		if len(a.at) != 4 {
			t.Fatalf("%+v", a)
		}
		b := m.peer("g", "orders").join()
		if len(b.at) != 0 {
			t.Fatalf("%+v", b)
		}
		if got := a.beat(); len(got.Assignment) != 2 || len(got.Revoke) != 2 {
			t.Fatalf("%+v", got)
		}
		b.beat()
		if d := n.describe("g"); len(b.at) != 0 || d.State != stateRebalancing {
			t.Fatalf("%+v %+v", b, d)
		}
		// It may commit until it lets go.
		if err := a.commit(a.revoked[0]); err != nil {
			t.Fatal(err)
		}
		calm(t, a, b)
		if len(a.at) != 2 || len(b.at) != 2 {
			t.Fatalf("%+v %+v", a, b)
		}
		if d := m.describe("g"); d.State != stateStable || len(d.Members) != 2 || len(d.Members[0].Owned) != 2 || d.Generation != a.generation || d.Members[0].Expires == 0 {
			t.Fatalf("%+v", d)
		}
	})
}

// G3: the next generation comes within a second of a leave, and within the session of a death; nobody hangs and no ghosts stay.
func TestG3LeaveAndDeath(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 6)
		a, b, c := n.peer("g", "orders").join(), m.peer("g", "orders").join(), m.peer("g", "orders").join()
		calm(t, a, b, c)
		// One leaves while another one joins.
		d := n.peer("g", "orders")
		done := make(chan error, 1)
		go func() { done <- d.tryJoin() }()
		start, was := time.Now(), a.generation
		if err := m.Leave(t.Context(), named("g"), b.id); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if a.beat(); a.generation == was || time.Since(start) > time.Second {
			t.Fatalf("generation %d after %s", a.generation, time.Since(start))
		}
		calm(t, a, c, d)
		if len(a.at) != 2 || len(c.at) != 2 || len(d.at) != 2 {
			t.Fatal(a.at, c.at, d.at)
		}
		// A second leave is none.
		if err := n.Leave(t.Context(), named("g"), b.id); err != nil {
			t.Fatal(err)
		}
		// c dies. Its two partitions move, and no other.
		start, was = time.Now(), a.generation
		held := a.owned()
		for a.generation == was {
			time.Sleep(500 * time.Millisecond)
			a.beat()
			d.beat()
		}
		if took := time.Since(start); took > DefaultSession+2*time.Second || took < DefaultSession-time.Second {
			t.Fatalf("a death was noticed after %s", took)
		}
		calm(t, a, d)
		if len(a.at) != 3 || len(d.at) != 3 {
			t.Fatal(a.at, d.at)
		}
		for _, p := range held {
			if _, ok := a.at[p]; !ok {
				t.Fatalf("%v moved", p)
			}
		}
		if ds := n.describe("g"); len(ds.Members) != 2 || ds.State != stateStable {
			t.Fatalf("%+v", ds)
		}
		_, err := c.tryBeat()
		wantCode(t, err, api.CodeStaleGeneration)
	})
}

// G1: what the previous generation commits is refused whole, and so is a request that is partly not owned.
func TestG1CommitOfThePreviousGeneration(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 2)
		for p := range int32(2) {
			n.publish("orders", p, "a", "b", "c")
		}
		a := n.peer("g", "orders").join()
		p0, p1 := TopicPartition{"orders", 0}, TopicPartition{"orders", 1}
		a.at[p0], a.at[p1] = 1, 1
		if err := a.commit(p0, p1); err != nil {
			t.Fatal(err)
		}
		b := m.peer("g", "orders").join()
		a.at[p0], a.at[p1] = 2, 2
		e := wantCode(t, a.commit(p0, p1), api.CodeStaleGeneration)
		if e.Extra["generation"] != b.generation {
			t.Fatalf("%+v", e)
		}
		if got := m.committed("g"); got[p0] != 1 || got[p1] != 1 {
			t.Fatal(got)
		}
		// It goes on in the new one, with all it still owns.
		a.beat()
		if err := a.commit(p0, p1); err != nil {
			t.Fatal(err)
		}
		calm(t, a, b)
		mine, other := a.owned()[0], b.owned()[0]
		a.at[other], a.at[mine] = 3, 3
		if e := wantCode(t, a.commit(mine, other), api.CodeNotOwner); e.Extra["topic"] != other.Topic || e.Extra["partition"] != other.Partition {
			t.Fatalf("%+v", e)
		}
		delete(a.at, other)
		if got := n.committed("g"); got[mine] != 2 || got[other] != 2 {
			t.Fatal(got)
		}
		if b.at[other] != 2 {
			t.Fatalf("b begins at %d", b.at[other])
		}
		if err := a.commit(mine); err != nil {
			t.Fatal(err)
		}
		wantCode(t, n.Commit(t.Context(), CommitRequest{Name: named("g"), MemberID: "nobody", Generation: a.generation, Offsets: []Offset{{TopicPartition: mine, Offset: 3}}}), api.CodeStaleGeneration)
		wantCode(t, n.Commit(t.Context(), CommitRequest{Name: named("g"), Offsets: []Offset{{TopicPartition: mine, Offset: 3}}}), api.CodeConflict)
		wantCode(t, n.Commit(t.Context(), CommitRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Offsets: []Offset{{TopicPartition: mine, Offset: 4}}}), api.CodeInvalidRequest)
		wantCode(t, n.Commit(t.Context(), CommitRequest{Name: named("g"), MemberID: a.id, Generation: a.generation + 100, Offsets: []Offset{{TopicPartition: mine, Offset: 3}}}), api.CodeStaleGeneration)
		if a.beat(); a.generation != n.describe("g").Generation {
			t.Fatal("a claim of a generation that never was began one")
		}
	})
}

// A restarted process with the same instance has what the one before it had, at once; the one before has nothing any more.
func TestStaticMember(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 4)
		a, b := n.peer("g", "orders"), m.peer("g", "orders")
		a.instance, b.instance = "pod-0", "pod-1"
		a.join()
		b.join()
		calm(t, a, b)
		again := m.peer("g", "orders")
		again.instance = "pod-0"
		again.join()
		if len(again.at) != 2 || again.id == a.id {
			t.Fatalf("%+v", again)
		}
		for at := range a.at {
			if _, ok := again.at[at]; !ok {
				t.Fatalf("%v went elsewhere", at)
			}
		}
		_, err := a.tryBeat()
		wantCode(t, err, api.CodeStaleGeneration)
		wantCode(t, a.commit(a.owned()...), api.CodeStaleGeneration)
		calm(t, again, b)
		if d := n.describe("g"); len(d.Members) != 2 || d.State != stateStable {
			t.Fatalf("%+v", d)
		}
	})
}

// A member that joins again as it was begins no generation.
func TestJoinAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 4)
		n.makeTopic("events", 1)
		a := n.peer("g", "orders").join()
		was := a.generation
		for _, at := range []*node{n, m, n} {
			a.n = at
			if a.join(); a.generation != was || len(a.at) != 4 {
				t.Fatalf("%+v", a)
			}
		}
		a.topics = []string{"orders", "events"}
		if a.join(); a.generation == was || len(a.at) != 5 {
			t.Fatalf("%+v", a)
		}
		// An ID that nobody has, of an earlier membership or made up, is as good as any.
		b := m.peer("g", "orders")
		b.id = "mine"
		if b.join(); b.id != "mine" {
			t.Fatal(b.id)
		}
	})
}

// Without a quorum sessions live on, and what was let go is given away once there is one.
func TestHeartbeatsWithoutAQuorum(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 2)
		a, b := n.peer("g", "orders").join(), n.peer("g", "orders").join()
		a.beat()
		b.beat()
		a.letGo()
		n.jlog.onAppend(func(int64) error { return api.Errorf(api.CodeMetadataUnavailable, "no quorum") })
		for range 30 {
			time.Sleep(time.Second)
			a.beat()
			b.beat()
			a.letGo()
		}
		if len(a.at) != 1 || len(b.at) != 0 {
			t.Fatal(a.at, b.at)
		}
		wantCode(t, n.peer("g", "orders").tryJoin(), api.CodeMetadataUnavailable)
		n.jlog.onAppend(nil)
		calm(t, a, b)
		if len(a.at) != 1 || len(b.at) != 1 {
			t.Fatal(a.at, b.at)
		}
	})
}

// What Redis has of a group is damaged: it is built anew.
func TestDamagedRedis(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 2)
		a := n.peer("g", "orders").join()
		damage := map[string]func(key string){
			"another state": func(key string) { f.redis.HSet(key, "b", "nonsense"); f.redis.HSet(key, "g", "4000000") },
			"no state":      func(key string) { f.redis.HDel(key, "b") },
			"no generation": func(key string) { f.redis.HDel(key, "g") },
			"no session":    func(key string) { f.redis.HDel(key, "m:"+a.id) },
		}
		for what, f2 := range damage {
			for _, key := range f.redis.Keys() {
				if key[len(key)-2:] == ":s" {
					f2(key)
				}
			}
			for tries := 0; ; tries++ {
				if tries == 30 {
					t.Fatalf("%s: the group does not go on", what)
				}
				time.Sleep(500 * time.Millisecond)
				if _, err := a.tryBeat(); err == nil && len(a.at) == 2 {
					break
				}
				a.join()
			}
		}
	})
}

func TestRoom(t *testing.T) {
	s := &journal.GroupState{}
	ts := topics(MaxPartitions, 1)
	for i := range MaxMembers {
		joined{member(fmt.Sprintf("m%04d", i), "t1")}.apply(s)
	}
	m := member("m0000", "t0")
	wantCode(t, room(s, ts, &m), api.CodeConflict) // too many partitions
	m.Topics = []string{"t1"}
	if err := room(s, ts, &m); err != nil {
		t.Fatal(err) // it is one of the thousand
	}
	m.ID = "another"
	wantCode(t, room(s, ts, &m), api.CodeConflict)
	m.ID, m.Topics = "m0000", nil
	for i := range MaxTopics {
		m.Topics = append(m.Topics, fmt.Sprintf("x%d", i))
	}
	wantCode(t, room(s, ts, &m), api.CodeConflict)
}
