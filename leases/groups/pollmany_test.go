package groups

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/api"
)

// What a poll has read no other one reads: polls of one member that come at the same time, on two nodes.
func TestPollsAtTheSameTimeReadDifferentRecords(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.nodeWith(quiet), f.nodeWith(quiet)
		n.makeTopic("orders", 2)
		const each = 150
		values := make([]string, each)
		for i := range values {
			values[i] = fmt.Sprint(i)
		}
		n.publish("orders", 0, values...)
		n.publish("orders", 1, values...)
		a := n.peer("g", "orders").join()
		var (
			mu   sync.Mutex
			wg   sync.WaitGroup
			seen = map[string]int{}
		)
		for i := range 6 {
			wg.Go(func() {
				at := []*node{n, m}[i%2]
				for {
					got, err := at.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, MaxRecords: 20, Wait: time.Second})
					if err != nil {
						t.Error(err)
					}
					if len(got) == 0 {
						return
					}
					mu.Lock()
					for _, p := range got {
						for r := range p.Records {
							seen[fmt.Sprint(p.Partition, " ", p.Records[r].Offset)]++
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for at, times := range seen {
			if times != 1 {
				t.Errorf("%s was read %d times", at, times)
			}
		}
		if len(seen) != 2*each {
			t.Errorf("%d records were read", len(seen))
		}
	})
}

// holdPosition holds a node before it notes the positions of a poll.
type holdPosition struct {
	redis.Hook
	held, goOn chan struct{}
	once       sync.Once
}

func (h *holdPosition) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if notesPositions(cmd) {
			h.once.Do(func() {
				close(h.held)
				<-h.goOn
			})
		}
		return next(ctx, cmd)
	}
}

func (h *holdPosition) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *holdPosition) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A poll that goes on after its member has given it up, and has joined again, takes nothing from the polls that come then.
func TestAPollFromBeforeTheMemberCameAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "a", "b")
		a := n.peer("g", "orders").join()
		hook := &holdPosition{held: make(chan struct{}), goOn: make(chan struct{})}
		n.client.AddHook(hook)
		late := make(chan error)
		go func() {
			_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, MaxRecords: 1})
			late <- err
		}()
		<-hook.held
		a.n = m
		was := a.generation
		if a.join(); a.generation != was {
			t.Fatal("it was to be the same membership")
		}
		got := a.poll(func(r *PollRequest) { r.MaxRecords = 1 })
		if shown(got) != "orders/0=a" {
			t.Fatal(shown(got))
		}
		close(hook.goOn)
		if err := <-late; err != nil { // it goes on behind what was read, and takes b
			t.Fatal(err)
		}
		a.join()
		if got := shown(a.poll(nil)); got != "orders/0=a,b" {
			t.Fatal(got)
		}
	})
}

// A partition that retention has overtaken does not keep the others from being read, and is named beside them.
func TestPollBesideAGap(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		topic := n.makeTopic("orders", 2)
		n.publish("orders", 0, "a", "b", "c")
		n.publish("orders", 1, "x", "y")
		a := n.peer("g", "orders").join()
		n.trim(topic, 0, 2)
		for _, want := range []string{"x", "y"} {
			got := a.poll(func(r *PollRequest) { r.MaxRecords = 1 })
			if len(got) != 2 || got[0].Gap == nil || *got[0].Gap != (Gap{0, 2}) || got[0].Partition != 0 || len(got[0].Records) > 0 || shown(got[1:]) != "orders/1="+want || got[1].Gap != nil {
				t.Fatalf("%+v", got)
			}
		}
		start := time.Now()
		_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Wait: api.MaxWait})
		e := wantCode(t, err, api.CodeRetentionGap)
		if gaps := e.Extra["gaps"].([]partitionGap); len(gaps) != 1 || gaps[0] != (partitionGap{"orders", 0, 0, 2}) || time.Since(start) > time.Second {
			t.Fatal(gaps, time.Since(start))
		}
		// The member itself may decide.
		a.at[TopicPartition{"orders", 0}] = 2
		if err := a.commit(TopicPartition{"orders", 0}); err != nil {
			t.Fatal(err)
		}
		if got := shown(a.poll(nil)); got != "orders/0=c" {
			t.Fatal(got)
		}
	})
}

// A poll that waits hears within about a second, on whatever node, that its member has left, and that the group is no more.
func TestLongPollOfAMemberThatHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 1)
		for _, at := range []*node{n, m} {
			a := n.peer("g", "orders")
			a.session = api.MaxWait * 2
			a.join()
			done := make(chan error)
			go func() {
				_, err := at.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Wait: api.MaxWait})
				done <- err
			}()
			synctest.Wait()
			start := time.Now()
			if err := n.Leave(t.Context(), named("g"), a.id); err != nil {
				t.Fatal(err)
			}
			if wantCode(t, <-done, api.CodeStaleGeneration); time.Since(start) > 2*time.Second {
				t.Fatal(time.Since(start))
			}
		}
	})
}

// A topic that is deleted is no empty one: who polls is told to heartbeat, which is without it at once, and so is the description.
func TestPollOfADeletedTopic(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.nodeWith(quiet)
		n.makeTopic("orders", 2)
		n.makeTopic("events", 1)
		n.publish("orders", 0, "a")
		a := n.peer("g", "orders", "events").join()
		a.beat() // the topics were just looked at
		a.poll(nil)
		done := make(chan error)
		go func() {
			_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Wait: api.MaxWait})
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		n.deleteTopic("orders")
		if d := n.describe("g"); len(d.Members) != 1 || fmt.Sprint(d.Members[0].Owned) != "[{events 0}]" {
			t.Fatalf("%+v", d.Members)
		}
		wantCode(t, <-done, api.CodeStaleGeneration)
		was := a.generation
		if b := a.beat(); b.Generation == was || len(b.Assignment) != 1 || time.Since(start) > time.Second {
			t.Fatalf("%+v after %s", b, time.Since(start))
		}
		n.publish("events", 0, "x")
		if got := shown(a.poll(nil)); got != "events/0=x" {
			t.Fatal(got)
		}
		n.deleteTopic("events")
		if b := a.beat(); len(b.Assignment) != 0 {
			t.Fatalf("a heartbeat assigns what is no more: %+v", b)
		}
	})
}

// A topic that is deleted and made again begins at its first record for a group that has read the one before, whatever start says: with members, and without.
func TestATopicThatIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.nodeWith(quiet)
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "old", "old")
		again := func() {
			n.deleteTopic("orders")
			n.makeTopic("orders", 1)
			n.publish("orders", 0, "a", "b")
		}
		a := n.peer("g", "orders")
		a.start = Latest
		a.join()
		p0 := TopicPartition{"orders", 0}
		if a.at[p0] != 2 {
			t.Fatal(a.at)
		}
		again()
		if b := a.beat(); len(b.Assignment) != 1 || b.Assignment[0].Offset != 0 {
			t.Fatalf("%+v", b)
		}
		if got := shown(a.poll(nil)); got != "orders/0=a,b" {
			t.Fatal(got)
		}
		// It is away for some generations.
		n.deleteTopic("orders")
		a.beat()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "c")
		time.Sleep(2 * time.Second)
		a.beat()
		time.Sleep(2 * time.Second)
		a.beat()
		if got := shown(a.poll(nil)); got != "orders/0=c" {
			t.Fatal(got)
		}
		if err := n.Leave(t.Context(), named("g"), a.id); err != nil {
			t.Fatal(err)
		}
		again()
		b := n.peer("g", "orders")
		b.start = Latest
		if b.join(); b.at[p0] != 0 || len(b.at) != 1 {
			t.Fatal(b.at)
		}
		// A commit without members is of a topic that the group knows, too.
		if err := n.Commit(t.Context(), CommitRequest{Name: named("h"), Offsets: []Offset{{TopicPartition: p0, Offset: 1}}}); err != nil {
			t.Fatal(err)
		}
		again()
		c := n.peer("h", "orders")
		c.start = Latest
		if c.join(); c.at[p0] != 0 || len(c.at) != 1 {
			t.Fatal(c.at)
		}
	})
}
