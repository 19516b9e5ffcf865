package client

// consumerWindow is what was read of one partition and is not settled yet, in the order of offsets. It knows the prefix: the offset below
// which everything is settled, which is what may be committed. Offsets have holes; places in the window have none.
type consumerWindow struct {
	entries []windowEntry // the live ones begin at head
	head    int
	first   uint64 // the place of entries[head]
	open    int    // entries that are not done
	next    int64  // where reading goes on: what the prefix is when nothing is open
}

type windowEntry struct {
	offset int64
	done   bool
}

// add takes a record that was read and gives its place. Offsets rise; what lies between two of them is a hole.
func (w *consumerWindow) add(offset int64) (place uint64) {
	w.entries = append(w.entries, windowEntry{offset: offset})
	w.open++
	w.next = offset + 1
	return w.first + uint64(len(w.entries)-w.head) - 1
}

// reach says that reading goes on at next: all before it was added, or is not there.
func (w *consumerWindow) reach(next int64) { w.next = max(w.next, next) }

// done settles the record at a place. A second time changes nothing.
func (w *consumerWindow) done(place uint64) (changed bool) {
	if place < w.first || place >= w.first+uint64(w.len()) {
		return false
	}
	e := &w.entries[w.head+int(place-w.first)]
	if e.done {
		return false
	}
	e.done = true
	w.open--
	for w.head < len(w.entries) && w.entries[w.head].done {
		w.head++
		w.first++
	}
	if w.head == len(w.entries) {
		w.entries, w.head = w.entries[:0], 0
	} else if w.head >= 256 && w.head >= len(w.entries)/2 {
		w.entries, w.head = append(w.entries[:0], w.entries[w.head:]...), 0
	}
	return true
}

// prefix is the offset below which everything is settled.
func (w *consumerWindow) prefix() int64 {
	if w.head < len(w.entries) {
		return w.entries[w.head].offset
	}
	return w.next
}

// len counts the records from the prefix on, those included that are done already.
func (w *consumerWindow) len() int { return len(w.entries) - w.head }
