package wire

import (
	"strconv"
	"time"

	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/metadata"
)

// AppendGroupJSON appends a group as a list shows it.
func AppendGroupJSON(dst []byte, g *metadata.ConsumerGroup) []byte {
	return append(appendGroup(dst, g), '}')
}

func appendGroup(dst []byte, g *metadata.ConsumerGroup) []byte {
	dst = append(dst, `{"name":`...)
	dst = appendString(dst, g.Name)
	dst = append(dst, `,"groupID":"`...) // a string: IDs use all 64 bits
	dst = strconv.AppendUint(dst, uint64(g.ID), 10)
	dst = append(dst, `","created":"`...)
	return append(AppendTime(dst, g.Created), '"')
}

// AppendGroupStateJSON appends a group with its members and its place in every partition.
func AppendGroupStateJSON(dst []byte, d *groups.Description) []byte {
	dst = appendGroup(dst, d.Group)
	dst = append(dst, `,"state":`...)
	dst = appendString(dst, d.State)
	dst = appendNumber(dst, `,"generation":`, d.Generation)
	dst = append(dst, `,"members":[`...)
	for i := range d.Members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendGroupMember(dst, &d.Members[i])
	}
	dst = append(dst, `],"partitions":`...)
	dst = appendList(dst, d.Partitions, func(p *groups.PartitionLag) *groups.TopicPartition { return &p.TopicPartition }, appendLag)
	return append(dst, '}')
}

func appendGroupMember(dst []byte, m *groups.Member) []byte {
	dst = append(dst, `{"memberId":`...)
	dst = appendString(dst, m.ID)
	dst = append(dst, `,"instanceId":`...)
	dst = appendOptional(dst, m.InstanceID)
	dst = append(dst, `,"topics":[`...)
	for i, t := range m.Topics {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, t)
	}
	dst = append(dst, `],"owned":`...)
	dst = appendPlaces(dst, m.Owned)
	dst = append(dst, `,"revoking":`...)
	dst = appendPlaces(dst, m.Revoking)
	dst = append(dst, `,"sessionExpiresAt":`...)
	return append(appendOptionalTime(dst, m.Expires), '}')
}

func appendLag(dst []byte, p *groups.PartitionLag) []byte {
	dst = append(dst, `,"owner":`...)
	dst = appendOptional(dst, p.Owner)
	dst = appendOptionalNumber(dst, `,"committed":`, p.Committed)
	dst = appendNumber(dst, `,"head":`, p.Head)
	dst = appendNumber(dst, `,"logStart":`, p.LogStart)
	dst = appendNumber(dst, `,"lag":`, max(p.Lag, 0))
	dst = append(dst, `,"lagSeconds":`...)
	dst = appendSeconds(dst, p.LagTime)
	dst = append(dst, `,"retentionHeadroomSeconds":`...)
	dst = optionalSeconds(dst, p.Headroom)
	dst = append(dst, `,"gap":`...)
	if p.Gap == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendNumber(dst, `{"from":`, p.Gap.From)
		dst = append(appendNumber(dst, `,"to":`, p.Gap.To), '}')
	}
	dst = append(dst, `,"metadata":`...)
	return appendString(dst, p.Metadata)
}

func optionalSeconds(dst []byte, d *time.Duration) []byte {
	if d == nil {
		return append(dst, "null"...)
	}
	return appendSeconds(dst, *d)
}
