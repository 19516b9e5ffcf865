package groups

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebaymq/forebay/api"
)

func (p *peer) poll(change func(*PollRequest)) []Polled {
	p.n.f.t.Helper()
	r := PollRequest{Name: named(p.group), MemberID: p.id, Generation: p.generation}
	if change != nil {
		change(&r)
	}
	out, err := p.n.Poll(p.n.f.t.Context(), r)
	if err != nil {
		p.n.f.t.Fatal(err)
	}
	return out
}

// shown prints what a poll gave as "topic/partition=values".
func shown(ps []Polled) string {
	var out []string
	for _, p := range ps {
		var values []string
		for i := range p.Records {
			v := string(p.Records[i].Value)
			values = append(values, v[:min(len(v), 4)])
		}
		out = append(out, fmt.Sprintf("%s/%d=%s", p.Topic, p.Partition, strings.Join(values, ",")))
	}
	return strings.Join(out, " ")
}

func TestPoll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 2)
		n.makeTopic("events", 1)
		n.publish("orders", 0, "a", "b", "c")
		n.publish("events", 0, "x")
		a := n.peer("g", "orders", "events").join()
		if got := shown(a.poll(nil)); got != "events/0=x orders/0=a,b,c" {
			t.Fatal(got)
		}
		if got := a.poll(nil); len(got) != 0 {
			t.Fatalf("again: %s", shown(got))
		}
		// On another node it goes on where it was; a new generation goes on from what was committed, and so does who joins again.
		m.publish("orders", 0, "d")
		a.n = m
		got := a.poll(nil)
		if shown(got) != "orders/0=d" || got[0].NextOffset != 4 || got[0].Head != 4 {
			t.Fatalf("%+v", got)
		}
		p0 := TopicPartition{"orders", 0}
		a.at[p0] = 2
		if err := a.commit(p0); err != nil {
			t.Fatal(err)
		}
		a.join()
		if got := shown(a.poll(nil)); got != "events/0=x orders/0=c,d" {
			t.Fatal(got)
		}
		b := n.peer("g", "orders", "events").join()
		_, err := m.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation})
		wantCode(t, err, api.CodeStaleGeneration)
		calm(t, a, b)
		all := map[string]bool{}
		for _, p := range []*peer{a, b} {
			for _, got := range p.poll(nil) {
				all[shown([]Polled{got})] = true
			}
		}
		if len(all) != 2 || !all["events/0=x"] || !all["orders/0=c,d"] {
			t.Fatal(all)
		}
	})
}

func TestLongPoll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 2)
		n.makeTopic("events", 1)
		for _, topics := range [][]string{{"orders"}, {"orders", "events"}} {
			a := n.peer("g"+topics[len(topics)-1], topics...)
			a.start = Latest
			a.join()
			start := time.Now()
			if got := a.poll(func(r *PollRequest) { r.Wait = 3 * time.Second }); len(got) != 0 || time.Since(start) != 3*time.Second {
				t.Fatal(got, time.Since(start))
			}
			done := make(chan []Polled)
			go func() { done <- a.poll(func(r *PollRequest) { r.Wait = 5 * time.Second }) }()
			synctest.Wait()
			time.Sleep(time.Second)
			m.publish("orders", 1, "late")
			if got := shown(<-done); got != "orders/1=late" || time.Since(start) > 4500*time.Millisecond {
				t.Fatal(got, time.Since(start))
			}
			// Who goes away takes nothing with him.
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				_, err := n.Poll(ctx, PollRequest{Name: named(a.group), MemberID: a.id, Generation: a.generation, Wait: 5 * time.Second})
				gone <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-gone; err == nil {
				t.Fatal("answered")
			}
			m.publish("orders", 0, "more")
			if got := shown(a.poll(nil)); got != "orders/0=more" {
				t.Fatal(got)
			}
		}
	})
}

// A poll that waits ends when its generation does: the member may own more now, or less.
func TestLongPollEndsWithItsGeneration(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 2)
		a := n.peer("g", "orders").join()
		done := make(chan error)
		start := time.Now()
		go func() {
			_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Wait: api.MaxWait})
			done <- err
		}()
		synctest.Wait()
		m.peer("g", "orders").join()
		wantCode(t, <-done, api.CodeStaleGeneration)
		if took := time.Since(start); took > DefaultSession/2 {
			t.Fatal(took)
		}
	})
}

// A poll whose caller has waited enough answers that there is nothing, and the next one has what comes then.
func TestLongPollIsEnough(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 1)
		a := n.peer("g", "orders").join()
		enough, done := make(chan struct{}), make(chan []Polled)
		start := time.Now()
		go func() {
			done <- a.poll(func(r *PollRequest) { r.Wait, r.Enough = api.MaxWait, enough })
		}()
		synctest.Wait()
		close(enough)
		if got := <-done; len(got) > 0 || time.Since(start) > time.Second {
			t.Fatal(shown(got), time.Since(start))
		}
		n.publish("orders", 0, "a")
		if got := shown(a.poll(nil)); got != "orders/0=a" {
			t.Fatal(got)
		}
	})
}

// A node that is closed answers who waits, refuses what comes, and can be closed again.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "a")
		a := n.peer("g", "orders")
		a.start = Latest
		a.join()
		done := make(chan error)
		go func() {
			_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Wait: api.MaxWait})
			done <- err
		}()
		synctest.Wait()
		for range 2 {
			n.Start()
			if err := n.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantCode(t, a.commit(a.owned()...), api.CodeLeasesUnavailable)
		wantCode(t, n.peer("g", "orders").tryJoin(), api.CodeLeasesUnavailable)
	})
}

// No partition starves another one: each has its share of the budget, and which comes first goes round.
func TestPollIsFair(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 3)
		big := strings.Repeat("L", 100_000)
		for range 10 {
			n.publish("orders", 0, big)
		}
		n.publish("orders", 1, "a", "b", "c")
		n.publish("orders", 2, big, "z")
		a := n.peer("g", "orders").join()
		seen, polls := map[int32]int{}, 0
		for ; seen[0]+seen[1]+seen[2] < 15; polls++ {
			if polls > 40 {
				t.Fatalf("%v after %d polls", seen, polls)
			}
			size := 0
			got := a.poll(func(r *PollRequest) { r.MaxBytes = 1000 })
			for _, p := range got {
				seen[p.Partition] += len(p.Records)
				for i := range p.Records {
					size += len(p.Records[i].Value)
				}
			}
			if len(got) == 0 || len(got) > 1 && size > 1000+len(big) {
				t.Fatalf("%d bytes: %s", size, shown(got))
			}
			if polls == 3 && (seen[0] == 0 || seen[1] == 0 || seen[2] == 0) {
				t.Fatalf("one starves: %v", seen)
			}
		}
		n.publish("orders", 0, "1", "2", "3", "4")
		n.publish("orders", 1, "1", "2", "3", "4")
		got := a.poll(func(r *PollRequest) { r.MaxRecords = 4 })
		if len(got) != 2 || len(got[0].Records) != 2 || len(got[1].Records) != 2 {
			t.Fatal(shown(got))
		}
	})
}

// loseAnswer is a connection to Redis that breaks after a script has noted the positions of a poll.
type loseAnswer struct {
	redis.Hook
	lost bool
}

func (l *loseAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && notesPositions(cmd) && !l.lost {
			l.lost, err = true, io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

func notesPositions(cmd redis.Cmder) bool {
	return cmd.Name() == "evalsha" && slices.ContainsFunc(cmd.Args()[3:], func(a any) bool { s, ok := a.(string); return ok && strings.HasSuffix(s, ":p") })
}

func (l *loseAnswer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loseAnswer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestPollThatMayHaveMoved: where it is not known whether the next poll goes on behind the records, this must not look like a refusal, after which a client
// polls again, and passes over them.
func TestPollThatMayHaveMoved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "a", "b")
		a := n.peer("g", "orders").join()
		hook := &loseAnswer{}
		n.client.AddHook(hook)
		_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation})
		if wantCode(t, err, api.CodeOutcomeUnknown); !hook.lost {
			t.Fatal("nothing was lost")
		}
		if got := shown(a.poll(nil)); got != "" {
			t.Fatalf("the lost poll did not count: %s", got)
		}
		a.join()
		if got := shown(a.poll(nil)); got != "orders/0=a,b" {
			t.Fatal(got)
		}
	})
}
