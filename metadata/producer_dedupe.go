package metadata

// Bounds of event-ID deduplication, part of the state's definition.
const (
	maxDedupeIDs     = 1 << 20                 // remembered by one partition; the oldest are forgotten first
	dedupeSweep      = 64                      // expired IDs dropped by a batch, beside two for each of its own
	dedupeIdleMargin = int64(10 * 60 * 1000)   // ms: how far nodes' clocks may differ before a window is shortened
	dedupeIdle       = int64(24 * 3600 * 1000) // ms without a new ID after which a partition's IDs are dropped at once, unless the window is longer
)

type idHash = [idHashBytes]byte

// dedupeItem is one accepted event ID.
type dedupeItem struct {
	hash   idHash
	offset int64
	time   int64 // append time, Unix ms; never falls along the queue
}

// dedupe remembers the event IDs of one partition in the order of acceptance.
type dedupe struct {
	part    *partition
	topic   *topic
	queue   []dedupeItem
	start   uint64            // absolute number of queue[0]
	byHash  map[idHash]uint64 // absolute number of the newest item with the hash
	lastUse int64             // Unix ms by the shard's clock
	node    node[dedupe]
}

// known gives the offset of a record with the hash that was accepted at or after cutoff.
func (d *dedupe) known(h idHash, cutoff int64) (int64, bool) {
	n, ok := d.byHash[h]
	if !ok {
		return 0, false
	}
	it := &d.queue[n-d.start]
	return it.offset, it.time >= cutoff
}

func (d *dedupe) add(h idHash, offset, time int64) {
	d.byHash[h] = d.start + uint64(len(d.queue))
	d.queue = append(d.queue, dedupeItem{hash: h, offset: offset, time: time})
}

// sweep drops up to budget items from before cutoff, and whatever is above the bound.
func (d *dedupe) sweep(cutoff int64, budget int) {
	n := 0
	for n < len(d.queue) && (n < budget && d.queue[n].time < cutoff || len(d.queue)-n > maxDedupeIDs) {
		if h := d.queue[n].hash; d.byHash[h] == d.start+uint64(n) {
			delete(d.byHash, h)
		}
		n++
	}
	d.queue = d.queue[n:]
	d.start += uint64(n)
	if len(d.queue) == 0 {
		d.queue = nil
	}
}

// dropDuplicates decides which records of a batch are duplicates by event ID and remembers the others. It gives the offset of each
// record and the ordinals of the dropped ones, or nils when there are none.
func (s *State) dropDuplicates(t *topic, p *partition, hashes []idHash, now int64) (offsets []int64, dropped []int32) {
	window := t.config.TopicConfig.DedupeWindow.Milliseconds()
	cutoff := now - window
	m := p.needMore()
	if m.dedupe == nil {
		m.dedupe = &dedupe{part: p, topic: t, byHash: map[idHash]uint64{}}
		m.dedupe.node.owner = m.dedupe
	}
	d := m.dedupe
	next := p.head
	for i := range hashes {
		if hashes[i] != (idHash{}) {
			if offset, ok := d.known(hashes[i], cutoff); ok {
				if offsets == nil {
					offsets = make([]int64, len(hashes))
					for k := range i {
						offsets[k] = p.head + int64(k)
					}
				}
				offsets[i] = offset
				dropped = append(dropped, int32(i))
				continue
			}
			d.add(hashes[i], next, now)
		}
		if offsets != nil {
			offsets[i] = next
		}
		next++
	}
	d.sweep(cutoff, dedupeSweep+2*len(hashes))
	d.lastUse = s.clock
	if len(d.queue) == 0 {
		s.dropDedupe(d)
	} else {
		s.dedupes.toBack(&d.node)
	}
	return offsets, dropped
}

// sweepDedupe frees what the longest idle partition remembers once all of it is too old for anyone.
func (s *State) sweepDedupe() {
	d := s.dedupes.front()
	if d == nil {
		return
	}
	idle := max(dedupeIdle, d.topic.config.TopicConfig.DedupeWindow.Milliseconds())
	if d.lastUse < s.clock-idle-dedupeIdleMargin {
		s.dropDedupe(d)
	}
}

func (s *State) dropDedupe(d *dedupe) {
	s.dedupes.remove(&d.node)
	d.part.more.dedupe = nil
}
