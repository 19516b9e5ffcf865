package metadata

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// SnapshotBody gives the canonical encoding of the state (docs/metadata-keys.md, "Snapshot body").
func (s *State) SnapshotBody() []byte {
	w := &snapshotWriter{s: s, b: make([]byte, 0, 1024+48*len(s.topics)+24*s.entries+96*len(s.subs.order)+48*len(s.groups.order)+16*len(s.applied.ids))}
	w.header()
	w.segments()
	w.topics()
	w.producers()
	w.windows()
	w.dedupes()
	w.subscriptions()
	w.groups()
	return w.b
}

// snapshotWriter numbers what later parts refer to.
type snapshotWriter struct {
	s       *State
	b       []byte
	ranks   []uint32 // by place in the segment table: place in the snapshot
	tenants map[*tenant]int
	numbers map[*producer]int
}

func (w *snapshotWriter) uvarint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }
func (w *snapshotWriter) varint(v int64)   { w.b = appendVarint(w.b, v) }
func (w *snapshotWriter) string(v string)  { w.b = appendString(w.b, v) }

func (w *snapshotWriter) header() {
	s := w.s
	w.uvarint(uint64(s.shards))
	w.uvarint(uint64(s.shard))
	w.uvarint(uint64(s.revision))
	w.uvarint(s.counter)
	w.varint(s.clock)
	w.varint(s.boundary)
	w.varint(s.epochFloor)
	w.uvarint(uint64(len(s.claims)))
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		w.string(name)
		w.varint(s.claims[name])
	}
}

func (w *snapshotWriter) segments() {
	t := &w.s.segments
	w.ranks = make([]uint32, len(t.infos))
	w.uvarint(uint64(t.live()))
	classes := stringTable{}
	rank := uint32(0)
	for _, k := range t.order {
		if k.idx == deadSegment {
			continue
		}
		info := &t.infos[k.idx]
		w.b = append(w.b, info.id[:]...)
		w.b = append(w.b, info.level)
		w.b = classes.append(w.b, t.classes[info.class])
		w.uvarint(uint64(info.size))
		w.ranks[k.idx] = rank
		rank++
	}
	w.uvarint(uint64(len(w.s.applied.ids)))
	for i := range w.s.applied.ids {
		w.b = append(w.b, w.s.applied.ids[i][:]...)
	}
}

func (w *snapshotWriter) topics() {
	s := w.s
	w.tenants = make(map[*tenant]int, len(s.tenants))
	w.uvarint(uint64(len(s.tenants)))
	for i, name := range slices.Sorted(maps.Keys(s.tenants)) {
		w.string(name)
		w.tenants[s.tenants[name]] = i
	}
	numbers := make(map[*topicConfig]int, len(s.configs)) // in the order of first use
	var configs []*topicConfig
	for _, t := range s.order {
		if _, ok := numbers[t.config]; !ok {
			numbers[t.config] = len(configs)
			configs = append(configs, t.config)
		}
	}
	w.uvarint(uint64(len(configs)))
	for _, c := range configs {
		w.b = appendConfig(w.b, &c.TopicConfig)
	}
	w.uvarint(uint64(len(s.order)))
	prev := TopicID(0)
	for _, t := range s.order {
		w.uvarint(uint64(t.id - prev))
		prev = t.id
		w.uvarint(uint64(w.tenants[t.tenant]))
		w.string(t.name)
		w.uvarint(uint64(numbers[t.config]))
		w.varint(t.created)
		w.varint(t.version)
		w.uvarint(uint64(len(t.parts)))
		num := int32(0)
		for _, p := range t.parts {
			w.uvarint(uint64(p.num - num))
			num = p.num
			w.partition(p)
		}
	}
}

func (w *snapshotWriter) partition(p *partition) {
	w.uvarint(uint64(p.logStart))
	w.uvarint(uint64(p.head - p.logStart))
	w.varint(p.lastAppend)
	w.uvarint(uint64(len(p.entries)))
	var base, time int64
	var pos uint64
	var seg uint32
	for i := range p.entries {
		e := &p.entries[i]
		ext := e.records&hasExt != 0
		records := uint64(e.count()) << 1
		if ext {
			records |= 1
		}
		at, last := p.pos(i), p.last(i)
		w.uvarint(uint64(e.base - base))
		w.uvarint(records)
		w.varint(e.time - time)
		w.varint(int64(w.ranks[e.seg]) - int64(seg))
		w.varint(int64(at - pos))
		w.uvarint(uint64(e.len))
		if ext {
			x := p.ext(e)
			w.uvarint(uint64(x.last - x.base))
			w.varint(e.time - x.firstTime)
			w.b = appendDropped(w.b, x.sparse, x.dropped)
		}
		base, time, pos, seg = last+1, e.time, at+uint64(e.len), w.ranks[e.seg]
	}
}

func (w *snapshotWriter) producers() {
	s := w.s
	all := slices.SortedFunc(maps.Values(s.producers), func(a, b *producer) int {
		return cmp.Or(cmp.Compare(w.tenants[a.tenant], w.tenants[b.tenant]), cmp.Compare(a.id, b.id))
	})
	w.uvarint(uint64(len(all)))
	w.numbers = make(map[*producer]int, len(all))
	for i, p := range all {
		w.numbers[p] = i
		w.uvarint(uint64(w.tenants[p.tenant]))
		w.string(p.id)
	}
	w.uvarint(uint64(s.sessions.n))
	for p := range s.sessions.all {
		w.uvarint(uint64(w.numbers[p]))
		w.varint(p.epoch)
		w.varint(p.lastUse)
		w.b = append(w.b, p.nonce[:]...)
	}
}

func (w *snapshotWriter) windows() {
	w.uvarint(uint64(w.s.windows.n))
	for x := range w.s.windows.all {
		w.uvarint(uint64(x.topic.id))
		w.uvarint(uint64(x.part.num))
		w.uvarint(uint64(w.numbers[x.producer]))
		w.varint(x.lastUse)
		w.b = appendBool(w.b, x.forgot)
		w.varint(x.floor)
		w.uvarint(uint64(len(x.sealed)))
		for i := range x.sealed {
			w.block(&x.sealed[i])
		}
		w.block(&x.tail)
	}
}

func (w *snapshotWriter) block(b *block) {
	w.varint(b.first)
	w.uvarint(uint64(b.n))
	w.uvarint(uint64(len(b.data)))
	w.b = append(w.b, b.data...)
}

func (w *snapshotWriter) dedupes() {
	w.uvarint(uint64(w.s.dedupes.n))
	for d := range w.s.dedupes.all {
		w.uvarint(uint64(d.topic.id))
		w.uvarint(uint64(d.part.num))
		w.varint(d.lastUse)
		w.uvarint(uint64(len(d.queue)))
		var offset, time int64
		for i := range d.queue {
			it := &d.queue[i]
			w.b = append(w.b, it.hash[:]...)
			w.varint(it.offset - offset)
			w.uvarint(uint64(it.time - time))
			offset, time = it.offset, it.time
		}
	}
}
