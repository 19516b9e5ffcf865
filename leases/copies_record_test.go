package leases

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/leases/store"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/segment"
)

func TestDeadCopy(t *testing.T) {
	s := &metadata.Subscription{ID: 33, Tenant: "t", Topic: "orders", Name: "work"}
	d := &store.DeadLetter{Partition: 5, Pointer: journal.Pointer{Offset: 42, Kind: journal.Dead, Attempts: 5, FirstFailed: 1_700_000_000_000,
		LastFailed: 1_700_000_060_123, Reason: "no such customer"}}
	r := &segment.Record{Offset: 42, AppendTime: 1_699_999_999_999, ProducerTime: 7, DeliverAt: 1_700_000_000_500, Kind: segment.KindJSON,
		Key: []byte("k"), Value: []byte(`{"a":1}`), ID: "evt-1",
		Headers: []segment.Header{{Name: "traceparent", Value: "00-abc"}, {Name: "a", Value: "1"}, {Name: "a", Value: "2"}}}
	to := &metadata.Topic{Config: api.TopicConfig{Partitions: 3, Cleanup: api.CleanupDelete}}
	got, partition := deadCopy(s, d, r, to)
	want := segment.Record{
		ProducerTime: 7, DeliverAt: segment.NoTime, Kind: segment.KindJSON, Key: []byte("k"), Value: []byte(`{"a":1}`),
		ID: "forebay-dead:33:5:42:1700000060123",
		Headers: []segment.Header{
			{Name: HeaderOriginTopic, Value: "orders"}, {Name: HeaderOriginPartition, Value: "5"}, {Name: HeaderOriginOffset, Value: "42"},
			{Name: HeaderOriginTime, Value: "2023-11-14T22:13:19.999Z"}, {Name: HeaderOriginID, Value: "evt-1"},
			{Name: HeaderOriginSubscription, Value: "work"}, {Name: HeaderDeadAttempts, Value: "5"}, {Name: HeaderDeadReason, Value: "no such customer"},
			{Name: HeaderFirstFailed, Value: "2023-11-14T22:13:20.000Z"}, {Name: HeaderDied, Value: "2023-11-14T22:14:20.123Z"},
			{Name: "traceparent", Value: "00-abc"}, {Name: "a", Value: "1"}, {Name: "a", Value: "2"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := int32(api.PartitionForKey([]byte("k"), 3)); partition != want {
		t.Errorf("partition %d, want %d", partition, want)
	}
	if len(r.Headers) != 3 {
		t.Error("the record itself was changed")
	}
}

func TestDeadCopyWithoutKey(t *testing.T) {
	s := &metadata.Subscription{ID: 33, Topic: "orders", Name: "work"}
	d := &store.DeadLetter{Partition: 5, Pointer: journal.Pointer{Offset: 42}}
	r := &segment.Record{ProducerTime: segment.NoTime, Value: []byte("v")}
	got, partition := deadCopy(s, d, r, &metadata.Topic{Config: api.TopicConfig{Partitions: 4, Cleanup: api.CleanupDelete}})
	if got.Key != nil || partition != 1 {
		t.Errorf("key %q in partition %d, want none in 1", got.Key, partition)
	}
	got, _ = deadCopy(s, d, r, &metadata.Topic{Config: api.TopicConfig{Partitions: 4, Cleanup: api.CleanupCompact}})
	if string(got.Key) != got.ID {
		t.Errorf("key %q in a compacted topic, want the event ID", got.Key)
	}
}

func TestCopyIDTellsDeathsApart(t *testing.T) {
	first := &store.DeadLetter{Partition: 1, Pointer: journal.Pointer{Offset: 2, LastFailed: 3}}
	again, other := *first, *first
	other.LastFailed = 4
	if copyID(9, first) != copyID(9, &again) || copyID(9, first) == copyID(9, &other) || copyID(9, first) == copyID(8, first) {
		t.Error("one death has one ID, and another death another")
	}
}

// docs/dead-letter-copies.md lists the headers of a copy, in their order.
func TestDocumentedHeaders(t *testing.T) {
	page, err := os.ReadFile("../docs/dead-letter-copies.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &store.DeadLetter{Pointer: journal.Pointer{Attempts: 1, FirstFailed: 1, LastFailed: 2, Reason: "r"}}
	c, _ := deadCopy(&metadata.Subscription{Topic: "t", Name: "s"}, d, &segment.Record{AppendTime: 1, ID: "e"}, &metadata.Topic{Config: api.TopicConfig{Partitions: 1}})
	var listed []string
	for line := range strings.Lines(string(page)) {
		if name, found := strings.CutPrefix(line, "| `"); found {
			listed = append(listed, name[:strings.IndexByte(name, '`')])
		}
	}
	var has []string
	for _, h := range c.Headers {
		has = append(has, h.Name)
	}
	if diff := cmp.Diff(has, listed); diff != "" {
		t.Errorf("a copy has and the page lists (-has +listed):\n%s", diff)
	}
}
