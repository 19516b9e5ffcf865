package journal

import (
	"cmp"
	"slices"
	"sort"
)

// facts is what is settled of a shard: everything below frontier, and ranges above it, in any order and overlapping.
type facts struct {
	frontier int64
	skipped  int64
	ranges   []Range
}

// add puts what a record says to the rest. In one shard, between two seeks, what was settled stays so: the union of true records is true.
func (f *facts) add(s *state) {
	f.frontier = max(f.frontier, s.frontier)
	f.skipped = max(f.skipped, s.skipped)
	f.ranges = append(f.ranges, s.settled...)
}

// normal gives the union with the fewest ranges. The offsets in except are not settled, whatever the records say, unless the frontier has
// passed them.
func (f *facts) normal(except []int64) (frontier int64, settled []Range) {
	slices.SortFunc(f.ranges, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	for _, r := range f.ranges {
		if last := len(settled) - 1; last >= 0 && r.From <= settled[last].To {
			settled[last].To = max(settled[last].To, r.To)
		} else if r.To > f.frontier {
			settled = append(settled, Range{From: max(r.From, f.frontier), To: r.To})
		}
	}
	if len(except) > 0 {
		slices.Sort(except)
		settled = without(settled, except)
	}
	frontier = f.frontier
	if len(settled) > 0 && settled[0].From == frontier {
		frontier = settled[0].To
		settled = settled[1:]
	}
	if len(settled) == 0 {
		settled = nil
	}
	return frontier, settled
}

// without cuts single offsets, ascending, out of ascending ranges.
func without(ranges []Range, offsets []int64) []Range {
	var out []Range
	for _, r := range ranges {
		i, _ := slices.BinarySearch(offsets, r.From)
		for ; i < len(offsets) && offsets[i] < r.To; i++ {
			if offsets[i] > r.From {
				out = append(out, Range{r.From, offsets[i]})
			}
			r.From = offsets[i] + 1
		}
		if r.From < r.To {
			out = append(out, r)
		}
	}
	return out
}

// settles says whether the state has the offset settled.
func (s *state) settles(offset int64) bool {
	if offset < s.frontier {
		return true
	}
	i := sort.Search(len(s.settled), func(i int) bool { return s.settled[i].To > offset })
	return i < len(s.settled) && s.settled[i].From <= offset
}

// covers says whether a has everything settled that b has. Both are normal states.
func covers(a, b *state) bool {
	if a.frontier < b.frontier {
		return false
	}
	i := 0
	for _, r := range b.settled {
		if r.To <= a.frontier {
			continue
		}
		for i < len(a.settled) && a.settled[i].To < r.To {
			i++
		}
		if r.From < a.frontier {
			r.From = a.frontier // what is left of it is above the frontier
		}
		if i == len(a.settled) || a.settled[i].From > r.From {
			return false
		}
	}
	return true
}
