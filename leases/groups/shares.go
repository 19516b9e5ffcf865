package groups

import "github.com/forebaymq/forebay/leases/journal"

// share is what one member owns in one state: what it keeps, and what it is to let go. It is read only.
type share struct{ keeps, revoked []place }

// shares is a state by member. A group is asked for shares with every heartbeat and changes seldom.
type shares struct {
	of *journal.GroupState
	by map[string]*share
}

func newShares(s *journal.GroupState) *shares {
	out := &shares{of: s, by: make(map[string]*share, len(s.Members))}
	for t := range s.Topics {
		topic := &s.Topics[t]
		for p := range topic.Slots {
			l := &topic.Slots[p]
			if l.Owner == "" {
				continue
			}
			who := out.by[l.Owner]
			if who == nil {
				who = &share{}
				out.by[l.Owner] = who
			}
			at := place{TopicPartition{topic.Name, int32(p)}, journal.GroupPartition{Topic: topic.ID, Partition: int32(p)}}
			if l.Target == l.Owner {
				who.keeps = append(who.keeps, at)
			} else {
				who.revoked = append(who.revoked, at)
			}
		}
	}
	return out
}

// nothing is the share of a member that owns nothing.
var nothing share

// share gives what a member owns in a state.
func (g *group) share(s *journal.GroupState, member string) *share {
	g.mu.Lock()
	all := g.mu.shares
	g.mu.Unlock()
	if all == nil || all.of != s {
		all = newShares(s)
		g.mu.Lock()
		if g.mu.state == s {
			g.mu.shares = all
		}
		g.mu.Unlock()
	}
	if who := all.by[member]; who != nil {
		return who
	}
	return &nothing
}

// compare says, from what a member says that it holds, whether that is all that it keeps, and what it has let go.
func (w *share) compare(owned []TopicPartition) (all bool, released []place) {
	if len(w.revoked) == 0 && len(owned) == len(w.keeps) {
		same := true
		for i := range owned {
			same = same && owned[i] == w.keeps[i].TopicPartition
		}
		if same { // as it was told, in the order in which it was told: nothing has changed
			return true, nil
		}
	}
	holds := make(map[TopicPartition]bool, len(owned))
	for _, at := range owned {
		holds[at] = true
	}
	all = true
	for i := range w.keeps {
		all = all && holds[w.keeps[i].TopicPartition]
	}
	for i := range w.revoked {
		if !holds[w.revoked[i].TopicPartition] {
			released = append(released, w.revoked[i])
		}
	}
	return all, released
}
