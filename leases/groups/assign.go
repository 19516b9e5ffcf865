package groups

import (
	"cmp"
	"slices"
)

// none is no member.
const none = -1

// assign decides who should own which partition. It is pure: members, topics and partitions are indexes into the caller's sorted lists, and the
// same input gives the same answer.
//
// wants[m] are the topics that member m reads, ascending. prefer[t][p] are the members that partition p of topic t should stay with or go
// back to, the best first (none = nobody). The answer has the member of each partition, none where nobody wants the topic.
//
// Every partition of a topic that somebody wants has exactly one member, one that wants it. No partition could go from a member to one that has
// less than it minus one, directly or by a chain of moves: so members with equal wants differ by one at most. What stays where it
// is preferred is all that balance permits.
func assign(wants [][]int, prefer [][][2]int) [][]int {
	a := newAssigner(wants, prefer)
	a.keep()
	a.place()
	a.balance()
	return a.owner
}

// held is what a member has of one topic.
type held struct {
	kept  []int // partitions that it was preferred for
	fresh []int // the others: they move anyway, wherever they end
}

func (h *held) len() int { return len(h.kept) + len(h.fresh) }

type assigner struct {
	wants    [][]int
	prefer   [][][2]int
	eligible [][]int // by topic: the members that want it
	owner    [][]int
	held     [][]held // by member, and by place in its wants
	load     []int
}

func newAssigner(wants [][]int, prefer [][][2]int) *assigner {
	a := &assigner{wants: wants, prefer: prefer, eligible: make([][]int, len(prefer)), owner: make([][]int, len(prefer)),
		held: make([][]held, len(wants)), load: make([]int, len(wants))}
	for t := range prefer {
		a.owner[t] = make([]int, len(prefer[t]))
		for p := range a.owner[t] {
			a.owner[t][p] = none
		}
	}
	for m := range wants {
		a.held[m] = make([]held, len(wants[m]))
		for _, t := range wants[m] {
			a.eligible[t] = append(a.eligible[t], m)
		}
	}
	return a
}

// of gives what member m has of topic t, nil when it does not want it.
func (a *assigner) of(m, t int) *held {
	if i, ok := slices.BinarySearch(a.wants[m], t); ok {
		return &a.held[m][i]
	}
	return nil
}

// keep leaves partitions where they are.
func (a *assigner) keep() {
	for t := range a.prefer {
		for p, members := range a.prefer[t] {
			for _, m := range members {
				if m == none {
					continue
				}
				if h := a.of(m, t); h != nil {
					h.kept = append(h.kept, p)
					a.owner[t][p] = m
					a.load[m]++
					break
				}
			}
		}
	}
}

// place gives the rest to those who have least. Topics that few want come first: later ones can make up for them.
func (a *assigner) place() {
	topics := make([]int, len(a.prefer))
	for t := range topics {
		topics[t] = t
	}
	slices.SortStableFunc(topics, func(x, y int) int { return cmp.Compare(len(a.eligible[x]), len(a.eligible[y])) })
	for _, t := range topics {
		if len(a.eligible[t]) == 0 {
			continue
		}
		for p := range a.owner[t] {
			if a.owner[t][p] != none {
				continue
			}
			best, its := none, (*held)(nil)
			for _, m := range a.eligible[t] {
				if best != none && a.load[m] > a.load[best] {
					continue
				}
				if h := a.of(m, t); best == none || a.load[m] < a.load[best] || h.len() < its.len() {
					best, its = m, h
				}
			}
			its.fresh = append(its.fresh, p)
			a.owner[t][p] = best
			a.load[best]++
		}
	}
}

// balance moves partitions from those who have much to those who have little, as long as there is a pair two apart, or more, with a chain of
// moves between them. Only the ends of a chain change what they have in number. It begins with those who have most, one move each, and
// among equals with those who have something that moves anyway: so nobody gives what somebody else could have given for nothing.
func (a *assigner) balance() {
	done := make([]bool, len(a.load))
	for moved := true; moved; {
		moved = false
		clear(done)
		top := 0
		for _, n := range a.load {
			top = max(top, n)
		}
		for level := top; level > 1; level-- {
			for _, fresh := range []bool{true, false} {
				for m := range a.load {
					if !done[m] && a.load[m] == level && a.hasFresh(m) == fresh && a.relieve(m, done) {
						moved = true
					}
				}
			}
		}
	}
}

func (a *assigner) hasFresh(m int) bool {
	return slices.ContainsFunc(a.held[m], func(h held) bool { return len(h.fresh) > 0 })
}

// hop is how a chain reaches a member: from another one, by a partition of a topic.
type hop struct{ from, topic int }

// relieve takes one partition from m, by the shortest chain that leads to somebody who has at least two less. Without one it marks as done all
// members for whom there is none either: those that m reaches and that have no more than it.
func (a *assigner) relieve(m int, done []bool) bool {
	by := map[int]hop{m: {none, none}}
	seen := make([]bool, len(a.prefer))
	for layer := []int{m}; len(layer) > 0; {
		var next []int
		best := none
		for _, x := range layer {
			for _, t := range a.toGive(x) {
				if seen[t] {
					continue
				}
				seen[t] = true
				for _, y := range a.eligible[t] {
					if _, is := by[y]; is {
						continue
					}
					by[y] = hop{x, t}
					next = append(next, y)
					if a.load[y] <= a.load[m]-2 && (best == none || a.load[y] < a.load[best]) {
						best = y
					}
				}
			}
		}
		if best != none {
			a.load[m]--
			a.load[best]++
			for y := best; y != m; y = by[y].from {
				a.move(by[y].topic, by[y].from, y)
			}
			return true
		}
		layer = next
	}
	for y := range by {
		if a.load[y] <= a.load[m] {
			done[y] = true
		}
	}
	return false
}

// toGive lists the topics of which a member has partitions: first those with partitions that move anyway, then those of which it has most, so
// that it keeps something of each.
func (a *assigner) toGive(m int) []int {
	type topic struct{ t, fresh, n int }
	var ts []topic
	for i, t := range a.wants[m] {
		if h := &a.held[m][i]; h.len() > 0 {
			ts = append(ts, topic{t, min(len(h.fresh), 1), h.len()})
		}
	}
	slices.SortFunc(ts, func(x, y topic) int {
		return cmp.Or(cmp.Compare(y.fresh, x.fresh), cmp.Compare(y.n, x.n), cmp.Compare(x.t, y.t))
	})
	out := make([]int, len(ts))
	for i := range ts {
		out[i] = ts[i].t
	}
	return out
}

// move gives one partition of a topic to another member: one that moves anyway, if there is one.
func (a *assigner) move(t, from, to int) {
	h := a.of(from, t)
	list := &h.kept
	if len(h.fresh) > 0 {
		list = &h.fresh
	}
	p := (*list)[len(*list)-1]
	*list = (*list)[:len(*list)-1]
	h = a.of(to, t)
	if a.prefer[t][p][0] == to {
		h.kept = append(h.kept, p)
	} else {
		h.fresh = append(h.fresh, p)
	}
	a.owner[t][p] = to
}
