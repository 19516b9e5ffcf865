package compactor

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// payload gives values that compress to about two thirds, as real events do.
func payload(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef\",:{}xyz"[rng.IntN(24)]
	}
	return string(b)
}

// benchWorld publishes objects of about 1 MiB over some partitions.
func benchWorld(b *testing.B, objects, partitions, recordBytes int, change ...func(*api.TopicConfig)) (*world, *metadata.Topic, int64) {
	b.Helper()
	w := newWorld(b)
	topic := w.topic("bench", append(change, func(c *api.TopicConfig) { c.Partitions = partitions })...)
	rng := rand.New(rand.NewPCG(1, 1))
	var total int64
	for range objects {
		var bs []batch
		for p := range partitions {
			x := batch{topic: topic, partition: int32(p)}
			for range max(1, (1<<20)/recordBytes/partitions) {
				r := text(fmt.Sprint("key", rng.IntN(20_000)), payload(rng, recordBytes))
				x.records = append(x.records, r)
				total += int64(segment.RecordSize(&r))
			}
			bs = append(bs, x)
		}
		w.publish(bs...)
	}
	return w, topic, total
}

// measureJobs runs all the jobs that there are and reports rate and memory: bytes are those of the records before compression.
func measureJobs(b *testing.B, make func() (*world, int64), o func(*Options)) {
	b.Helper()
	var total int64
	var peak uint64
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		w, n := make()
		total += n
		c := w.compactor(o)
		w.clock.Advance(2 * time.Minute)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		cpu -= cpuTime(b)
		b.StartTimer()
		w.run(c)
		cpu += cpuTime(b)
		runtime.ReadMemStats(&after)
		peak = max(peak, after.HeapInuse-min(after.HeapInuse, before.HeapInuse))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total)/1e6/b.Elapsed().Seconds(), "MB/s")
	b.ReportMetric(float64(total)/1e6/cpu.Seconds(), "MB/cpu-s")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
}

// cpuTime is what the process has used of the processors: what counts on a machine that does other things too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMerge merges 64 objects of level 0 to level 1, in memory: what the processor can do.
func BenchmarkMerge(b *testing.B) {
	for _, partitions := range []int{1, 16, 1000} {
		b.Run(fmt.Sprint(partitions, "partitions"), func(b *testing.B) {
			measureJobs(b, func() (*world, int64) {
				w, _, n := benchWorld(b, 64, partitions, 1000)
				return w, n
			}, func(o *Options) { o.Policy = Policy{MergeObjects: 1} })
		})
	}
}

// BenchmarkLevels merges 64 objects level by level until their runs are long.
func BenchmarkLevels(b *testing.B) {
	measureJobs(b, func() (*world, int64) {
		w, _, n := benchWorld(b, 64, 16, 1000)
		return w, n
	}, func(o *Options) { o.Policy = Policy{MergeObjects: 1, JobBytes: 4 << 20, FanIn: 4} })
}

// BenchmarkClean compacts 64 objects with 20,000 keys.
func BenchmarkClean(b *testing.B) {
	measureJobs(b, func() (*world, int64) {
		w, _, n := benchWorld(b, 64, 4, 1000, compacted)
		return w, n
	}, func(o *Options) { o.Policy = Policy{MergeObjects: 1} })
}
