package metadata

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

func TestCreateAndDeleteGroup(t *testing.T) {
	w := newWorld(t)
	first := w.group("acme", "billing")
	if want := (ConsumerGroup{ID: 1, Tenant: "acme", Name: "billing", Created: w.now}); *first != want {
		t.Fatalf("%+v, want %+v", *first, want)
	}
	w.tick(time.Second)
	if r := w.apply(&CreateGroup{Tenant: "acme", Name: "billing", Now: w.now})[0]; api.CodeOf(r.Err) != api.CodeConflict || r.Group != first {
		t.Errorf("again: %+v, %v", r.Group, r.Err)
	}
	if w.s.clock != w.now {
		t.Error("a group's time does not move the shard's clock")
	}
	other := w.group("beta", "billing")
	if other.ID != 2 {
		t.Errorf("ID %d", other.ID)
	}
	for tenant, want := range map[string]*ConsumerGroup{"acme": first, "beta": other} {
		if g, ok := w.s.Group(tenant, "billing"); !ok || g != want {
			t.Errorf("%s: by name %+v", tenant, g)
		}
		if g, ok := w.s.GroupByID(want.ID); !ok || g != want {
			t.Errorf("%s: by ID %+v", tenant, g)
		}
	}
	for _, name := range [][2]string{{"acme", "none"}, {"none", "billing"}} {
		if g, ok := w.s.Group(name[0], name[1]); ok {
			t.Errorf("%v is %+v", name, g)
		}
	}
	w.refused(&DeleteGroup{ID: 99}, api.CodeUnknownGroup)

	// A tenant that has nothing but a group is kept for it, and goes with it.
	if r := w.one(&DeleteGroup{ID: other.ID}); r.Group != other {
		t.Errorf("deleted %+v", r.Group)
	}
	if w.s.tenants["beta"] != nil || w.s.tenants["acme"] == nil || w.s.Stats().Groups != 1 {
		t.Errorf("%d tenants, %+v", len(w.s.tenants), w.s.Stats())
	}
	w.refused(&DeleteGroup{ID: other.ID}, api.CodeUnknownGroup)

	// IDs are never given twice, not even after a snapshot.
	loaded, err := UnmarshalSnapshot(w.s.MarshalSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.s = loaded
	if next := w.group("beta", "billing"); next.ID != 3 {
		t.Errorf("the next ID is %d after %d", next.ID, other.ID)
	}
}

// An ID names the shard of its tenant, and a shard takes no other tenants' groups.
func TestGroupIDsNameTheirShard(t *testing.T) {
	const shards = 4
	shard := ShardOf("acme", shards)
	s := NewState(shard, shards)
	foreign := ""
	for i := 0; foreign == ""; i++ {
		if name := fmt.Sprint("t", i); ShardOf(name, shards) != shard {
			foreign = name
		}
	}
	a, err := s.Apply(LogEntry{Revision: 1, Shard: shard, Value: stEntry(t, &CreateGroup{Tenant: "acme", Name: "a"}, &CreateGroup{Tenant: "acme", Name: "b"},
		&CreateGroup{Tenant: foreign, Name: "a"})})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range a.Results[:2] {
		if want := GroupID((i+1)*shards + shard); r.Err != nil || r.Group.ID != want {
			t.Errorf("%+v, %v, want ID %d", r.Group, r.Err, want)
		}
	}
	wantCode(t, a.Results[2].Err, api.CodeInvalidRequest)
}

// Groups and topics live and die apart.
func TestGroupsOutliveTopics(t *testing.T) {
	w := newWorld(t)
	orders := w.topic("orders", stConfig(1))
	g := w.group("acme", "orders")
	w.one(&DeleteTopic{TopicID: orders.ID})
	if got, ok := w.s.Group("acme", "orders"); !ok || got != g {
		t.Errorf("%+v", got)
	}
}

func TestATenantHasSoManyGroups(t *testing.T) {
	w := newWorld(t)
	var cmds []Command
	for i := range api.MaxGroupsPerTenant {
		cmds = append(cmds, &CreateGroup{Tenant: "acme", Name: fmt.Sprintf("g%05d", i*7%api.MaxGroupsPerTenant)})
	}
	for _, r := range w.apply(cmds...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := w.refused(&CreateGroup{Tenant: "acme", Name: "more"}, api.CodeConflict); r.Group != nil {
		t.Errorf("refused for %+v", r.Group)
	}
	w.group("beta", "more")
	for _, limit := range []int{1, 99, 10_000, 50_000} {
		n := 0
		for after := ""; ; {
			page, next := w.s.Groups("acme", after, limit)
			for _, g := range page {
				if want := fmt.Sprintf("g%05d", n); g.Name != want {
					t.Fatalf("limit %d: %s, want %s", limit, g.Name, want)
				}
				n++
			}
			if next == "" {
				break
			}
			if len(page) != limit || next != page[limit-1].Name {
				t.Fatalf("limit %d: a page of %d, next %q", limit, len(page), next)
			}
			after = next
		}
		if n != api.MaxGroupsPerTenant {
			t.Errorf("limit %d: %d listed", limit, n)
		}
	}
	if page, next := w.s.Groups("none", "", 5); page != nil || next != "" {
		t.Errorf("of no tenant: %v, %q", page, next)
	}
	if page, next := w.s.Groups("acme", "", 0); page != nil || next != "" {
		t.Errorf("limit 0: %v, %q", page, next)
	}
	if page := w.s.ScanGroups(GroupID(api.MaxGroupsPerTenant), 10); len(page) != 1 || page[0].Tenant != "beta" {
		t.Errorf("scanned %v", page)
	}
}

// A snapshot whose groups are not what apply makes is refused.
func TestSnapshotRefusesBadGroups(t *testing.T) {
	for name, damage := range map[string]func(*State, *ConsumerGroup){
		"ID above the counter": func(s *State, _ *ConsumerGroup) { s.groups.counter-- },
		"ID of 0":              func(_ *State, g *ConsumerGroup) { g.ID = 0 },
		"ID twice":             func(s *State, g *ConsumerGroup) { s.groups.order[1].ID = g.ID },
		"named twice":          func(_ *State, g *ConsumerGroup) { g.Name = "billing" },
	} {
		s := fullWorld(t).s
		damage(s, s.groups.order[0])
		if _, err := UnmarshalSnapshot(s.MarshalSnapshot()); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	// A tenant that nothing needs would never go away.
	s := NewState(0, 1)
	s.getTenant("acme")
	if _, err := UnmarshalSnapshot(s.MarshalSnapshot()); err == nil {
		t.Error("an empty tenant was taken")
	}
}

// A state from before there were groups is read as one without any.
func TestOldSnapshotsHaveNoGroups(t *testing.T) {
	for _, w := range []*stWorld{richWorld(t), subscribedWorld(t)} {
		b := golden(t, fmt.Sprintf("snapshot-v%d.snap", 1+min(len(w.s.subs.order), 1)), nil)
		s, err := UnmarshalSnapshot(b)
		if err != nil {
			t.Fatal(err)
		}
		w.s = s
		if g := w.group("acme", "billing"); g.ID != 1 || !reflect.DeepEqual(s.ScanGroups(0, 10), []*ConsumerGroup{g}) {
			t.Errorf("the first group is %+v", g)
		}
	}
}
