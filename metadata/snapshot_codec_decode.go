package metadata

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/forebaymq/forebay/api"
)

// snapshotReader builds a state. It checks everything that the state's methods rely on, so that no body whatever makes them panic.
type snapshotReader struct {
	reader
	s         *State
	segs      []uint32 // by place in the snapshot: place in the segment table
	tenants   []*tenant
	producers []*producer
}

// decodeBody is the inverse of SnapshotBody, of this version and of those before.
func decodeBody(body []byte, version byte) (*State, error) {
	r := &snapshotReader{reader: reader{b: body, structure: "snapshot"}}
	r.header()
	parts := []func(){r.segments, r.topics, r.sessions, r.windows, r.dedupes}
	if version >= 2 {
		parts = append(parts, r.subscriptions)
	}
	if version >= 3 {
		parts = append(parts, r.groups)
	}
	for _, part := range parts {
		if r.err != nil {
			return nil, r.err
		}
		part()
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	r.check()
	return r.s, r.err
}

func (r *snapshotReader) header() {
	shards := r.upTo(math.MaxInt32)
	shard := r.upTo(math.MaxInt32)
	if r.err == nil && shard >= shards {
		r.fail("shard out of range")
	}
	s := NewState(int(shard), int(shards))
	s.revision = r.int63()
	s.counter = r.uvarint()
	s.clock = r.varint()
	s.boundary = r.varint()
	s.epochFloor = r.varint()
	prev := ""
	for i, n := 0, r.count(2); i < n && r.err == nil; i++ {
		name := r.string()
		if name <= prev {
			r.fail("claims out of order")
		}
		prev = name
		s.claims[name] = r.varint()
	}
	r.s = s
}

func (r *snapshotReader) segments() {
	r.structure = "snapshot segments"
	t := &r.s.segments
	n := r.count(minSegmentBytes)
	r.segs = make([]uint32, n)
	var classes []string
	for i := 0; i < n && r.err == nil; i++ {
		ref := SegmentRef{ID: r.ulid(), Level: r.byte(), Class: readTabled(&r.reader, &classes), Size: r.int63()}
		if len(classes) > math.MaxUint16 {
			r.fail("too many retention classes")
		}
		if k := len(t.order); k > 0 && bytes.Compare(t.order[k-1].id[:], ref.ID[:]) >= 0 {
			r.fail("segments out of order")
		}
		if r.err == nil {
			r.segs[i] = t.put(ref)
		}
	}
	n = r.count(16)
	for i := 0; i < n && r.err == nil; i++ {
		id := r.ulid()
		if i > 0 && bytes.Compare(r.s.applied.ids[i-1][:], id[:]) >= 0 {
			r.fail("applied segments out of order")
		}
		r.s.applied.ids = append(r.s.applied.ids, id)
	}
}

func (r *snapshotReader) topics() {
	r.structure = "snapshot topics"
	s := r.s
	n := r.count(1)
	prev := ""
	for i := 0; i < n && r.err == nil; i++ {
		name := r.string()
		if i > 0 && name <= prev {
			r.fail("tenants out of order")
		}
		prev = name
		r.tenants = append(r.tenants, s.getTenant(name))
	}
	configs := make([]api.TopicConfig, r.count(12))
	for i := 0; i < len(configs) && r.err == nil; i++ {
		configs[i] = readConfig(&r.reader)
		if r.err == nil && checkPartitions(configs[i].Partitions) != nil {
			r.fail("partition count out of range")
		}
	}
	n = r.count(7)
	var id TopicID
	for i := 0; i < n && r.err == nil; i++ {
		t := &topic{}
		step := TopicID(r.uvarint())
		if id+step <= id || uint64(id+step)%uint64(s.shards) != uint64(s.shard) || uint64(id+step)/uint64(s.shards) > s.counter {
			r.fail("bad topic ID")
			break
		}
		id += step
		tn, name, config := r.uvarint(), r.string(), r.uvarint()
		if tn >= uint64(len(r.tenants)) || config >= uint64(len(configs)) {
			r.fail("reference out of range")
			break
		}
		t.id, t.tenant, t.name = id, r.tenants[tn], name
		t.created, t.version = r.varint(), r.varint()
		if t.tenant.byName[name] != nil {
			r.fail("topic named twice")
			break
		}
		t.config = s.internConfig(configs[config])
		t.tenant.byName[name] = t
		t.tenant.order = append(t.tenant.order, t)
		s.topics[id] = t
		s.order = append(s.order, t)
		r.partitions(t)
	}
	for _, tn := range r.tenants {
		slices.SortFunc(tn.order, func(a, b *topic) int { return cmp.Compare(a.name, b.name) })
	}
	if n := len(s.order); n > 0 && cap(s.order) > n+n/8 {
		s.order = slices.Clone(s.order)
	}
}

func (r *snapshotReader) partitions(t *topic) {
	n := r.count(5)
	if n > t.config.Partitions {
		r.fail("more partitions than the topic has")
		return
	}
	t.parts = make([]*partition, 0, n)
	num := int64(-1)
	for i := 0; i < n && r.err == nil; i++ {
		step := int64(r.int32())
		if i == 0 {
			num = step
		} else {
			if step == 0 {
				r.fail("partitions out of order")
			}
			num += step
		}
		if num >= int64(t.config.Partitions) {
			r.fail("partition out of range")
			return
		}
		t.parts = append(t.parts, r.partition(int32(num)))
		r.s.touched++
	}
}

func (r *snapshotReader) partition(num int32) *partition {
	p := &partition{num: num, logStart: r.int63()}
	p.head = p.logStart + r.int63()
	p.lastAppend = r.varint()
	if p.head < p.logStart {
		r.fail("head out of range")
	}
	n := r.count(6)
	p.entries = make([]entry, 0, n)
	var time int64
	var base int64
	var pos uint64
	var seg int64
	for i := 0; i < n && r.err == nil; i++ {
		e := IndexEntry{}
		e.Base = base + r.int63()
		records := r.upTo(math.MaxInt32<<1 | 1)
		e.Records = int32(records >> 1)
		e.AppendTime = time + r.varint()
		seg += r.varint()
		e.Ref.Pos = pos + uint64(r.varint())
		e.Ref.Len = r.uint32()
		e.FirstTime = e.AppendTime
		e.Last = e.Base + int64(e.Records) - 1
		if records&1 != 0 {
			e.Last = e.Base + r.int63()
			e.FirstTime = e.AppendTime - r.varint()
			e.Sparse, e.Dropped = readDropped(&r.reader)
		}
		if r.err != nil {
			break
		}
		if err := checkEntry(&e); err != nil {
			r.fail(err.Error())
			break
		}
		if e.Base < base || e.Last >= p.head || e.Last < p.logStart || i > 0 && e.AppendTime < time || seg < 0 || seg >= int64(len(r.segs)) {
			r.fail("batch out of order or out of range")
			break
		}
		p.append(e, r.segs[seg])
		r.s.segments.ref(r.segs[seg])
		base, time, pos = e.Last+1, e.AppendTime, e.Ref.Pos+uint64(e.Ref.Len)
	}
	if len(p.entries) == 0 {
		p.entries = nil
	}
	r.s.entries += len(p.entries)
	return p
}

func (r *snapshotReader) sessions() {
	r.structure = "snapshot producers"
	s := r.s
	n := r.count(2)
	for i := 0; i < n && r.err == nil; i++ {
		tn, id := r.uvarint(), r.string()
		if tn >= uint64(len(r.tenants)) {
			r.fail("reference out of range")
			break
		}
		t := r.tenants[tn]
		if s.producers[producerKey{t, id}] != nil {
			r.fail("producer named twice")
			break
		}
		r.producers = append(r.producers, s.getProducer(t, id))
	}
	for i, n := 0, r.count(19); i < n && r.err == nil; i++ {
		p := r.producer()
		if p == nil {
			break
		}
		epoch, lastUse := r.varint(), r.varint()
		if epoch < 1 || p.node.linked {
			r.fail("bad session")
			break
		}
		p.epoch, p.lastUse = epoch, lastUse
		copy(p.nonce[:], r.bytes(len(p.nonce)))
		s.sessions.toBack(&p.node)
	}
}

func (r *snapshotReader) producer() *producer {
	i := r.uvarint()
	if i >= uint64(len(r.producers)) {
		r.fail("producer reference out of range")
		return nil
	}
	return r.producers[i]
}

// place reads a topic ID and a partition that exist.
func (r *snapshotReader) place() (*topic, *partition) {
	id, num := TopicID(r.uvarint()), r.int32()
	t := r.s.topics[id]
	if t == nil {
		r.fail("topic does not exist")
		return nil, nil
	}
	p := t.find(num)
	if p == nil {
		r.fail("partition does not exist")
	}
	return t, p
}

func (r *snapshotReader) windows() {
	r.structure = "snapshot windows"
	s := r.s
	for i, n := 0, r.count(12); i < n && r.err == nil; i++ {
		t, part := r.place()
		id := r.producer()
		if r.err != nil {
			break
		}
		if w := part.needMore().windows.find(id); w != nil || part.more.windows.list.n >= maxProducers {
			r.fail("too many windows")
			break
		}
		w := s.addWindow(t, part, id)
		s.windows.toBack(&w.global)
		w.lastUse = r.varint()
		w.forgot = r.bool()
		w.floor = r.varint()
		sealed := r.count(5)
		above, bounded := w.floor, w.forgot
		for k := 0; k <= sealed && r.err == nil; k++ {
			b := r.block()
			if r.err == nil && bounded && b.first <= above {
				r.fail("sequences out of order")
			}
			above, bounded = b.last, true
			w.n += b.n
			w.size += int32(len(b.data))
			if k < sealed {
				w.sealed = append(w.sealed, b)
			} else {
				w.tail = b
			}
		}
	}
}

func (r *snapshotReader) block() block {
	b := block{first: r.varint(), n: r.int32()}
	b.data = bytes.Clone(r.bytes(r.count(1)))
	if r.err != nil {
		return b
	}
	if b.n < 1 || b.n > blockSequences {
		r.fail("bad block")
		return b
	}
	br := blockReader{r: reader{b: b.data, structure: "window"}, seq: b.first}
	for i := range b.n {
		prev := br.seq
		br.next()
		if i == 0 && br.seq != b.first || i > 0 && br.seq <= prev {
			r.fail("sequences out of order")
			return b
		}
	}
	if br.r.finish() != nil {
		r.fail("bad block")
	}
	b.last, b.end = br.seq, br.end
	return b
}

func (r *snapshotReader) dedupes() {
	r.structure = "snapshot event IDs"
	s := r.s
	for i, n := 0, r.count(4); i < n && r.err == nil; i++ {
		t, part := r.place()
		if r.err != nil {
			break
		}
		m := part.needMore()
		if m.dedupe != nil {
			r.fail("event IDs of a partition twice")
			break
		}
		d := &dedupe{part: part, topic: t, lastUse: r.varint()}
		d.node.owner = d
		items := r.count(idHashBytes + 2)
		if items < 1 || items > maxDedupeIDs {
			r.fail("bad number of event IDs")
			break
		}
		d.byHash = make(map[idHash]uint64, items)
		d.queue = make([]dedupeItem, 0, items)
		var offset, time int64
		for k := 0; k < items && r.err == nil; k++ {
			var h idHash
			copy(h[:], r.bytes(len(h)))
			offset += r.varint()
			step := r.uvarint()
			if k > 0 && step > math.MaxInt64 {
				r.fail("times out of order")
			}
			time = int64(uint64(time) + step)
			d.add(h, offset, time)
		}
		m.dedupe = d
		s.dedupes.toBack(&d.node)
	}
}

// check finds what nothing refers to. Such a thing would never be given up again.
func (r *snapshotReader) check() {
	s := r.s
	for _, idx := range r.segs {
		if s.segments.infos[idx].refs == 0 {
			r.fail("segment without batches")
		}
	}
	for _, p := range r.producers {
		if p.epoch == 0 && p.windows == 0 {
			r.fail("producer without session and windows")
		}
	}
	for _, t := range r.tenants {
		if t.empty() {
			r.fail("tenant without topics, producers and groups")
		}
	}
}
