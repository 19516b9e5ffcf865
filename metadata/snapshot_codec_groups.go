package metadata

import (
	"cmp"
	"slices"
)

// minSnapshotGroupBytes is what a consumer group takes at least in a snapshot.
const minSnapshotGroupBytes = 4

// groups is the part of the body that version 3 has added.
func (w *snapshotWriter) groups() {
	s := w.s
	w.uvarint(s.groups.counter)
	w.uvarint(uint64(len(s.groups.order)))
	prev := GroupID(0)
	for _, g := range s.groups.order {
		w.uvarint(uint64(g.ID - prev))
		prev = g.ID
		w.uvarint(uint64(w.tenants[s.tenants[g.Tenant]]))
		w.string(g.Name)
		w.varint(g.Created)
	}
}

func (r *snapshotReader) groups() {
	r.structure = "snapshot groups"
	s := r.s
	s.groups.counter = r.uvarint()
	n := r.count(minSnapshotGroupBytes)
	var id GroupID
	for i := 0; i < n && r.err == nil; i++ {
		step := GroupID(r.uvarint())
		if id+step <= id || uint64(id+step)%uint64(s.shards) != uint64(s.shard) || uint64(id+step)/uint64(s.shards) > s.groups.counter {
			r.fail("bad group ID")
			break
		}
		id += step
		tn := r.uvarint()
		if tn >= uint64(len(r.tenants)) {
			r.fail("reference out of range")
			break
		}
		t := r.tenants[tn]
		g := &ConsumerGroup{ID: id, Tenant: t.name, Name: r.string(), Created: r.varint()}
		s.groups.byID[id] = g
		s.groups.order = append(s.groups.order, g)
		t.groups = append(t.groups, g)
	}
	for _, t := range r.tenants {
		slices.SortFunc(t.groups, func(a, b *ConsumerGroup) int { return cmp.Compare(a.Name, b.Name) })
		for i := 1; i < len(t.groups); i++ {
			if t.groups[i-1].Name == t.groups[i].Name {
				r.fail("group named twice")
			}
		}
	}
}
