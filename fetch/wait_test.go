package fetch

import (
	"context"
	"errors"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

type waited struct {
	res *ReadResult
	err error
}

// readWait starts a long poll and returns when it has subscribed.
func (w *world) readWait(ctx context.Context, f *Fetcher, r ReadRequest, wait Waiter) <-chan waited {
	out := make(chan waited, 1)
	w.view.waiting = make(chan struct{}, 10)
	go func() {
		res, err := f.ReadWait(ctx, r, wait)
		out <- waited{res, err}
	}()
	<-w.view.waiting
	return out
}

func TestReadWaitIsWoken(t *testing.T) {
	for _, offset := range []int64{1, Latest} {
		w := newWorld(t)
		w.commit(values("a"))
		f := w.fetcher(Options{})
		out := w.readWait(context.Background(), f, request(offset), nil)
		w.commit(values("b"))
		got := <-out
		if got.err != nil {
			t.Fatal(got.err)
		}
		w.wantShape(got.res, "1:b next 2 head 2 start 0")
	}
}

func TestReadWaitAnswersAtOnce(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	f := w.fetcher(Options{})
	for _, offset := range []int64{0, Earliest} {
		res, err := f.ReadWait(context.Background(), request(offset), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.wantShape(res, "0:a next 1 head 1 start 0")
	}
	if _, err := f.ReadWait(context.Background(), request(2), nil); api.CodeOf(err) != api.CodeOffsetOutOfRange {
		t.Error(err)
	}
}

func TestReadWaitEndsEmpty(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	f := w.fetcher(Options{})
	over := make(chan struct{})
	out := w.readWait(context.Background(), f, request(1), over)
	close(over)
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	w.wantShape(got.res, "next 1 head 1 start 0")
	if n := w.view.released.Load(); n != 1 {
		t.Errorf("%d subscriptions released of 1", n)
	}
}

// A poll whose caller went away ends with the context's error, at any point, and leaves no subscription behind.
func TestReadWaitCallerGone(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	f := w.fetcher(Options{})
	ctx, cancel := context.WithCancel(context.Background())
	out := w.readWait(ctx, f, request(1), nil)
	cancel()
	if got := <-out; !errors.Is(got.err, context.Canceled) || got.res != nil {
		t.Errorf("%+v", got)
	}
	if n := w.view.released.Load(); n != 1 {
		t.Errorf("%d subscriptions released of 1", n)
	}
	before := w.view.syncs
	if _, err := f.ReadWait(ctx, request(0), nil); !errors.Is(err, context.Canceled) || w.view.syncs != before {
		t.Errorf("a poll of a caller that is gone: %v", err)
	}
}

// A hole at the head is passed, and the wait goes on behind it.
func TestReadWaitBehindAHole(t *testing.T) {
	w := newWorld(t)
	r := rec("k", "a")
	r.AppendTime = testNow
	w.replace(w.compacted(r))
	w.view.set(func() { w.view.info.Head = 5 })
	f := w.fetcher(Options{})
	out := w.readWait(context.Background(), f, request(1), nil)
	<-w.view.waiting // the second subscription, from the head
	w.commit([]segment.Record{rec("k", "b")})
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	w.wantShape(got.res, "5:b next 6 head 6 start 0")
	if n := w.view.released.Load(); n < 2 {
		t.Errorf("%d subscriptions released", n)
	}
}

func TestReadWaitTopicDeleted(t *testing.T) {
	w := newWorld(t)
	w.commit(values("a"))
	f := w.fetcher(Options{})
	out := w.readWait(context.Background(), f, request(1), nil)
	w.view.set(func() { w.view.gone = true })
	if got := <-out; api.CodeOf(got.err) != api.CodeUnknownTopic {
		t.Errorf("%+v", got)
	}
}
