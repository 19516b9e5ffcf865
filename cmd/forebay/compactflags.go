package main

import (
	"time"

	"github.com/forebaymq/forebay/compactor"
	"github.com/forebaymq/forebay/internal/config"
	"github.com/forebaymq/forebay/internal/node"
)

// compactFlags are the settings of merging and collecting on a fabric.
type compactFlags struct {
	CompactAfter   time.Duration `help:"How old the oldest small object becomes before the small objects of its shard are merged." default:"30s"`
	CleanAfter     time.Duration `help:"How long a little new data of a topic that is compacted by key waits before it is compacted. A megabyte does not wait." default:"1m"`
	RetentionEvery time.Duration `help:"How often retention is enforced." default:"30s"`
	CompactWorkers int           `help:"Merges at a time on this node. Each holds one object in memory." default:"1"`
	CompactObject  config.Bytes  `help:"Size at which a merged object is closed." default:"64MiB"`
	GCGrace        time.Duration `name:"gc-grace" help:"Age at which an object that no commit names is an orphan. A writer that is stalled for longer between upload and commit is refused." default:"15m"`
	ReadGrace      time.Duration `help:"How long replaced objects are kept for reads that began before. No read may last longer." default:"10m"`
	CollectEvery   time.Duration `help:"How often a round of garbage collection begins." default:"15s"`
}

func (f *compactFlags) compaction() (node.Compaction, error) {
	for name, d := range map[string]time.Duration{"compact-after": f.CompactAfter, "clean-after": f.CleanAfter,
		"retention-every": f.RetentionEvery, "gc-grace": f.GCGrace, "read-grace": f.ReadGrace,
		"collect-every": f.CollectEvery} {
		if d <= 0 {
			return node.Compaction{}, usagef("--%s must be above 0", name)
		}
	}
	if f.CompactWorkers < 1 || f.CompactObject < 1<<20 || f.CompactObject > 1<<30 {
		return node.Compaction{}, usagef("--compact-workers must be at least 1 and --compact-object 1MiB to 1GiB")
	}
	return node.Compaction{
		Workers:        f.CompactWorkers,
		Every:          min(f.RetentionEvery, 2*time.Second),
		CleanEvery:     max(f.CleanAfter/6, 100*time.Millisecond),
		RetentionEvery: f.RetentionEvery,
		Policy:         compactor.Policy{MergeAge: f.CompactAfter, CleanAge: f.CleanAfter, ObjectBytes: int64(f.CompactObject)},
		Collect:        compactor.Collection{Grace: f.GCGrace, ReadGrace: f.ReadGrace, Every: f.CollectEvery},
	}, nil
}

// devCompactFlags are the same settings for the embedded fabric, where the disk is small and the only writer is this process.
type devCompactFlags struct {
	CompactAfter   time.Duration `help:"How old the oldest small object becomes before the small objects of its shard are merged." default:"5s"`
	CleanAfter     time.Duration `help:"How long a little new data of a topic that is compacted by key waits before it is compacted. A megabyte does not wait." default:"5s"`
	RetentionEvery time.Duration `help:"How often retention is enforced." default:"1s"`
	CompactWorkers int           `help:"Merges at a time. Each holds one object in memory." default:"1"`
	CompactObject  config.Bytes  `help:"Size at which a merged object is closed." default:"64MiB"`
	GCGrace        time.Duration `name:"gc-grace" help:"Age at which an object that no commit names is an orphan. A writer that is stalled for longer between upload and commit is refused." default:"2m"`
	ReadGrace      time.Duration `help:"How long replaced objects are kept for reads that began before. No read may last longer." default:"1m"`
	CollectEvery   time.Duration `help:"How often a round of garbage collection begins." default:"5s"`
}

func (f *devCompactFlags) compaction() (node.Compaction, error) {
	same := compactFlags(*f)
	return same.compaction()
}
