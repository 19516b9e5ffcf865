package leases

import (
	"cmp"
	"slices"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
)

// GapRange is one element of the member "gaps" of a RETENTION_GAP: the offsets [From, To) of a partition were deleted by retention before
// they were settled.
type GapRange struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
}

// gapError is the RETENTION_GAP that leasing answers until someone seeks: Extra "gaps" is a []GapRange, ascending by partition.
func gapError(n Name, gaps []store.Gap) error {
	ranges := make([]GapRange, len(gaps))
	lost := int64(0)
	for i, g := range gaps {
		ranges[i] = GapRange{Partition: g.Partition, From: g.From, To: g.To}
		lost += g.To - g.From
	}
	slices.SortFunc(ranges, func(a, b GapRange) int { return cmp.Compare(a.Partition, b.Partition) })
	return api.Errorf(api.CodeRetentionGap, "retention has deleted up to %d records of %d partitions of topic %s before subscription %s had settled them: "+
		"seek to where it shall go on, or set its gapPolicy to skip", lost, len(ranges), n.Topic, n.Subscription).With("gaps", ranges)
}
