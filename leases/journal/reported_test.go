package journal

import "testing"

func TestReported(t *testing.T) {
	rep := func(inc, seq int64) report { return report{incarnation: inc, state: state{sequence: seq}} }
	for _, c := range []struct {
		name string
		s    shardRecords
		want Version
	}{
		{"nothing", shardRecords{}, Version{}},
		{"openings alone", shardRecords{openings: []beginning{{incarnation: 5}, {incarnation: 9}}}, Version{}},
		{"reports before the last opening", shardRecords{openings: []beginning{{incarnation: 5}, {incarnation: 9}}, reports: []report{rep(5, 3), rep(5, 7)}}, Version{5, 7}},
		{"reports after it", shardRecords{openings: []beginning{{incarnation: 5}, {incarnation: 9}}, reports: []report{rep(5, 7), rep(9, 1)}}, Version{9, 1}},
		{"a seek", shardRecords{seek: beginning{incarnation: 8}, reports: []report{rep(5, 7)}}, Version{8, 0}},
	} {
		if got := c.s.reported(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
