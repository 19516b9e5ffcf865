package leases

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
)

func TestPartitionCounts(t *testing.T) {
	type in = store.ShardStats
	tests := []struct {
		name           string
		shard          in
		info           metadata.PartitionInfo
		policy         api.GapPolicy
		lag            int64
		gap            *Gap
		oldest, eldest int64
	}{
		{name: "nothing published", shard: in{OldestOffset: none, OldestDelayed: none}, oldest: none, eldest: none},
		{name: "all settled", shard: in{Frontier: 9, Cursor: 9, OldestOffset: none, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, oldest: none, eldest: none},
		{name: "new records only", shard: in{Frontier: 4, Cursor: 4, OldestOffset: none, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, lag: 5, oldest: 4, eldest: 4},
		{name: "the store calls the cursor the oldest, and nothing is there", shard: in{Frontier: 9, Cursor: 9, OldestOffset: 9, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, oldest: none, eldest: none},
		{name: "poison behind an empty queue counts", shard: in{Frontier: 2, Cursor: 9, Owed: 1, AckedAhead: 6, OldestOffset: 2, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, lag: 1, oldest: 2, eldest: 2},
		{name: "redriven below the frontier", shard: in{Frontier: 9, Cursor: 9, InFlight: 1, OldestOffset: 1, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, lag: 1, oldest: 1, eldest: 1},
		{name: "a delayed record is not lag, but retention comes for it", shard: in{Frontier: 9, Cursor: 9, Delayed: 1, OldestOffset: none, OldestDelayed: 3},
			info: metadata.PartitionInfo{Head: 9}, oldest: none, eldest: 3},
		{name: "gap", shard: in{Frontier: 2, Cursor: 4, InFlight: 2, OldestOffset: 2, OldestDelayed: none},
			info: metadata.PartitionInfo{LogStart: 6, Head: 9}, policy: api.GapFail, lag: 5, gap: &Gap{2, 6}, oldest: 6, eldest: 6},
		{name: "a gap that is skipped is none", shard: in{Frontier: 2, Cursor: 2, OldestOffset: none, OldestDelayed: none},
			info: metadata.PartitionInfo{LogStart: 6, Head: 9}, policy: api.GapSkip, lag: 3, oldest: 6, eldest: 6},
		{name: "all gone", shard: in{Frontier: 2, Cursor: 2, OldestOffset: none, OldestDelayed: 1},
			info: metadata.PartitionInfo{LogStart: 9, Head: 9}, policy: api.GapFail, gap: &Gap{2, 9}, oldest: none, eldest: none},
		{name: "the head was read before the cursor", shard: in{Frontier: 12, Cursor: 14, InFlight: 2, OldestOffset: 12, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, lag: 2, oldest: none, eldest: none},
		{name: "negative numbers are never shown", shard: in{Frontier: 9, Cursor: 9, InFlight: -1, Owed: -3, Waiting: -1, OldestOffset: none, OldestDelayed: none},
			info: metadata.PartitionInfo{Head: 9}, oldest: none, eldest: none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, oldest, eldest := partitionCounts(&tt.shard, tt.info, tt.policy)
			if p.Lag != tt.lag || oldest != tt.oldest || eldest != tt.eldest {
				t.Errorf("lag %d oldest %d eldest %d, want %d, %d, %d", p.Lag, oldest, eldest, tt.lag, tt.oldest, tt.eldest)
			}
			if diff := cmp.Diff(tt.gap, p.Gap); diff != "" {
				t.Errorf("gap (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is read of a shard and of its partition, at whatever moments, nothing negative is shown.
func TestPartitionCountsAreNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-3, 20)
		s := store.ShardStats{
			Frontier: n.Draw(t, "frontier"), Cursor: n.Draw(t, "cursor"), InFlight: n.Draw(t, "inflight"), AckedAhead: n.Draw(t, "ahead"),
			Owed: n.Draw(t, "owed"), Delayed: n.Draw(t, "delayed"), Waiting: n.Draw(t, "waiting"), DeadLetters: n.Draw(t, "dead"),
			OldestOffset: n.Draw(t, "oldest"), OldestDelayed: n.Draw(t, "delayed"),
		}
		start := rapid.Int64Range(0, 20).Draw(t, "start")
		info := metadata.PartitionInfo{LogStart: start, Head: start + rapid.Int64Range(0, 20).Draw(t, "records")}
		p, oldest, eldest := partitionCounts(&s, info, api.GapFail)
		for _, v := range []int64{p.Lag, p.InFlight, p.AckedAhead, p.Owed, p.Delayed, p.Waiting, p.DeadLetters, p.Skipped} {
			if v < 0 {
				t.Fatalf("negative: %+v", p)
			}
		}
		for _, o := range []int64{oldest, eldest} {
			if o != none && (o < info.LogStart || o >= info.Head) {
				t.Fatalf("oldest %d and eldest %d are not in [%d, %d)", oldest, eldest, info.LogStart, info.Head)
			}
		}
		if p.Gap != nil && p.Gap.To <= p.Gap.From {
			t.Fatalf("gap %+v", p.Gap)
		}
	})
}

func TestAgeAndHeadroom(t *testing.T) {
	const now = int64(1_000_000)
	keep := api.TopicConfig{Cleanup: api.CleanupDelete}
	day := api.TopicConfig{Cleanup: api.CleanupDelete, RetentionTime: time.Minute}
	compact := api.TopicConfig{Cleanup: api.CleanupCompact, RetentionTime: time.Minute}
	minute := 40 * time.Second
	zero := time.Duration(0)
	tests := []struct {
		name     string
		appended int64
		config   api.TopicConfig
		age      time.Duration
		headroom *time.Duration
	}{
		{"kept for ever", now - 20_000, keep, 20 * time.Second, nil},
		{"compacted only", now - 20_000, compact, 20 * time.Second, nil},
		{"retention ahead", now - 20_000, day, 20 * time.Second, &minute},
		{"retention is late", now - 90_000, day, 90 * time.Second, &zero},
		{"a node's clock is behind", now + 500, keep, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p PartitionStats
			p.setAge(tt.appended, now)
			p.setHeadroom(tt.appended, now, tt.config)
			if p.OldestUnackedAge != tt.age {
				t.Errorf("age %v, want %v", p.OldestUnackedAge, tt.age)
			}
			if diff := cmp.Diff(tt.headroom, p.RetentionHeadroom); diff != "" {
				t.Errorf("headroom (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJournalStats(t *testing.T) {
	pointers := map[int64]journal.Pointer{
		2:  {Offset: 2, Kind: journal.Retry},                                // redriven
		5:  {Offset: 5, Kind: journal.Dead},                                 // below
		11: {Offset: 11, Kind: journal.Retry, Attempts: 2},                  // between settled ranges
		13: {Offset: 13, Kind: journal.Scheduled},                           // in a settled range
		16: {Offset: 16, Kind: journal.Dead, CopyPending: true},             // above
		18: {Offset: 18, Kind: journal.Retry, Attempts: 1, Reason: "lapse"}, // above everything settled
	}
	shard := &journal.Shard{Frontier: 10, Settled: []journal.Range{{From: 12, To: 15}}, Skipped: 3}
	got := journalStats(4, shard, pointers, 0)
	want := store.ShardStats{Partition: 4, Frontier: 10, Cursor: 19, AckedAhead: 3, Owed: 6, Delayed: 1, DeadLetters: 2, Skipped: 3,
		OldestOffset: 2, OldestDelayed: 13}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if got := journalStats(4, nil, nil, 7); got.Frontier != 7 || got.Cursor != 7 || got.OldestOffset != none {
		t.Fatalf("never opened: %+v", got)
	}
	p, oldest, _ := partitionCounts(&got, metadata.PartitionInfo{Head: 30}, api.GapFail)
	// 10, 11, 15, 17, 18 and 2 of those handed out, and 19 to 29.
	if p.Lag != 6+11 || oldest != 2 {
		t.Fatalf("lag %d oldest %d", p.Lag, oldest)
	}
}
