package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	forebayv1 "github.com/forebaymq/forebay/api/forebay/v1"
)

// TestProducerFenced: a successor ends the producer; everything pending says so, and what had landed before is a success.
func TestProducerFenced(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerID("p"), WithProducerBatchRecords(1)}, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
			if n == 1 {
				apply()
				t.s.succeed("p")
				return nil, errReset
			}
			return nil, nil
		})
		ds := t.send("landed", "b", "c")
		if _, err := ds[0].Wait(t.Context()); err != nil {
			t.Error(err)
		}
		for _, d := range ds[1:] {
			_, err := d.Wait(t.Context())
			if outcome, _ := Classify(err); !errors.Is(err, ErrFenced) || outcome != Definite {
				t.Errorf("%s: %v", outcome, err)
			}
		}
		_, err := t.p.Send(t.Context(), textRecord("k", "d"))
		if outcome, _ := Classify(err); !errors.Is(err, ErrFenced) || outcome != Definite {
			t.Errorf("%s: %v", outcome, err)
		}
		if err := t.p.Close(t.Context()); !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "2 records failed") {
			t.Errorf("close: %v", err)
		}
		if t.s.mu.epochs["p"] != 2 {
			t.Errorf("the successor's epoch is %d: it was fenced in turn", t.s.mu.epochs["p"])
		}
		t.want("landed")
	})
}

// TestProducerFencedUnknown: the first attempt is lost, and a successor came: the record is not stored and never will be, which is certain.
func TestProducerFencedUnknown(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerID("p")}, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
			if n == 1 {
				t.s.succeed("p")
				return nil, errReset
			}
			return nil, nil
		})
		_, err := t.send("a")[0].Wait(t.Context())
		if outcome, _ := Classify(err); !errors.Is(err, ErrFenced) || outcome != Definite {
			t.Errorf("%s: %v", outcome, err)
		}
	})
}

// TestProducerFencedAndCovered: what became of the record can no longer be seen, because the successor has written behind it.
func TestProducerFencedAndCovered(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerID("p")}, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
			if n == 1 {
				apply()
				t.s.succeed("p")
				t.s.mu.Lock()
				defer t.s.mu.Unlock()
				_, err := t.s.publishLocked(&forebayv1.PublishRequest{
					Records: []*forebayv1.Record{{Key: []byte("k"), Value: []byte("successor's")}}, Producer: &forebayv1.Producer{Id: "p", Epoch: 2, Sequence: 2 << 32},
				})
				if err != nil {
					t.Error(err)
				}
				return nil, errReset
			}
			return nil, nil
		})
		_, err := t.send("a")[0].Wait(t.Context())
		if outcome, _ := Classify(err); !errors.Is(err, ErrFenced) || outcome != Indefinite {
			t.Errorf("%s: %v", outcome, err)
		}
		t.want("a", "successor's")
	})
}

// TestProducerSecondRun: sequences are remembered across sessions, so a second run begins above those of the first.
func TestProducerSecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 1, producerFaults{})
		for run := range 3 {
			p := mustProducer(t, s, WithProducerID("p"), WithProducerBatchRecords(1))
			for i := range 3 {
				if at, err := p.Publish(t.Context(), textRecord("k", fmt.Sprint(run, i))); err != nil || at.Offset != int64(3*run+i) {
					t.Errorf("run %d: %v %v", run, at, err)
				}
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestFirstSequence: above all that was accepted, and where no other session begins.
func TestFirstSequence(t *testing.T) {
	for _, c := range []struct{ epoch, highest, want int64 }{
		{1, 0, 1 << 32}, {2, 0, 2 << 32}, {2, 1<<32 + 77, 2 << 32}, {3, 5 << 32, 6 << 32}, {1, 100, 1 << 32}, {1 << 31, 0, 0}, {1, 1<<63 - 1, 0},
	} {
		got, err := firstSequence(c.epoch, c.highest, 0)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("epoch %d, highest %d: %d, %v", c.epoch, c.highest, got, err)
		}
		if with, _ := firstSequence(c.epoch, c.highest, 5); err == nil && (with != got+5 || with <= c.highest) {
			t.Errorf("epoch %d, highest %d, offset 5: %d", c.epoch, c.highest, with)
		}
	}
}

// TestProducerSuccessorIsNotMe: the first attempt is lost, and a successor writes to the partition. What it wrote is not what was lost.
func TestProducerSuccessorIsNotMe(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerID("p")}, func(t *producerTest) {
		t.intercept(func(n int, _ context.Context, _ func() *http.Response) (*http.Response, error) {
			if n > 1 {
				return nil, nil
			}
			next := mustProducer(t.T, t.s, WithProducerID("p"))
			if _, err := next.Publish(t.Context(), textRecord("k", "b")); err != nil {
				t.Error(err)
			}
			if err := next.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return nil, errReset
		})
		_, err := t.send("a")[0].Wait(t.Context())
		if outcome, _ := Classify(err); !errors.Is(err, ErrFenced) || outcome != Indefinite {
			t.Errorf("%s: %v", outcome, err)
		}
		t.want("b")
	})
}

// TestProducerMorePartitions: the topic gains partitions, and a key moves to another lane. What is under way in the old one is waited for.
func TestProducerMorePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 2, producerFaults{})
		p := mustProducer(t, s, WithProducerInFlight(8))
		defer func() { _ = p.Close(context.Background()) }()
		// A key of another partition among 8 than among 2.
		key := ""
		for i := 0; key == ""; i++ {
			if k := fmt.Sprint(i); api.PartitionForKey([]byte(k), 8) != api.PartitionForKey([]byte(k), 2) {
				key = k
			}
		}
		first := true
		s.mu.intercept = func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
			if first && strings.HasSuffix(r.URL.Path, "/records") {
				first = false
				_ = nap(r.Context(), time.Second)
				return problemResponse(&api.Error{Code: api.CodeOverloaded}), nil
			}
			return nil, nil
		}
		d, err := p.Send(t.Context(), textRecord(key, "1"))
		if err != nil {
			t.Fatal(err)
		}
		_ = nap(t.Context(), 100*time.Millisecond)
		s.mu.Lock()
		s.mu.partitions = 8
		s.mu.Unlock()
		p.setStale()
		for i := range 5 {
			if _, err := p.Publish(t.Context(), textRecord(key, fmt.Sprint(2+i))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6"}, s.values(api.PartitionForKey([]byte(key), 8))); diff != "" {
			t.Error(diff)
		}
		if p.mu.partitions != 8 || p.mu.width != 8 {
			t.Errorf("%d partitions, %d lanes", p.mu.partitions, p.mu.width)
		}
	})
}

// TestProducerLooksAgain: new partitions are used within minutes, without anything that fails first.
func TestProducerLooksAgain(t *testing.T) {
	inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
		t.send("a")
		t.s.mu.Lock()
		t.s.mu.partitions = 3
		t.s.mu.Unlock()
		for range 3 * 6 {
			if _, err := t.p.Publish(t.Context(), textRecord("", "x")); err != nil {
				t.Fatal(err)
			}
			_ = nap(t.Context(), time.Minute)
		}
		for q := range 3 {
			if n := len(t.s.values(q)); n < 3 {
				t.Errorf("partition %d has %d records", q, n)
			}
		}
	})
}

// TestProducerStaleWhileWaiting: a record that waits for room while the topic turns out to have changed is placed as the topic is then.
func TestProducerStaleWhileWaiting(t *testing.T) {
	inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerBuffer(1)}, func(t *producerTest) {
		t.intercept(func(_ int, ctx context.Context, _ func() *http.Response) (*http.Response, error) {
			return nil, nap(ctx, time.Second)
		})
		t.send("a")
		sent := make(chan error)
		go func() {
			_, err := t.p.Send(t.Context(), textRecord("k", "b"))
			sent <- err
		}()
		synctest.Wait()
		t.s.mu.Lock()
		t.s.mu.partitions = 6
		t.s.mu.Unlock()
		t.p.setStale()
		if err := <-sent; err != nil || t.p.mu.partitions != 6 {
			t.Errorf("placed among %d partitions: %v", t.p.mu.partitions, err)
		}
	})
}

// TestProducerRenewsForAllLanes: one lane renews a session that was forgotten, and the requests of the others, fenced by that, are not
// taken for those of a producer with a successor.
func TestProducerRenewsForAllLanes(t *testing.T) {
	inBubble(t, 6, producerFaults{slow: 0.5}, []ProducerOption{WithProducerID("p")}, func(t *producerTest) {
		for round := range 20 {
			var ds []*Delivery
			for q := range int32(6) {
				d, err := t.p.Send(t.Context(), Record{Pinned: true, Partition: q, Value: []byte("x")})
				if err != nil {
					t.Fatal(err)
				}
				ds = append(ds, d)
			}
			_ = nap(t.Context(), time.Duration(round*3)*time.Millisecond)
			t.s.forget("p")
			for _, d := range ds {
				if _, err := d.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestProducerRenews: a session that the server forgot is started anew, and so is one of a random ID that a ghost of its own start fenced.
// In both cases what had landed is recognised.
func TestProducerRenews(t *testing.T) {
	for name, lose := range map[string]func(s *producerServer, id string){
		"forgotten": (*producerServer).forget,
		"ghost":     (*producerServer).succeed,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
				t.intercept(func(n int, _ context.Context, apply func() *http.Response) (*http.Response, error) {
					if n == 1 {
						apply()
						lose(t.s, t.p.ID())
						return nil, errReset
					}
					return nil, nil
				})
				d := t.send("a")[0]
				if at, err := d.Wait(t.Context()); err != nil || at != (Position{0, 0}) || !d.Duplicate() {
					t.Errorf("%v: %v", at, err)
				}
				if _, err := t.p.Publish(t.Context(), textRecord("k", "b")); err != nil {
					t.Error(err)
				}
				t.want("a", "b")
			})
		})
	}
}

// TestProducerOpensOnce: many callers wait for one opening, one of them leaves, and the others get through.
func TestProducerOpensOnce(t *testing.T) {
	inBubble(t, 4, producerFaults{}, nil, func(t *producerTest) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := t.p.Send(ctx, textRecord("k", "a"))
		if outcome, _ := Classify(err); !errors.Is(err, context.Canceled) || outcome != Retriable {
			t.Errorf("%s: %v", outcome, err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := t.p.Publish(t.Context(), textRecord(fmt.Sprint(i), "x")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.s.mu.epochs[t.p.ID()] != 1 {
			t.Errorf("%d sessions were started", t.s.mu.epochs[t.p.ID()])
		}
	})
}

// TestProducerToken: a token that cannot be had is waited for; nothing was sent.
func TestProducerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProducerServer(1, 1, producerFaults{})
		calls := 0
		p, err := NewProducer(s.client(WithTokenSource(func(context.Context) (string, error) {
			if calls++; calls > 2 && calls < 6 { // two of them open the producer
				return "", io.ErrUnexpectedEOF
			}
			return "secret", nil
		})), "t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), textRecord("k", "a")); err != nil || calls != 6 {
			t.Errorf("%d tokens: %v", calls, err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestProducerCloses(t *testing.T) {
	t.Run("unused", func(t *testing.T) {
		inBubble(t, 1, producerFaults{}, nil, func(t *producerTest) {
			for range 3 {
				if err := t.p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			_, err := t.p.Send(t.Context(), textRecord("k", "a"))
			if outcome, _ := Classify(err); !errors.Is(err, ErrProducerClosed) || outcome != Definite {
				t.Errorf("%s: %v", outcome, err)
			}
			if t.s.mu.requests != 0 {
				t.Errorf("%d requests", t.s.mu.requests)
			}
		})
	})
	t.Run("delivers", func(t *testing.T) {
		inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerLinger(time.Hour)}, func(t *producerTest) {
			t.send("a", "b")
			if err := t.p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			t.want("a", "b")
		})
	})
	t.Run("out of patience", func(t *testing.T) {
		inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerBatchRecords(1)}, func(t *producerTest) {
			t.intercept(func(_ int, ctx context.Context, _ func() *http.Response) (*http.Response, error) {
				return nil, nap(ctx, time.Minute)
			})
			ds := t.send("sent", "waits")
			_ = nap(t.Context(), time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := t.p.Close(ctx)
			if took := time.Since(began); took > 5*time.Second || !errors.Is(err, ErrProducerClosed) {
				t.Errorf("it took %s: %v", took, err)
			}
			for i, want := range []Outcome{Indefinite, Retriable} {
				_, err := ds[i].Wait(t.Context())
				if outcome, _ := Classify(err); outcome != want || !errors.Is(err, ErrProducerClosed) {
					t.Errorf("%s, want %s: %v", outcome, want, err)
				}
			}
		})
	})
	t.Run("while Send waits", func(t *testing.T) {
		inBubble(t, 1, producerFaults{}, []ProducerOption{WithProducerBuffer(1)}, func(t *producerTest) {
			t.intercept(func(_ int, ctx context.Context, _ func() *http.Response) (*http.Response, error) {
				return nil, nap(ctx, time.Second)
			})
			t.send("a")
			refused := make(chan error)
			go func() {
				_, err := t.p.Send(t.Context(), textRecord("k", "b"))
				refused <- err
			}()
			_ = nap(t.Context(), 10*time.Millisecond)
			if err := t.p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-refused; !errors.Is(err, ErrProducerClosed) {
				t.Error(err)
			}
		})
	})
	t.Run("while it opens", func(t *testing.T) {
		inBubble(t, 1, producerFaults{loseRequest: 1}, nil, func(t *producerTest) {
			refused := make(chan error)
			go func() {
				_, err := t.p.Send(t.Context(), textRecord("k", "a"))
				refused <- err
			}()
			_ = nap(t.Context(), 10*time.Millisecond)
			began := time.Now()
			if err := t.p.Close(t.Context()); err != nil || time.Since(began) > time.Second {
				t.Errorf("it took %s: %v", time.Since(began), err)
			}
			err := <-refused
			if outcome, _ := Classify(err); err == nil || outcome == Indefinite {
				t.Errorf("%s: %v", outcome, err)
			}
		})
	})
}
