package leases

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

func TestCheckSeekOffsets(t *testing.T) {
	infos := []metadata.PartitionInfo{{}, {LogStart: 5, Head: 9}}
	tests := []struct {
		name    string
		offsets map[int32]int64
		code    api.Code
		extra   map[string]any
	}{
		{"first", map[int32]int64{1: 5}, "", nil},
		{"head", map[int32]int64{0: 0, 1: 9}, "", nil},
		{"below the start", map[int32]int64{1: 4}, api.CodeOffsetOutOfRange, map[string]any{"partition": int32(1), "logStart": int64(5), "head": int64(9)}},
		{"beyond the head", map[int32]int64{0: 1}, api.CodeOffsetOutOfRange, map[string]any{"partition": int32(0), "logStart": int64(0), "head": int64(0)}},
		{"no such partition", map[int32]int64{1: 4, 2: 0}, api.CodeUnknownPartition, nil},
		{"negative partition", map[int32]int64{-1: 0}, api.CodeUnknownPartition, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkSeekOffsets(tt.offsets, infos)
			if api.CodeOf(err) != tt.code {
				t.Fatalf("got %v, want %s", err, tt.code)
			}
			var e *api.Error
			if errors.As(err, &e) {
				if diff := cmp.Diff(tt.extra, e.Extra); diff != "" || len(e.Fields) != 1 {
					t.Fatalf("extra (-want +got):\n%s, fields %v", diff, e.Fields)
				}
			}
		})
	}
}

func TestSeekShard(t *testing.T) {
	pointers := []journal.Pointer{
		{Offset: 9, Kind: journal.Dead}, {Offset: 3, Kind: journal.Dead, CopyPending: true}, {Offset: 1, Kind: journal.Dead}, {Offset: 6, Kind: journal.Dead},
		{Offset: 2, Kind: journal.Retry}, {Offset: 8, Kind: journal.Retry}, {Offset: 4, Kind: journal.Scheduled}, {Offset: 7, Kind: journal.Scheduled},
	}
	now := journal.Shard{Version: journal.Version{Incarnation: 3, Sequence: 9}, Frontier: 5, Settled: []journal.Range{{From: 6, To: 7}}, Skipped: 11}
	shard, kept, removed := seekShard(now, pointers, 6)
	if diff := cmp.Diff(journal.Shard{Frontier: 6, Skipped: 11}, shard); diff != "" {
		t.Errorf("shard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]journal.Pointer{{Offset: 1, Kind: journal.Dead}, {Offset: 3, Kind: journal.Dead, CopyPending: true}}, kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{2, 4}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}
