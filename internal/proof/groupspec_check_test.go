package proof

import (
	"strings"
	"testing"
	"time"
)

// TestGroupCheckerTellsRightFromWrong: the judge of the group tests, by histories made by hand. Times are in milliseconds, sessions last a second.
func TestGroupCheckerTellsRightFromWrong(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	call := func(who, op string, began, ended int64) *groupCall {
		return &groupCall{who: who, op: op, member: who, began: ms(began), ended: ms(ended)}
	}
	owns := func(c *groupCall, told int64, assigned map[int]int64) *groupCall {
		c.told, c.assigned = told, assigned
		return c
	}
	join := func(who string, began, ended, told int64, assigned map[int]int64) *groupCall {
		return owns(call(who, "join", began, ended), told, assigned)
	}
	beat := func(who string, began, ended, generation, told int64, holds []int, assigned map[int]int64) *groupCall {
		c := owns(call(who, "heartbeat", began, ended), told, assigned)
		c.generation, c.says, c.holds = generation, true, map[int]bool{}
		for _, p := range holds {
			c.holds[p] = true
		}
		return c
	}
	commit := func(who string, began, ended, generation, offset int64, fate groupFate) *groupCall {
		c := call(who, "commit", began, ended)
		c.generation, c.offsets, c.fate = generation, map[int]int64{0: offset}, fate
		return c
	}
	read := func(began, ended, offset int64) *groupCall {
		c := call("observer", "offsets", began, ended)
		c.offsets = map[int]int64{0: offset}
		return c
	}
	refused := func(c *groupCall, code string) *groupCall {
		c.fate, c.code, c.told, c.assigned = groupRefused, code, 0, nil
		return c
	}
	batch := func(who string, from, to, asked, at int64) groupBatch {
		if asked >= 0 {
			asked = ms(asked)
		}
		return groupBatch{who: who, from: from, to: to, asked: asked, at: ms(at)}
	}
	byKey := func(who string, offset, began, at int64) groupBatch {
		b := batch(who, offset, offset+1, began, at)
		b.byKey = true
		return b
	}
	at := func(offset int64) map[int]int64 { return map[int]int64{0: offset} }
	none := map[int]int64{}
	// a reads to 20 and commits 10, dies, and b takes over.
	takeover := func(more ...*groupCall) []*groupCall {
		return append([]*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 10, groupOK), join("b", 1500, 1510, 2, at(10))}, more...)
	}
	first := []groupBatch{batch("a", 0, 10, 15, 30), batch("a", 10, 20, 55, 60)}
	for _, tc := range []struct {
		name    string
		calls   []*groupCall
		batches []groupBatch
		heads   []int64
		want    string // in a problem, "" = none
	}{
		{"one member to the end", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 10, groupOK), commit("a", 70, 80, 1, 20, groupOK), read(90, 91, 20)}, first, []int64{20}, ""},
		{"not committed to the end", takeover(read(1600, 1601, 10)), first, []int64{20}, "committed up to 10"},
		{"not processed to the end", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 10, groupOK), read(90, 91, 10)}, first[:1], []int64{20}, "processed up to 10"},
		{"a death, and what was not committed is processed again", takeover(commit("b", 1600, 1610, 2, 20, groupOK), read(1700, 1701, 20)),
			append(first[:2:2], batch("b", 10, 20, 1520, 1530)), []int64{20}, ""},
		{"the same by reading from where it was told", takeover(commit("b", 1600, 1610, 2, 20, groupOK), read(1700, 1701, 20)),
			append(first[:2:2], batch("b", 10, 20, -1, 1530)), []int64{20}, ""},
		{"a member begins behind the committed offset", takeover(), append(first[:2:2], batch("b", 5, 20, 1520, 1530)), nil, "regressed"},
		{"a member begins beyond the committed offset", takeover(), append(first[:2:2], batch("b", 20, 30, 1520, 1530)), nil, "no order of commits"},
		{"a member skips within its partition", takeover(), []groupBatch{first[0], batch("a", 12, 20, 55, 60)}, nil, "before 10 was processed"},
		{"a member goes back within its partition", takeover(), append(first[:2:2], batch("a", 5, 20, 70, 80)), nil, "regressed"},
		{"a commit of what was not processed", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 11, groupOK)}, first[:1], nil, "nothing after 10"},

		{"several at a time, paths in order", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 1, groupOK)}, []groupBatch{byKey("a", 1, 11, 20), byKey("a", 0, 12, 30), byKey("a", 2, 30, 40)}, nil, ""},
		{"several at a time, a path out of order", []*groupCall{join("a", 0, 10, 1, at(0))}, []groupBatch{byKey("a", 2, 11, 20), byKey("a", 0, 12, 30)}, nil, "path x: a processed its record 1"},
		{"several at a time, a commit beyond one that is not done", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 2, groupOK)}, []groupBatch{byKey("a", 1, 11, 20)}, nil, "nothing after 0"},
		{"several at a time, one twice", []*groupCall{join("a", 0, 10, 1, at(0))}, []groupBatch{byKey("a", 0, 11, 20), byKey("a", 0, 21, 30)}, nil, "twice"},
		{"several at a time, one twice after it was told again", []*groupCall{join("a", 0, 10, 1, at(0)), join("a", 20, 21, 2, at(0))}, []groupBatch{byKey("a", 0, 11, 20), byKey("a", 0, 22, 30)}, nil, ""},
		{"several at a time, one before the beginning", takeover(), append(first[:2:2], byKey("b", 9, 1520, 1530)), nil, "was told to begin at 10"},

		{"a zombie is refused", takeover(refused(commit("a", 1600, 1610, 1, 20, groupOK), "STALE_GENERATION"), read(1700, 1701, 10)), first, nil, ""},
		{"a zombie is accepted", takeover(commit("a", 1600, 1610, 1, 20, groupOK)), first, nil, "of an old generation was accepted"},
		{"a zombie polls", takeover(&groupCall{who: "a", op: "poll", member: "a", generation: 1, began: ms(1600), ended: ms(1610)}), first, nil, "poll of an old generation was accepted"},
		{"a commit on its way when its generation ends is before that", takeover(commit("a", 1400, 1610, 1, 10, groupOK), read(1700, 1701, 10)), first, nil, ""},
		{"a commit on its way when its generation ends lands after that", takeover(commit("b", 1520, 1530, 2, 30, groupOK), commit("a", 1400, 1610, 1, 20, groupOK), read(1700, 1701, 20)),
			append(first[:2:2], batch("b", 10, 30, 1515, 1516)), nil, "regressed"},
		{"a commit on its way lands after what its generation's successor was told", takeover(commit("a", 1400, 1610, 1, 20, groupOK), read(1700, 1701, 20)), first, nil, "no order of commits"},
		{"a refused commit has had its effect", takeover(refused(commit("a", 60, 70, 1, 20, groupOK), "STALE_GENERATION"), read(1700, 1701, 20)), first, nil, "no order of commits"},
		{"a commit of unknown outcome has had its effect", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 10, groupUnknown), read(60, 61, 0), read(70, 71, 10)}, first, nil, ""},
		{"a commit of unknown outcome has not", []*groupCall{join("a", 0, 10, 1, at(0)), commit("a", 40, 50, 1, 10, groupUnknown), read(60, 61, 0)}, first, nil, ""},
		{"a commit of unknown outcome has its effect in a later generation", takeover(commit("a", 60, 70, 1, 20, groupUnknown), read(1700, 1701, 20)), first, nil, "no order of commits"},
		{"a commit is lost", takeover(read(60, 61, 0)), first, nil, "regressed"},
		{"a commit goes back", takeover(commit("b", 1600, 1610, 2, 5, groupOK)), first, nil, "regressed"},

		{"two owners", []*groupCall{join("a", 0, 10, 1, at(0)), join("b", 500, 510, 2, at(0))}, nil, nil, "two owners"},
		{"another owner after the session", []*groupCall{join("a", 0, 10, 1, at(0)), join("b", 1010, 1020, 2, at(0))}, nil, nil, ""},
		{"another owner although a heartbeat came", []*groupCall{join("a", 0, 10, 1, at(0)), beat("a", 900, 910, 1, 1, []int{0}, at(0)), join("b", 1010, 1020, 2, at(0))}, nil, nil, "two owners"},
		{"another owner after a leave", []*groupCall{join("a", 0, 10, 1, at(0)), call("a", "leave", 100, 110), join("b", 105, 115, 2, at(0))}, nil, nil, ""},
		{"another owner after it was let go", []*groupCall{join("a", 0, 10, 1, at(0)), join("b", 100, 110, 2, none), beat("a", 120, 130, 2, 3, nil, none), beat("b", 140, 150, 2, 3, nil, at(0))}, nil, nil, ""},
		{"another owner before it was let go", []*groupCall{join("a", 0, 10, 1, at(0)), join("b", 100, 110, 2, none), beat("a", 120, 130, 2, 3, []int{0}, at(0)), beat("b", 140, 150, 2, 3, nil, at(0))}, nil, nil, "two owners"},
		{"another owner after it was told to join again", []*groupCall{join("a", 0, 10, 1, at(0)), refused(beat("a", 100, 110, 1, 0, []int{0}, nil), "STALE_GENERATION"), join("b", 120, 130, 2, at(0))}, nil, nil, ""},
		{"a commit of another's partition", []*groupCall{join("a", 0, 10, 1, at(0)), join("b", 100, 110, 2, none), beat("a", 120, 130, 1, 2, []int{0}, at(0)), commit("b", 140, 150, 2, 0, groupOK)}, nil, nil, "does not own"},
		{"a generation falls", []*groupCall{join("a", 0, 10, 2, none), join("b", 20, 30, 1, none)}, nil, nil, "generation 2 was told before 1"},
		{"a generation stays", []*groupCall{join("a", 0, 10, 1, none), join("b", 20, 30, 1, none)}, nil, nil, ""},
		{"a generation rises over a break", []*groupCall{join("a", 0, 10, 1, none), join("b", 520, 530, 2, none)}, nil, nil, ""},
		{"a generation stays over a break", []*groupCall{join("a", 0, 10, 1, none), join("b", 520, 530, 1, none)}, nil, nil, "before Redis lost it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newGroupHistory()
			h.calls, h.batches = tc.calls, tc.batches
			h.breaks = []span{{ms(500), ms(510), "flush"}}
			r := h.Check(groupRules{session: time.Second, heads: tc.heads, records: map[slot]origin{{0, 0}: {"x", 0}, {0, 1}: {"y", 0}, {0, 2}: {"x", 1}}})
			switch all := strings.Join(r.problems, "\n"); {
			case tc.want == "" && len(r.problems) > 0:
				t.Errorf("a right history was refused: %s", all)
			case tc.want != "" && !strings.Contains(all, tc.want):
				t.Errorf("problems %q, want %q", all, tc.want)
			}
		})
	}
}
