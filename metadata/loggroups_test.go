package metadata_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

func (n *node) group(t testing.TB, tenant, name string) (*metadata.ConsumerGroup, bool) {
	t.Helper()
	g, created, err := n.PutGroup(t.Context(), tenant, name)
	if err != nil {
		t.Fatalf("put group %s: %v", name, err)
	}
	return g, created
}

func TestPutAndDeleteGroup(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	g, created := a.group(t, "acme", "billing")
	if !created || g.Tenant != "acme" || g.Name != "billing" || g.Created == 0 {
		t.Errorf("created %v: %+v", created, g)
	}
	if same, created := b.group(t, "acme", "billing"); created || *same != *g {
		t.Errorf("again, on another node: %+v, created %v", same, created)
	}
	if other, created := b.group(t, "beta", "billing"); !created || other.ID == g.ID {
		t.Errorf("another tenant's: %+v, created %v", other, created)
	}
	if got, err := b.Group("acme", "billing"); err != nil || *got != *g {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := b.GroupByID(g.ID); err != nil || *got != *g {
		t.Errorf("read by ID %+v, %v", got, err)
	}

	gone, err := b.DeleteGroup(t.Context(), "acme", "billing")
	if err != nil || *gone != *g {
		t.Fatalf("deleted %+v, %v", gone, err)
	}
	again, created := a.group(t, "acme", "billing")
	if !created || again.ID == g.ID {
		t.Errorf("created %v again as %d after %d", created, again.ID, g.ID)
	}
	for what, err := range map[string]error{
		"by name":          func() error { _, err := a.Group("acme", "none"); return err }(),
		"by ID":            func() error { _, err := a.GroupByID(g.ID); return err }(),
		"delete by name":   func() error { _, err := a.DeleteGroup(t.Context(), "acme", "none"); return err }(),
		"delete an old ID": func() error { _, err := a.DeleteGroupByID(t.Context(), g.ID); return err }(),
	} {
		if api.CodeOf(err) != api.CodeUnknownGroup {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := a.Group("acme", "billing"); err != nil || got.ID != again.ID {
		t.Errorf("the group that took the name is %+v, %v", got, err)
	}
	sameState(t, a, b)
}

// Many nodes create one group at once: it is created once, and all get the same.
func TestPutGroupRace(t *testing.T) {
	f := newFabric(t)
	nodes := []*node{f.open(), f.open(), f.open()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	creations, ids := 0, map[metadata.GroupID]bool{}
	for _, n := range nodes {
		for range 5 {
			wg.Go(func() {
				g, created, err := n.PutGroup(t.Context(), "acme", "raced")
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[g.ID] = true
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

func TestGroupsAreListed(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	tenants := map[string]int{"acme": 600, "beta": 3, "gamma": 1}
	for tenant, n := range tenants {
		var cmds []metadata.Command
		for i := range n {
			cmds = append(cmds, &metadata.CreateGroup{Tenant: tenant, Name: fmt.Sprintf("g%03d", i)})
		}
		if _, err := a.DoAll(t.Context(), cmds, nil); err != nil {
			t.Fatal(err)
		}
	}
	seen, perTenant := map[metadata.GroupID]bool{}, map[string]int{}
	for g := range a.AllGroups() {
		if seen[g.ID] {
			t.Errorf("%+v came up twice", g)
		}
		seen[g.ID] = true
		perTenant[g.Tenant]++
	}
	for tenant, n := range tenants {
		if perTenant[tenant] != n {
			t.Errorf("%s: %d groups came up, want %d", tenant, perTenant[tenant], n)
		}
	}
	for range a.AllGroups() {
		break // must not go on
	}
	if page, next := a.Groups("acme", "g597", 10); len(page) != 2 || page[1].Name != "g599" || next != "" {
		t.Errorf("last page %v, %q", page, next)
	}
	if page, next := a.Groups("acme", "", 2); len(page) != 2 || next != "g001" {
		t.Errorf("first page %v, %q", page, next)
	}
}

func TestTooManyGroupsAreRefused(t *testing.T) {
	a := newFabric(t).open()
	var cmds []metadata.Command
	for i := range api.MaxGroupsPerTenant {
		cmds = append(cmds, &metadata.CreateGroup{Tenant: "acme", Name: fmt.Sprint("g", i)})
	}
	if _, err := a.DoAll(t.Context(), cmds, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.PutGroup(t.Context(), "acme", "more"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("one more: %v", err)
	}
	if g, created := a.group(t, "acme", "g7"); created || g.Name != "g7" {
		t.Errorf("one that is there: %+v, created %v", g, created)
	}
}

// Lost answers: a creation and a deletion that the log retries have one effect.
func TestGroupsWithLostAnswers(t *testing.T) {
	f := newFabric(t)
	a := f.open()
	lost := 0
	lose := func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Append && lost < 3 {
			lost++
			return metafault.Action{Lost: true}
		}
		return metafault.Action{}
	}
	a.faults.SetHook(lose)
	g, created := a.group(t, "acme", "billing")
	if !created || lost == 0 {
		t.Errorf("created %v after %d lost answers", created, lost)
	}
	b := f.open()
	if seen, err := b.Group("acme", "billing"); err != nil || seen.ID != g.ID {
		t.Errorf("another node sees %+v, %v", seen, err)
	}
	lost = 0
	if gone, err := a.DeleteGroup(t.Context(), "acme", "billing"); err != nil || gone.ID != g.ID || lost == 0 {
		t.Errorf("deleted %+v after %d lost answers: %v", gone, lost, err)
	}
	sameState(t, a, b)
}

// fencedCommit is what a group's coordinator writes: one record each in all partitions.
func fencedCommit(topic *metadata.Topic, producer string, epoch int64) *metadata.Commit {
	var batches []batch
	for p := range topic.Config.Partitions {
		batches = append(batches, batch{topic, int32(p), 1})
	}
	c := commitOf(batches...)
	c.Groups = []metadata.Group{{Tenant: topic.Tenant, Producer: &metadata.Producer{ID: producer, Epoch: epoch, Sequence: metadata.NoSequence}}}
	for i := range c.Batches {
		c.Batches[i].Group = 0
	}
	return c
}

// Coordinators on three nodes take a group from each other all the time and go on writing for the generation that they started, over a
// store that loses answers and with a housekeeper that truncates: in the log, nothing of a generation stands behind anything of a later
// one, a request is in all of its partitions or in none, and all nodes agree.
func TestZombiesAreFenced(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				behind, stored, fenced := zombies(t, seed)
				if behind > 0 {
					t.Errorf("%d requests of an old generation stand behind those of a later one", behind)
				}
				if stored == 0 || fenced == 0 {
					t.Errorf("%d requests stored, %d fenced: the case did not happen", stored, fenced)
				}
			})
		})
	}
}

// zombies runs the simulation and counts the requests that were stored, those that were fenced, and the stored ones of an old generation
// behind a later one.
func zombies(t *testing.T, seed uint64) (behind, stored, fenced int) {
	const producer = "__group.1"
	f := newFabric(t)
	setup := f.open()
	journal := setup.topic(t, "acme", "journal", 2)
	setup.close()
	type write struct {
		epoch int64
		bases [2]int64
	}
	var mu sync.Mutex
	var writes []write
	epochs := map[int64]bool{}
	unknown := 0
	var wg sync.WaitGroup
	nodes := make([]*node, 3)
	for i := range nodes {
		n := f.open(house(3), func(o *metadata.Options) { o.HousekeepEvery = 200 * time.Millisecond })
		nodes[i] = n
		n.faults.SetHook(metafault.Random(seed*31+uint64(i), metafault.Rates{Refused: 0.05, Lost: 0.1, Broken: 0.05, MaxDelay: 20 * time.Millisecond}))
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range 10 {
				epoch, err := n.StartProducer(t.Context(), "acme", producer)
				if err != nil {
					continue // refused, or nobody knows: then the epoch is nobody's
				}
				mu.Lock()
				if epochs[epoch] {
					t.Errorf("epoch %d was given twice", epoch)
				}
				epochs[epoch] = true
				mu.Unlock()
				for range 4 {
					p := n.SubmitCommit(fencedCommit(journal, producer, epoch))
					<-p.Done()
					r, err := p.Result()
					if err == nil {
						if err = r[0].Err; api.CodeOf(err) != api.CodeOf(r[1].Err) {
							t.Errorf("one partition says %v, the other %v", err, r[1].Err)
						}
					}
					mu.Lock()
					switch code := api.CodeOf(err); {
					case err == nil:
						writes = append(writes, write{epoch, [2]int64{r[0].Base, r[1].Base}})
					case code == api.CodeProducerFenced:
						fenced++
					case code == api.CodeOutcomeUnknown:
						unknown++
					case code != api.CodeMetadataUnavailable:
						t.Errorf("epoch %d: %v", epoch, err)
					}
					mu.Unlock()
					time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
				}
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		n.faults.SetHook(nil)
	}
	time.Sleep(30 * time.Second)
	slices.SortFunc(writes, func(a, b write) int { return cmp.Compare(a.bases[0], b.bases[0]) })
	last := write{bases: [2]int64{-1, -1}}
	for _, w := range writes {
		if w.bases[0] == last.bases[0] || w.bases[1] <= last.bases[1] {
			t.Errorf("%+v was stored after %+v", w, last)
		}
		if w.epoch < last.epoch {
			behind++
		}
		last = write{max(w.epoch, last.epoch), w.bases}
	}
	late := f.open()
	heads := [2]int64{late.head(t, journal, 0), late.head(t, journal, 1)}
	if n := int64(len(writes)); heads[0] != heads[1] || heads[0] < n || heads[0] > n+int64(unknown) {
		t.Errorf("heads %v with %d requests stored and %d unknown", heads, n, unknown)
	}
	for _, n := range nodes {
		sameState(t, n, late)
	}
	return behind, len(writes), fenced
}
