package compactor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// copyOver puts the object of one entry in the place of another's.
func (w *world) copyOver(from, to *metadata.SegmentRef) {
	w.t.Helper()
	if from.Size != to.Size {
		w.t.Fatalf("objects of %d and %d bytes", from.Size, to.Size)
	}
	body, _, err := w.objects.GetTail(w.t.Context(), objectKey(from), from.Size)
	if err == nil {
		err = w.objects.Delete(w.t.Context(), objectKey(to))
	}
	if err == nil {
		_, err = w.objects.PutIfAbsent(w.t.Context(), objectKey(to), body, "copied by hand")
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestCopiedObject: an object that was copied over another one of the same partition and size has sound batches that say the right topic,
// partition and count. It is noticed all the same: by the compactor, whichever part of the object it reads; by readers in level 0 where a
// read takes in the object's first block, and from level 1 on, where the batches say their offsets, always.
func TestCopiedObject(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t")
	values := func(n int) []segment.Record {
		var out []segment.Record
		for range n {
			out = append(out, text("k", payload(w.rng, 200)))
		}
		return out
	}
	const perObject = 40
	for range 2 {
		w.publish(batch{topic: topic, records: values(perObject)})
	}
	wantCopied := func(offset int64) {
		t.Helper()
		_, err := readAll(t.Context(), w.fetcher(w.objects), topic, 0, offset, 1000)
		var bad *fetch.UnreadableError
		if !errors.As(err, &bad) || bad.Missing || bad.First != offset || !strings.Contains(fmt.Sprint(bad.Cause), "copy of segment") {
			t.Errorf("read at %d: %v", offset, err)
		}
	}
	e := w.entries(topic, 0)
	original, _, err := w.objects.GetTail(t.Context(), objectKey(&e[0].Segment), e[0].Segment.Size)
	if err != nil {
		t.Fatal(err)
	}
	w.copyOver(&e[1].Segment, &e[0].Segment)
	wantCopied(0)
	c := w.compactor(func(o *Options) { o.Policy = Policy{MergeObjects: 1, BatchBytes: 1000} })
	w.run(c)
	if n := counterOf(t, c.m.unreadable.WithLabelValues("corrupt")); n != 1 {
		t.Errorf("%v objects are reported", n)
	}
	e = w.entries(topic, 0)
	if len(e) != 2 || e[0].Segment.Level != 0 || e[1].Segment.Level != 1 {
		t.Fatalf("%+v", e)
	}
	if got := w.read(w.fetcher(w.objects), topic, 0, perObject); len(got) != perObject {
		t.Errorf("%d records behind it", len(got))
	}

	// The right bytes are put back, and the same happens to two runs.
	if err := w.objects.Delete(t.Context(), objectKey(&e[0].Segment)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.PutIfAbsent(t.Context(), objectKey(&e[0].Segment), original, "put back"); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(100 * c.o.Backoff)
	w.run(c)
	e = w.entries(topic, 0)
	if len(e) != 2 || e[0].Segment.Level != 1 || e[1].Segment.Level != 1 {
		t.Fatalf("%+v", e)
	}
	w.copyOver(&e[1].Segment, &e[0].Segment)
	wantCopied(0)
	// A part of an object that does not begin with its header.
	other := w.topic("behind")
	for range 2 {
		w.publish(batch{topic: topic, records: []segment.Record{text("k", payload(w.rng, 2*chunkGap))}}, batch{topic: other, records: values(1)})
	}
	b := w.entries(other, 0)
	w.copyOver(&b[1].Segment, &b[0].Segment)
	w.run(c)
	if b = w.entries(other, 0); len(b) != 2 || b[0].Segment.Level != 0 || b[1].Segment.Level != 1 {
		t.Errorf("%+v", b)
	}
	if x, err := c.index(t.Context(), &e[0].Segment); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("the index of a copy: %+v, %v", x, err)
	}
}
