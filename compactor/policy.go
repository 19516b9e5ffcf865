package compactor

import (
	"fmt"
	"time"
)

// Policy says when what is merged. The zero value of a field is its default.
type Policy struct {
	// A shard's level-0 objects are merged when the oldest is MergeAge old (30 s), or there are MergeObjects of them (256), or they have
	// MergeBytes (64 MiB).
	MergeAge     time.Duration
	MergeObjects int
	MergeBytes   int64
	// JobBytes bounds what one job takes of level 0: 64 MiB of batches, which it holds in memory.
	JobBytes int64
	// ObjectBytes is the size at which an object is closed: 64 MiB. A worker holds two in memory: one that grows, one on its way into the store.
	ObjectBytes int64
	// BatchBytes is the payload of one batch of a run, before compression: 1 MiB.
	BatchBytes int
	// FanIn objects of one class and level become objects of the next: 8.
	FanIn int
	// MaxLevel is the highest level that merging makes: 8.
	MaxLevel int
	// GoodRunBytes: an object whose runs are so long on average is left as it is: 8 MiB, two large GETs.
	GoodRunBytes int64
	// WasteFraction: an object of which less than 1 - WasteFraction is live is written anew: 0.5.
	WasteFraction float64
	// DirtyFraction: a partition that is compacted by key is due when so much of it has come since the last time: 0.5. That of internal
	// topics (__ in front) is EagerFraction: 0.1.
	DirtyFraction float64
	EagerFraction float64
	// CleanAge: less than a megabyte of dirty data waits until its first record is so old (1 min), unless the topic is internal; and what is
	// dirty in a partition of no more than a megabyte is due after ten times that, whatever its share.
	CleanAge time.Duration
	// CompressBetter makes level 2 and higher somewhat smaller, at about four times the work.
	CompressBetter bool
	// KeyMapBytes bounds the memory of the key map of one job: 64 MiB, some 2 million keys.
	KeyMapBytes int64
}

// WithDefaults fills in what is zero.
func (p Policy) WithDefaults() Policy {
	orDefault(&p.MergeAge, 30*time.Second)
	orDefault(&p.MergeObjects, 256)
	orDefault(&p.MergeBytes, 64<<20)
	orDefault(&p.JobBytes, 64<<20)
	orDefault(&p.ObjectBytes, 64<<20)
	orDefault(&p.BatchBytes, 1<<20)
	orDefault(&p.FanIn, 8)
	orDefault(&p.MaxLevel, 8)
	orDefault(&p.GoodRunBytes, 8<<20)
	orDefault(&p.WasteFraction, 0.5)
	orDefault(&p.DirtyFraction, 0.5)
	orDefault(&p.EagerFraction, 0.1)
	orDefault(&p.CleanAge, time.Minute)
	orDefault(&p.KeyMapBytes, 64<<20)
	return p
}

func (p Policy) validate(bad func(field, format string, args ...any)) {
	if p.MergeAge < 0 {
		bad("MergeAge", "%s is negative", p.MergeAge)
	}
	if p.CleanAge < 0 {
		bad("CleanAge", "%s is negative", p.CleanAge)
	}
	for field, v := range map[string]int64{"MergeObjects": int64(p.MergeObjects), "MergeBytes": p.MergeBytes, "JobBytes": p.JobBytes,
		"ObjectBytes": p.ObjectBytes, "BatchBytes": int64(p.BatchBytes), "GoodRunBytes": p.GoodRunBytes} {
		if v < 1 {
			bad(field, "%d, want at least 1", v)
		}
	}
	if p.ObjectBytes > maxObjectBytes {
		bad("ObjectBytes", "%d, want at most %d", p.ObjectBytes, int64(maxObjectBytes))
	}
	if p.BatchBytes > maxBatchBytes {
		bad("BatchBytes", "%d, want at most %d", p.BatchBytes, maxBatchBytes)
	}
	if p.FanIn < 2 {
		bad("FanIn", "%d, want at least 2", p.FanIn)
	}
	if p.MaxLevel < 1 || p.MaxLevel >= cleanLevel {
		bad("MaxLevel", "%d, want 1 to %d", p.MaxLevel, cleanLevel-1)
	}
	for field, v := range map[string]float64{"WasteFraction": p.WasteFraction, "DirtyFraction": p.DirtyFraction, "EagerFraction": p.EagerFraction} {
		if !(v > 0 && v <= 1) {
			bad(field, "%v, want above 0 to 1", v)
		}
	}
	if p.KeyMapBytes < minKeyMapBytes {
		bad("KeyMapBytes", "%d, want at least %d", p.KeyMapBytes, minKeyMapBytes)
	}
}

const (
	maxObjectBytes = 1 << 30
	maxBatchBytes  = 16 << 20
	minKeyMapBytes = 1 << 10
)

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func faultf(field, format string, args ...any) error {
	return fmt.Errorf("compactor.Options.%s: %s", field, fmt.Sprintf(format, args...))
}
