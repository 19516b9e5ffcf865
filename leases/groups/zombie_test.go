package groups

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// zombie lets a commit pass the door and then stall, until its member's partitions have gone to another member, who has committed more. It gives
// what the stalled commit was answered, and where the group stands then: at 3 if nothing of a generation that is over can get into the
// journal, at 1 if it can.
func zombie(t *testing.T, f *fabric) (at int64, answered error) {
	t.Helper()
	n, m := f.node(), f.node()
	n.makeTopic("orders", 1)
	n.publish("orders", 0, "a", "b", "c")
	p0 := TopicPartition{"orders", 0}
	a := m.peer("g", "orders").join()
	a.at[p0] = 1
	stalled, resume := make(chan struct{}), make(chan struct{})
	m.jlog.onAppend(func(int64) error {
		close(stalled)
		m.jlog.onAppend(nil)
		<-resume
		return nil
	})
	answer := make(chan error, 1)
	go func() { answer <- a.commit(p0) }()
	<-stalled
	time.Sleep(DefaultSession + 2*time.Second) // its session lapses meanwhile
	b := n.peer("g", "orders").join()
	calm(t, b)
	b.at[p0] = 3
	if err := b.commit(p0); err != nil {
		t.Fatal(err)
	}
	close(resume)
	answered = <-answer
	return n.committed("g")[p0], answered
}

// What a zombie commits is refused in the order of the log, though the door had let it in.
func TestZombieCommit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		at, err := zombie(t, f)
		wantCode(t, err, api.CodeStaleGeneration)
		if at != 3 {
			t.Fatalf("the group went back to %d", at)
		}
	})
}

// A zombie of a deleted group cannot commit into the one that has its name now.
func TestZombieOfADeletedGroup(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "a", "b", "c")
		p0 := TopicPartition{"orders", 0}
		a := m.peer("g", "orders").join()
		a.at[p0] = 1
		stalled, resume := make(chan struct{}), make(chan struct{})
		m.jlog.onAppend(func(int64) error {
			close(stalled)
			m.jlog.onAppend(nil)
			<-resume
			return nil
		})
		answer := make(chan error, 1)
		go func() { answer <- a.commit(p0) }()
		<-stalled
		wantCode(t, n.Delete(t.Context(), named("g")), api.CodeConflict)
		time.Sleep(DefaultSession + 2*time.Second)
		was, err := n.log.Group(tenant, "g")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Delete(t.Context(), named("g")); err != nil {
			t.Fatal(err)
		}
		wantCode(t, n.Delete(t.Context(), named("g")), api.CodeUnknownGroup)
		if _, err := n.Offsets(t.Context(), named("g")); api.CodeOf(err) != api.CodeUnknownGroup {
			t.Fatal(err)
		}
		for _, k := range f.redis.Keys() {
			t.Errorf("%s is left in Redis", k)
		}
		l, err := n.o.Journal.Load(t.Context(), tenant, was.ID)
		if err != nil || l.State != nil || len(l.Offsets) != 0 {
			t.Fatalf("%+v is left in the journal, %v", l, err)
		}
		b := n.peer("g", "orders")
		b.start = Latest
		b.join()
		close(resume)
		wantCode(t, <-answer, api.CodeStaleGeneration)
		if err := b.commit(p0); err != nil {
			t.Fatal(err)
		}
		if now, err := n.log.Group(tenant, "g"); err != nil || now.ID == was.ID || n.committed("g")[p0] != 3 {
			t.Fatal(now, err, n.committed("g"))
		}
		// The old member's node has not noticed yet, and the member is none of the new group.
		_, err = a.tryBeat()
		wantCode(t, err, api.CodeStaleGeneration)
		wantCode(t, a.commit(p0), api.CodeStaleGeneration)
	})
}

// The node that deletes a group dies between any two steps: who comes next ends it, and begins another one.
func TestDeletionIsFinished(t *testing.T) {
	for _, step := range []string{"before the name is free", "before the records are gone"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) {
				n, m := f.node(), f.node()
				n.makeTopic("orders", 1)
				p0 := TopicPartition{"orders", 0}
				n.publish("orders", 0, "a")
				if err := n.Commit(t.Context(), CommitRequest{Name: named("g"), Offsets: []Offset{{TopicPartition: p0, Offset: 1}}}); err != nil {
					t.Fatal(err)
				}
				was, err := n.log.Group(tenant, "g")
				if err != nil || n.committed("g")[p0] != 1 {
					t.Fatal(err)
				}
				appends := 0
				m.jlog.onAppend(func(int64) error {
					if appends++; appends == 2 { // the first says that it is deleted; the second removes the records
						return errCut
					}
					return nil
				})
				if step == "before the name is free" {
					m.onDelete = func() error { return errCut }
				}
				if err := m.Delete(t.Context(), named("g")); step == "before the name is free" && err == nil {
					t.Fatal("deleted")
				}
				m.kill()
				b := n.peer("g", "orders").join()
				if now, err := n.log.Group(tenant, "g"); err != nil || now.ID == was.ID || len(b.at) != 1 || b.at[p0] != 0 {
					t.Fatal(now, err, b)
				}
			})
		})
	}
}
