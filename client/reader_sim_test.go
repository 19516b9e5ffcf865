package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// roughLog is a way to a fakeLog that loses requests and answers, and is slow. It is for fake time: there is no socket.
type roughLog struct {
	f  *fakeLog
	mu struct {
		sync.Mutex
		*rand.Rand
	}
}

func (l *roughLog) roll(n int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Int64N(n)
}

func (l *roughLog) RoundTrip(r *http.Request) (*http.Response, error) {
	lost := errors.New("connection reset")
	if !pass(r.Context(), time.Duration(l.roll(int64(100*time.Millisecond)))) || l.roll(15) == 0 {
		return nil, lost
	}
	w := httptest.NewRecorder()
	l.f.ServeHTTP(w, r)
	if !pass(r.Context(), time.Duration(l.roll(int64(100*time.Millisecond)))) || l.roll(15) == 0 {
		return nil, lost
	}
	return w.Result(), nil
}

// TestReaderSimulation: a topic grows, gains partitions, is compacted, and loses its beginning; readers with settings of all kinds come, leave in the
// middle, and go on from positions, over a rough network. By seed. Each record is read once, in order, or is in a range that was named as lost.
func TestReaderSimulation(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulateReaders(t, seed) })
		})
	}
}

func simulateReaders(t *testing.T, seed uint64) {
	hole := func(offset int64) bool { return (uint64(offset)*2654435761+seed)%5 == 0 }
	f := newFakeLog(t, &fakeLogPart{holes: hole}, &fakeLogPart{holes: hole, head: 20})
	wire := &roughLog{f: f}
	wire.mu.Rand = rand.New(rand.NewPCG(seed, 0))
	c, err := New("http://forebay.test", WithHTTPClient(&http.Client{Transport: wire}), WithRetry(RetryPolicy{Attempts: 3}))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	var growing sync.WaitGroup
	growing.Go(func() {
		for range 120 {
			pass(t.Context(), time.Duration(wire.roll(int64(time.Second))))
			f.set(func() {
				p := f.mu.parts[wire.roll(int64(len(f.mu.parts)))]
				switch x := wire.roll(40); {
				case x == 0 && len(f.mu.parts) < 5:
					f.mu.parts = append(f.mu.parts, &fakeLogPart{holes: hole})
				case x == 1:
					p.logStart += wire.roll(p.head - p.logStart + 1)
				default:
					p.head += wire.roll(12)
				}
			})
		}
		pass(t.Context(), time.Minute) // for the reader to come to the end
		end()
	})

	var mu sync.Mutex
	lost := map[Position]bool{}
	read := map[Position]bool{}
	first, last := map[int32]int64{}, map[int32]int64{}
	seen := func(partition int32, offset int64) {
		if at, ok := first[partition]; !ok || offset < at {
			first[partition] = offset
		}
	}
	var at []Position
	for ended.Err() == nil {
		r, err := NewReader(c, "t", WithReaderPositions(at), WithReaderFollow(), WithReaderAhead(1+int(wire.roll(6))), WithReaderPage(1+int(wire.roll(9)), 1<<20),
			withReaderTiming(2*time.Second, 100*time.Millisecond), WithReaderGap(func(_ context.Context, g Gap) GapAction {
				mu.Lock()
				defer mu.Unlock()
				seen(g.Partition, g.From)
				for offset := g.From; offset < g.To; offset++ {
					lost[Position{g.Partition, offset}] = true
				}
				return GapSkip
			}))
		if err != nil {
			t.Fatal(err)
		}
		leave := wire.roll(60)
		for record, err := range r.Records(ended) {
			if err != nil {
				if ended.Err() == nil {
					t.Error(err)
				}
				break
			}
			place := Position{record.Partition, record.Offset}
			if before, ok := last[place.Partition]; read[place] || ok && before >= place.Offset {
				t.Errorf("%v after offset %d", place, before)
			}
			read[place], last[place.Partition] = true, place.Offset
			mu.Lock()
			seen(place.Partition, place.Offset)
			mu.Unlock()
			if leave--; leave < 0 && wire.roll(3) == 0 {
				break
			}
		}
		at = r.Positions()
	}
	growing.Wait()
	mu.Lock()
	defer mu.Unlock()
	total := 0
	for n, p := range f.mu.parts {
		for offset := range p.head {
			place := Position{int32(n), offset}
			// What retention took before a reader first saw its partition is not missed: readers begin at the earliest.
			begin, ok := first[place.Partition]
			unseen := offset < p.logStart && (!ok || offset < begin)
			if total++; !hole(offset) && !read[place] && !lost[place] && !unseen || read[place] && lost[place] {
				t.Errorf("partition %d offset %d: read %t, lost %t", n, offset, read[place], lost[place])
			}
		}
	}
	if total < 200 || len(read) < total/3 {
		t.Errorf("%d of %d records were read", len(read), total)
	}
}
