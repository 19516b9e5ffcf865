package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/fetch"
	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/objectstore/mem"
	"github.com/forebaymq/forebay/segment"
)

// memNodes starts nodes of one fabric in memory.
func memNodes(t testing.TB, count int) []*Node {
	t.Helper()
	store, driver := mem.New(mem.Options{}), metadata.NewMemDriver(metadata.MemOptions{})
	t.Cleanup(func() {
		if err := errors.Join(driver.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	nodes := make([]*Node, count)
	for i := range nodes {
		c := embedded(t.TempDir())
		c.NodeID, c.Store, c.ObjectStore, c.Driver, c.Etcd = fmt.Sprint("n", i), store, "", driver, Etcd{}
		c.Logger = slog.New(slog.DiscardHandler)
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		nodes[i] = n
	}
	return nodes
}

func nodeJournal(t testing.TB, n *Node) *journal.Journal {
	t.Helper()
	log, err := newJournalLog(n.parts.log, n.parts.ingest, n.parts.fetch, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.New(journal.Options{Log: log, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// What one node has journalled the other loads, at once.
func TestJournalOverTwoNodes(t *testing.T) {
	nodes := memNodes(t, 2)
	journals := []*journal.Journal{nodeJournal(t, nodes[0]), nodeJournal(t, nodes[1])}
	k := journal.ShardKey{Subscription: 77, Partition: 3}
	incarnation := int64(0)
	for i := range int64(10) {
		writer, reader := journals[i%2], journals[(i+1)%2]
		offsets, err := writer.Write(t.Context(), "acme", []journal.Entry{{Key: k, Shard: &journal.Shard{Version: journal.Version{Incarnation: incarnation}, Frontier: i}, Open: true}})
		if err != nil {
			t.Fatal(err)
		}
		incarnation = offsets[0] + 1
		v := journal.Version{Incarnation: incarnation, Sequence: 5}
		p := journal.Pointer{Offset: i + 10, Kind: journal.Dead, Reason: "no", Version: v}
		if _, err := writer.Write(t.Context(), "acme", []journal.Entry{
			{Key: k, Shard: &journal.Shard{Version: v, Frontier: i + 1, Settled: []journal.Range{{From: 2*i + 1000, To: 2*i + 1001}}}},
			{Key: k, Pointer: &p},
			{Key: k, Remove: i + 9, Version: v},
		}); err != nil {
			t.Fatal(err)
		}
		got, err := reader.Load(t.Context(), "acme", 77)
		if err != nil {
			t.Fatal(err)
		}
		if s := got.Shards[3]; s == nil || s.Version != v || s.Frontier != i+1 || int64(len(s.Settled)) != i+1 { // what was settled stays so
			t.Fatalf("round %d: %+v, want version %+v and frontier %d", i, s, v, i+1)
		}
		if diff := cmp.Diff(map[int32]map[int64]journal.Pointer{3: {i + 10: p}}, got.Pointers); diff != "" {
			t.Fatalf("round %d: %s", i, diff)
		}
	}
	topic, err := nodes[0].parts.log.Topic("acme", journal.Topic)
	if err != nil {
		t.Fatal(err)
	}
	c := topic.Config
	if c.Cleanup != api.CleanupCompact || c.RetentionTime != 0 || c.MinCompactionLag != 0 || c.Partitions != journal.DefaultPartitions || c.TombstoneRetention < time.Hour {
		t.Errorf("the journal's topic: %+v", c)
	}
	log := &journalLog{catalog: nodes[0].parts.log, appender: nodes[0].parts.ingest, reader: nodes[0].parts.fetch}
	if _, err := log.EnsureTopic(t.Context(), "acme", journal.Topic, 8); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("another number of partitions: %v", err)
	}
	if _, err := log.Append(t.Context(), "nobody", journal.Topic, []journal.Record{{Key: []byte("k")}}); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("append to no topic: %v", err)
	}
	p := metadata.Producer{ID: "__group.1", Sequence: metadata.NoSequence}
	for range 2 {
		if p.Epoch, err = nodes[0].parts.log.StartProducer(t.Context(), "acme", p.ID); err != nil {
			t.Fatal(err)
		}
		for range 2 { // an epoch may append as often as it likes
			if _, err := log.AppendFenced(t.Context(), "acme", journal.Topic, p, []journal.Record{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
				t.Errorf("append of epoch %d: %v", p.Epoch, err)
			}
		}
	}
	p.Epoch--
	if _, err := log.AppendFenced(t.Context(), "acme", journal.Topic, p, []journal.Record{{Key: []byte("k")}}); api.CodeOf(err) != api.CodeProducerFenced {
		t.Errorf("append of the epoch before: %v", err)
	}
	if _, _, _, err := log.Read(t.Context(), "acme", topic.ID+1000, 0, 0, 1); api.CodeOf(err) != api.CodeUnknownTopic {
		t.Errorf("read of no topic: %v", err)
	}
}

// brokenReader has records at 5 and from 20 on, an unreadable batch at 6 to 9, and starts at 5.
type brokenReader struct {
	fetch.Reader
	asked []int64
}

func (r *brokenReader) Read(_ context.Context, q fetch.ReadRequest) (*fetch.ReadResult, error) {
	r.asked = append(r.asked, q.Offset)
	switch {
	case q.Stale:
		return nil, errors.New("a stale read")
	case q.Offset < 5:
		return nil, api.Errorf(api.CodeOffsetOutOfRange, "trimmed").With("logStart", int64(5)).With("head", int64(30))
	case q.Offset < 6:
		return &fetch.ReadResult{Records: []segment.Record{{Offset: 5, Key: []byte("a"), Value: []byte("1")}}, NextOffset: 6, Head: 30}, nil
	case q.Offset < 10:
		return nil, &api.Error{Code: api.CodeInternal, Cause: &fetch.UnreadableError{First: q.Offset, Next: 10, Cause: errors.New("rotten")}}
	case q.Offset < 30:
		return &fetch.ReadResult{Records: []segment.Record{{Offset: 20, Key: []byte("b")}}, NextOffset: 30, Head: 30}, nil
	}
	return nil, api.Errorf(api.CodeOffsetOutOfRange, "above the head").With("logStart", int64(5)).With("head", int64(30))
}

func TestJournalPassesOverWhatCannotBeRead(t *testing.T) {
	r := &brokenReader{}
	log, err := newJournalLog(nil, nil, r, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var got []journal.Record
	at := int64(0)
	for at < 30 {
		records, next, head, err := log.Read(t.Context(), "acme", 1, 4, at, 1000)
		if err != nil || head != 30 || next <= at {
			t.Fatalf("read at %d: next %d, head %d, %v", at, next, head, err)
		}
		got, at = append(got, records...), next
	}
	want := []journal.Record{{Partition: 4, Offset: 5, Key: []byte("a"), Value: []byte("1")}, {Partition: 4, Offset: 20, Key: []byte("b")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(r.asked, []int64{0, 5, 6, 10}) {
		t.Errorf("asked for %v", r.asked)
	}
	if _, _, _, err := log.Read(t.Context(), "acme", 1, 4, 31, 1000); api.CodeOf(err) != api.CodeOffsetOutOfRange {
		t.Errorf("above the head: %v", err)
	}
}

// BenchmarkJournal measures the journal over a node in memory: states written, and a process that starts with nothing reading 10,000 shards.
func BenchmarkJournal(b *testing.B) {
	const subscriptions, partitions = 2000, 5
	sequence := int64(0)
	n := memNodes(b, 1)[0]
	j := nodeJournal(b, n)
	incarnations := map[journal.ShardKey]int64{}
	entries := func(sub int, sequence int64) []journal.Entry {
		var out []journal.Entry
		for p := range int32(partitions) {
			k := journal.ShardKey{Subscription: metadata.SubscriptionID(sub + 1), Partition: p}
			s := &journal.Shard{Frontier: 1_000_000 + sequence*100}
			for r := range int64(10) {
				s.Settled = append(s.Settled, journal.Range{From: s.Frontier + 3 + r*7, To: s.Frontier + 6 + r*7})
			}
			s.Version = journal.Version{Incarnation: incarnations[k], Sequence: sequence}
			out = append(out, journal.Entry{Key: k, Shard: s})
		}
		return out
	}
	begin := time.Now()
	for at := 0; at < subscriptions; at += 200 {
		var open []journal.Entry
		for s := at; s < at+200; s++ {
			open = append(open, entries(s, 0)...)
		}
		for i := range open {
			open[i].Open = true
		}
		offsets, err := j.Write(b.Context(), "acme", open)
		if err != nil {
			b.Fatal(err)
		}
		for i := range open {
			incarnations[open[i].Key] = offsets[i] + 1
		}
	}
	b.Logf("%d shards opened in %s", subscriptions*partitions, time.Since(begin).Round(time.Millisecond))

	b.Run("write", func(b *testing.B) { // all shards, in appends of 1000
		for b.Loop() {
			sequence++ // what is not new is left out
			for at := 0; at < subscriptions; at += 200 {
				var batch []journal.Entry
				for s := at; s < at+200; s++ {
					batch = append(batch, entries(s, sequence)...)
				}
				if _, err := j.Write(b.Context(), "acme", batch); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N*subscriptions*partitions)/b.Elapsed().Seconds(), "states/s")
	})
	b.Run("rebuild", func(b *testing.B) {
		for b.Loop() {
			fresh := nodeJournal(b, n)
			shards := 0
			for s := range subscriptions {
				l, err := fresh.Load(b.Context(), "acme", metadata.SubscriptionID(s+1))
				if err != nil {
					b.Fatal(err)
				}
				shards += len(l.Shards)
			}
			if shards != subscriptions*partitions {
				b.Fatalf("%d shards", shards)
			}
		}
		b.ReportMetric(float64(b.N*subscriptions*partitions)/b.Elapsed().Seconds(), "shards/s")
	})
}
