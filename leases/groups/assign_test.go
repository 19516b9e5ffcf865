package groups

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// world is an input of assign: some members, what they want, and where the partitions are.
type world struct {
	wants [][]int
	at    [][]int // by topic and partition: the member, or none
}

func (w *world) prefer() [][][2]int {
	out := make([][][2]int, len(w.at))
	for t := range w.at {
		out[t] = make([][2]int, len(w.at[t]))
		for p, m := range w.at[t] {
			out[t][p] = [2]int{m, none}
		}
	}
	return out
}

func (w *world) assign() [][]int { return assign(w.wants, w.prefer()) }

// moves counts partitions that had a member and have another one.
func (w *world) moves(to [][]int) int {
	n := 0
	for t := range to {
		for p := range to[t] {
			if w.at[t][p] != none && w.at[t][p] != to[t][p] {
				n++
			}
		}
	}
	return n
}

func loads(members int, to [][]int) []int {
	out := make([]int, members)
	for t := range to {
		for _, m := range to[t] {
			if m != none {
				out[m]++
			}
		}
	}
	return out
}

// leave takes a member out: those after it move up.
func (w *world) leave(gone int) {
	w.wants = slices.Delete(w.wants, gone, gone+1)
	for t := range w.at {
		for p, m := range w.at[t] {
			switch {
			case m == gone:
				w.at[t][p] = none
			case m > gone:
				w.at[t][p]--
			}
		}
	}
}

// check is what must hold of every assignment.
func check(t *testing.T, w *world, to [][]int) {
	t.Helper()
	for topic := range to {
		wanted := false
		for m := range w.wants {
			wanted = wanted || slices.Contains(w.wants[m], topic)
		}
		for p, m := range to[topic] {
			switch {
			case !wanted && m != none:
				t.Fatalf("partition %d of topic %d, which nobody wants, went to %d", p, topic, m)
			case wanted && m == none:
				t.Fatalf("partition %d of topic %d went to nobody", p, topic)
			case m != none && !slices.Contains(w.wants[m], topic):
				t.Fatalf("partition %d of topic %d went to %d, who does not want it", p, topic, m)
			}
		}
	}
	have := loads(len(w.wants), to)
	for a := range w.wants {
		for b := range w.wants {
			if slices.Equal(w.wants[a], w.wants[b]) && have[a] > have[b]+1 {
				t.Fatalf("%d and %d want the same and have %d and %d", a, b, have[a], have[b])
			}
		}
	}
	for topic := range to {
		for _, m := range to[topic] {
			for b := range w.wants {
				if slices.Contains(w.wants[b], topic) && have[m] > have[b]+1 {
					t.Fatalf("%d has %d and could give to %d, who has %d", m, have[m], b, have[b])
				}
			}
		}
	}
	again := &world{wants: w.wants, at: to}
	if got := again.assign(); !reflect.DeepEqual(got, to) {
		t.Fatalf("assigned once more it moves %d partitions", again.moves(got))
	}
}

func uniform(members, topics int) [][]int {
	all := make([]int, topics)
	for i := range all {
		all[i] = i
	}
	out := make([][]int, members)
	for m := range out {
		out[m] = all
	}
	return out
}

func nowhere(partitions ...int) [][]int {
	out := make([][]int, len(partitions))
	for t, n := range partitions {
		out[t] = slices.Repeat([]int{none}, n)
	}
	return out
}

// The figures of the issue: 24 partitions, 12 members, each death moves the two of the dead, and each join two.
func TestOneDeathMovesExactlyItsTwo(t *testing.T) {
	for dead := range 12 {
		w := &world{wants: uniform(12, 1), at: nowhere(24)}
		w.at = w.assign()
		check(t, w, w.at)
		lost := 0
		for _, m := range w.at[0] {
			if m == dead {
				lost++
			}
		}
		before := slices.Clone(w.at[0])
		w.leave(dead)
		to := w.assign()
		check(t, w, to)
		if lost != 2 || w.moves(to) != 0 {
			t.Fatalf("%d had %d, and %d of others moved", dead, lost, w.moves(to))
		}
		changed := 0
		for p, m := range before {
			if m != dead {
				if m > dead {
					m--
				}
				if to[0][p] != m {
					t.Fatalf("partition %d of %d moved", p, m)
				}
				continue
			}
			changed++
		}
		if changed != 2 {
			t.Fatalf("%d moved", changed)
		}
		// It comes back: as many move as it must have.
		w.at = to
		w.wants = uniform(12, 1)
		to = w.assign()
		check(t, w, to)
		if w.moves(to) != 2 {
			t.Fatalf("a join moved %d", w.moves(to))
		}
	}
}

// With equal wants, as few move as can: what is above its share has to go, or what is below has to come, whichever is more.
func TestFewestMoves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		members, topics := 1+rng.IntN(14), 1+rng.IntN(4)
		parts := make([]int, topics)
		total := 0
		for i := range parts {
			parts[i] = rng.IntN(12)
			total += parts[i]
		}
		w := &world{wants: uniform(members, topics), at: nowhere(parts...)}
		skew := 1 + rng.IntN(members)
		placed := 0
		for tp := range w.at {
			for p := range w.at[tp] {
				if rng.IntN(4) > 0 {
					w.at[tp][p] = rng.IntN(skew)
					placed++
				}
			}
		}
		to := w.assign()
		check(t, w, to)
		low, high := total/members, (total+members-1)/members
		surplus, deficit, mayHigh := 0, 0, total-low*members
		have := loads(members, w.at)
		slices.SortFunc(have, func(a, b int) int { return b - a })
		keeps := 0
		for i, n := range have {
			quota := low
			if i < mayHigh {
				quota = high
			}
			keeps += min(n, quota)
			surplus += max(0, n-quota)
			deficit += max(0, quota-n)
		}
		if moves := w.moves(to); moves != placed-keeps {
			t.Fatalf("round %d: %d moved of %d, %d would do (surplus %d, deficit %d)\n%v\n%v", round, moves, placed, placed-keeps, surplus, deficit, w.at, to)
		}
	}
}

// Members that want different things, coming and going.
func TestUnequalWants(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		topics := 1 + rng.IntN(6)
		parts := make([]int, topics)
		for i := range parts {
			parts[i] = rng.IntN(10)
		}
		w := &world{at: nowhere(parts...)}
		for range 12 {
			if len(w.wants) > 0 && rng.IntN(3) == 0 {
				gone := rng.IntN(len(w.wants))
				w.leave(gone)
			} else {
				var wants []int
				for tp := range topics {
					if rng.IntN(2) == 0 {
						wants = append(wants, tp)
					}
				}
				w.wants = append(w.wants, wants)
			}
			if rng.IntN(4) == 0 {
				tp := rng.IntN(topics)
				w.at[tp] = append(w.at[tp], none)
			}
			to := w.assign()
			check(t, w, to)
			w.at = to
		}
	}
}

// Of each topic everybody gets a share, not one all of the first and the next all of the second.
func TestTopicsAreSpread(t *testing.T) {
	w := &world{wants: uniform(1, 2), at: nowhere(12, 12)}
	w.at = w.assign()
	w.wants = uniform(3, 2)
	to := w.assign()
	check(t, w, to)
	for tp := range to {
		if n := loads(3, to[tp:tp+1])[0]; n != 4 {
			t.Fatalf("the first member has %d of topic %d", n, tp)
		}
	}
}

// The chain: what is free to give is not what the poor one wants.
func TestBalanceByAChain(t *testing.T) {
	w := &world{wants: [][]int{{0}, {0, 1}, {1}}, at: [][]int{{0, 0, 0, 0}, {1, 1}}}
	to := w.assign()
	check(t, w, to)
	if got := fmt.Sprint(loads(3, to)); got != "[2 2 2]" {
		t.Fatalf("loads %s: %v", got, to)
	}
}

func TestManyMembersAreFast(t *testing.T) {
	w := &world{wants: uniform(1000, 4), at: nowhere(2500, 2500, 2500, 2500)}
	for m := range w.wants {
		if m%3 == 0 {
			w.wants[m] = []int{0, 2}
		}
	}
	w.at = w.assign()
	w.leave(17)
	to := w.assign()
	if w.moves(to) > 10 {
		t.Fatalf("%d moved", w.moves(to))
	}
}
