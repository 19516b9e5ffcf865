package metadata_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

func TestCommitAndRead(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	one, two := a.topic(t, "acme", "orders", 4), a.topic(t, "zeta", "events", 2)
	if got := a.commit(t, batch{one, 0, 3}, batch{two, 1, 5}, batch{one, 2, 7}); !slices.Equal(got, []int64{0, 0, 0}) {
		t.Errorf("first bases %v, want zeros", got)
	}
	if got := b.commit(t, batch{two, 1, 1}, batch{one, 0, 2}); !slices.Equal(got, []int64{5, 3}) {
		t.Errorf("bases on the other node %v, want [5 3]", got)
	}
	for _, n := range []*node{a, b} {
		if got := []int64{n.head(t, one, 0), n.head(t, one, 1), n.head(t, one, 2), n.head(t, two, 1)}; !slices.Equal(got, []int64{5, 0, 7, 6}) {
			t.Errorf("heads %v, want [5 0 7 6]", got)
		}
	}
	entries, info, err := a.Locate(one.ID, 0, 1, 10)
	if err != nil || len(entries) != 2 || entries[0].Base != 0 || entries[1].Base != 3 || info.Head != 5 {
		t.Errorf("locate: %+v, %+v, %v", entries, info, err)
	}
	if e, found, err := a.LocateTime(one.ID, 0, 0); err != nil || !found || e.Base != 0 {
		t.Errorf("locate by time 0: %+v, %v, %v", e, found, err)
	}
	if infos, err := a.PartitionInfos(one.ID); err != nil || len(infos) != 4 || infos[2].Head != 7 {
		t.Errorf("partition infos: %+v, %v", infos, err)
	}
	sameState(t, a, b)
}

// A commit over tenants of several shards is one revision; each batch gets its own answer.
func TestCommitOverShardsKeepsBatchOrder(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	var topics []*metadata.Topic
	shards := map[int]bool{}
	for i := range 12 {
		tenant := fmt.Sprintf("tenant-%d", i)
		shards[metadata.ShardOf(tenant, 4)] = true
		topics = append(topics, a.topic(t, tenant, "t", 1))
	}
	if len(shards) < 3 {
		t.Fatalf("tenants fall into %d shards only", len(shards))
	}
	gone := a.topic(t, "tenant-3", "gone", 1)
	if err := a.DeleteTopic(t.Context(), "tenant-3", "gone"); err != nil {
		t.Fatal(err)
	}
	for i, topic := range topics {
		a.commit(t, batch{topic, 0, int32(i + 1)})
	}
	var all []batch
	for _, topic := range topics {
		all = append(all, batch{topic, 0, 1})
	}
	all = slices.Insert(all, 5, batch{gone, 0, 1})
	before := a.Revision()
	r, err := await(t, a.SubmitCommit(commitOf(all...)))
	if err != nil {
		t.Fatal(err)
	}
	if code := api.CodeOf(r[5].Err); code != api.CodeUnknownTopic {
		t.Errorf("batch of a deleted topic: %v", r[5].Err)
	}
	for i, base := range bases(t, slices.Delete(r, 5, 6)) {
		if base != int64(i+1) {
			t.Errorf("batch %d has base %d, want %d", i, base, i+1)
		}
	}
	if got := a.Revision(); got != before+1 {
		t.Errorf("the commit took revisions %d to %d, want one", before, got)
	}
}

func TestGroupCommitKeepsOrderAndSharesTransactions(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	topic := a.topic(t, "acme", "orders", 1)
	gate := make(chan struct{})
	a.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Append {
			return metafault.Action{Wait: gate}
		}
		return metafault.Action{}
	})
	before := a.faults.Calls(metafault.Append)
	const n = 200
	pending := make([]*metadata.Pending, n)
	for i := range pending {
		pending[i] = a.SubmitCommit(commitOf(batch{topic, 0, 1}))
	}
	close(gate)
	for i, p := range pending {
		r, err := await(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := bases(t, r)[0]; got != int64(i) {
			t.Fatalf("commit %d got offset %d: not in submission order", i, got)
		}
	}
	if txns := a.faults.Calls(metafault.Append) - before; txns > 3 {
		t.Errorf("%d commits took %d transactions, want them grouped", n, txns)
	}
}

// I3: the answer of an append that had its effect is lost. One effect, and the answer of the first.
func TestLostAnswersHaveOneEffect(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	topic := a.topic(t, "acme", "orders", 1)
	for _, blind := range []bool{false, true} {
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			switch {
			case c.Op == metafault.Append && c.N%3 != 0:
				return metafault.Action{Lost: true}
			case c.Op == metafault.Deliver && blind:
				return metafault.Action{Delay: 2 * time.Millisecond} // the retry comes before the watch shows it
			}
			return metafault.Action{}
		})
		for range 10 {
			want := b.head(t, topic, 0)
			if got := a.commit(t, batch{topic, 0, 2})[0]; got != want {
				t.Fatalf("base %d, want %d", got, want)
			}
		}
	}
	if got := b.head(t, topic, 0); got != 40 {
		t.Errorf("head %d after 20 commits of 2 records", got)
	}
	again, created, err := a.PutTopic(t.Context(), "acme", "fresh", func(cur *metadata.Topic) (api.TopicConfig, error) {
		if cur != nil {
			t.Errorf("create saw a topic %+v", cur)
		}
		return api.DefaultTopicConfig(), nil
	})
	if err != nil || !created {
		t.Fatalf("create with lost answers: %v, created %v", err, created)
	}
	if seen, err := b.Topic("acme", "fresh"); err != nil || seen.ID != again.ID {
		t.Errorf("another node sees %+v, %v; the creator got ID %d", seen, err, again.ID)
	}
	if epoch, err := a.StartProducer(t.Context(), "acme", "p"); err != nil || epoch != 1 {
		t.Errorf("first producer session: epoch %d, %v", epoch, err)
	}
	sameState(t, a, b)
}

// An append that is answered as unknown and takes effect only after its own retry: still one effect.
func TestLateEffectIsIgnored(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	topic := a.topic(t, "acme", "orders", 1)
	late := make(chan struct{})
	first := a.faults.Calls(metafault.Append) + 1
	a.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Append && c.N == first {
			return metafault.Action{Late: late}
		}
		return metafault.Action{}
	})
	a.commit(t, batch{topic, 0, 1})
	close(late)
	a.commit(t, batch{topic, 0, 1})
	if got := a.head(t, topic, 0); got != 2 {
		t.Errorf("head %d, want 2", got)
	}
}

// The store answers, and the watch shows it only after it has come back.
func TestCommitIsAnsweredWhenTheWatchReturns(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	topic := a.topic(t, "acme", "orders", 1)
	var broken int
	a.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Deliver && broken < 3 {
			broken++
			return metafault.Action{Err: errors.New("cut")}
		}
		return metafault.Action{}
	})
	if got := a.commit(t, batch{topic, 0, 1})[0]; got != 0 {
		t.Errorf("base %d", got)
	}
	if broken != 3 {
		t.Errorf("the watch was cut %d times, want 3", broken)
	}
}

func TestPutTopic(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	topic := a.topic(t, "acme", "orders", 4)
	again := b.topic(t, "acme", "orders", 4)
	if again.ID != topic.ID || again.Version != topic.Version {
		t.Errorf("the same configuration changed the topic: %+v, %+v", topic, again)
	}
	grown := b.topic(t, "acme", "orders", 6)
	if grown.ID != topic.ID || grown.Version <= topic.Version || grown.Config.Partitions != 6 {
		t.Errorf("grown: %+v", grown)
	}
	refuse := errors.New("no")
	if _, _, err := a.PutTopic(t.Context(), "acme", "orders", func(cur *metadata.Topic) (api.TopicConfig, error) {
		if cur == nil || cur.Config.Partitions != 6 {
			t.Errorf("decide saw %+v", cur)
		}
		return api.TopicConfig{}, refuse
	}); !errors.Is(err, refuse) {
		t.Errorf("refusal of decide: %v", err)
	}
	shrink := func(*metadata.Topic) (api.TopicConfig, error) {
		c := api.DefaultTopicConfig()
		c.Partitions = 2
		return c, nil
	}
	if _, _, err := a.PutTopic(t.Context(), "acme", "orders", shrink); api.CodeOf(err) != api.CodePartitionsCannotShrink {
		t.Errorf("shrink: %v", err)
	}
	if err := a.DeleteTopic(t.Context(), "acme", "orders"); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic(t.Context(), "acme", "orders"); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("second delete: %v", err)
	}
	if recreated := b.topic(t, "acme", "orders", 4); recreated.ID == topic.ID {
		t.Error("the ID was used again")
	}
	if _, err := a.TopicByID(topic.ID); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("old ID: %v", err)
	}
	if list, next := b.Topics("acme", "", 10); len(list) != 1 || next != "" {
		t.Errorf("list: %v, next %q", list, next)
	}
}

// Creators and changers on several nodes: one creation, and every change is seen by its successor.
func TestPutTopicRace(t *testing.T) {
	f := newFabric(t)
	nodes := []*node{f.open(), f.open(), f.open()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	creations, ids := 0, map[metadata.TopicID]bool{}
	for _, n := range nodes {
		for range 5 {
			wg.Go(func() {
				topic, created, err := n.PutTopic(t.Context(), "acme", "raced", func(cur *metadata.Topic) (api.TopicConfig, error) {
					c := api.DefaultTopicConfig()
					if cur != nil {
						c.Partitions = cur.Config.Partitions + 1
					}
					return c, nil
				})
				if api.CodeOf(err) == api.CodeConflict {
					return // gave up, said so
				}
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[topic.ID] = true
				if created {
					creations++
				}
			})
		}
	}
	wg.Wait()
	if creations != 1 || len(ids) != 1 {
		t.Errorf("%d creations, %d IDs, want one of each", creations, len(ids))
	}
	sameState(t, nodes[0], nodes[2])
}

func TestProducerSessions(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	topic := a.topic(t, "acme", "orders", 2)
	epoch, err := a.StartProducer(t.Context(), "acme", "p1")
	if err != nil || epoch != 1 {
		t.Fatalf("start: %d, %v", epoch, err)
	}
	write := func(n *node, epoch, seq int64) (metadata.BatchResult, error) {
		c := commitOf(batch{topic, 1, 2})
		c.Groups = []metadata.Group{{Tenant: "acme", Producer: &metadata.Producer{ID: "p1", Epoch: epoch, Sequence: seq}}}
		c.Batches[0].Group = 0
		r, err := await(t, n.SubmitCommit(c))
		if err != nil {
			return metadata.BatchResult{}, err
		}
		return r[0], nil
	}
	first, err := write(a, 1, 10)
	if err != nil || first.Err != nil || first.Duplicate {
		t.Fatalf("first: %+v, %v", first, err)
	}
	// I1: the retry on another node.
	if dup, err := write(b, 1, 10); err != nil || dup.Err != nil || !dup.Duplicate || dup.Base != first.Base {
		t.Errorf("retry on the other node: %+v, %v", dup, err)
	}
	if epoch, err = b.StartProducer(t.Context(), "acme", "p1"); err != nil || epoch != 2 {
		t.Fatalf("second session: %d, %v", epoch, err)
	}
	if old, err := write(a, 1, 11); err != nil || api.CodeOf(old.Err) != api.CodeProducerFenced {
		t.Errorf("old epoch: %+v, %v", old, err)
	}
	positions, err := a.ProducerPositions(t.Context(), "acme", "p1", "")
	want := []metadata.ProducerPosition{{Topic: "orders", Partition: 1, Sequence: 10}}
	if err != nil || !slices.Equal(positions, want) {
		t.Errorf("positions %+v, %v, want %+v", positions, err, want)
	}
}

func TestCloseResolvesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open()
		topic := a.topic(t, "acme", "orders", 1)
		first := a.faults.Calls(metafault.Append) + 1
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op == metafault.Append && c.N >= first {
				return metafault.Action{Err: &metadata.IndefiniteError{Cause: errors.New("timeout")}}
			}
			return metafault.Action{}
		})
		inFlight := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		synctest.Wait()
		queued := a.SubmitCommit(commitOf(batch{topic, 0, 1}))
		begin := time.Now()
		a.close()
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("close took %s", took)
		}
		if _, err := await(t, inFlight); api.CodeOf(err) != api.CodeOutcomeUnknown {
			t.Errorf("in flight: %v, want OUTCOME_UNKNOWN", err)
		}
		if _, err := await(t, queued); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("queued: %v, want METADATA_UNAVAILABLE", err)
		}
		if _, err := await(t, a.SubmitCommit(commitOf(batch{topic, 0, 1}))); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("after close: %v, want METADATA_UNAVAILABLE", err)
		}
		if err := a.Sync(t.Context()); api.CodeOf(err) != api.CodeMetadataUnavailable {
			t.Errorf("sync after close: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestOpenRefusesAForeignFabric(t *testing.T) {
	f := newFabric(t)
	f.open()
	for _, c := range []struct {
		name   string
		change func(*metadata.Options)
	}{
		{"other region", func(o *metadata.Options) { o.Region = "elsewhere" }},
		{"other shards", func(o *metadata.Options) { o.Shards = 8 }},
		{"no node ID", func(o *metadata.Options) { o.NodeID = "" }},
		{"node ID with a slash", func(o *metadata.Options) { o.NodeID = "a/b" }},
	} {
		o := metadata.Options{Driver: f.entries, Store: f.objects, NodeID: "x", Region: "here"}
		c.change(&o)
		if l, err := metadata.Open(t.Context(), o); err == nil {
			t.Errorf("%s: opened", c.name)
			_ = l.Close()
		}
	}
	if n := f.open(func(o *metadata.Options) { o.Shards = 0 }); n.Fabric().Shards != 4 {
		t.Errorf("shards %d, want the fabric's 4", n.Fabric().Shards)
	}
}

// Commits that can never be written fail alone, definitely, in the middle of a group; their neighbours keep their order.
func TestHopelessCommitsFailAlone(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	topic, far := a.topic(t, "acme", "orders", 1), a.topic(t, "zeta", "x", 1)
	gate := make(chan struct{})
	a.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Append {
			return metafault.Action{Wait: gate}
		}
		return metafault.Action{}
	})
	good := func() *metadata.Commit { return commitOf(batch{topic, 0, 1}) }
	huge := commitOf(batch{topic, 0, 120_000})
	huge.Groups = []metadata.Group{{Tenant: "acme"}}
	huge.Batches[0].Group, huge.Batches[0].IDHashes = 0, make([][16]byte, 120_000)
	for i := range huge.Batches[0].IDHashes {
		huge.Batches[0].IDHashes[i] = [16]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	malformed := commitOf(batch{topic, 0, 1})
	malformed.Batches[0].Group = 7
	malformedOver := commitOf(batch{topic, 0, 1}, batch{far, 0, 1})
	malformedOver.Batches[1].Group = 7
	first := a.SubmitCommit(good()) // holds the submitter, so that the others form a group
	commits := []*metadata.Commit{good(), good(), huge, good(), malformed, good(), malformedOver, good()}
	var pending []*metadata.Pending
	for _, c := range commits {
		pending = append(pending, a.SubmitCommit(c))
	}
	close(gate)
	if r, err := await(t, first); err != nil || bases(t, r)[0] != 0 {
		t.Fatal(r, err)
	}
	next := int64(1)
	for i, p := range pending {
		r, err := await(t, p)
		switch commits[i] {
		case huge:
			if api.CodeOf(err) != api.CodeTooLarge {
				t.Errorf("too large: %v", err)
			}
		case malformed, malformedOver:
			if err == nil || api.CodeOf(err) == api.CodeOutcomeUnknown {
				t.Errorf("malformed: %v, %v", r, err)
			}
		default:
			if err != nil || bases(t, r)[0] != next {
				t.Errorf("commit %d: %+v, %v, want base %d", i, r, err, next)
			}
			next++
		}
	}
	if got := a.head(t, topic, 0); got != next {
		t.Errorf("head %d, want %d", got, next)
	}
}
