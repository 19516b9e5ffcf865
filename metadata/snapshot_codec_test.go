package metadata

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

var rewrite = flag.Bool("rewrite", false, "make the files of testdata that are missing")

// richWorld has something of everything that a snapshot holds.
func richWorld(t testing.TB) *stWorld {
	w := newWorld(t)
	orders, bills := w.topic("orders", stConfig(4)), w.topic("bills", stConfig(1))
	events := dedupeTopic(w, time.Hour)
	w.one(&CreateTopic{Tenant: "beta", Name: "orders", Config: stConfig(4), Now: w.now})
	gone := w.topic("gone", stConfig(1))
	w.one(w.commit(nil, free(gone, 0, 1), free(orders, 0, 3)))
	w.one(&DeleteTopic{TopicID: gone.ID})
	w.one(&ProducerEpoch{Tenant: "acme", ID: "p", Now: w.now, Nonce: "n"})
	w.one(&ProducerEpoch{Tenant: "gamma", ID: "idle", Now: w.now})
	for i := range int64(3) {
		w.send("p", 1, i, free(orders, 0, 2), free(orders, 3, 1))
		w.send(fmt.Sprint("q", i), 0, i-5, free(bills, 0, 1))
		w.tick(time.Second)
	}
	w.sendIDs(withIDs(events, 0, 1, 2, 0))
	w.send("p", 1, 50, withIDs(events, 0, 2, 3))
	merged := w.merged(1, 4, 2, 1<<34)
	merged.AppendTime = stEpoch
	w.one(&Replace{TopicID: orders.ID, Through: 4, Remove: w.removeAll(orders, 0, 4), Add: []IndexEntry{merged},
		Claim: "compact", ClaimEpoch: 3})
	w.one(&Trim{TopicID: bills.ID, LogStart: 1, Claim: "retain", ClaimEpoch: 1})
	w.one(&GCBoundary{Boundary: w.now - 1000, Claim: "gc", ClaimEpoch: 2})
	return w
}

// subscribedWorld is richWorld with subscriptions. One that was made first is gone.
func subscribedWorld(t testing.TB) *stWorld {
	w := richWorld(t)
	orders, _ := w.s.Topic("acme", "orders")
	bills, _ := w.s.Topic("acme", "bills")
	gone := w.subscription(orders, "gone", api.DefaultSubscriptionConfig())
	w.subscription(orders, "work", stFullSubscription(), api.PartitionOffset{Partition: 0, Offset: 4}, api.PartitionOffset{Partition: 3, Offset: 2})
	w.subscription(bills, "work", api.DefaultSubscriptionConfig(), api.PartitionOffset{})
	w.one(&DeleteSubscription{ID: gone.ID})
	w.subscription(orders, "audit", api.DefaultSubscriptionConfig())
	x, _ := w.s.Subscription("acme", "orders", "audit")
	c := x.Config
	c.MaxAttempts = 9
	w.one(&UpdateSubscription{ID: x.ID, Version: x.Version, Config: c})
	return w
}

// fullWorld is subscribedWorld with consumer groups. One that was made first is gone; one tenant has nothing but its group.
func fullWorld(t testing.TB) *stWorld {
	w := subscribedWorld(t)
	gone := w.group("acme", "gone")
	w.group("acme", "shipping")
	w.tick(time.Second)
	w.group("delta", "billing")
	w.one(&DeleteGroup{ID: gone.ID})
	w.group("acme", "billing")
	return w
}

func TestSnapshotRoundTrip(t *testing.T) {
	w := fullWorld(t)
	for _, s := range []*State{NewState(3, 16), w.s} {
		stored := s.MarshalSnapshot()
		got, err := UnmarshalSnapshot(stored)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.SnapshotBody(), s.SnapshotBody()) || got.Hash() != s.Hash() || !bytes.Equal(got.MarshalSnapshot(), stored) {
			t.Fatal("the loaded state is another")
		}
		if got.Stats() != s.Stats() || got.Revision() != s.Revision() || got.Shard() != s.Shard() {
			t.Fatalf("%+v, want %+v", got.Stats(), s.Stats())
		}
		h, err := SnapshotHash(stored)
		if err != nil || h != s.Hash() {
			t.Fatalf("hash in the header %x, %v", h, err)
		}
	}
}

// The stored form of a state of this version never changes: these bytes must stay readable and the same.
func TestSnapshotGolden(t *testing.T) {
	const want = "97b6cc4c835732417ea3e54a881c751f969e5f2895c813d7b8ab29bb4613bd60"
	if got := fmt.Sprintf("%x", fullWorld(t).s.Hash()); got != want {
		t.Errorf("hash of the reference state %s, want %s: a changed body needs a new snapshot version", got, want)
	}
}

// Files of every version stay readable, and mean what they meant.
func TestStoredFilesStayReadable(t *testing.T) {
	for name, want := range map[string]*State{"snapshot-v1.snap": richWorld(t).s, "snapshot-v2.snap": subscribedWorld(t).s, "snapshot-v3.snap": fullWorld(t).s} {
		b := golden(t, name, want.MarshalSnapshot)
		got, err := UnmarshalSnapshot(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got.SnapshotBody(), want.SnapshotBody()) {
			t.Errorf("%s is another state now", name)
		}
	}
	below := func(kind commandKind) (cmds []Command) {
		for _, c := range everyCommand() {
			if c.kind() < kind {
				cmds = append(cmds, c)
			}
		}
		return cmds
	}
	for name, want := range map[string][]Command{
		"entry-v1-topics.bin": below(kindCreateSubscription), "entry-v1.bin": below(kindCreateGroup), "entry-v1-groups.bin": everyCommand(),
	} {
		b := golden(t, name, func() []byte { return stEntry(t, want...) })
		if got, err := DecodeCommands(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v: %v", name, got, want, err)
		}
		again := stEntry(t, want...)
		if name != "entry-v1-groups.bin" {
			// The last command has a request without a sequence, from before it had a flag of its own.
			again, b = stEntry(t, want[:len(want)-1]...)[2:], b[2:]
			b = b[:min(len(b), len(again))]
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%s is encoded in another way now", name)
		}
	}
}

// golden reads a file of testdata; with -rewrite it makes one that is missing. One that is there is never changed.
func golden(t *testing.T, name string, make func() []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *rewrite {
		b = make()
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnmarshalSnapshotRefusesDamage(t *testing.T) {
	s := fullWorld(t).s
	stored, hash := s.MarshalSnapshot(), s.Hash()
	for n := range stored {
		if _, err := UnmarshalSnapshot(stored[:n]); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(stored))
		}
		b := bytes.Clone(stored)
		b[n] ^= 0x10
		got, err := UnmarshalSnapshot(b)
		if err == nil && got.Hash() == hash {
			continue // a bit of the frame that says nothing about the body
		}
		if !errors.Is(err, ErrUndecodable) && !errors.Is(err, ErrSnapshotMismatch) {
			t.Fatalf("byte %d flipped: %v", n, err)
		}
	}
}

func TestDecodeBodyRefusesEveryTruncation(t *testing.T) {
	body := fullWorld(t).s.SnapshotBody()
	for n := range body {
		if _, err := decodeBody(body[:n], snapshotVersion); !errors.Is(err, ErrUndecodable) {
			t.Fatalf("%d of %d bytes: %v", n, len(body), err)
		}
	}
}

// A body that shrinks beyond what a reader believes is stored as it is.
func TestSnapshotThatShrinksTooMuchIsStoredRaw(t *testing.T) {
	body := make([]byte, 16<<20)
	stored, hash := SealSnapshot(body)
	if stored[len(snapshotMagic)+1] != snapshotRaw {
		t.Fatalf("method %d for %d bytes", stored[len(snapshotMagic)+1], len(stored))
	}
	got, err := openSnapshot(stored)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	if h, err := SnapshotHash(stored); err != nil || h != hash {
		t.Fatalf("%x, %v", h, err)
	}
}

func FuzzUnmarshalSnapshot(f *testing.F) {
	stored := fullWorld(f).s.MarshalSnapshot()
	f.Add(stored)
	f.Add(stored[:len(stored)/2])
	for _, name := range []string{"testdata/snapshot-v1.snap", "testdata/snapshot-v2.snap"} {
		old, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(old)
	}
	f.Add(NewState(0, 1).MarshalSnapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := UnmarshalSnapshot(b)
		if err == nil {
			checkUsable(t, s)
		}
	})
}

// FuzzSnapshotBody goes below the hash, which keeps the other one from getting far.
func FuzzSnapshotBody(f *testing.F) {
	body := fullWorld(f).s.SnapshotBody()
	f.Add(body)
	f.Add(body[:len(body)/2])
	f.Add(NewState(0, 1).SnapshotBody())
	for i := 0; i < len(body); i += 7 {
		b := bytes.Clone(body)
		b[i] ^= 1 << (i % 8)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, version := range []byte{1, 2, snapshotVersion} {
			s, err := decodeBody(b, version)
			if err != nil {
				if !errors.Is(err, ErrUndecodable) {
					t.Fatalf("%v is not of the class", err)
				}
				continue
			}
			checkUsable(t, s)
		}
	})
}

// checkUsable does everything to a state that loaded.
func checkUsable(t *testing.T, s *State) {
	t.Helper()
	again, err := decodeBody(s.SnapshotBody(), snapshotVersion)
	if err != nil {
		t.Fatalf("a state that loaded cannot be stored: %v", err)
	}
	if again.Hash() != s.Hash() {
		t.Fatal("the state changed by being stored")
	}
	trims, _, _ := s.PlanTrim(stEpoch, PartitionKey{}, 100)
	cmds := []Command{}
	for _, c := range trims {
		cmds = append(cmds, c)
	}
	c := &Commit{Segment: SegmentRef{ID: stULID(stEpoch, 999)}, AppendTime: stEpoch, Groups: []Group{{Tenant: "acme", Producer: &Producer{ID: "p", Epoch: 1, Sequence: 1}}}}
	for _, x := range s.order[:min(len(s.order), 20)] {
		for _, p := range x.parts {
			if _, _, err := s.Locate(x.id, p.num, p.logStart, 10); err != nil {
				t.Fatal(err)
			}
			c.Batches = append(c.Batches, BatchDelta{TopicID: x.id, Partition: p.num, Records: 2, Group: 0, IDHashes: hashes(1, 1)})
			if w := p.more; w != nil {
				for w := range w.windows.list.all {
					for seq := int64(-6); seq < 60; seq++ {
						_, a := w.judge(seq)
						if a.records < 1<<10 {
							a.offsets()
						}
					}
				}
			}
		}
	}
	cmds = append(cmds, c)
	for _, x := range s.order[:min(len(s.order), 20)] {
		cmds = append(cmds, &DeleteTopic{TopicID: x.id})
	}
	for _, g := range s.groups.order[:min(len(s.groups.order), 20)] {
		cmds = append(cmds, &DeleteGroup{ID: g.ID})
	}
	if _, err := s.Apply(LogEntry{Shard: s.shard, Revision: s.revision + 1, Value: stEntry(t, cmds...)}); s.revision < 1<<62 && err != nil {
		t.Fatal(err)
	}
}
