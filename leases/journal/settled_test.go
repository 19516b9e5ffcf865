package journal

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A union of states, and whether one covers another, against sets of offsets.
func TestSettledAgainstSets(t *testing.T) {
	const span = 24
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() (state, map[int64]bool) {
		set := map[int64]bool{}
		var f facts
		f.frontier = rng.Int64N(span / 3)
		for o := range f.frontier {
			set[o] = true
		}
		for range rng.IntN(6) {
			from := rng.Int64N(span)
			to := min(span, from+1+rng.Int64N(5))
			f.ranges = append(f.ranges, Range{from, to})
			for o := from; o < to; o++ {
				set[o] = true
			}
		}
		frontier, settled := f.normal(nil)
		return state{frontier: frontier, settled: settled}, set
	}
	same := func(what string, s *state, set map[int64]bool) {
		t.Helper()
		if err := s.check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for o := range int64(span + 5) {
			is := o < s.frontier || slices.ContainsFunc(s.settled, func(r Range) bool { return o >= r.From && o < r.To })
			if is != set[o] {
				t.Fatalf("%s: %+v says %v of %d, the set says %v", what, *s, is, o, set[o])
			}
		}
	}
	for range 20_000 {
		a, inA := random()
		b, inB := random()
		same("normal", &a, inA)
		covered := true
		for o := range inB {
			covered = covered && inA[o]
		}
		if got := covers(&a, &b); got != covered {
			t.Fatalf("%+v covers %+v: %v, want %v", a, b, got, covered)
		}
		var f facts
		f.add(&a)
		f.add(&b)
		union := map[int64]bool{}
		for o := range span + int64(5) {
			union[o] = inA[o] || inB[o]
		}
		var except []int64
		for range rng.IntN(4) {
			o := rng.Int64N(span)
			except = append(except, o)
			if o >= max(a.frontier, b.frontier) {
				union[o] = false
			}
		}
		var u state
		u.frontier, u.settled = f.normal(except)
		same("union", &u, union)
	}
}
