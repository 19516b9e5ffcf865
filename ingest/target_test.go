package ingest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/objectstore/faults"
)

// scale is how much smaller than in reality the bytes of this test are, so that it costs little.
const scale = 100

// delayedStore takes objects and forgets them, after the time that S3 takes.
type delayedStore struct {
	nullStore
	mu      sync.Mutex
	rng     *rand.Rand
	latency faults.Latency
}

func (s *delayedStore) PutIfAbsent(ctx context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	s.mu.Lock()
	d := s.latency.Sample(s.rng, int64(len(body))*scale)
	s.mu.Unlock()
	select {
	case <-time.After(d):
		return s.nullStore.PutIfAbsent(ctx, key, body, id)
	case <-ctx.Done():
		return objectstore.Info{}, ctx.Err()
	}
}

// The targets of the design for a store with S3's latencies at 20 MiB/s, in the time of a bubble, so that the machine does not count:
// acknowledgements with the default linger, and PUTs with a linger of 400 ms.
func TestTargetsOnS3Latencies(t *testing.T) {
	for _, c := range []struct {
		name             string
		linger, p50, p99 time.Duration
		putsPerGiB       float64
	}{
		{"latency", 50 * time.Millisecond, 200 * time.Millisecond, 450 * time.Millisecond, 1100},
		{"economy", 400 * time.Millisecond, 450 * time.Millisecond, 900 * time.Millisecond, 160},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &delayedStore{rng: rand.New(rand.NewPCG(1, 2)), latency: faults.S3Like()[0].Latency}
				f := start(t, func(o *Options) { o.Linger = c.linger; o.Store = store; o.SegmentBytes = (8 << 20) / scale })
				const size, perSecond, seconds, warm = 100 << 10, 205, 20, 5
				value := string(make([]byte, size/scale))
				var mu sync.Mutex
				var acks []time.Duration
				var puts int64
				var wg sync.WaitGroup
				for i := range perSecond * seconds {
					wg.Go(func() {
						begin := time.Now()
						if _, err := f.Append(t.Context(), publish(topic(1, 1), []string{value}, 0)); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						if i >= perSecond*warm {
							acks = append(acks, time.Since(begin))
						}
					})
					time.Sleep(time.Second / perSecond)
					if i == perSecond*warm {
						puts = store.puts.Load()
					}
				}
				wg.Wait()
				slices.Sort(acks)
				p50, p99 := acks[len(acks)/2], acks[len(acks)*99/100]
				perGiB := float64(store.puts.Load()-puts) / (float64(len(acks)) * size / (1 << 30))
				t.Logf("ack p50 %v p99 %v, %.0f PUTs/GiB", p50, p99, perGiB)
				if p50 > c.p50 || p99 > c.p99 || perGiB > c.putsPerGiB {
					t.Errorf("ack p50 %v p99 %v, %.0f PUTs/GiB; want %v, %v, %.0f", p50, p99, perGiB, c.p50, c.p99, c.putsPerGiB)
				}
			})
		})
	}
}
