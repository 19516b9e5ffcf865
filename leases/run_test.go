package leases

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// shelf is a partition as Reader shows it.
type shelf struct {
	offsets  []int64 // of the records, each of 10 bytes
	head     int64   // as this node knows it
	later    int64   // the head after a Sync
	logStart int64
	bad      []span
	err      error
	errFrom  int64 // err for reads from here on
	reads    int
	syncs    int
}

func (s *shelf) Read(_ context.Context, _ string, _ metadata.TopicID, _ int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
	s.reads++
	switch {
	case s.err != nil && offset >= s.errFrom:
		return nil, 0, s.err
	case offset < s.logStart:
		return nil, 0, api.Errorf(api.CodeOffsetOutOfRange, "below").With("logStart", s.logStart).With("head", s.head)
	case offset > s.head:
		return nil, 0, api.Errorf(api.CodeOffsetOutOfRange, "above").With("logStart", s.logStart).With("head", s.head)
	}
	var out []segment.Record
	for _, o := range s.offsets {
		if o < offset || o >= s.head {
			continue
		}
		for _, b := range s.bad {
			if b.from <= o && o < b.to {
				if len(out) > 0 {
					return out, b.from, nil
				}
				return nil, 0, &api.Error{Code: api.CodeInternal, Cause: &UnreadableError{Next: b.to}}
			}
		}
		if len(out) == maxRecords || len(out) > 0 && int64(len(out)+1)*10 > maxBytes {
			return out, out[len(out)-1].Offset + 1, nil
		}
		out = append(out, segment.Record{Offset: o, Value: make([]byte, 10)})
	}
	return out, s.head, nil
}

func (s *shelf) OffsetForTime(context.Context, metadata.TopicID, int32, int64) (int64, bool, error) {
	return 0, false, errors.New("not asked for")
}

// shelfView syncs the shelf. Nothing else is asked of it.
type shelfView struct {
	View
	s *shelf
}

func (v shelfView) Sync(context.Context) error {
	v.s.syncs++
	v.s.head = max(v.s.head, v.s.later)
	return nil
}

func (s *shelf) run(t *testing.T, from, to, maxBytes int64) *run {
	t.Helper()
	e := &Engine{o: Options{Reader: s, View: shelfView{s: s}}}
	r := &run{from: from, to: to, at: from}
	r.read(t.Context(), e, &queue{sub: &metadata.Subscription{}}, maxBytes)
	return r
}

// verdicts gives what the run says of each offset of [from, to).
func (r *run) verdicts() string {
	var out []byte
	for o := r.from; o < r.to; o++ {
		_, v := r.find(o)
		out = append(out, "RhuxX"[v])
	}
	return string(out)
}

func dense(n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func TestRunVerdicts(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name     string
		s        shelf
		from, to int64
		bytes    int64
		want     string // R record, h hole, u unreadable, x expired, X unknown
		reads    int
		err      bool
	}{
		{"dense, in one read", shelf{offsets: dense(10), head: 10}, 2, 8, 1000, "RRRRRR", 1, false},
		{"holes at both ends and between", shelf{offsets: []int64{1, 4}, head: 9}, 0, 8, 1000, "hRhhRhhh", 1, false},
		{"all holes", shelf{offsets: []int64{20}, head: 21}, 0, 4, 1000, "hhhh", 1, false},
		{"bytes run out", shelf{offsets: dense(10), head: 10}, 0, 5, 25, "RRRXX", 2, false},
		{"unreadable at the start, between, at the end", shelf{offsets: dense(10), head: 10, bad: []span{{0, 2}, {4, 6}, {9, 10}}}, 0, 10, 1000, "uuRRuuRRRu", 5, false},
		{"unreadable beyond the run", shelf{offsets: dense(10), head: 10, bad: []span{{3, 10}}}, 2, 5, 1000, "Ruu", 2, false},
		{"retention was faster", shelf{offsets: dense(10), head: 10, logStart: 3}, 1, 5, 1000, "xxRR", 2, false},
		{"retention took all of it", shelf{offsets: dense(10), head: 10, logStart: 8}, 1, 5, 1000, "xxxx", 1, false},
		{"another node knew more", shelf{offsets: dense(10), head: 4, later: 10}, 2, 8, 1000, "RRRRRR", 3, false},
		{"another node knew of all of it", shelf{offsets: dense(10), head: 1, later: 10}, 2, 4, 1000, "RR", 2, false},
		{"nobody knows", shelf{offsets: dense(4), head: 4}, 3, 6, 1000, "RXX", 3, true},
		{"reading fails", shelf{offsets: dense(10), head: 10, err: broken}, 0, 3, 1000, "XXX", 1, true},
		{"reading fails behind a bad batch", shelf{offsets: dense(10), head: 10, bad: []span{{0, 2}}, err: broken, errFrom: 2}, 0, 4, 1000, "uuXX", 2, true},
	} {
		r := c.s.run(t, c.from, c.to, c.bytes)
		if got := r.verdicts(); got != c.want || c.s.reads != c.reads || (r.err != nil) != c.err {
			t.Errorf("%s: %s after %d reads, error %v; want %s after %d", c.name, got, c.s.reads, r.err, c.want, c.reads)
		}
	}
}

// TestRunKnowsWhereAHoleEnds: records behind the run end what is known to be a hole.
func TestRunKnowsWhereAHoleEnds(t *testing.T) {
	s := shelf{offsets: []int64{1, 9, 12}, head: 20}
	for _, c := range []struct{ from, to, at int64 }{{0, 4, 9}, {2, 9, 9}, {9, 10, 10}, {13, 15, 20}, {0, 20, 20}} {
		if r := s.run(t, c.from, c.to, 1000); r.at != c.at {
			t.Errorf("[%d, %d): read up to %d, want %d", c.from, c.to, r.at, c.at)
		}
	}
}

func TestRunsJoinNeighbours(t *testing.T) {
	grants := []store.Grant{
		{Partition: 1, Start: 50, Count: 1}, {Partition: 0, Start: 10, Count: 5}, {Partition: 1, Start: 40, Count: 3},
		{Partition: 0, Start: 15, Count: 2}, {Partition: 1, Start: 500, Count: 1}, {Partition: 1, Start: 52, Count: 2},
	}
	rs, of := runs(grants)
	var got []run
	for _, r := range rs {
		got = append(got, run{partition: r.partition, from: r.from, to: r.to})
	}
	want := []run{{partition: 0, from: 10, to: 17}, {partition: 1, from: 40, to: 54}, {partition: 1, from: 500, to: 501}}
	if !slices.EqualFunc(got, want, func(a, b run) bool { return a.partition == b.partition && a.from == b.from && a.to == b.to }) {
		t.Fatalf("runs %+v", got)
	}
	for i, r := range []int{1, 0, 1, 0, 2, 1} {
		if of[i] != rs[r] {
			t.Errorf("grant %d is not in run %d", i, r)
		}
	}
}

func TestTakeKeepsRunsTogether(t *testing.T) {
	records := make([]segment.Record, 6)
	for i := range records {
		records[i].Offset = int64(i)
	}
	a, b := &store.Grant{Nonce: "a", Count: 4}, &store.Grant{Nonce: "b", Start: 4, Count: 2}
	w := &waiter{want: 10}
	for _, i := range []int{0, 1, 3} { // 2 is a hole, or went elsewhere
		w.take(a, records, i, 1)
	}
	w.take(b, records, 4, 1)
	w.take(b, records, 5, 1)
	if len(w.found) != 3 || len(w.found[0].records) != 2 || len(w.found[1].records) != 1 || len(w.found[2].records) != 2 {
		t.Errorf("found %+v", w.found)
	}
	ms := w.build()
	var got []string
	for i := range ms {
		got = append(got, ms[i].Receipt)
	}
	if want := []string{"0:0:a", "0:1:a", "0:3:a", "0:4:b", "0:5:b"}; !slices.Equal(got, want) {
		t.Errorf("receipts %v", got)
	}
}
