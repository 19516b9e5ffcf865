package metadata

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/segment"
)

func everyCommand() []Command {
	full := api.TopicConfig{Partitions: 10_000, RetentionTime: time.Hour, RetentionBytes: math.MaxInt64, Cleanup: api.CleanupCompactDelete,
		MinCompactionLag: time.Minute, TombstoneRetention: time.Second, Residency: "eu-1", Mirror: true, MaxRecordBytes: 5, DedupeWindow: time.Hour,
		SchemaSubject: "s", SchemaMode: "enforce"}
	l0 := SegmentRef{ID: stULID(stEpoch, 1), Size: math.MaxInt64}
	l1 := SegmentRef{ID: stULID(stEpoch, 2), Level: 255, Class: "ttl=7d", Size: 7}
	return []Command{
		&CreateTopic{Tenant: "acme", Name: "orders", Config: full, Now: stEpoch},
		&CreateTopic{},
		&UpdateTopic{TopicID: math.MaxUint64, Version: math.MaxInt64, Config: api.DefaultTopicConfig()},
		&DeleteTopic{TopicID: 7},
		&CreateSubscription{TopicID: math.MaxUint64, Name: "work", Config: stFullSubscription(), Now: stEpoch,
			Starts: []api.PartitionOffset{{Partition: 0, Offset: math.MaxInt64}, {Partition: 7}, {Partition: math.MaxInt32, Offset: 1}}},
		&CreateSubscription{},
		&UpdateSubscription{ID: math.MaxUint64, Version: math.MinInt64, Config: api.DefaultSubscriptionConfig()},
		&DeleteSubscription{ID: math.MaxUint64},
		&CreateGroup{Tenant: "acme", Name: "billing", Now: math.MinInt64},
		&CreateGroup{},
		&DeleteGroup{ID: math.MaxUint64},
		&Trim{TopicID: 7, Partition: math.MaxInt32, LogStart: math.MaxInt64, Claim: "c", ClaimEpoch: math.MinInt64},
		&GCBoundary{Boundary: -1, Claim: "gc", ClaimEpoch: 4},
		&ProducerEpoch{Tenant: "acme", ID: "p", Now: -5, Nonce: "n"},
		&Replace{TopicID: 9, Partition: 3, From: 5, Through: 1 << 40, Claim: "c", ClaimEpoch: 1,
			Remove: []ReplaceRef{{l0.ID, 1 << 40}, {l1.ID, 0}, {l0.ID, 3}},
			Add: []IndexEntry{
				{Segment: l1, Ref: segment.BatchRef{Pos: 1 << 50, Len: math.MaxUint32}, Base: 5, Last: 1 << 39, Records: 3, AppendTime: 9, FirstTime: -3, Sparse: true},
				{Segment: l1, Ref: segment.BatchRef{Pos: 9, Len: 1}, Base: 1<<39 + 1, Last: 1<<39 + 2, Records: 5, AppendTime: 9, FirstTime: 9, Dropped: []int32{0, 1, 4}},
			}},
		&Replace{},
		&Commit{Segment: l0, AppendTime: stEpoch, Batches: []BatchDelta{}},
		&Commit{Segment: l1, AppendTime: math.MinInt64,
			Groups: []Group{
				{Tenant: "acme"},
				{Tenant: "acme", Producer: &Producer{ID: "p", Epoch: math.MaxInt64, Sequence: math.MinInt64}},
				{Tenant: "p", Producer: &Producer{ID: "", Epoch: -1, Sequence: math.MaxInt64}},
			},
			Batches: []BatchDelta{
				{TopicID: math.MaxUint64, Partition: math.MaxInt32, Records: math.MaxInt32, Ref: segment.BatchRef{Pos: math.MaxUint64, Len: math.MaxUint32}, RawBytes: math.MaxUint32, Group: 2},
				{TopicID: 1, Records: 2, Group: 0, IDHashes: [][16]byte{{}, {15: 1}}},
				{TopicID: 1, Partition: 3, Records: 1, Ref: segment.BatchRef{Pos: 5, Len: 6}, Group: -1},
			}},
	}
}

func TestCommandsRoundTrip(t *testing.T) {
	cmds := everyCommand()
	b, err := AppendCommands([]byte("before"), cmds)
	if err != nil {
		t.Fatal(err)
	}
	if string(b[:6]) != "before" {
		t.Fatal("the buffer's beginning was lost")
	}
	got, err := DecodeCommands(b[6:])
	if err != nil {
		t.Fatal(err)
	}
	for i := range cmds {
		if !reflect.DeepEqual(got[i], cmds[i]) {
			t.Errorf("command %d: %+v, want %+v", i, got[i], cmds[i])
		}
	}
	// Nothing shares memory with the buffer.
	for i := range b {
		b[i] = 0xff
	}
	if !reflect.DeepEqual(got, cmds) {
		t.Error("the decoded commands changed with the buffer")
	}
}

func TestDecodeCommandsRefusesEveryTruncation(t *testing.T) {
	b, err := AppendCommands(nil, everyCommand())
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := DecodeCommands(b[:n]); !errors.Is(err, ErrUndecodable) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := DecodeCommands(append(b, 0)); !errors.Is(err, ErrUndecodable) {
		t.Fatalf("one byte more: %v", err)
	}
}

func TestDecodeCommandsRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"version 0":      {0, 0},
		"version 2":      {2, 0},
		"kind 0":         {1, 1, 0, 0},
		"kind 14":        {1, 1, 14, 0},
		"huge count":     {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"endless varint": {1, 1, byte(kindDeleteTopic), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"no multiplier":  append([]byte{1, 1, byte(kindUpdateSubscription), 1, 0, 0, 0, 0, 0, 0x7f, 0xf8}, make([]byte, 14)...),
		"equal starts":   append(stEntry(t, &CreateSubscription{})[:len(stEntry(t, &CreateSubscription{}))-1], 2, 1, 0, 0, 0),
		"start beyond":   append(stEntry(t, &CreateSubscription{})[:len(stEntry(t, &CreateSubscription{}))-1], 1, 0x81, 0x80, 0x80, 0x80, 0x08, 0),
		"long string":    {1, 1, byte(kindGCBoundary), 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	} {
		if _, err := DecodeCommands(b); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if cmds, err := DecodeCommands([]byte{1, 0}); err != nil || len(cmds) != 0 {
		t.Fatalf("an empty entry: %v, %v", cmds, err)
	}
}

// What could not be decoded is not encoded, and the buffer comes back as it was.
func TestAppendCommandsRefuses(t *testing.T) {
	batch := func(change func(*BatchDelta)) *Commit {
		b := BatchDelta{TopicID: 1, Records: 1, Group: -1}
		change(&b)
		return &Commit{Batches: []BatchDelta{b}}
	}
	added := func(e IndexEntry) *Replace { return &Replace{Add: []IndexEntry{e}} }
	for name, c := range map[string]Command{
		"nil":                   nil,
		"no records":            batch(func(b *BatchDelta) { b.Records = 0 }),
		"negative partition":    batch(func(b *BatchDelta) { b.Partition = -1 }),
		"group out of range":    batch(func(b *BatchDelta) { b.Group = 0 }),
		"group below -1":        batch(func(b *BatchDelta) { b.Group = -2 }),
		"hashes do not fit":     batch(func(b *BatchDelta) { b.IDHashes = make([][16]byte, 2) }),
		"negative size":         &Commit{Segment: SegmentRef{Size: -1}},
		"negative trim":         &Trim{Partition: -1},
		"negative replace":      &Replace{Partition: -1},
		"negative start":        &CreateSubscription{Starts: []api.PartitionOffset{{Offset: -1}}},
		"start of -1":           &CreateSubscription{Starts: []api.PartitionOffset{{Partition: -1}}},
		"starts out of order":   &CreateSubscription{Starts: []api.PartitionOffset{{Partition: 1}, {Partition: 1}}},
		"no multiplier":         &UpdateSubscription{Config: api.SubscriptionConfig{Backoff: api.Backoff{Multiplier: math.NaN()}}},
		"endless multiplier":    &CreateSubscription{Config: api.SubscriptionConfig{Backoff: api.Backoff{Multiplier: math.Inf(1)}}},
		"negative added size":   added(IndexEntry{Segment: SegmentRef{Size: -1}, Records: 1}),
		"offsets reversed":      added(IndexEntry{Base: 5, Last: 4, Records: 1, Sparse: true}),
		"negative offset":       added(IndexEntry{Base: -1, Last: 4, Records: 1, Sparse: true}),
		"no added records":      added(IndexEntry{Base: 5, Last: 5, Sparse: true}),
		"dense with a hole":     added(IndexEntry{Base: 5, Last: 9, Records: 2}),
		"more than its offsets": added(IndexEntry{Base: 5, Last: 6, Records: 3, Sparse: true}),
		"all dropped":           added(IndexEntry{Base: 5, Last: 5, Records: 1, Dropped: []int32{0}}),
		"dropped out of order":  added(IndexEntry{Base: 5, Last: 5, Records: 3, Dropped: []int32{1, 1}}),
		"dropped out of range":  added(IndexEntry{Base: 5, Last: 5, Records: 2, Dropped: []int32{2}}),
	} {
		b, err := AppendCommands([]byte{42}, []Command{&DeleteTopic{TopicID: 1}, c})
		if err == nil || !bytes.Equal(b, []byte{42}) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}

func TestCommitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &Commit{Segment: SegmentRef{ID: stULID(stEpoch, 1), Size: 5}, AppendTime: rapid.Int64().Draw(rt, "time"), Batches: []BatchDelta{}}
		names := rapid.SampledFrom([]string{"", "a", "b", "acme"})
		for range rapid.IntRange(0, 5).Draw(rt, "groups") {
			g := Group{Tenant: names.Draw(rt, "tenant")}
			if rapid.Bool().Draw(rt, "producer") {
				g.Producer = &Producer{ID: names.Draw(rt, "id"), Epoch: rapid.Int64().Draw(rt, "epoch"), Sequence: rapid.Int64().Draw(rt, "sequence")}
			}
			c.Groups = append(c.Groups, g)
		}
		for range rapid.IntRange(0, 20).Draw(rt, "batches") {
			b := BatchDelta{
				TopicID: TopicID(rapid.Uint64().Draw(rt, "topic")), Partition: rapid.Int32Range(0, math.MaxInt32).Draw(rt, "partition"),
				Records: rapid.Int32Range(1, 5).Draw(rt, "records"), RawBytes: rapid.Uint32().Draw(rt, "raw"),
				Ref:   segment.BatchRef{Pos: rapid.Uint64().Draw(rt, "pos"), Len: rapid.Uint32().Draw(rt, "len")},
				Group: int32(rapid.IntRange(-1, len(c.Groups)-1).Draw(rt, "group")),
			}
			if rapid.Bool().Draw(rt, "hashes") {
				b.IDHashes = make([][16]byte, b.Records)
				b.IDHashes[0][3] = 9
			}
			c.Batches = append(c.Batches, b)
		}
		b, err := AppendCommands(nil, []Command{c})
		if err != nil {
			rt.Fatal(err)
		}
		got, err := DecodeCommands(b)
		if err != nil || !reflect.DeepEqual(got, []Command{c}) {
			rt.Fatalf("%+v, want %+v: %v", got, c, err)
		}
	})
}

// benchCommit is a flush of n batches as ingest makes them: sorted, contiguous, 8 MiB in all; with producers, 10 batches a request.
func benchCommit(n int, producers bool, first TopicID, shards int) *Commit {
	c := &Commit{Segment: SegmentRef{ID: stULID(stEpoch, 1), Size: 8 << 20}, AppendTime: stEpoch}
	pos, size := uint64(32), uint32(8<<20/n)
	for i := range n {
		b := BatchDelta{TopicID: first + TopicID(i/8*shards), Partition: int32(i % 8), Records: 1 + int32(i%20),
			Ref: segment.BatchRef{Pos: pos, Len: size + uint32(i%97)}, RawBytes: 2*size + uint32(i%89), Group: -1}
		if producers {
			b.Group = int32(i / 10)
		}
		pos += uint64(b.Ref.Len)
		c.Batches = append(c.Batches, b)
	}
	if producers {
		for i := range (n + 9) / 10 {
			c.Groups = append(c.Groups, Group{Tenant: "tenant-with-a-name", Producer: &Producer{ID: "producer-" + string(rune('a'+i%26)), Epoch: 3, Sequence: int64(1e9) + int64(i)}})
		}
	}
	return c
}

// An etcd entry holds 1.5 MiB: a flush of 5,000 batches must be far below it.
func TestCommitSize(t *testing.T) {
	const n = 5000
	for _, producers := range []bool{false, true} {
		b, err := AppendCommands(nil, []Command{benchCommit(n, producers, 1<<40, 16)})
		if err != nil {
			t.Fatal(err)
		}
		per := float64(len(b)) / n
		t.Logf("producers %v: %.1f bytes a batch", producers, per)
		if per > 20 {
			t.Errorf("producers %v: %.1f bytes a batch", producers, per)
		}
	}
}

func FuzzDecodeCommands(f *testing.F) {
	all, err := AppendCommands(nil, everyCommand())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(all)
	for _, c := range everyCommand() {
		b, err := AppendCommands(nil, []Command{c})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
		flipped := bytes.Clone(b)
		flipped[len(b)/2] ^= 0x40
		f.Add(flipped)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		cmds, err := DecodeCommands(b)
		if err != nil {
			if !errors.Is(err, ErrUndecodable) {
				t.Fatalf("%v is not of the class", err)
			}
			return
		}
		again, err := AppendCommands(nil, cmds)
		if err != nil {
			t.Fatalf("decoded, but cannot be encoded: %v", err)
		}
		got, err := DecodeCommands(again)
		if err != nil || !reflect.DeepEqual(got, cmds) {
			t.Fatalf("%+v became %+v: %v", cmds, got, err)
		}
		// Whatever decodes can be applied, and leaves a state that can be stored.
		s := NewState(0, 1)
		if _, err := s.Apply(LogEntry{Revision: 1, Value: stEntry(t, &CreateTopic{Tenant: "acme", Name: "orders", Config: api.DefaultTopicConfig()})}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(LogEntry{Revision: 2, Value: b}); err != nil {
			t.Fatal(err)
		}
		loaded, err := decodeBody(s.SnapshotBody(), snapshotVersion)
		if err != nil {
			t.Fatal(err)
		}
		if loaded.Hash() != s.Hash() {
			t.Fatal("the loaded state differs")
		}
	})
}

func stEntry(t testing.TB, cmds ...Command) []byte {
	t.Helper()
	b, err := AppendCommands(nil, cmds)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
