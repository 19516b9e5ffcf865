package journal

import "github.com/forebaymq/forebay/metadata"

// maxNotes is of how many shards, and of how many pointers, a Journal remembers what it wrote last. More forgets: nothing breaks for it.
const maxNotes = 100_000

// notes is what a Journal remembers of what it wrote. Two flushes of a subscription may overtake one another between their export from Redis and
// their Write; what the later export has written must not be displaced by what the earlier one has. Guarded by Journal.mu.
type notes struct {
	reports  map[ShardKey]lastWrite
	pointers [2]map[pointerKey]lastWrite // young and old; the old ones are forgotten when the young are many
	old      map[ShardKey][]oldState
}

type pointerKey struct {
	ShardKey
	offset int64
}

// lastWrite is the newest that was written, and where.
type lastWrite struct {
	Version
	offset int64
}

// oldState is a record of an earlier incarnation that an opening of this process found. It can go once a later report has everything in it.
type oldState struct {
	key         string
	incarnation int64
	void        bool // from before a seek
	state
}

func (n *notes) clear() {
	n.reports = map[ShardKey]lastWrite{}
	n.pointers = [2]map[pointerKey]lastWrite{{}, {}}
	n.old = map[ShardKey][]oldState{}
}

func (n *notes) report(k ShardKey, v Version, offset int64) {
	if n.reports[k].Less(v) {
		if len(n.reports) >= maxNotes {
			clear(n.reports)
		}
		n.reports[k] = lastWrite{v, offset}
	}
}

func (n *notes) lastPointer(k pointerKey) lastWrite {
	if w, ok := n.pointers[0][k]; ok {
		return w
	}
	return n.pointers[1][k]
}

func (n *notes) pointer(k pointerKey, v Version, offset int64) {
	if n.lastPointer(k).Less(v) {
		if len(n.pointers[0]) >= maxNotes/2 {
			n.pointers = [2]map[pointerKey]lastWrite{{}, n.pointers[0]}
		}
		n.pointers[0][k] = lastWrite{v, offset}
	}
}

// opened notes the states that the opening of an incarnation made superfluous.
func (n *notes) opened(k ShardKey, s *shardRecords, incarnation int64) {
	if len(n.old) >= maxNotes {
		clear(n.old)
	}
	var old []oldState
	for i := range s.reports {
		if r := &s.reports[i]; r.incarnation < incarnation {
			old = append(old, oldState{r.key, r.incarnation, r.incarnation < s.seek.incarnation, r.state})
		}
	}
	for i := range s.openings {
		if o := &s.openings[i]; o.incarnation < incarnation {
			old = append(old, oldState{o.key, o.incarnation, !s.known(o), o.state})
		}
	}
	if len(old) == 0 {
		delete(n.old, k)
	} else {
		n.old[k] = old
	}
}

// superfluous takes out the keys of what a report of an incarnation has all in it. What has more stays for the next opening to find.
func (n *notes) superfluous(k ShardKey, incarnation int64, s *state) (keys []string) {
	var keep []oldState
	for _, o := range n.old[k] {
		switch {
		case o.incarnation >= incarnation:
			keep = append(keep, o)
		case o.void || covers(s, &o.state):
			keys = append(keys, o.key)
		}
	}
	if len(keep) == 0 {
		delete(n.old, k)
	} else {
		n.old[k] = keep
	}
	return keys
}

func (n *notes) drop(id metadata.SubscriptionID) {
	for k := range n.reports {
		if k.Subscription == id {
			delete(n.reports, k)
			delete(n.old, k)
		}
	}
}
