package leases

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

// checkSeekOffsets says whether positions named by a caller are within their partitions. infos are the states of all the partitions of the
// topic. UNKNOWN_PARTITION; OFFSET_OUT_OF_RANGE with partition, logStart and head of the first one that is outside.
func checkSeekOffsets(offsets map[int32]int64, infos []metadata.PartitionInfo) error {
	partitions := make([]int32, 0, len(offsets))
	for p := range offsets {
		partitions = append(partitions, p)
	}
	slices.Sort(partitions) // the same request gets the same answer
	for _, p := range partitions {
		if p < 0 || int(p) >= len(infos) {
			return fieldError(api.CodeUnknownPartition, fmt.Sprintf("/offsets/%d", p), "the topic has no partition %d: it has %d", p, len(infos))
		}
	}
	for _, p := range partitions {
		info, offset := infos[p], offsets[p]
		if offset < info.LogStart || offset > info.Head {
			e := fieldError(api.CodeOffsetOutOfRange, fmt.Sprintf("/offsets/%d", p), "offset %d is outside of partition %d: give one from %d to %d", offset, p, info.LogStart, info.Head)
			return e.With("partition", p).With("logStart", info.LogStart).With("head", info.Head)
		}
	}
	return nil
}

// fieldError is an error that names one place of the request's body.
func fieldError(code api.Code, pointer, format string, args ...any) *api.Error {
	e := api.Errorf(code, format, args...)
	e.Fields = []api.FieldError{{Pointer: pointer, Detail: e.Detail}}
	return e
}

// seekShard gives what a shard is after a seek to an offset: everything below it is settled and nothing above. Dead letters below it stay, with
// copies that are still to be made; those at or above it would be delivered and remembered both, and go. Retries and delayed records go: below the
// offset they are settled, above it they are new. removed are the offsets below it at which there is nothing to remember any more, ascending: those
// above are void by the seek itself.
func seekShard(now journal.Shard, pointers []journal.Pointer, to int64) (shard journal.Shard, kept []journal.Pointer, removed []int64) {
	for _, p := range pointers {
		switch {
		case p.Offset >= to:
		case p.Kind == journal.Dead:
			kept = append(kept, p)
		default:
			removed = append(removed, p.Offset)
		}
	}
	slices.SortFunc(kept, func(a, b journal.Pointer) int { return cmp.Compare(a.Offset, b.Offset) })
	slices.Sort(removed)
	return journal.Shard{Frontier: to, Skipped: now.Skipped}, kept, removed
}
