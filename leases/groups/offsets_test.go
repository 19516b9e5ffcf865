package groups

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
)

// G2: offsets live as long as the group and the topic: through rebalances, and while nobody is there.
func TestG2OffsetsDoNotExpire(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.nodeWith(quiet)
		n.makeTopic("orders", 2)
		n.publish("orders", 0, "a", "b", "c")
		p0 := TopicPartition{"orders", 0}
		a := n.peer("g", "orders")
		a.session = MaxSessionTimeout
		a.join()
		a.at[p0] = 2
		if err := a.commit(p0); err != nil {
			t.Fatal(err)
		}
		b := n.peer("g", "orders")
		b.session = MaxSessionTimeout
		b.join()
		if at := n.committed("g")[p0]; at != 2 {
			t.Fatalf("%d in the middle of a rebalance", at)
		}
		calm(t, a, b)
		if err := n.Leave(t.Context(), named("g"), b.id); err != nil {
			t.Fatal(err)
		}
		calm(t, a)
		was := a.generation
		if err := n.Leave(t.Context(), named("g"), a.id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if at := n.committed("g")[p0]; at != 2 {
			t.Fatalf("%d after hours without members", at)
		}
		c := n.peer("g", "orders").join()
		if c.at[p0] != 2 || c.generation <= was {
			t.Fatalf("%+v", c)
		}
	})
}

// A generation that is fenced, or that the log does not know any more, is followed by another one as soon as a commit is refused for it.
func TestAFencedGenerationHeals(t *testing.T) {
	for _, why := range []string{"fenced", "forgotten"} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fabric) {
				n := f.node()
				n.makeTopic("orders", 1)
				n.publish("orders", 0, "a")
				a := n.peer("g", "orders").join()
				p0 := TopicPartition{"orders", 0}
				a.at[p0] = 1
				was := a.generation
				if why == "fenced" {
					g, err := n.log.Group(tenant, "g")
					if err != nil {
						t.Fatal(err)
					}
					if _, err := n.log.StartProducer(t.Context(), tenant, journal.GroupProducer(g.ID)); err != nil {
						t.Fatal(err)
					}
				} else {
					n.jlog.onAppend(func(epoch int64) error {
						if epoch > was {
							return nil
						}
						return api.Errorf(api.CodeInvalidRequest, "epoch %d is not known", epoch).With("epoch", int64(0))
					})
				}
				wantCode(t, a.commit(p0), api.CodeStaleGeneration)
				synctest.Wait()
				time.Sleep(time.Second)
				a.beat()
				if err := a.commit(p0); err != nil || a.generation <= was {
					t.Fatal(err, a.generation)
				}
			})
		})
	}
}

// A start is decided once, when the group first gets a partition; partitions that are added later begin at their first record.
func TestStarts(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 2)
		n.publish("orders", 0, "a", "b")
		a := n.peer("g", "orders")
		a.start = Latest
		a.join()
		p0, p2 := TopicPartition{"orders", 0}, TopicPartition{"orders", 2}
		if a.at[p0] != 2 {
			t.Fatalf("latest is %d", a.at[p0])
		}
		n.publish("orders", 0, "c")
		if err := n.Leave(t.Context(), named("g"), a.id); err != nil {
			t.Fatal(err)
		}
		b := m.peer("g", "orders")
		b.start = Latest
		b.join()
		if b.at[p0] != 2 {
			t.Fatalf("what came while nobody was there is skipped: %d", b.at[p0])
		}
		n.makeTopic("orders", 3)
		n.publish("orders", 2, "x", "y")
		for len(b.at) < 3 {
			time.Sleep(time.Second)
			b.beat()
		}
		if b.at[p2] != 0 {
			t.Fatalf("the partition that was added begins at %d", b.at[p2])
		}
		// The topic goes, and one of its name comes.
		if err := n.log.DeleteTopic(t.Context(), tenant, "orders"); err != nil {
			t.Fatal(err)
		}
		for len(b.at) > 0 {
			time.Sleep(time.Second)
			b.beat()
		}
		if got := n.committed("g"); len(got) != 0 {
			t.Fatal(got)
		}
		if l, err := n.o.Journal.Load(t.Context(), tenant, n.describe("g").Group.ID); err != nil || len(l.Offsets) != 0 {
			t.Fatal("offsets of a topic that is no more stay in the journal", l, err)
		}
		n.makeTopic("orders", 1)
		for len(b.at) < 1 {
			time.Sleep(time.Second)
			b.beat()
		}
		if b.at[p0] != 0 {
			t.Fatal(b.at)
		}
		c := n.peer("h", "nothing")
		wantCode(t, c.tryJoin(), api.CodeUnknownTopic)
	})
}

// Commits of many at once are few appends, and the last one of a partition counts.
func TestCommitsTogether(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 8)
		for p := range int32(8) {
			n.publish("orders", p, strings.Split(strings.Repeat("x", 50), "")...)
		}
		a := n.peer("g", "orders").join()
		appends := 0
		n.jlog.onAppend(func(int64) error { appends++; return nil })
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				at := TopicPartition{"orders", int32(i % 8)}
				r := CommitRequest{Name: named("g"), MemberID: a.id, Generation: a.generation,
					Offsets: []Offset{{TopicPartition: at, Offset: int64(i / 8), Metadata: "m"}}}
				if err := n.Commit(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if appends > 5 {
			t.Errorf("%d appends", appends)
		}
		for p := range int32(8) {
			a.at[TopicPartition{"orders", p}] = 30
		}
		if err := a.commit(a.owned()...); err != nil {
			t.Fatal(err)
		}
		os, err := n.Offsets(t.Context(), named("g"))
		if err != nil || len(os) != 8 || os[3].Offset != 30 || os[3].Partition != 3 || os[3].Metadata != "" {
			t.Fatal(os, err)
		}
	})
}

// Lag is in records and in time and against retention; never below zero; and what is deleted leaves nothing behind (O1).
func TestLagAndGap(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		topic := n.makeTopic("orders", 2)
		p0, p1 := TopicPartition{"orders", 0}, TopicPartition{"orders", 1}
		n.publish("orders", 0, "a", "b")
		time.Sleep(time.Minute)
		n.publish("orders", 0, "c", "d")
		n.publish("orders", 1, "e")
		a := n.peer("g", "orders").join()
		a.at[p0], a.at[p1] = 1, 1
		if err := a.commit(p0, p1); err != nil {
			t.Fatal(err)
		}
		d := n.describe("g")
		l := d.Partitions[0]
		if len(d.Partitions) != 2 || l.Owner != a.id || *l.Committed != 1 || l.Head != 4 || l.Lag != 3 || l.LagTime < time.Minute || l.Gap != nil ||
			l.Headroom == nil || *l.Headroom > api.DefaultRetention-time.Minute || *l.Headroom < api.DefaultRetention-2*time.Minute {
			t.Fatalf("%+v", l)
		}
		if l := d.Partitions[1]; l.Lag != 0 || l.LagTime != 0 || l.Headroom != nil {
			t.Fatalf("%+v", l)
		}
		time.Sleep(20 * time.Second)
		a.join()
		if got := n.gauge("forebay_groups_lag_records"); got != 3 {
			t.Fatal(got)
		}
		n.trim(topic, 0, 3)
		d = n.describe("g")
		if l := d.Partitions[0]; l.Gap == nil || *l.Gap != (Gap{1, 3}) || l.Lag != 1 || l.LagTime < 0 {
			t.Fatalf("%+v", l)
		}
		// Polls stop; heartbeats and commits go on.
		_, err := n.Poll(t.Context(), PollRequest{Name: named("g"), MemberID: a.id, Generation: a.generation})
		e := wantCode(t, err, api.CodeRetentionGap)
		if gaps := e.Extra["gaps"].([]partitionGap); len(gaps) != 1 || gaps[0] != (partitionGap{"orders", 0, 1, 3}) {
			t.Fatalf("%+v", gaps)
		}
		a.beat()
		if err := a.commit(p1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if gaps, lost := n.gauge("forebay_groups_gap_partitions"), n.gauge("forebay_groups_gap_records"); gaps != 1 || lost != 2 {
			t.Fatal(gaps, lost)
		}
		// A seek decides. Nobody may be there.
		a.join()
		_, err = n.Seek(t.Context(), SeekRequest{Name: named("g"), Topic: "orders", Earliest: true})
		wantCode(t, err, api.CodeConflict)
		if err := n.Leave(t.Context(), named("g"), a.id); err != nil {
			t.Fatal(err)
		}
		got, err := n.Seek(t.Context(), SeekRequest{Name: named("g"), Topic: "orders", Earliest: true})
		if err != nil || len(got) != 2 || got[0].To != 3 || *got[0].From != 1 || got[0].Skipped != 0 || got[0].Lost != 2 || got[1].Repeats != 1 || got[1].Lost != 0 {
			t.Fatalf("%+v %v", got, err)
		}
		if l := n.describe("g").Partitions[0]; l.Gap != nil || l.Lag != 1 {
			t.Fatalf("%+v", l)
		}
		if err := n.Delete(t.Context(), named("g")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		for _, name := range []string{"lag_records", "gap_partitions", "gap_records", "lag_seconds", "met"} {
			if got := n.gauge("forebay_groups_" + name); got != 0 {
				t.Errorf("%s is %v after the group's deletion", name, got)
			}
		}
	})
}

func TestSeek(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		topic := n.makeTopic("orders", 2)
		n.publish("orders", 0, "a", "b")
		time.Sleep(time.Minute)
		middle := time.Now().UnixMilli()
		n.publish("orders", 0, "c", "d")
		n.publish("orders", 1, "e")
		n.trim(topic, 0, 1)
		ctx := t.Context()
		seek := func(r SeekRequest) []Sought {
			t.Helper()
			r.Name, r.Topic = named("g"), "orders"
			got, err := n.Seek(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for _, dry := range []bool{true, false} {
			_, err := n.Group(ctx, named("g"))
			wantCode(t, err, api.CodeUnknownGroup)
			if got := seek(SeekRequest{Latest: true, DryRun: dry}); len(got) != 2 || got[0].From != nil || got[0].To != 4 || got[0].Skipped != 0 || got[0].Lost != 0 {
				t.Fatalf("%+v", got)
			}
		}
		if got := seek(SeekRequest{Time: &middle, DryRun: true}); got[0].To != 2 || got[0].Repeats != 2 || got[1].To != 0 {
			t.Fatalf("%+v", got)
		}
		if at := n.committed("g")[TopicPartition{"orders", 0}]; at != 4 {
			t.Fatalf("a dry run moved it to %d", at)
		}
		seek(SeekRequest{Time: &middle})
		if got := seek(SeekRequest{Offsets: map[int32]int64{0: 4}}); len(got) != 1 || got[0].Skipped != 2 || *got[0].From != 2 {
			t.Fatalf("%+v", got)
		}
		for code, r := range map[api.Code]SeekRequest{
			api.CodeOffsetOutOfRange: {Offsets: map[int32]int64{0: 0}},
			api.CodeUnknownPartition: {Offsets: map[int32]int64{2: 0}},
			api.CodeInvalidRequest:   {Offsets: map[int32]int64{0: 3}, Latest: true},
		} {
			r.Name, r.Topic = named("g"), "orders"
			_, err := n.Seek(ctx, r)
			wantCode(t, err, code)
		}
		// What is sought is where a member begins, and what is added after a seek begins at its first record.
		n.makeTopic("orders", 3)
		n.publish("orders", 2, "x")
		a := n.peer("g", "orders")
		a.start = Latest
		a.join()
		if a.at[TopicPartition{"orders", 0}] != 4 || a.at[TopicPartition{"orders", 1}] != 0 || a.at[TopicPartition{"orders", 2}] != 0 {
			t.Fatal(a.at)
		}
	})
}

func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.node()
		n.makeTopic("orders", 1)
		n.publish("orders", 0, "a")
		ctx := t.Context()
		for what, change := range map[string]func(*JoinRequest){
			"no topics":     func(r *JoinRequest) { r.Topics = nil },
			"short session": func(r *JoinRequest) { r.SessionTimeout = time.Millisecond },
			"long session":  func(r *JoinRequest) { r.SessionTimeout = time.Hour },
			"start":         func(r *JoinRequest) { r.Start = "middle" },
			"member ID":     func(r *JoinRequest) { r.MemberID = "a b" },
			"instance":      func(r *JoinRequest) { r.InstanceID = strings.Repeat("x", 300) },
		} {
			r := JoinRequest{Name: named("g"), Topics: []string{"orders"}}
			change(&r)
			_, err := n.Join(ctx, r)
			if api.CodeOf(err) != api.CodeInvalidRequest {
				t.Errorf("%s: %v", what, err)
			}
		}
		a := n.peer("g", "orders").join()
		for what, o := range map[string][]Offset{
			"below zero": {{TopicPartition: TopicPartition{"orders", 0}, Offset: -1}},
			"twice":      {{TopicPartition: TopicPartition{"orders", 0}}, {TopicPartition: TopicPartition{"orders", 0}}},
			"metadata":   {{TopicPartition: TopicPartition{"orders", 0}, Metadata: strings.Repeat("x", 5000)}},
		} {
			err := n.Commit(ctx, CommitRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Offsets: o})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeInvalidRequest || len(e.Fields) != 1 {
				t.Errorf("%s: %v", what, err)
			}
		}
		err := n.Commit(ctx, CommitRequest{Name: named("g"), MemberID: a.id, Generation: a.generation, Offsets: []Offset{{TopicPartition: TopicPartition{"orders", 1}}}})
		if e := wantCode(t, err, api.CodeUnknownPartition); len(e.Fields) != 1 || e.Fields[0].Pointer != "/offsets/0/partition" || !strings.Contains(e.Detail, `"orders"`) {
			t.Fatalf("%+v", e)
		}
		// What cannot be committed makes no group.
		for _, o := range [][]Offset{{}, {{TopicPartition: TopicPartition{"nothing", 0}}}, {{TopicPartition: TopicPartition{"orders", 0}, Offset: 9}}} {
			if err := n.Commit(ctx, CommitRequest{Name: named("h"), Offsets: o}); err == nil {
				t.Errorf("%v was committed", o)
			}
		}
		_, err = n.Group(ctx, named("h"))
		wantCode(t, err, api.CodeUnknownGroup)
	})
}

func TestGroupsAreListed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n, m := f.node(), f.node()
		n.makeTopic("orders", 1)
		for _, g := range []string{"b", "a", "c"} {
			n.peer(g, "orders").join()
		}
		gs, after, err := m.Groups(t.Context(), tenant, "", 2)
		if err != nil || len(gs) != 2 || gs[0].Name != "a" || after != "b" {
			t.Fatal(gs, after, err)
		}
		gs, after, err = m.Groups(t.Context(), tenant, after, 2)
		if err != nil || len(gs) != 1 || gs[0].Name != "c" || after != "" {
			t.Fatal(gs, after, err)
		}
	})
}
