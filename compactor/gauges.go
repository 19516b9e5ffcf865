package compactor

import (
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
)

const gaugesEvery = 10 * time.Second

// gauges keeps the metrics of what there is up to date.
func (c *Compactor) gauges() {
	for {
		c.measure()
		select {
		case <-c.o.Clock.After(gaugesEvery):
		case <-c.ctx.Done():
			return
		}
	}
}

// measure looks at the live objects of all shards, each once.
func (c *Compactor) measure() {
	type sum struct {
		objects int
		bytes   int64
	}
	levels := map[uint8]sum{}
	seen := map[ulid.ULID]bool{}
	oldest := int64(-1)
	for shard := range c.o.Log.Shards() {
		for _, s := range c.segments(shard) {
			if s.Level == 0 { // others belong to one shard
				if seen[s.ID] {
					continue
				}
				seen[s.ID] = true
				if t := int64(s.ID.Time()); oldest < 0 || t < oldest {
					oldest = t
				}
			}
			l := levels[s.Level]
			l.objects, l.bytes = l.objects+1, l.bytes+s.Size
			levels[s.Level] = l
		}
	}
	for level := range uint8(cleanLevel + 1) {
		l, ok := levels[level]
		if !ok && int(level) > c.o.Policy.MaxLevel && level != cleanLevel {
			continue
		}
		label := strconv.Itoa(int(level))
		c.m.levelBytes.WithLabelValues(label).Set(float64(l.bytes))
		c.m.levelObj.WithLabelValues(label).Set(float64(l.objects))
	}
	c.m.backlogObj.Set(float64(levels[0].objects))
	c.m.backlogSize.Set(float64(levels[0].bytes))
	age := 0.0
	if oldest >= 0 {
		age = max(0, float64(c.o.Clock.Now().UnixMilli()-oldest)/1000)
	}
	c.m.backlogAge.Set(age)
}
