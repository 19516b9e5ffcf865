package ingest

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
	"github.com/forebaymq/forebay/segment"
)

func fenced(tp *metadata.Topic, epoch int64, values []string, partitions ...int32) *Request {
	q := publish(tp, values, partitions...)
	q.Producer = &metadata.Producer{ID: "__group.1", Epoch: epoch, Sequence: metadata.NoSequence}
	return q
}

// Requests that are only fenced: the same one twice is two requests, one in several partitions is in all or none, and an epoch that is not the
// running one is refused with the one that is.
func TestFenceOnlyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tp := w.topic("a", 2, 0)
		a, b := w.node(), w.node()
		first, err := a.log.StartProducer(t.Context(), "t", "__group.1")
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(2) {
			res, err := a.in.Append(t.Context(), fenced(tp, first, []string{"x", "y", "z"}, 0, 1, 0))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("[{[%d %d %d]}]", 2*i, i, 2*i+1); res.Duplicate || fmt.Sprint(res.Topics) != want {
				t.Errorf("duplicate %v, offsets %v, want %s", res.Duplicate, res.Topics, want)
			}
		}
		second, err := b.log.StartProducer(t.Context(), "t", "__group.1")
		if err != nil {
			t.Fatal(err)
		}
		// On the node that has not been told, beside requests of others in the same segment.
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.in.Append(t.Context(), fenced(tp, first, []string{"zombie", "zombie"}, 0, 1))
			if e := wantCode(t, err, api.CodeProducerFenced); e.Extra["epoch"] != second {
				t.Errorf("the refusal names %v, want epoch %d", e.Extra["epoch"], second)
			}
		})
		wg.Go(func() {
			_, err := a.in.Append(t.Context(), fenced(tp, second+1, []string{"unborn"}, 1))
			if e := wantCode(t, err, api.CodeInvalidRequest); e.Extra["epoch"] != second {
				t.Errorf("the refusal names %v, want epoch %d", e.Extra["epoch"], second)
			}
		})
		wg.Go(func() {
			if _, err := a.in.Append(t.Context(), publish(tp, []string{"other"}, 0)); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if _, err := b.in.Append(t.Context(), fenced(tp, second, []string{"last"}, 1)); err != nil {
			t.Error(err)
		}
		a.stop()
		b.stop()
		got := w.read(tp)
		if fmt.Sprint(got[topicPartition{tp.ID, 0}], got[topicPartition{tp.ID, 1}]) != "[x z x z other] [y y last]" {
			t.Errorf("stored %v", got)
		}
		w.close()
	})
}

// The commit takes effect, its answer is lost, and the log tries again: the request is stored once, although it has no sequence, and even if
// its producer was fenced in between.
func TestFenceOnlyWithLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tp := w.topic("a", 2, 0)
		n, other := w.node(), w.node()
		epoch, err := n.log.StartProducer(t.Context(), "t", "__group.1")
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		n.meta.SetHook(func(c metafault.Call) metafault.Action {
			if c.Op != metafault.Append || lost == 3 {
				return metafault.Action{}
			}
			if lost++; lost == 2 {
				if _, err := other.log.StartProducer(t.Context(), "t", "__group.1"); err != nil {
					t.Error(err)
				}
			}
			return metafault.Action{Lost: true}
		})
		res, err := n.in.Append(t.Context(), fenced(tp, epoch, []string{"x", "y"}, 0, 1))
		if err != nil || res.Duplicate || lost == 0 {
			t.Errorf("%+v after %d lost answers: %v", res, lost, err)
		}
		n.meta.SetHook(nil)
		n.stop()
		other.stop()
		got := w.read(tp)
		if fmt.Sprint(got[topicPartition{tp.ID, 0}], got[topicPartition{tp.ID, 1}]) != "[x] [y]" {
			t.Errorf("stored %v", got)
		}
		w.close()
	})
}

// The stored batch names who wrote it, and that there was no sequence.
func TestFenceOnlyBatchInTheSegment(t *testing.T) {
	f := start(t, nil)
	tp := topic(7, 1)
	if _, err := f.Append(t.Context(), fenced(tp, 3, []string{"x"}, 0)); err != nil {
		t.Fatal(err)
	}
	c := f.log.commits()[0]
	if p := c.Groups[c.Batches[0].Group].Producer; *p != (metadata.Producer{ID: "__group.1", Epoch: 3, Sequence: metadata.NoSequence}) {
		t.Errorf("the commit says %+v", *p)
	}
	ref := c.Batches[0].Ref
	d, err := segment.DecodeBatch(f.store.body(segment.Name{ID: c.Segment.ID}.Key())[ref.Pos : ref.Pos+uint64(ref.Len)])
	if err != nil {
		t.Fatal(err)
	}
	if h := d.Header(); h.ProducerID != "__group.1" || h.ProducerEpoch != 3 || h.Sequence != metadata.NoSequence {
		t.Errorf("the batch says %+v", h)
	}
}
