package journal

import (
	"slices"
	"testing"
)

// TestLateFailureOfAnEarlierIncarnation: a flush was under way when Redis was lost, and lands after the opening that followed. The record that
// failed just before the loss was delivered again and settled since, so another loss must not bring it back; nor may the rule take
// away what is still owed.
func TestLateFailureOfAnEarlierIncarnation(t *testing.T) {
	for _, tc := range []struct {
		name    string
		late    Pointer
		settled bool // by the new incarnation
		live    bool
	}{
		{"settled since", Pointer{Offset: 7, Kind: Retry, Attempts: 1, Attached: true}, true, false},
		{"not settled yet", Pointer{Offset: 7, Kind: Retry, Attempts: 1, Attached: true}, false, true},
		{"waits for its copy, settled since", Pointer{Offset: 7, Kind: Dead, Attempts: 5, CopyPending: true, Attached: true}, true, false},
		{"redriven: it was settled before and lives by its pointer", Pointer{Offset: 7, Kind: Retry, Attempts: 1}, true, true},
		{"dead: settled by definition", Pointer{Offset: 7, Kind: Dead, Attempts: 5}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := newMemLog()
			a, b := open(t, log, nil), open(t, log, nil)
			k := at(1, 0)
			first := a.must(t, opening(k, 0, Shard{Frontier: 5}))[0] + 1
			a.must(t, flush(k, Version{first, 1}, 6))
			second := b.must(t, opening(k, first, Shard{Frontier: 6}))[0] + 1
			a.must(t, flush(k, Version{first, 2}, 6), pointer(k, Version{first, 2}, tc.late)) // too late
			if tc.settled {
				b.must(t, flush(k, Version{second, 4}, 6, Range{7, 8}))
			} else {
				b.must(t, flush(k, Version{second, 4}, 7))
			}
			for _, compacted := range []bool{false, true} {
				if compacted {
					log.compact(true)
				}
				l := open(t, log, nil).loaded(t, 1)
				if _, live := l.Pointers[0][7]; live != tc.live {
					t.Errorf("compacted %v: live %v, want %v", compacted, live, tc.live)
				}
				want := tc.settled && !(tc.live && tc.late.Kind == Retry)
				if got := slices.Contains(l.Shards[0].Settled, Range{7, 8}); got != want {
					t.Errorf("compacted %v: %+v, settled %v, want %v", compacted, l.Shards[0], got, want)
				}
			}
		})
	}
}
