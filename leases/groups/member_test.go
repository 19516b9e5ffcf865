package groups

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
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
		wantCode(t, a.commit(mine, other), api.CodeNotOwner)
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
