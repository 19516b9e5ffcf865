package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
)

// single makes every request a segment of its own.
func single(o *Options) { o.SegmentBytes = 4; o.UploadConcurrency = 8 }

func (f *fixture) send(t *testing.T, value string) <-chan outcome {
	t.Helper()
	ch := f.async(t.Context(), publish(topic(1, 1), []string{value}, 0))
	synctest.Wait()
	return ch
}

// A segment that failed takes with it all that was accepted after it and is not submitted yet, and nothing else: a later sequence of a
// producer must not be stored when an earlier one is not.
func TestFailedUploadFailsWhatCameAfterIt(t *testing.T) {
	for _, kind := range []struct {
		name string
		err  error
	}{
		{"definite", objectstore.ErrUnavailable},
		{"indefinite", &objectstore.OutcomeUnknownError{Op: "put", Cause: errors.New("connection reset")}},
		{"another object has the name", objectstore.ErrExists},
	} {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, func(o *Options) { single(o); o.UploadConcurrency = 5 })
				gates := map[int]chan error{}
				for n := 1; n <= 5; n++ {
					gates[n] = make(chan error, 1)
				}
				f.store.put = func(ctx context.Context, n int, _ string) error {
					if n > 5 {
						return nil
					}
					select {
					case err := <-gates[n]:
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				var chans []<-chan outcome
				for i := 1; i <= 5; i++ { // five in flight
					chans = append(chans, f.send(t, fmt.Sprintf("value %d", i)))
				}
				full := f.send(t, "sealed, waits for a slot")
				f.limits.SegmentBytes = 1 << 20 // what comes now stays open
				open := f.send(t, "in the open segment")
				gates[4] <- nil // uploaded before the third fails, but not submitted
				synctest.Wait()
				gates[3] <- kind.err
				synctest.Wait()
				for i, ch := range append(chans[2:], full, open) {
					select {
					case o := <-ch:
						if e := wantCode(t, o.err, api.CodeStorageUnavailable); e.RetryAfter <= 0 || !errors.Is(e, kind.err) {
							t.Errorf("error %v, cause %v", e, e.Cause)
						}
					default:
						t.Fatalf("victim %d is not answered at once", i)
					}
				}
				// What was accepted before the failure is stored, and so is what comes after it.
				gates[1] <- nil
				gates[2] <- nil
				for i, ch := range chans[:2] {
					if o := <-ch; o.err != nil || o.res.Topics[0].Offsets[0] != int64(i) {
						t.Errorf("request %d: %+v", i, o)
					}
				}
				if o := <-f.send(t, "afterwards"); o.err != nil || o.res.Topics[0].Offsets[0] != 2 {
					t.Errorf("afterwards: %+v", o)
				}
				if n := f.metric(t, "forebay_ingest_failed_segments_total", ""); n != 5 {
					t.Errorf("%v failed segments, want three flights, the queued one and the open one", n)
				}
				if n := f.metric(t, "forebay_ingest_failures_total", string(api.CodeStorageUnavailable)); n != 5 {
					t.Errorf("%v failures counted", n)
				}
			})
		})
	}
}

// A request that was accepted before a failure, but was still being encoded when it happened, must not be stored either.
func TestFailureReachesRequestsBeingEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, single)
		f.store.put = func(context.Context, int, string) error { return objectstore.ErrUnavailable }
		r := newRequest()
		q := publish(topic(1, 1), []string{"slow to encode"}, 0)
		if err := f.enter(t.Context(), r, q, time.Now()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, (<-f.send(t, "fails")).err, api.CodeStorageUnavailable)
		if err := r.encode(&f.buffers, q); err != nil {
			t.Fatal(err)
		}
		wantCode(t, f.buffer(r), api.CodeStorageUnavailable)
	})
}

func TestUploadTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.UploadTimeout = 7 * time.Second })
		f.store.put = func(ctx context.Context, _ int, _ string) error { <-ctx.Done(); return ctx.Err() }
		begin := time.Now()
		e := wantCode(t, (<-f.send(t, "v")).err, api.CodeStorageUnavailable)
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("took %v", took)
		}
		if !errors.Is(e, errUploadTimeout) {
			t.Errorf("cause %v", e.Cause)
		}
		if n := f.metric(t, "forebay_ingest_uploads_total", "failed"); n != 1 {
			t.Errorf("%v failed uploads", n)
		}
	})
}

// Two ways in which a commit definitely has no effect: the log says so after it was submitted, or has no quorum when it is its turn.
func TestFailedCommitFailsWhatCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, single)
		var answers []func(error)
		f.log.hold = func(_ *metadata.Commit, answer func(error)) { answers = append(answers, answer) }
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 3 {
				<-gate
			}
			return nil
		}
		a, b := f.send(t, "submitted, refused"), f.send(t, "submitted, committed")
		c := f.send(t, "being uploaded")
		answers[0](api.Errorf(api.CodeMetadataUnavailable, "no leader"))
		wantCode(t, (<-a).err, api.CodeMetadataUnavailable)
		close(gate)
		wantCode(t, (<-c).err, api.CodeMetadataUnavailable)
		answers[1](nil) // only the log knows about what was submitted
		if o := <-b; o.err != nil {
			t.Error(o.err)
		}
		d := f.send(t, "refused without a code")
		answers[2](errors.New("out of order"))
		if e := wantCode(t, (<-d).err, api.CodeMetadataUnavailable); !strings.Contains(e.Cause.Error(), "out of order") {
			t.Errorf("cause %v", e.Cause)
		}
	})
}

// The log itself may lose sight of a commit. Its own requests are told so; what comes behind it is definitely not stored.
func TestUnknownCommitFailsWhatCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, single)
		var answers []func(error)
		f.log.hold = func(_ *metadata.Commit, answer func(error)) { answers = append(answers, answer) }
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 2 {
				<-gate
			}
			return nil
		}
		a, b := f.send(t, "lost from sight"), f.send(t, "behind it")
		answers[0](api.Errorf(api.CodeOutcomeUnknown, "reload"))
		wantCode(t, (<-a).err, api.CodeOutcomeUnknown)
		close(gate)
		wantCode(t, (<-b).err, api.CodeMetadataUnavailable)
		if len(answers) != 1 {
			t.Errorf("%d commits submitted", len(answers))
		}
	})
}

func TestNothingIsSubmittedWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, single)
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		a, b := f.send(t, "a"), f.send(t, "b")
		f.log.setDown(api.Errorf(api.CodeMetadataUnavailable, "no leader"))
		close(gate)
		wantCode(t, (<-a).err, api.CodeMetadataUnavailable)
		wantCode(t, (<-b).err, api.CodeMetadataUnavailable)
		if n := len(f.log.commits()); n != 0 {
			t.Errorf("%d commits", n)
		}
		f.log.setDown(nil)
		if o := <-f.send(t, "c"); o.err != nil {
			t.Error(o.err)
		}
	})
}

func TestCommitOlderThanTheGCBoundaryIsRetriable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		f.log.decide = func(_ *metadata.Commit, _ int, r *metadata.BatchResult) {
			r.Err = api.Errorf(api.CodeStorageUnavailable, "older than the GC boundary")
		}
		_, err := f.Append(t.Context(), publish(topic(1, 2), []string{"a", "b"}, 0, 1))
		if e := wantCode(t, err, api.CodeStorageUnavailable); !api.Codes[e.Code].Retriable {
			t.Error("not retriable")
		}
	})
}

func TestLogThatAnswersTooLittleIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Committer = shortLog{} })
		_, err := f.Append(t.Context(), publish(topic(1, 2), []string{"a", "b"}, 0, 1))
		wantCode(t, err, api.CodeOutcomeUnknown)
	})
}

type shortLog struct{}

func (shortLog) Available() error { return nil }

func (shortLog) SubmitCommit(c *metadata.Commit) *metadata.Pending {
	p := metadata.NewPending()
	p.Resolve(make([]metadata.BatchResult, len(c.Batches)-1), nil)
	return p
}

func TestNoEntropyNoSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Rand = strings.NewReader("") })
		_, err := f.Append(t.Context(), publish(topic(1, 1), []string{"a"}, 0))
		wantCode(t, err, api.CodeInternal)
		if f.store.count() != 0 {
			t.Error("stored under no name")
		}
	})
}

// A caller whose ctx ends gets a definite answer while its request can still be taken back, and OUTCOME_UNKNOWN afterwards.
func TestCallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		tp := topic(1, 2)
		ctx1, cancel1 := context.WithCancel(t.Context())
		flying := f.async(ctx1, publish(tp, []string{"in flight"}, 0))
		synctest.Wait()
		ctx2, cancel2 := context.WithCancel(t.Context())
		p := publish(tp, []string{"with a producer, taken back"}, 0)
		p.Producer = &metadata.Producer{ID: "p"}
		grouped := f.async(ctx2, p)
		synctest.Wait()
		stays := f.async(t.Context(), publish(tp, []string{"stays 0", "stays 1"}, 0, 0))
		synctest.Wait()
		open := f.async(ctx2, publish(tp, []string{"taken back", "taken back as well"}, 0, 1))
		synctest.Wait()
		last := f.async(t.Context(), publish(tp, []string{"last"}, 0))
		synctest.Wait()
		used := f.metric(t, "forebay_ingest_in_flight_bytes", "")

		cancel2()
		for _, ch := range []<-chan outcome{open, grouped} {
			if e := wantCode(t, (<-ch).err, api.CodeStorageUnavailable); !errors.Is(e, context.Canceled) {
				t.Errorf("cause %v", e.Cause)
			}
		}
		if now := f.metric(t, "forebay_ingest_in_flight_bytes", ""); now >= used {
			t.Errorf("withdrawal gave nothing back: %v of %v", now, used)
		}
		cancel1()
		wantCode(t, (<-flying).err, api.CodeOutcomeUnknown)
		if used := f.metric(t, "forebay_ingest_in_flight_bytes", ""); used < 3*requestOverhead {
			t.Errorf("the budget of a segment on its way is given back early: %v left", used)
		}
		close(gate)
		if o := <-stays; o.err != nil || !slices.Equal(o.res.Topics[0].Offsets, []int64{1, 2}) {
			t.Errorf("%+v", o)
		}
		if o := <-last; o.err != nil || !slices.Equal(o.res.Topics[0].Offsets, []int64{3}) {
			t.Errorf("%+v", o)
		}
		stored := f.stored(t)
		for off, want := range map[int64]string{0: "in flight", 1: "stays 0", 2: "stays 1", 3: "last"} {
			if got := stored[topicPartition{1, 0}][off]; got != want {
				t.Errorf("offset %d has %q, want %q", off, got, want)
			}
		}
		if len(stored) != 1 || len(stored[topicPartition{1, 0}]) != 4 {
			t.Errorf("stored %v", stored)
		}
		if cs := f.log.commits(); len(cs[1].Groups) != 0 {
			t.Errorf("the withdrawn group is in the commit: %+v", cs[1])
		}

		// A ctx that has ended already is not even accepted.
		_, err := f.Append(ctx1, publish(tp, []string{"v"}, 0))
		wantCode(t, err, api.CodeStorageUnavailable)
	})
}

// When everybody who waited in the open segment has left, there is nothing to store.
func TestEmptiedSegmentIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Linger = time.Minute })
		gate := make(chan struct{})
		f.store.put = func(_ context.Context, n int, _ string) error {
			if n == 1 {
				<-gate
			}
			return nil
		}
		first := f.send(t, "in flight")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := f.async(ctx, publish(topic(1, 1), []string{"v"}, 0))
		wantCode(t, (<-gone).err, api.CodeStorageUnavailable)
		close(gate)
		<-first
		time.Sleep(2 * time.Minute)
		if n := f.store.count(); n != 1 {
			t.Errorf("%d segments", n)
		}
	})
}

// The caller's end and the outcome at the same moment: a known outcome wins.
func TestKnownOutcomeWinsOverTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		slowStore(f, time.Second)
		unknown, known := 0, 0
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			switch _, err := f.Append(ctx, publish(topic(1, 1), []string{"v"}, 0)); {
			case err == nil:
				known++
			case api.CodeOf(err) == api.CodeOutcomeUnknown:
				unknown++
			default:
				t.Error(err)
			}
			cancel()
		}
		if unknown+known != 50 {
			t.Errorf("%d unknown, %d known", unknown, known)
		}
		time.Sleep(10 * time.Second)
		f.stored(t)
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) { o.Linger = time.Minute; o.UploadConcurrency = 1 })
		slowStore(f, time.Second)
		var chans []<-chan outcome
		for i := range 5 {
			chans = append(chans, f.send(t, fmt.Sprint("value ", i)))
		}
		begin := time.Now()
		closed := make(chan error, 2)
		go func() { closed <- f.Close(t.Context()) }()
		go func() { closed <- f.Close(t.Context()) }()
		synctest.Wait()
		e := wantCode(t, (<-f.send(t, "too late")).err, api.CodeOverloaded)
		if e.RetryAfter <= 0 || !strings.Contains(e.Detail, "draining") {
			t.Errorf("%+v", e)
		}
		for i, ch := range chans {
			if o := <-ch; o.err != nil || o.res.Topics[0].Offsets[0] != int64(i) {
				t.Errorf("%d: %+v", i, o)
			}
		}
		if err := errors.Join(<-closed, <-closed); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("drained in %v, want two uploads of a second", took)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Errorf("once more: %v", err)
		}
		if n := f.metric(t, "forebay_ingest_seals_total", "drain"); n != 1 {
			t.Errorf("%v drain seals", n)
		}
		wantCode(t, (<-f.send(t, "later still")).err, api.CodeOverloaded)
	})
}

// Close that runs out of patience leaves nobody waiting and no goroutine behind, and tells each what is known.
func TestCloseOutOfPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, single)
		f.log.hold = func(*metadata.Commit, func(error)) {} // never answers
		f.store.put = func(ctx context.Context, n int, _ string) error {
			if n > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		submitted := f.send(t, "submitted")
		uploading := f.send(t, "being uploaded")
		f.limits.SegmentBytes = 1 << 20
		open := f.send(t, "open")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := f.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		wantCode(t, (<-submitted).err, api.CodeOutcomeUnknown)
		wantCode(t, (<-uploading).err, api.CodeOverloaded)
		wantCode(t, (<-open).err, api.CodeOverloaded)
		if n := f.metric(t, "forebay_ingest_segments_total", "abandoned"); n != 1 {
			t.Errorf("%v abandoned segments", n)
		}
	})
}

func TestStartAndCloseAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 50 {
			in, err := New(Options{Store: &fakeStore{}, Committer: &fakeLog{}})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				if _, err := in.Append(t.Context(), publish(topic(1, 1), []string{"v"}, 0)); err != nil {
					t.Fatal(err)
				}
			}
			if err := in.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
