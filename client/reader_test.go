package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
)

func mustReader(t *testing.T, f *fakeLog, opts ...ReaderOption) *Reader {
	t.Helper()
	r, err := NewReader(serve(t, f.ServeHTTP), "t", append([]ReaderOption{WithReaderPage(10, 1<<20), withReaderTiming(time.Minute, time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// offsets reads to the end and gives the offsets by partition; the order within each partition is checked.
func readAll(t *testing.T, ctx context.Context, r *Reader) (map[int32][]int64, error) {
	t.Helper()
	got := map[int32][]int64{}
	for record, err := range r.Records(ctx) {
		if err != nil {
			return got, err
		}
		if want := fmt.Sprintf("%d:%d", record.Partition, record.Offset); string(record.Value) != want {
			t.Errorf("record %s has the value %s", want, record.Value)
		}
		got[record.Partition] = append(got[record.Partition], record.Offset)
	}
	for p, offsets := range got {
		if !slices.IsSorted(offsets) || len(slices.Compact(slices.Clone(offsets))) != len(offsets) {
			t.Errorf("partition %d: %v", p, offsets)
		}
	}
	return got, nil
}

func span(from, to int64) (out []int64) {
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

// TestReaderReadsATopic: to the heads of the beginning; a second loop goes on behind it.
func TestReaderReadsATopic(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 95}, &fakeLogPart{}, &fakeLogPart{logStart: 7, head: 40}, &fakeLogPart{logStart: 9, head: 9})
	r := mustReader(t, f, WithReaderAhead(2))
	if len(r.Positions()) != 0 {
		t.Errorf("before it began: %v", r.Positions())
	}
	for _, c := range []struct {
		want map[int32][]int64
		at   []Position
		grow func()
	}{
		{map[int32][]int64{0: span(0, 95), 2: span(7, 40)}, []Position{{0, 95}, {1, 0}, {2, 40}, {3, 9}}, func() {}},
		{map[int32][]int64{}, []Position{{0, 95}, {1, 0}, {2, 40}, {3, 9}}, func() { f.mu.parts[1].head, f.mu.parts[3].head = 3, 11 }},
		{map[int32][]int64{1: span(0, 3), 3: {9, 10}}, []Position{{0, 95}, {1, 3}, {2, 40}, {3, 11}}, func() {}},
	} {
		got, err := readAll(t, t.Context(), r)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if diff := cmp.Diff(c.at, r.Positions()); diff != "" {
			t.Error(diff)
		}
		f.set(c.grow)
	}
}

func TestReaderBounds(t *testing.T) {
	second := func(n int64) time.Time { return time.Unix(n, 0) }
	even := func(offset int64) bool { return offset%2 == 1 || offset >= 50 && offset < 80 || offset >= 90 }
	for _, c := range []struct {
		name string
		opts []ReaderOption
		part fakeLogPart
		want []int64
		next int64
	}{
		{"latest", []ReaderOption{WithReaderStart(Latest)}, fakeLogPart{head: 30}, nil, 30},
		{"an offset", []ReaderOption{WithReaderStart(25)}, fakeLogPart{head: 30}, span(25, 30), 30},
		{"the head", []ReaderOption{WithReaderStart(30)}, fakeLogPart{head: 30}, nil, 30},
		{"a time", []ReaderOption{WithReaderStartTime(second(25))}, fakeLogPart{head: 30}, span(25, 30), 30},
		{"a time between milliseconds", []ReaderOption{WithReaderStartTime(second(25).Add(time.Nanosecond))}, fakeLogPart{head: 30}, span(26, 30), 30},
		{"a time that is to come", []ReaderOption{WithReaderStartTime(second(1000))}, fakeLogPart{head: 30}, nil, 30},
		{"a position", []ReaderOption{WithReaderPositions([]Position{{0, 28}}), WithReaderStart(Latest)}, fakeLogPart{head: 30}, span(28, 30), 30},
		{"no position of it", []ReaderOption{WithReaderPositions([]Position{{7, 28}}), WithReaderStart(Latest)}, fakeLogPart{head: 3}, span(0, 3), 3},
		{"no position of it, and a start", []ReaderOption{WithReaderPositions(nil), WithReaderStart(2)}, fakeLogPart{head: 3}, span(2, 3), 3},
		{"until an offset", []ReaderOption{WithReaderUntil(17)}, fakeLogPart{head: 30}, span(0, 17), 17},
		{"until an offset, following", []ReaderOption{WithReaderUntil(17), WithReaderFollow()}, fakeLogPart{head: 30}, span(0, 17), 17},
		{"until an offset beyond the head", []ReaderOption{WithReaderUntil(99)}, fakeLogPart{head: 30}, span(0, 30), 30},
		{"until an offset that was passed", []ReaderOption{WithReaderUntil(17), WithReaderStart(20)}, fakeLogPart{head: 30}, nil, 20},
		{"until a time", []ReaderOption{WithReaderUntilTime(second(12))}, fakeLogPart{head: 30}, span(0, 12), 12},
		{"until a time, following", []ReaderOption{WithReaderUntilTime(second(12)), WithReaderFollow()}, fakeLogPart{head: 30}, span(0, 12), 12},
		{"until a time that is to come", []ReaderOption{WithReaderUntilTime(second(99))}, fakeLogPart{head: 30}, span(0, 30), 30},
		{"between times", []ReaderOption{WithReaderStartTime(second(10)), WithReaderUntilTime(second(12))}, fakeLogPart{head: 30}, span(10, 12), 12},
		{"holes", []ReaderOption{WithReaderStart(41), WithReaderUntil(95)}, fakeLogPart{head: 100, holes: even}, []int64{42, 44, 46, 48, 80, 82, 84, 86, 88}, 95},
		{"a hole at the end", []ReaderOption{WithReaderStart(87)}, fakeLogPart{head: 100, holes: even}, []int64{88}, 100},
		{"nothing but a hole", []ReaderOption{WithReaderStart(90)}, fakeLogPart{head: 100, holes: even}, nil, 100},
		{"nothing left", nil, fakeLogPart{logStart: 30, head: 30}, nil, 30},
		{"large pages", []ReaderOption{WithReaderPage(10_000, 1), WithReaderAhead(1)}, fakeLogPart{head: 30}, span(0, 30), 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustReader(t, newFakeLog(t, &c.part), append(c.opts, WithReaderPartitions(0, 0))...)
			got, err := readAll(t, t.Context(), r)
			if diff := cmp.Diff(c.want, got[0]); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			if at := r.Positions(); at[0] != (Position{0, c.next}) {
				t.Errorf("position %v", at)
			}
		})
	}
}

// TestReaderReadsAhead: while the loop is busy with one page, others are read, and never more than the bound.
func TestReaderReadsAhead(t *testing.T) {
	const ahead = 3
	f := newFakeLog(t, &fakeLogPart{head: 100}, &fakeLogPart{head: 100})
	var begun, consumed atomic.Int32
	full := make(chan struct{}, 100)
	f.mu.spoil = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/records") {
			if n := begun.Add(1) - consumed.Load(); n > ahead {
				t.Errorf("%d pages are under way", n)
			} else if n == ahead {
				full <- struct{}{}
			}
		}
		return false
	}
	n := 0
	for _, err := range mustReader(t, f, WithReaderAhead(ahead)).Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			<-full // the loop holds one page, and two more are read
		}
		if n++; n%10 == 0 {
			consumed.Add(1)
		}
	}
	if n != 200 || f.reads() != 20 {
		t.Errorf("%d records in %d reads", n, f.reads())
	}
}

// TestReaderLeftInTheMiddle: nothing goes on behind the back of who has left, and a later loop, or a later reader, misses nothing.
func TestReaderLeftInTheMiddle(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 95}, &fakeLogPart{head: 33})
	got := map[int32][]int64{}
	r := mustReader(t, f)
	total := 0
	for loops := 0; total < 128 && loops < 100; loops++ {
		n := 0
		for record, err := range r.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got[record.Partition] = append(got[record.Partition], record.Offset)
			total++
			if n++; n == 7 {
				break
			}
		}
		if loops%2 == 0 {
			r = mustReader(t, f, WithReaderPositions(r.Positions()), WithReaderAhead(1+loops%5))
		}
	}
	if diff := cmp.Diff(map[int32][]int64{0: span(0, 95), 1: span(0, 33)}, got); diff != "" {
		t.Error(diff)
	}
	for range r.Records(t.Context()) {
		t.Error("there is more")
	}
}

// TestReaderEndsWithItsContext: that is an error, also in the middle of a page and while it waits at the head.
func TestReaderEndsWithItsContext(t *testing.T) {
	for _, head := range []int64{5, 20} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var last error
		for _, err := range mustReader(t, newFakeLog(t, &fakeLogPart{head: head}), WithReaderFollow()).Records(ctx) {
			if last = err; err != nil {
				continue
			}
			if n++; n == 5 {
				cancel()
			}
		}
		if !errors.Is(last, context.Canceled) || n != 5 {
			t.Errorf("%d records, %v", n, last)
		}
		cancel()
	}
}

// TestReaderIsForOneLoop at a time.
func TestReaderIsForOneLoop(t *testing.T) {
	r := mustReader(t, newFakeLog(t, &fakeLogPart{head: 1}))
	for _, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(t, t.Context(), r); err == nil {
			t.Error("a loop within a loop")
		}
	}
}

// TestReaderOutOfRange: what retention has taken is never skipped unless somebody decides so, and the error names it.
func TestReaderOutOfRange(t *testing.T) {
	f := newFakeLog(t, &fakeLogPart{head: 50}, &fakeLogPart{logStart: 41, head: 60})
	r := mustReader(t, f, WithReaderPositions([]Position{{0, 45}, {1, 12}}))
	var out *OutOfRangeError
	_, err := readAll(t, t.Context(), r)
	if !errors.As(err, &out) || !errors.Is(err, ErrOffsetOutOfRange) || out.Lost() != (Gap{Topic: "t", Partition: 1, From: 12, To: 41}) || out.Head != 60 ||
		!strings.Contains(err.Error(), "12 to 40") {
		t.Errorf("got %v", err)
	}
	if at := r.Positions(); at[1] != (Position{1, 12}) {
		t.Errorf("it went on at %v", at)
	}

	var lost []Gap
	skipping := mustReader(t, f, WithReaderPositions(r.Positions()), WithReaderGap(func(_ context.Context, g Gap) GapAction {
		lost = append(lost, g)
		return GapSkip
	}))
	got, err := readAll(t, t.Context(), skipping)
	if diff := cmp.Diff([]Gap{{Topic: "t", Partition: 1, From: 12, To: 41}}, lost); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff(span(41, 60), got[1]); diff != "" {
		t.Error(diff)
	}

	// Beyond the head there is nothing to skip to.
	for _, follow := range [][]ReaderOption{nil, {WithReaderFollow()}} {
		beyond := mustReader(t, f, append(follow, WithReaderStart(51), WithReaderPartitions(0), WithReaderGap(func(context.Context, Gap) GapAction { return GapSkip }))...)
		if _, err := readAll(t, t.Context(), beyond); !errors.As(err, &out) || out.Lost().From != out.Lost().To || !strings.Contains(err.Error(), "beyond the head, 50") {
			t.Errorf("got %v", err)
		}
	}
	// Retention may overtake a reader also between its pages.
	f = newFakeLog(t, &fakeLogPart{head: 50})
	for record, err := range mustReader(t, f, WithReaderAhead(1)).Records(t.Context()) {
		if err != nil {
			if !errors.As(err, &out) || out.Lost() != (Gap{Topic: "t", From: 10, To: 30}) {
				t.Errorf("got %v", err)
			}
			return
		}
		if record.Offset == 9 {
			f.set(func() { f.mu.parts[0].logStart = 30 })
		}
	}
	t.Error("the loop ended as if nothing were missing")
}

func TestReaderRefusals(t *testing.T) {
	if _, err := readAll(t, t.Context(), mustReader(t, newFakeLog(t, &fakeLogPart{head: 1}), WithReaderPartitions(0, 3))); codeOf(err) != api.CodeUnknownPartition {
		t.Errorf("a partition that is not there: %v", err)
	}
	f := newFakeLog(t, &fakeLogPart{head: 1})
	f.mu.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
		f.problem(w, 404, `{"code":"UNKNOWN_TOPIC"}`)
		return true
	}
	if _, err := readAll(t, t.Context(), mustReader(t, f, WithReaderFollow())); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("a topic that is not there: %v", err)
	}
	for want, opt := range map[string]ReaderOption{
		"no partitions": WithReaderPartitions(), "partition -1": WithReaderPartitions(-1), "start -3": WithReaderStart(-3), "until -2": WithReaderUntil(-2),
		"position -1": WithReaderPositions([]Position{{0, -1}}), "0 pages": WithReaderAhead(0), "0 records": WithReaderPage(0, 1), "0 bytes": WithReaderPage(1, 0),
		"function": WithReaderGap(nil),
	} {
		if _, err := NewReader(nil, "t", opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
