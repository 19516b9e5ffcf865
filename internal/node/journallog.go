package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/ingest"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

// journalTombstones is how long the journal's tombstones stay: longer than a node goes on from what it read before (an hour, see journal).
const journalTombstones = 24 * time.Hour

// journalCatalog is what the journal's log needs of the metadata.
type journalCatalog interface {
	Topic(tenant, name string) (*metadata.Topic, error)
	PutTopic(ctx context.Context, tenant, name string, decide func(current *metadata.Topic) (api.TopicConfig, error)) (t *metadata.Topic, created bool, err error)
}

// journalLog gives the journal a topic of the log.
type journalLog struct {
	catalog  journalCatalog
	appender ingest.Appender
	reader   fetch.Reader
	logger   *slog.Logger
	lost     prometheus.Counter
}

var (
	_ journal.Log       = (*journalLog)(nil)
	_ journal.FencedLog = (*journalLog)(nil)
)

// newJournalLog puts it together.
func newJournalLog(catalog journalCatalog, appender ingest.Appender, reader fetch.Reader, logger *slog.Logger, reg prometheus.Registerer) (*journalLog, error) {
	l := &journalLog{catalog: catalog, appender: appender, reader: reader, logger: logger, lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "forebay_node_journal_unreadable_total",
		Help: "Times that records of a journal were passed over because they are stored and cannot be read.",
	})}
	if err := reg.Register(l.lost); err != nil {
		return nil, fmt.Errorf("register metrics of the journal: %w", err)
	}
	return l, nil
}

// EnsureTopic makes the tenant's journal, or finds it. A journal with another number of partitions is refused: its records would be looked for
// where they are not.
func (l *journalLog) EnsureTopic(ctx context.Context, tenant, name string, partitions int) (metadata.TopicID, error) {
	t, err := l.catalog.Topic(tenant, name)
	if api.CodeOf(err) == api.CodeUnknownTopic {
		t, _, err = l.catalog.PutTopic(ctx, tenant, name, func(current *metadata.Topic) (api.TopicConfig, error) {
			if current != nil {
				return current.Config, nil
			}
			c := api.DefaultTopicConfig()
			c.Partitions, c.Cleanup, c.RetentionTime, c.TombstoneRetention = partitions, api.CleanupCompact, 0, journalTombstones
			return c, nil
		})
	}
	if err != nil {
		return 0, err
	}
	if t.Config.Partitions != partitions {
		return 0, api.Errorf(api.CodeInternal, "topic %s of tenant %s has %d partitions, this node expects %d", name, tenant, t.Config.Partitions, partitions)
	}
	return t.ID, nil
}

// Append stores the records in one commit.
func (l *journalLog) Append(ctx context.Context, tenant, topic string, records []journal.Record) ([]int64, error) {
	return l.append(ctx, tenant, topic, nil, records)
}

// AppendFenced is Append under the fence of a producer: the log refuses it where a later epoch has begun before.
func (l *journalLog) AppendFenced(ctx context.Context, tenant, topic string, p metadata.Producer, records []journal.Record) ([]int64, error) {
	return l.append(ctx, tenant, topic, &p, records)
}

func (l *journalLog) append(ctx context.Context, tenant, topic string, p *metadata.Producer, records []journal.Record) ([]int64, error) {
	t, err := l.catalog.Topic(tenant, topic)
	if err != nil {
		return nil, err
	}
	recs, partitions := make([]segment.Record, len(records)), make([]int32, len(records))
	for i := range records {
		r := &records[i]
		recs[i] = segment.Record{ProducerTime: segment.NoTime, DeliverAt: segment.NoTime, Kind: segment.KindData, Key: r.Key, Value: r.Value}
		if r.Value == nil {
			recs[i].Kind = segment.KindNone
		}
		partitions[i] = r.Partition
	}
	res, err := l.appender.Append(ctx, &ingest.Request{Tenant: tenant, Producer: p, Topics: []ingest.TopicRecords{{Topic: t, Records: recs, Partitions: partitions}}})
	if err != nil {
		return nil, err
	}
	return res.Topics[0].Offsets, nil
}

// Read reads up to the linearizable head.
func (l *journalLog) Read(ctx context.Context, tenant string, topic metadata.TopicID, partition int32, offset, maxBytes int64) ([]journal.Record, int64, int64, error) {
	r := fetch.ReadRequest{Tenant: tenant, TopicID: topic, Partition: partition, Offset: offset, MaxRecords: api.MaxReadRecords, MaxBytes: maxBytes}
	for {
		res, err := l.reader.Read(ctx, r)
		var lost *fetch.UnreadableError
		switch {
		case err == nil:
			records := make([]journal.Record, len(res.Records))
			for i := range res.Records {
				rec := &res.Records[i]
				records[i] = journal.Record{Partition: partition, Offset: rec.Offset, Key: rec.Key, Value: rec.Value}
			}
			return records, res.NextOffset, res.Head, nil
		case errors.As(err, &lost) && lost.Next > r.Offset:
			l.lost.Inc()
			l.logger.Error("records of a journal cannot be read: what they said is lost, and may be delivered again", "tenant", tenant, "partition", partition,
				"from", lost.First, "to", lost.Next, "error", err)
			r.Offset = lost.Next
		case api.CodeOf(err) == api.CodeOffsetOutOfRange:
			// Somebody trimmed the topic. What is gone is gone.
			start, ok := logStart(err)
			if !ok || start <= r.Offset {
				return nil, 0, 0, err
			}
			r.Offset = start
		default:
			return nil, 0, 0, err
		}
	}
}

// logStart is what an error of the code OFFSET_OUT_OF_RANGE says.
func logStart(err error) (int64, bool) {
	var e *api.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	start, ok := e.Extra["logStart"].(int64)
	return start, ok
}
