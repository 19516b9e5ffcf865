package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
)

// Case L3: slow storage. Every PUT takes 5 s and every third is refused, two producers are on two nodes, in the second run one of which dies
// in the middle. Each acknowledgement names the offset where its record is; none is given twice, none is lost.
func TestSlowStorageGivesEveryRecordItsOwnOffset(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sim{world: newWorld(t, 1)}
				s.acks.at, s.acks.refused = map[string]position{}, map[string]bool{}
				s.topics = []*metadata.Topic{s.topic("a", 2, 0)}
				s.rules = []faults.Rule{
					{Ops: []objectstore.Op{objectstore.OpPut}, Latency: faults.Latency{Base: 5 * time.Second}},
					{Ops: []objectstore.Op{objectstore.OpPut}, Every: 3, Error: faults.Throttled},
				}
				nodes := []*worldNode{s.node(), s.node()}
				var mu sync.Mutex // guards nodes
				var refused, lost int
				var clients sync.WaitGroup
				for c := range 2 {
					clients.Go(func() {
						for i := range 10 {
							q := s.request(rand.New(rand.NewPCG(uint64(c), uint64(i))), fmt.Sprintf("seq-%d/%03d", c, i), s.topics, false)
							q.Producer = &metadata.Producer{ID: fmt.Sprint(c), Sequence: int64(i)}
							for {
								mu.Lock()
								n := nodes[c]
								mu.Unlock()
								res, err := n.append(t.Context(), q)
								if err == nil {
									s.acknowledged(q, res)
									break
								}
								mu.Lock()
								if err == errCrashed {
									lost++
								} else {
									wantCode(t, err, api.CodeStorageUnavailable)
									refused++
								}
								mu.Unlock()
							}
						}
					})
				}
				if killed {
					time.Sleep(27 * time.Second) // in the middle of an upload
					nodes[0].kill()
					n := s.node()
					mu.Lock()
					nodes[0] = n
					mu.Unlock()
				}
				clients.Wait()
				if refused == 0 || (lost > 0) != killed {
					t.Errorf("%d refused, %d lost from sight: the case did not happen", refused, lost)
				}
				for _, n := range nodes {
					n.stop()
				}
				s.ending.Wait()
				s.check()
				s.close()
			})
		})
	}
}

// Case I2: each step of the write fails once, before or after its effect. There is never success without the record, never a definite
// failure with it, and the retry stores it exactly once.
func TestEachStepFailsOnce(t *testing.T) {
	refusals := func(n int) metafault.Hook {
		return func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Append && c.N <= n {
				return metafault.Action{Err: metadata.ErrNoQuorum}
			}
			return metafault.Action{}
		}
	}
	losses := func(n int) metafault.Hook {
		return func(c metafault.Call) metafault.Action {
			return metafault.Action{Lost: c.Op == metafault.Append && c.N <= n}
		}
	}
	put := func(k faults.Kind, late time.Duration) []faults.Rule {
		return []faults.Rule{{Ops: []objectstore.Op{objectstore.OpPut}, Error: k, LateBy: late, Count: 1}}
	}
	for _, c := range []struct {
		name  string
		rules []faults.Rule
		hook  metafault.Hook
		late  bool     // the commit's effect comes when the test lets it
		first api.Code // the answer to the first attempt, "" = stored
	}{
		{name: "nothing fails"},
		{name: "PUT refused before its effect", rules: put(faults.Unavailable, 0), first: api.CodeStorageUnavailable},
		{name: "PUT throttled", rules: put(faults.Throttled, 0), first: api.CodeStorageUnavailable},
		{name: "PUT done, answer lost", rules: put(faults.Lost, 0), first: api.CodeStorageUnavailable},
		{name: "PUT without effect, answer lost", rules: put(faults.Unknown, 0), first: api.CodeStorageUnavailable},
		{name: "PUT takes effect after the retry", rules: put(faults.Late, time.Minute), first: api.CodeStorageUnavailable},
		{name: "PUT hangs", rules: []faults.Rule{{Ops: []objectstore.Op{objectstore.OpPut}, Latency: faults.Latency{Base: time.Hour}, Count: 1}}, first: api.CodeStorageUnavailable},
		{name: "commit refused once", hook: refusals(1)},
		{name: "commit refused for long", hook: refusals(1000), first: api.CodeMetadataUnavailable},
		{name: "commit done, answer lost", hook: losses(1)},
		{name: "commit done, answer lost again and again", hook: losses(5)},
		{name: "commit takes effect after the retry", late: true, first: api.CodeOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				tp := w.topic("a", 2, 0)
				w.rules = c.rules
				n := w.node()
				hold := make(chan struct{})
				if n.meta.SetHook(c.hook); c.late {
					n.meta.SetHook(func(c metafault.Call) metafault.Action {
						if c.Op == metafault.Append && c.N == 1 {
							return metafault.Action{Late: hold}
						}
						return metafault.Action{Delay: 40 * time.Second} // longer than the client's patience
					})
				}
				q := publish(tp, []string{"v0", "v1", "v2"}, 0, 1, 0)
				q.Producer = &metadata.Producer{ID: "p", Epoch: 0, Sequence: 7}
				attempt := func(n *worldNode) (*Result, error) {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					return n.in.Append(ctx, q)
				}
				res, err := attempt(n)
				if code := api.CodeOf(err); code != c.first || err != nil && code == "" {
					t.Fatalf("first attempt: %v, want %q", err, c.first)
				}
				there := len(w.read(tp)[topicPartition{tp.ID, 0}]) > 0
				if err == nil && !there {
					t.Error("success without the record")
				}
				if err != nil && api.CodeOf(err) != api.CodeOutcomeUnknown && there {
					t.Error("a definite failure, but the record is there")
				}
				n.meta.SetHook(nil)
				w.rules = nil
				other := w.node() // a retry may well reach another node
				again, err := attempt(other)
				if err != nil {
					t.Fatalf("retry: %v", err)
				}
				if again.Duplicate != there {
					t.Errorf("duplicate: %v, but the record was there: %v", again.Duplicate, there)
				}
				if res != nil && fmt.Sprint(res.Topics) != fmt.Sprint(again.Topics) {
					t.Errorf("first answer %v, then %v", res.Topics, again.Topics)
				}
				close(hold)
				time.Sleep(2 * time.Minute) // whatever comes late has come
				n.stop()
				other.stop()
				got := w.read(tp)
				if fmt.Sprint(got[topicPartition{tp.ID, 0}], got[topicPartition{tp.ID, 1}]) != "[v0 v2] [v1]" {
					t.Errorf("stored %v", got)
				}
				w.close()
			})
		})
	}
}

// Case L4, ingest's part: the append time is the node's, whatever the producer says.
func TestAppendTimeIsTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tp := w.topic("a", 1, 0)
		n := w.node()
		q := publish(tp, []string{"from the future"}, 0)
		q.Topics[0].Records[0].ProducerTime = time.Now().AddDate(10, 0, 0).UnixMilli()
		now := time.Now().UnixMilli()
		if _, err := n.in.Append(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		info, err := n.log.Partition(tp.ID, 0)
		if err != nil || info.LastAppend < now || info.LastAppend > now+1000 {
			t.Errorf("append time %d, now %d, %v", info.LastAppend, now, err)
		}
		n.stop()
		w.close()
	})
}

// Two of three members down: requests are refused within the log's patience and nothing is acknowledged; all is well when they return.
func TestQuorumLostAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tp := w.topic("a", 1, 0)
		n := w.node()
		down := func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Append || c.Op == metafault.Head {
				return metafault.Action{Err: metadata.ErrNoQuorum}
			}
			return metafault.Action{}
		}
		if _, err := n.in.Append(t.Context(), publish(tp, []string{"before"}, 0)); err != nil {
			t.Fatal(err)
		}
		n.meta.SetHook(down)
		begin := time.Now()
		for i := range 20 {
			_, err := n.in.Append(t.Context(), publish(tp, []string{fmt.Sprint("lost ", i)}, 0))
			wantCode(t, err, api.CodeMetadataUnavailable)
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("20 refusals took %v", took)
		}
		n.meta.SetHook(nil)
		time.Sleep(5 * time.Second)
		if _, err := n.in.Append(t.Context(), publish(tp, []string{"after"}, 0)); err != nil {
			t.Fatal(err)
		}
		n.stop()
		if got := fmt.Sprint(w.read(tp)[topicPartition{tp.ID, 0}]); got != "[before after]" {
			t.Errorf("stored %s", got)
		}
		w.close()
	})
}
