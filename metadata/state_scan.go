package metadata

import "sort"

// PartitionScan is what a scan found of one partition.
type PartitionScan struct {
	Topic     *Topic // shared by the partitions of one topic in one answer: read only
	Partition int32
	Info      PartitionInfo
	Entries   []IndexEntry // those asked for, ascending
	Ordinals  []int        // place of each among the live batches of the partition: neighbours follow each other without a gap
	Live      int          // live batches of the partition, also those not asked for
}

// Scan goes through the partitions that come after the given one, in order of topic and partition, and gives those with live batches that
// want takes. budget bounds the work: each partition counts as one and each of its live batches as one; a partition is never cut. Start
// with the zero key and go on with next until done; the caller may let go of its lock in between. want must be quick and change nothing.
func (s *State) Scan(after PartitionKey, budget int, want func(*Topic, SegmentRef) bool) (found []PartitionScan, next PartitionKey, done bool) {
	next = after
	for i := s.searchID(after.Topic); i < len(s.order); i++ {
		t := s.order[i]
		k := 0
		if t.id == after.Topic {
			k = sort.Search(len(t.parts), func(k int) bool { return t.parts[k].num > after.Partition })
		}
		var public *Topic
		for ; k < len(t.parts); k++ {
			if budget <= 0 {
				return found, next, false
			}
			p := t.parts[k]
			budget -= 1 + len(p.entries)
			next = PartitionKey{t.id, p.num}
			if len(p.entries) == 0 {
				continue
			}
			if public == nil {
				public = s.public(t)
			}
			if x := s.scanPartition(p, public, want); len(x.Entries) > 0 {
				found = append(found, x)
			}
		}
	}
	return found, PartitionKey{}, true
}

func (s *State) scanPartition(p *partition, t *Topic, want func(*Topic, SegmentRef) bool) PartitionScan {
	out := PartitionScan{Topic: t, Partition: p.num, Info: p.info(), Live: len(p.entries)}
	wanted, last := false, uint32(0)
	for i := range p.entries {
		if seg := p.entries[i].seg; i == 0 || seg != last {
			wanted, last = want(t, s.segments.get(seg)), seg
		}
		if wanted {
			out.Entries = append(out.Entries, p.unpack(i, &s.segments))
			out.Ordinals = append(out.Ordinals, i)
		}
	}
	return out
}
