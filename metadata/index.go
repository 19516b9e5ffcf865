package metadata

import (
	"math"
	"math/bits"
	"slices"
	"sort"
)

// entry is one live batch in memory: 32 bytes. What does not fit (sparse batches, dropped records, positions beyond 4 GiB) is in the
// partition's list of extensions, found by base.
type entry struct {
	base    int64
	time    int64 // append time of the newest record
	pos     uint32
	len     uint32
	records uint32 // stored records; hasExt on top
	seg     uint32 // place in the segment table
}

const hasExt uint32 = 1 << 31

func (e *entry) count() int32 { return int32(e.records &^ hasExt) }

// entryExt is what an unusual entry says beyond its 32 bytes.
type entryExt struct {
	base      int64
	last      int64
	firstTime int64
	pos       uint64
	sparse    bool
	dropped   []int32
}

// partition is the state of one partition that was written: 80 bytes, and 32 a live batch.
type partition struct {
	num        int32
	logStart   int64
	head       int64
	bytes      int64
	lastAppend int64
	entries    []entry // ascending by base, not overlapping
	more       *partitionMore
}

// partitionMore is what most partitions do without.
type partitionMore struct {
	exts    []entryExt // ascending by base
	windows partitionWindows
	dedupe  *dedupe
}

func (p *partition) info() PartitionInfo {
	return PartitionInfo{LogStart: p.logStart, Head: p.head, Bytes: p.liveBytes(), LastAppend: p.lastAppend}
}

// liveBytes is what is stored of the partition, without the part of the first batch that is below logStart.
func (p *partition) liveBytes() int64 {
	if len(p.entries) == 0 {
		return 0
	}
	e := p.span(0)
	return p.bytes - int64(e.Ref.Len) + e.LiveBytes(p.logStart)
}

// span gives the public form of entry i as far as retention by bytes looks at it.
func (p *partition) span(i int) IndexEntry {
	e := &p.entries[i]
	out := IndexEntry{Base: e.base, Last: p.last(i), Sparse: p.sparse(i)}
	out.Ref.Len = e.len
	return out
}

func (p *partition) needMore() *partitionMore {
	if p.more == nil {
		p.more = &partitionMore{}
	}
	return p.more
}

// ext finds the extension of an entry that has one.
func (p *partition) ext(e *entry) *entryExt {
	x := p.more.exts
	i := sort.Search(len(x), func(i int) bool { return x[i].base >= e.base })
	return &x[i]
}

func (p *partition) last(i int) int64 {
	e := &p.entries[i]
	if e.records&hasExt == 0 {
		return e.base + int64(e.records) - 1
	}
	return p.ext(e).last
}

// pos gives the entry's position in its object.
func (p *partition) pos(i int) uint64 {
	e := &p.entries[i]
	if e.records&hasExt == 0 {
		return uint64(e.pos)
	}
	return p.ext(e).pos
}

// append adds a batch at the end of the list.
func (p *partition) append(e IndexEntry, seg uint32) {
	c, x := pack(&e, seg)
	if x != nil {
		m := p.needMore()
		m.exts = append(m.exts, *x)
	}
	p.entries = append(p.entries, c)
	p.bytes += int64(e.Ref.Len)
}

// pack splits an entry in its compact form and, where it needs one, its extension.
func pack(e *IndexEntry, seg uint32) (entry, *entryExt) {
	c := entry{base: e.Base, time: e.AppendTime, pos: uint32(e.Ref.Pos), len: e.Ref.Len, records: uint32(e.Records), seg: seg}
	if !e.Sparse && len(e.Dropped) == 0 && e.Ref.Pos <= math.MaxUint32 && e.FirstTime == e.AppendTime {
		return c, nil
	}
	c.records |= hasExt
	return c, &entryExt{base: e.Base, last: e.Last, firstTime: e.FirstTime, pos: e.Ref.Pos, sparse: e.Sparse, dropped: e.Dropped}
}

// unpack gives the public form of entry i.
func (p *partition) unpack(i int, t *segmentTable) IndexEntry {
	e := &p.entries[i]
	out := IndexEntry{Segment: t.get(e.seg), Base: e.base, Records: e.count(), AppendTime: e.time, FirstTime: e.time}
	out.Ref.Pos, out.Ref.Len = uint64(e.pos), e.len
	out.Last = e.base + int64(out.Records) - 1
	if e.records&hasExt != 0 {
		x := p.ext(e)
		out.Last, out.FirstTime, out.Ref.Pos, out.Sparse = x.last, x.firstTime, x.pos, x.sparse
		out.Dropped = slices.Clone(x.dropped)
	}
	return out
}

// atOrAfter gives the first entry whose last offset is at or after offset, or len(entries).
func (p *partition) atOrAfter(offset int64) int {
	i := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].base > offset })
	if i > 0 && p.last(i-1) >= offset {
		return i - 1
	}
	return i
}

// atOrAfterTime gives the first entry whose newest record is at or after ms, or len(entries). Times never fall along the list.
func (p *partition) atOrAfterTime(ms int64) int {
	return sort.Search(len(p.entries), func(i int) bool { return p.entries[i].time >= ms })
}

// splice replaces entries [i, j) by the given ones, keeps bytes and references right, and gives memory back that is no longer used.
// New references are taken before old ones are given up, so that a segment in both lives on.
func (s *State) splice(p *partition, i, j int, add []IndexEntry) {
	packed := make([]entry, len(add))
	var exts []entryExt
	for k := range add {
		seg := s.segments.put(add[k].Segment)
		s.segments.ref(seg)
		var x *entryExt
		if packed[k], x = pack(&add[k], seg); x != nil {
			exts = append(exts, *x)
		}
		p.bytes += int64(add[k].Ref.Len)
	}
	if p.more != nil && len(p.more.exts) > 0 || len(exts) > 0 {
		m := p.needMore()
		from, to := int64(math.MaxInt64), int64(math.MaxInt64) // bases of removed entries: [from, to)
		if i < len(p.entries) {
			from = p.entries[i].base
		}
		if j < len(p.entries) {
			to = p.entries[j].base
		}
		a := sort.Search(len(m.exts), func(k int) bool { return m.exts[k].base >= from })
		b := sort.Search(len(m.exts), func(k int) bool { return m.exts[k].base >= to })
		m.exts = fit(slices.Replace(m.exts, a, b, exts...))
	}
	for k := i; k < j; k++ {
		p.bytes -= int64(p.entries[k].len)
		s.segments.unref(p.entries[k].seg)
	}
	p.entries = fit(slices.Replace(p.entries, i, j, packed...))
	s.entries += len(add) - (j - i)
}

// fit moves a list that has shrunk well below its capacity to memory of its own size.
func fit[T any](x []T) []T {
	if len(x) == 0 {
		return nil
	}
	if cap(x) > 8 && cap(x) > 4*len(x) {
		return slices.Clone(x)
	}
	return x
}

// Locate gives up to limit live batches, ascending, from the first one whose Last is at or after offset, with the partition's state.
// UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (s *State) Locate(id TopicID, num int32, offset int64, limit int) ([]IndexEntry, PartitionInfo, error) {
	p, err := s.readPartition(id, num)
	if err != nil || p == nil {
		return nil, PartitionInfo{}, err
	}
	i := p.atOrAfter(offset)
	n := min(limit, len(p.entries)-i)
	if n <= 0 {
		return nil, p.info(), nil
	}
	out := make([]IndexEntry, n)
	for k := range out {
		out[k] = p.unpack(i+k, &s.segments)
	}
	return out, p.info(), nil
}

// LocateTime gives the first live batch with AppendTime at or after ms (Unix), or found=false. UNKNOWN_TOPIC, UNKNOWN_PARTITION.
func (s *State) LocateTime(id TopicID, num int32, ms int64) (e IndexEntry, found bool, err error) {
	p, err := s.readPartition(id, num)
	if err != nil || p == nil {
		return IndexEntry{}, false, err
	}
	i := p.atOrAfterTime(ms)
	if i == len(p.entries) {
		return IndexEntry{}, false, nil
	}
	return p.unpack(i, &s.segments), true, nil
}

// LiveBytes is the batch's share of its stored bytes that is at or after logStart, as if its offsets took up the same space each.
func (e *IndexEntry) LiveBytes(logStart int64) int64 {
	if logStart <= e.Base {
		return int64(e.Ref.Len)
	}
	return int64(share(uint64(e.Ref.Len), uint64(max(0, e.Last+1-logStart)), uint64(e.Last+1-e.Base)))
}

// keepBytes gives the offset from which on the batch has n bytes, by the same measure.
func (e *IndexEntry) keepBytes(n int64) int64 {
	span := uint64(e.Last + 1 - e.Base)
	if n >= int64(e.Ref.Len) {
		return e.Base
	}
	return e.Last + 1 - int64(share(span, uint64(n), uint64(e.Ref.Len)))
}

// share is n*part/of, rounded up; part is no more than of.
func share(n, part, of uint64) uint64 {
	hi, lo := bits.Mul64(n, part)
	lo, carry := bits.Add64(lo, of-1, 0)
	q, _ := bits.Div64(hi+carry, lo, of)
	return q
}
