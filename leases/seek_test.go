package leases

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
)

func TestSeek(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 2, nil)
		name := sub("orders", "w")
		a.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
		a.publish("orders", 0, "a0", "a1", "a2", "a3", "a4", "a5")
		time.Sleep(time.Second)
		at := time.Now().UnixMilli()
		a.publish("orders", 1, "b0", "b1")
		seek := func(n *fabricNode, to SeekTarget) *Stats {
			t.Helper()
			s, err := n.engine.Seek(t.Context(), name, to)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		frontiers := func(s *Stats) (out []int64) {
			for _, p := range s.Partitions {
				out = append(out, p.Frontier)
			}
			return out
		}
		sorted := func(vs []string) []string { slices.Sort(vs); return vs }

		held := a.lease(name, 2)
		if got := frontiers(seek(b, SeekTarget{Latest: true})); !slices.Equal(got, []int64{6, 2}) {
			t.Fatalf("latest: %v", got)
		}
		if got := a.ackAll(name); len(got) != 0 {
			t.Fatalf("after latest: %q", got)
		}
		rs, err := a.engine.Settle(t.Context(), SettleRequest{Name: name, Kind: Ack, Receipts: receipts(held)})
		if err != nil || rs[0].Code != api.CodeLeaseLost || rs[1].Code != api.CodeLeaseLost {
			t.Fatalf("receipts from before the seek: %v, %v", rs, err)
		}
		seek(a, SeekTarget{Earliest: true})
		if got := sorted(b.ackAll(name)); !slices.Equal(got, []string{"a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"}) {
			t.Fatalf("after earliest: %q", got)
		}
		seek(a, SeekTarget{Time: &at})
		if got := sorted(a.ackAll(name)); !slices.Equal(got, []string{"b0", "b1"}) {
			t.Fatalf("after a time: %q", got)
		}
		// Only the partitions that are named move.
		if got := frontiers(seek(a, SeekTarget{Offsets: map[int32]int64{0: 4}})); !slices.Equal(got, []int64{4, 2}) {
			t.Fatalf("offsets: %v", got)
		}
		if got := sorted(b.ackAll(name)); !slices.Equal(got, []string{"a4", "a5"}) {
			t.Fatalf("after offsets: %q", got)
		}
		for _, bad := range []struct {
			to   SeekTarget
			code api.Code
		}{
			{SeekTarget{}, api.CodeInvalidRequest},
			{SeekTarget{Earliest: true, Latest: true}, api.CodeInvalidRequest},
			{SeekTarget{Offsets: map[int32]int64{0: 7}}, api.CodeOffsetOutOfRange},
			{SeekTarget{Offsets: map[int32]int64{2: 0}}, api.CodeUnknownPartition},
		} {
			_, err := a.engine.Seek(t.Context(), name, bad.to)
			wantCode(t, err, bad.code)
		}
	})
}

// A seek survives the loss of Redis at once, and it is what stands afterwards, not what was settled before it.
func TestSeekSurvivesFlushall(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		name := sub("orders", "w")
		a.subscribe(name, nil)
		a.publish("orders", 0, "v0", "v1", "v2", "v3")
		a.ackAll(name)
		if _, err := a.engine.Seek(t.Context(), name, SeekTarget{Offsets: map[int32]int64{0: 2}}); err != nil {
			t.Fatal(err)
		}
		f.redis.FlushAll()
		if got := b.ackAll(name); !slices.Equal(got, []string{"v2", "v3"}) {
			t.Fatalf("delivered %q", got)
		}
		time.Sleep(time.Second)
		f.redis.FlushAll()
		if got := a.ackAll(name); len(got) != 0 {
			t.Fatalf("delivered again: %q", got)
		}
	})
}

// Dead letters below the target stay, those at or above it go: their records are delivered.
func TestSeekAndDeadLetters(t *testing.T) {
	for _, journalled := range []bool{true, false} {
		t.Run(fmt.Sprintf("journalled=%v", journalled), func(t *testing.T) {
			inFabric(t, func(t *testing.T, f *fabric) {
				n := f.node(nil)
				n.topic("orders", 1, nil)
				name := sub("orders", "w")
				n.subscribe(name, func(c *api.SubscriptionConfig) { c.MaxAttempts = 1 })
				n.publish("orders", 0, "v0", "v1", "v2", "v3", "v4")
				n.killAll(name, "bad")
				if journalled {
					time.Sleep(time.Second)
				}
				if _, err := n.engine.Seek(t.Context(), name, SeekTarget{Offsets: map[int32]int64{0: 3}}); err != nil {
					t.Fatal(err)
				}
				for _, lost := range []bool{false, true} {
					if lost {
						f.redis.FlushAll()
					}
					var got []int64
					for _, d := range n.deadLetters(name, false) {
						got = append(got, d.Offset)
					}
					if diff := cmp.Diff([]int64{0, 1, 2}, got); diff != "" {
						t.Fatalf("dead letters, Redis lost %v (-want +got):\n%s", lost, diff)
					}
				}
				if got := n.ackAll(name); !slices.Equal(got, []string{"v3", "v4"}) {
					t.Fatalf("delivered %q", got)
				}
			})
		})
	}
}

// A gap is a hard state until somebody decides: leasing names it, statistics show it, a seek resolves it.
func TestGapIsResolvedBySeek(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		n := f.node(nil)
		topic := n.topic("orders", 2, nil)
		name := sub("orders", "w")
		n.subscribe(name, nil)
		n.publish("orders", 1, "v0", "v1", "v2", "v3")
		n.trim(topic, 1, 3)
		_, err := n.engine.Lease(t.Context(), LeaseRequest{Name: name, Max: 1})
		e := wantCode(t, err, api.CodeRetentionGap)
		want := []GapRange{{Partition: 1, From: 0, To: 3}}
		if diff := cmp.Diff(any(want), e.Extra["gaps"]); diff != "" {
			t.Fatalf("gaps (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(&Gap{0, 3}, n.stats(name).Partitions[1].Gap); diff != "" {
			t.Fatalf("gap in statistics (-want +got):\n%s", diff)
		}
		_, err = n.engine.Peek(t.Context(), name, 1)
		wantCode(t, err, api.CodeRetentionGap)
		s, err := n.engine.Seek(t.Context(), name, SeekTarget{Earliest: true})
		if err != nil || s.Partitions[1].Gap != nil {
			t.Fatalf("after the seek: %+v, %v", s, err)
		}
		if got := n.ackAll(name); !slices.Equal(got, []string{"v3"}) {
			t.Fatalf("delivered %q", got)
		}
	})
}

// A node dies after its seek is in the journal and before Redis has it: another one finds that out and puts it right, with nobody's help.
func TestSeekIsFinishedByAnother(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		a, b := f.node(nil), f.node(nil)
		a.topic("orders", 1, nil)
		name := sub("orders", "w")
		s := a.subscribe(name, nil)
		a.publish("orders", 0, "v0", "v1", "v2")
		a.ackAll(name)
		time.Sleep(time.Second)
		entry := journal.Entry{Key: journal.ShardKey{Subscription: s.ID}, Shard: &journal.Shard{Frontier: 1}, Open: true, Seek: true}
		if _, err := a.engine.o.Journal.Write(t.Context(), fabricTenant, []journal.Entry{entry}); err != nil {
			t.Fatal(err)
		}
		a.kill()
		time.Sleep(time.Minute)
		if got := b.stats(name).Partitions[0].Frontier; got != 1 {
			t.Fatalf("the frontier is at %d", got)
		}
		if got := b.ackAll(name); !slices.Equal(got, []string{"v1", "v2"}) {
			t.Fatalf("delivered %q", got)
		}
	})
}

// Nobody leaves between the journal and Redis: the caller's end does not end the seek.
func TestSeekOutlivesItsRequest(t *testing.T) {
	inFabric(t, func(t *testing.T, f *fabric) {
		ctx, cancel := context.WithCancel(t.Context())
		n := f.node(func(o *Options) { o.Journal = &slowJournal{Journal: o.Journal, writing: cancel} })
		n.topic("orders", 1, nil)
		name := sub("orders", "w")
		n.subscribe(name, nil)
		n.publish("orders", 0, "v0", "v1")
		n.ackAll(name)
		_, err := n.engine.Seek(ctx, name, SeekTarget{Earliest: true})
		wantCode(t, err, api.CodeOutcomeUnknown)
		time.Sleep(5 * time.Second)
		if got := n.ackAll(name); !slices.Equal(got, []string{"v0", "v1"}) {
			t.Fatalf("delivered %q", got)
		}
	})
}

// slowJournal takes two seconds to write a seek, and says when it begins.
type slowJournal struct {
	Journal
	writing func()
}

func (j *slowJournal) Write(ctx context.Context, tenant string, entries []journal.Entry) ([]int64, error) {
	if entries[0].Seek {
		j.writing()
		time.Sleep(2 * time.Second)
	}
	return j.Journal.Write(ctx, tenant, entries)
}
