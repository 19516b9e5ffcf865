package ingest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore"
	"github.com/forebaymq/forebay/segment"
)

// nullStore takes objects and forgets them, so that what is measured is ingest's own work.
type nullStore struct {
	objectstore.Store
	puts, bytes atomic.Int64
}

func (s *nullStore) PutIfAbsent(_ context.Context, key string, body []byte, id string) (objectstore.Info, error) {
	s.puts.Add(1)
	s.bytes.Add(int64(len(body)))
	return objectstore.Info{Key: key, Size: int64(len(body)), ID: id}, nil
}

// nullLog answers every commit at once, from running offsets.
type nullLog struct {
	mu    sync.Mutex
	heads map[topicPartition]int64
}

func (l *nullLog) Available() error { return nil }

func (l *nullLog) SubmitCommit(c *metadata.Commit) *metadata.Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]metadata.BatchResult, len(c.Batches))
	for i, b := range c.Batches {
		tp := topicPartition{b.TopicID, b.Partition}
		out[i].Base = l.heads[tp]
		l.heads[tp] += int64(b.Records)
	}
	p := metadata.NewPending()
	p.Resolve(out, nil)
	return p
}

// BenchmarkAppend measures what a record costs between Append and its answer, all but the store and the log. Clients wait for each answer.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name                     string
		clients, records, size   int
		random, producer, sinked bool
	}{
		{name: "16x200x1KiB/random", clients: 16, records: 200, size: 1024, random: true},
		{name: "16x200x1KiB/random/producer", clients: 16, records: 200, size: 1024, random: true, producer: true},
		{name: "16x200x1KiB/random/sink", clients: 16, records: 200, size: 1024, random: true, sinked: true},
		{name: "16x200x1KiB/text", clients: 16, records: 200, size: 1024},
		{name: "64x1x100B/random", clients: 64, records: 1, size: 100, random: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := &nullStore{}
			o := Options{Store: store, Committer: &nullLog{heads: map[topicPartition]int64{}}}
			if c.sinked {
				o.Sink = nullSink{}
			}
			in, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			tp := topic(1, 24)
			var left atomic.Int64
			left.Store(int64(b.N))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.SetBytes(int64(c.size))
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range c.clients {
				wg.Go(func() {
					q := benchRequest(tp, i, c.records, c.size, c.random)
					for seq := int64(0); left.Add(-int64(c.records)) > -int64(c.records); seq++ {
						if c.producer {
							q.Producer = &metadata.Producer{ID: "p", Sequence: seq}
						}
						if _, err := in.Append(b.Context(), q); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/record")
			b.ReportMetric(float64(store.puts.Load())/(float64(b.N)*float64(c.size)/(1<<30)), "PUTs/GiB")
			if err := in.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

type nullSink struct{}

func (nullSink) Put(string, []byte) {}

func benchRequest(tp *metadata.Topic, client, records, size int, random bool) *Request {
	rng := rand.New(rand.NewPCG(uint64(client), 1))
	tr := TopicRecords{Topic: tp}
	const text = `{"user":"u-1234567","action":"click","page":"/products/42","ms":1712345678901,"ok":true},`
	for i := range records {
		v := make([]byte, size)
		for j := range v {
			if random {
				v[j] = byte(rng.Uint32())
			} else {
				v[j] = text[(j+i)%len(text)]
			}
		}
		tr.Records = append(tr.Records, segment.Record{ProducerTime: 1, DeliverAt: segment.NoTime, Kind: segment.KindData, Key: []byte{byte(i)}, Value: v})
		tr.Partitions = append(tr.Partitions, int32(rng.IntN(tp.Config.Partitions)))
	}
	return &Request{Tenant: tp.Tenant, Topics: []TopicRecords{tr}}
}
