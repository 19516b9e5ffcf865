package fetch

import (
	"math"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// LevelReads is what reads of one level have cost and brought since the Fetcher was made.
type LevelReads struct {
	Level     int   `json:"level"`
	Gets      int64 `json:"gets"`           // range GETs sent to the store, failed ones too
	GetBytes  int64 `json:"getBytes"`       // bytes that they brought
	Delivered int64 `json:"deliveredBytes"` // bytes of keys, values, headers and IDs returned to readers, from the store or a cache
}

// Add adds what y says to r.
func (r *LevelReads) Add(y LevelReads) {
	r.Gets, r.GetBytes, r.Delivered = r.Gets+y.Gets, r.GetBytes+y.GetBytes, r.Delivered+y.Delivered
}

// GetsPerGiB is how many GETs a GiB of records has cost, 0 before any was delivered.
func (r LevelReads) GetsPerGiB() float64 {
	if r.Delivered == 0 {
		return 0
	}
	return float64(r.Gets) * (1 << 30) / float64(r.Delivered)
}

// levels counts GETs and bytes by the level of the object. It is a collector of three metrics.
type levels struct {
	gets, getBytes [2][math.MaxUint8 + 1]atomic.Int64 // recent and old
	delivered      [math.MaxUint8 + 1]atomic.Int64

	getsDesc, getBytesDesc, deliveredDesc *prometheus.Desc
}

func newLevels() *levels {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("forebay", "fetch", name), help, labels, nil)
	}
	return &levels{
		getsDesc:      desc("gets_total", "Range GETs sent to the object store, by age of the data and level of the object.", "age", "level"),
		getBytesDesc:  desc("get_bytes_total", "Bytes read from the object store, by age of the data and level of the object.", "age", "level"),
		deliveredDesc: desc("delivered_bytes_total", "Bytes of keys, values, headers and IDs returned to readers, by level of the object.", "level"),
	}
}

func ageIndex(old bool) int {
	if old {
		return 1
	}
	return 0
}

// get counts a GET that brought n bytes.
func (l *levels) get(level uint8, old bool, n int) {
	i := ageIndex(old)
	l.gets[i][level].Add(1)
	l.getBytes[i][level].Add(int64(n))
}

// reads gives the levels that were read, ascending.
func (l *levels) reads() []LevelReads {
	var out []LevelReads
	for level := range l.delivered {
		r := LevelReads{Level: level, Delivered: l.delivered[level].Load()}
		for age := range l.gets {
			r.Gets += l.gets[age][level].Load()
			r.GetBytes += l.getBytes[age][level].Load()
		}
		if r.Gets > 0 || r.Delivered > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Describe implements prometheus.Collector.
func (l *levels) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.getsDesc
	ch <- l.getBytesDesc
	ch <- l.deliveredDesc
}

// Collect implements prometheus.Collector. Levels that were never read are left out.
func (l *levels) Collect(ch chan<- prometheus.Metric) {
	for level := range l.delivered {
		label := strconv.Itoa(level)
		for i, age := range []string{ageRecent, ageOld} {
			if n := l.gets[i][level].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(l.getsDesc, prometheus.CounterValue, float64(n), age, label)
				ch <- prometheus.MustNewConstMetric(l.getBytesDesc, prometheus.CounterValue, float64(l.getBytes[i][level].Load()), age, label)
			}
		}
		if n := l.delivered[level].Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(l.deliveredDesc, prometheus.CounterValue, float64(n), label)
		}
	}
}

// Reads says what reads have cost by level, ascending. GETs of a level over the bytes delivered from it: Prometheus gives the same for a time
// and a fabric by sum by (level) (rate(forebay_fetch_gets_total[5m])) / sum by (level) (rate(forebay_fetch_delivered_bytes_total[5m])) * 2^30.
func (f *Fetcher) Reads() []LevelReads { return f.m.levels.reads() }
