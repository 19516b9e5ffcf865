package feed

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLines(t *testing.T) {
	const text = "{\"a\":1}\n\n  \n{\"b\":2}\r\nlast without end"
	want := []Line{{1, []byte(`{"a":1}`)}, {4, []byte(`{"b":2}`)}, {5, []byte("last without end")}}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]io.Reader{"plain": strings.NewReader(text), "gzip": &zipped} {
		t.Run(name, func(t *testing.T) {
			l, err := NewLines(in)
			if err != nil {
				t.Fatal(err)
			}
			var got []Line
			for {
				line, err := l.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLinesRefuseWhatCannotBeARecord(t *testing.T) {
	l, err := NewLines(strings.NewReader("ok\n" + strings.Repeat("x", maxLineBytes+1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
	if l, err = NewLines(bytes.NewReader([]byte{0x1f, 0x8b, 0})); err == nil {
		t.Errorf("half a gzip header was opened: %v", l)
	}
}

func TestShape(t *testing.T) {
	cases := []struct {
		name, line string
		shape      Shape
		want       client.Record
		err        string
	}{
		{"json", ` {"n":12345678901234567890}`, Shape{Kind: client.KindJSON}, client.Record{Kind: client.KindJSON, Value: []byte(` {"n":12345678901234567890}`)}, ""},
		{"text", "a\tb", Shape{Kind: client.KindText, Key: []byte("k")}, client.Record{Kind: client.KindText, Key: []byte("k"), Value: []byte("a\tb")}, ""},
		{"key by path", `{"a":{"b":"k\u00e9"}}`, Shape{Kind: client.KindJSON, KeyField: "a.b"}, client.Record{Kind: client.KindJSON, Key: []byte("ké"), Value: []byte(`{"a":{"b":"k\u00e9"}}`)}, ""},
		{"key by pointer", `{"a/b":{"c.d":7}}`, Shape{Kind: client.KindJSON, KeyField: "/a~1b/c.d"}, client.Record{Kind: client.KindJSON, Key: []byte("7"), Value: []byte(`{"a/b":{"c.d":7}}`)}, ""},
		{"empty key", `{"a":""}`, Shape{Kind: client.KindJSON, KeyField: "a"}, client.Record{Kind: client.KindJSON, Key: []byte{}, Value: []byte(`{"a":""}`)}, ""},
		{"null key is absent", `{"a":null}`, Shape{Kind: client.KindJSON, KeyField: "a", KeyOptional: true}, client.Record{Kind: client.KindJSON, Value: []byte(`{"a":null}`)}, ""},
		{"missing key is absent", `[1]`, Shape{Kind: client.KindJSON, KeyField: "a", KeyOptional: true}, client.Record{Kind: client.KindJSON, Value: []byte(`[1]`)}, ""},
		{"missing key is an error", `{"b":1}`, Shape{Kind: client.KindJSON, KeyField: "a"}, client.Record{}, "has no field"},
		{"null key is an error", `{"a":null}`, Shape{Kind: client.KindJSON, KeyField: "a"}, client.Record{}, "has no field"},
		{"tombstone", `{"p":"k","c":"D"}`, Shape{Kind: client.KindJSON, KeyField: "p", Tombstone: "c=D"}, client.Record{Key: []byte("k")}, ""},
		{"not a tombstone", `{"p":"k","c":"M"}`, Shape{Kind: client.KindJSON, KeyField: "p", Tombstone: "c=D"}, client.Record{Kind: client.KindJSON, Key: []byte("k"), Value: []byte(`{"p":"k","c":"M"}`)}, ""},
		{"tombstone without key", `{"c":"D"}`, Shape{Kind: client.KindJSON, KeyField: "p", KeyOptional: true, Tombstone: "c=D"}, client.Record{}, "no key"},
		{"not json", `hello`, Shape{Kind: client.KindJSON}, client.Record{}, "not JSON"},
		{"two values", `1 2`, Shape{Kind: client.KindJSON}, client.Record{}, "not JSON"},
		{"not utf-8", "\xff", Shape{Kind: client.KindText}, client.Record{}, "not UTF-8"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.shape.Validate(); err != nil {
				t.Fatal(err)
			}
			got, err := c.shape.Record([]byte(c.line))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestShapeFaults(t *testing.T) {
	for _, s := range []Shape{
		{Kind: client.KindText, KeyField: "a"},
		{Kind: client.KindJSON, KeyField: "a", Key: []byte("k")},
		{Kind: client.KindJSON, KeyField: "a", Tombstone: "D"},
		{Kind: client.KindJSON, Tombstone: "a=D"},
	} {
		if s.Validate() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// log is a server as far as Publish can tell: atomic requests, sequences by partition, one copy of each.
type log struct {
	t          *testing.T
	partitions int
	records    [][]string // values by partition
	accepted   map[int32]int64
	requests   int
	fail       func(request int) (before, after error)
}

func newLog(t *testing.T, partitions int) *log {
	return &log{t: t, partitions: partitions, records: make([][]string, partitions), accepted: map[int32]int64{}, fail: func(int) (error, error) { return nil, nil }}
}

func (l *log) Publish(_ context.Context, _ string, records []client.Record, p *client.ProducerSequence) (*client.PublishResult, error) {
	l.requests++
	before, after := l.fail(l.requests)
	if before != nil {
		return nil, before
	}
	result := &client.PublishResult{}
	next := map[int32]int64{}
	for _, r := range records {
		partition := int32(0)
		switch {
		case r.Key != nil:
			partition = int32(api.PartitionForKey(r.Key, l.partitions))
		case r.Pinned:
			partition = r.Partition
		}
		if p != nil {
			if seen, ok := l.accepted[partition]; ok && seen >= p.Sequence {
				l.t.Errorf("partition %d has accepted %d, and gets %d again", partition, seen, p.Sequence)
			}
			next[partition] = p.Sequence
		}
		l.records[partition] = append(l.records[partition], string(r.Value))
		result.Records = append(result.Records, client.Position{Partition: partition, Offset: int64(len(l.records[partition]) - 1)})
	}
	for partition, sequence := range next {
		l.accepted[partition] = sequence
	}
	if after != nil {
		return nil, after
	}
	return result, nil
}

func (l *log) session(epoch int64) *Session {
	accepted := map[int32]int64{}
	for k, v := range l.accepted {
		accepted[k] = v
	}
	return &Session{ID: "p", Epoch: epoch, Accepted: accepted}
}

func input(t *testing.T, n int) *Lines {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if i%5 == 0 {
			fmt.Fprintf(&b, "{\"n\":%d}\n", i) // no key
			continue
		}
		fmt.Fprintf(&b, "{\"k\":\"key-%d\",\"n\":%d}\n", i%37, i)
	}
	l, err := NewLines(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var (
	errRefused = &client.Error{Op: "publish", Status: 503, Code: api.CodeOverloaded}
	errLost    = &client.Error{Op: "publish", Cause: io.ErrUnexpectedEOF}
)

// TestResume kills the publisher before and after the effect of requests, at seeded places and with batches of changing size, and
// expects what one undisturbed run stores.
func TestResume(t *testing.T) {
	const lines, partitions = 400, 7
	shape := Shape{Kind: client.KindJSON, KeyField: "k", KeyOptional: true}
	whole := newLog(t, partitions)
	stats, err := Publish(t.Context(), input(t, lines), Job{Sink: whole, Topic: "t", Partitions: partitions, Shape: shape, Batch: 50, BatchBytes: 1 << 20, Producer: whole.session(1)})
	if err != nil || stats.Acked != lines || stats.LastLine != lines {
		t.Fatalf("%+v, %v", stats, err)
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		broken := newLog(t, partitions)
		broken.fail = func(int) (error, error) {
			switch rng.IntN(6) {
			case 0:
				return errRefused, nil
			case 1:
				return nil, errLost
			}
			return nil, nil
		}
		var stored int64
		for epoch := int64(1); ; epoch++ {
			if epoch > 1000 {
				t.Fatal("no progress")
			}
			stats, err := Publish(t.Context(), input(t, lines), Job{Sink: broken, Topic: "t", Partitions: partitions, Shape: shape, Batch: 1 + rng.IntN(60), BatchBytes: 1 << 20, Producer: broken.session(epoch)})
			if err == nil {
				stored = stats.Acked + stats.Skipped
				break
			}
			var le *LineError
			if !errors.As(err, &le) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if want := errors.Is(err, io.ErrUnexpectedEOF); want != (le.Outcome == client.Indefinite) {
				t.Fatalf("seed %d: %v is judged %s", seed, err, le.Outcome)
			}
		}
		if stored != lines {
			t.Errorf("seed %d: %d lines are accounted for", seed, stored)
		}
		if diff := cmp.Diff(whole.records, broken.records); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

func TestUnknownOutcomeWithoutProducerIsNotResent(t *testing.T) {
	l := newLog(t, 1)
	l.fail = func(int) (error, error) { return nil, errLost }
	_, err := Publish(t.Context(), input(t, 3), Job{Sink: l, Topic: "t", Partitions: 1, Shape: Shape{Kind: client.KindJSON}, Batch: 10, BatchBytes: 1 << 20})
	var le *LineError
	if !errors.As(err, &le) || le.Outcome != client.Indefinite || le.First != 1 || le.Last != 3 {
		t.Fatalf("got %v", err)
	}
	if l.requests != 1 {
		t.Errorf("%d requests", l.requests)
	}
}

func TestBadLineStopsAfterWhatWasGood(t *testing.T) {
	in, err := NewLines(strings.NewReader("1\n2\nthree\n4\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLog(t, 1)
	stats, err := Publish(t.Context(), in, Job{Sink: l, Topic: "t", Partitions: 1, Shape: Shape{Kind: client.KindJSON}, Batch: 10, BatchBytes: 1 << 20})
	if err == nil || !strings.HasPrefix(err.Error(), "line 3: ") || stats.Acked != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
	if diff := cmp.Diff([][]string{{"1", "2"}}, l.records); diff != "" {
		t.Error(diff)
	}
}

func TestBatches(t *testing.T) {
	l := newLog(t, 1)
	pinned := int32(0)
	job := Job{Sink: l, Topic: "t", Partitions: 1, Shape: Shape{Kind: client.KindJSON}, Batch: 1000, BatchBytes: 30, Pinned: &pinned}
	var seen []int64
	job.Progress = func(s Stats) { seen = append(seen, s.Acked) }
	if _, err := Publish(t.Context(), input(t, 10), job); err != nil {
		t.Fatal(err)
	}
	if l.requests < 4 || len(seen) != l.requests || seen[len(seen)-1] != 10 {
		t.Errorf("%d requests, progress %v", l.requests, seen)
	}
}

func TestShortAnswerIsAFailure(t *testing.T) {
	_, err := Publish(t.Context(), input(t, 2), Job{Sink: shortSink{}, Topic: "t", Partitions: 1, Shape: Shape{Kind: client.KindJSON}, Batch: 2, BatchBytes: 1 << 20})
	if err == nil {
		t.Fatal("two records, no position, and success")
	}
}

type shortSink struct{}

func (shortSink) Publish(context.Context, string, []client.Record, *client.ProducerSequence) (*client.PublishResult, error) {
	return &client.PublishResult{}, nil
}

// TestStreamSendsWhatIsThere: the first line is acknowledged while the writer still holds the second back.
func TestStreamSendsWhatIsThere(t *testing.T) {
	r, w := io.Pipe()
	acked := make(chan int64, 10)
	done := make(chan error, 1)
	go func() {
		in, err := NewLines(r)
		if err != nil {
			done <- err
			return
		}
		l := newLog(t, 1)
		_, err = Publish(t.Context(), NewStream(t.Context(), in, 10), Job{
			Sink: l, Topic: "t", Partitions: 1, Shape: Shape{Kind: client.KindJSON}, Batch: 100, BatchBytes: 1 << 20,
			Progress: func(s Stats) { acked <- s.Acked },
		})
		done <- err
	}()
	for i := int64(1); i <= 3; i++ {
		if _, err := fmt.Fprintln(w, i); err != nil {
			t.Fatal(err)
		}
		if got := <-acked; got != i {
			t.Fatalf("%d acknowledged after line %d", got, i)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	s := NewStream(ctx, &Lines{r: bufio.NewReader(r)}, 1)
	cancel()
	if _, err := s.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
