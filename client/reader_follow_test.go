package client

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReaderFollows: with a slot for each partition and with fewer, records of any partition come as they are appended, and so do those of partitions
// that the topic gets, from their first on.
func TestReaderFollows(t *testing.T) {
	for name, ahead := range map[string]int{"a slot for each": 8, "one slot": 1, "two slots": 2} {
		t.Run(name, func(t *testing.T) {
			f := newFakeLog(t, &fakeLogPart{head: 12}, &fakeLogPart{}, &fakeLogPart{logStart: 5, head: 5})
			r := mustReader(t, f, WithReaderFollow(), WithReaderStart(Latest), WithReaderAhead(ahead), withReaderTiming(20*time.Millisecond, time.Millisecond))
			got := map[int32][]int64{}
			steps := []func(){
				func() { f.mu.parts[2].head++ },
				func() { f.mu.parts[0].head++ },
				func() { f.mu.parts = append(f.mu.parts, &fakeLogPart{head: 1}) },
				func() { f.mu.parts[1].head++ },
				func() { f.mu.parts[3].head++ },
				func() {
					for range 3 {
						f.mu.parts = append(f.mu.parts, &fakeLogPart{logStart: 3, head: 4})
					}
				},
			}
			step := 0
			next := func() {
				if step < len(steps) {
					f.set(steps[step])
					step++
				}
			}
			// The first step comes when the reader has looked at the topic; each record brings about the next.
			began := make(chan struct{})
			go func() {
				defer close(began)
				f.waitFor(func() bool { return f.mu.topics >= 1 })
				next()
			}()
			total := 0
			for record, err := range r.Records(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				<-began
				got[record.Partition] = append(got[record.Partition], record.Offset)
				if total++; total == 8 {
					break
				}
				next()
			}
			want := map[int32][]int64{0: {12}, 1: {0}, 2: {5}, 3: {0, 1}, 4: {3}, 5: {3}, 6: {3}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReaderFollowsUntil: the loop ends when each partition has come to the bound.
func TestReaderFollowsUntil(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 3}, &fakeLogPart{head: 9})
	r := mustReader(t, f, WithReaderFollow(), WithReaderUntilTime(time.Unix(7, 0)), WithReaderAhead(2))
	n := 0
	for record, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; record.Partition == 0 {
			f.set(func() { f.mu.parts[0].head++ })
		}
	}
	if diff := cmp.Diff([]Position{{0, 7}, {1, 7}}, r.Positions()); diff != "" || n != 14 {
		t.Errorf("%d records\n%s", n, diff)
	}
}

// TestReaderOfATopicThatIsAnother: a topic of the same name that was created meanwhile is not read as if it were the same.
func TestReaderOfATopicThatIsAnother(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 3}, &fakeLogPart{head: 3})
	r := mustReader(t, f, WithReaderFollow(), WithReaderAhead(1), withReaderTiming(10*time.Millisecond, time.Millisecond))
	n := 0
	for _, err := range r.Records(t.Context()) {
		if err != nil {
			if !errors.Is(err, ErrUnknownTopic) || n != 6 {
				t.Errorf("after %d records: %v", n, err)
			}
			return
		}
		if n++; n == 6 {
			f.set(func() { f.mu.id = "id-2" })
		}
	}
	t.Error("the loop ended without a word")
}

// TestReaderLosesAnswers: every third answer is lost, or cut off; every record comes once.
func TestReaderLosesAnswers(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 300}, &fakeLogPart{head: 170})
	var n atomic.Int32
	f.mu.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
		switch n.Add(1) % 6 {
		case 2:
			hangUp(w)
		case 5:
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
			return true
		}
		return false
	}
	got, err := readAll(t, t.Context(), mustReader(t, f))
	if diff := cmp.Diff(map[int32][]int64{0: span(0, 300), 1: span(0, 170)}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestReaderAndOutages: one that follows goes on when the server is back, and tells of it; another one ends.
func TestReaderAndOutages(t *testing.T) {
	for _, follow := range []bool{true, false} {
		f := newFakeLog(t, &fakeLogPart{head: 20})
		var told, refused atomic.Int32
		f.mu.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			// More often than the client tries by itself.
			if strings.HasSuffix(r.URL.Path, "/records") && refused.Add(1) <= 6 {
				f.problem(w, 503, `{"code":"STORAGE_UNAVAILABLE"}`)
				return true
			}
			return false
		}
		opts := []ReaderOption{WithReaderNotify(func(err error) {
			if codeOf(err) == "STORAGE_UNAVAILABLE" {
				told.Add(1)
			}
		}), WithReaderUntil(20)}
		if follow {
			opts = append(opts, WithReaderFollow())
		}
		got, err := readAll(t, t.Context(), mustReader(t, f, opts...))
		if follow && (err != nil || len(got[0]) != 20 || told.Load() != 6) || !follow && (codeOf(err) != "STORAGE_UNAVAILABLE" || told.Load() != 3 || len(got) != 0) {
			t.Errorf("following %t: %d records, told %d times, %v", follow, len(got[0]), told.Load(), err)
		}
	}
}
