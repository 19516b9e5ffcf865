package node

import (
	"context"
	"errors"

	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/leases"
	"github.com/forebaymq/forebay/leases/groups"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// leaseReader reads the records of leases.
type leaseReader struct{ fetch *fetch.Fetcher }

var _ leases.Reader = leaseReader{}

// Read asks for no barrier: the engine knows what it may find, and a lease that finds nothing syncs by itself.
func (r leaseReader) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
	res, err := r.fetch.Read(ctx, fetch.ReadRequest{
		Tenant: tenant, TopicID: topic, Partition: partition, Offset: offset, MaxRecords: maxRecords, MaxBytes: maxBytes, Stale: true,
	})
	if err != nil {
		var u *fetch.UnreadableError
		if errors.As(err, &u) {
			return nil, 0, &leases.UnreadableError{Next: u.Next, Cause: err}
		}
		return nil, 0, err
	}
	return res.Records, res.NextOffset, nil
}

func (r leaseReader) OffsetForTime(ctx context.Context, topic metadata.TopicID, partition int32, ms int64) (int64, bool, error) {
	return r.fetch.OffsetForTime(ctx, topic, partition, ms)
}

// groupReader reads the records of polls.
type groupReader struct{ leaseReader }

var _ groups.Reader = groupReader{}

// Read is that of leases, with the error that groups know.
func (r groupReader) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset int64, maxRecords int, maxBytes int64) ([]segment.Record, int64, error) {
	records, next, err := r.leaseReader.Read(ctx, tenant, topic, partition, offset, maxRecords, maxBytes)
	var u *leases.UnreadableError
	if errors.As(err, &u) {
		return nil, 0, &groups.UnreadableError{Next: u.Next, Cause: u.Cause}
	}
	return records, next, err
}

// leasePublisher appends copies of dead letters.
type leasePublisher struct{ appender ingest.Appender }

var _ leases.Publisher = leasePublisher{}

func (p leasePublisher) Publish(ctx context.Context, topic *metadata.Topic, records []segment.Record, partitions []int32) ([]int64, error) {
	res, err := p.appender.Append(ctx, &ingest.Request{
		Tenant: topic.Tenant, Topics: []ingest.TopicRecords{{Topic: topic, Records: records, Partitions: partitions}},
	})
	if err != nil {
		return nil, err
	}
	return res.Topics[0].Offsets, nil
}
