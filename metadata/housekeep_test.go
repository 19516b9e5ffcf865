package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/metadata"
	"github.com/forebaymq/forebay/metadata/metafault"
)

// keepingHouse makes a node keep house, with a snapshot of every shard that has so many entries.
func keepingHouse(o metadata.Options, entries int) metadata.Options {
	o.NoHousekeeping = false
	o.SnapshotEvery = metadata.SnapshotPolicy{Entries: entries, Interval: 24 * time.Hour}
	return o
}

func house(entries int) func(*metadata.Options) {
	return func(o *metadata.Options) { *o = keepingHouse(*o, entries) }
}

func (f *fabric) load(t testing.TB) *metadata.Loaded {
	t.Helper()
	l, err := f.entries.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (f *fabric) snapshots(t testing.TB) []string {
	t.Helper()
	p, err := f.objects.List(t.Context(), "snap/", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range p.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

func TestSnapshotsTruncateAndRestartsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open(house(20))
		topics := []*metadata.Topic{a.topic(t, "acme", "orders", 2), a.topic(t, "zeta", "events", 2), a.topic(t, "t2", "x", 1)}
		for round := range 6 {
			for i := range 25 {
				a.commit(t, batch{topics[i%3], int32(i % 2 * (1 - i%3/2)), 1}, batch{topics[0], 1, 2})
			}
			time.Sleep(3 * time.Second) // virtual: the housekeeper's rounds
			l := f.load(t)
			if len(l.Entries) > 60 {
				t.Fatalf("round %d: %d entries are still in the store", round, len(l.Entries))
			}
			for shard, p := range l.Snapshots {
				if !strings.HasPrefix(p.Object, fmt.Sprintf("snap/%04d/%020d-", shard, p.Revision)) {
					t.Errorf("object %s of %d at %d", p.Object, shard, p.Revision)
				}
			}
		}
		perShard := map[string]int{}
		for _, key := range f.snapshots(t) {
			perShard[key[:len("snap/0000")]]++
		}
		for shard, n := range perShard {
			if n > 2 {
				t.Errorf("%s has %d snapshot objects, want the newest and the one before", shard, n)
			}
		}
		if len(f.load(t).Snapshots) == 0 {
			t.Fatal("no snapshot was taken")
		}
		a.commit(t, batch{topics[1], 0, 1}) // a tail behind the snapshot
		late := f.open()
		sameState(t, a, late)
		want := a.Hashes()
		a.close()
		late.close()
		again := f.open()
		for shard, h := range again.Hashes() {
			if want[shard] != h {
				t.Errorf("shard %d differs after the restart", shard)
			}
		}
		if got := again.commit(t, batch{topics[0], 1, 1})[0]; got < 300 {
			t.Errorf("base %d after the restart", got)
		}
	})
}

// A node whose watch falls behind the truncation loads snapshot and tail.
func TestReloadFromSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a, b := f.open(house(5)), f.open()
		topic := a.topic(t, "acme", "orders", 1)
		b.mem.SetReachable(false)
		for range 8 {
			for range 10 {
				a.commit(t, batch{topic, 0, 1})
			}
			time.Sleep(2 * time.Second)
		}
		b.mem.SetReachable(true)
		if got := func() int64 { time.Sleep(5 * time.Second); return b.head(t, topic, 0) }(); got != 80 {
			t.Errorf("head %d, want 80", got)
		}
		sameState(t, a, b)
	})
}

// sleepyDriver holds PutSnapshot at a gate, deaf to its context, as a process that was paused just before the write.
type sleepyDriver struct {
	metadata.Driver
	gate    chan struct{}
	asleep  chan struct{} // one value a call that waits
	results chan error
}

func (d *sleepyDriver) PutSnapshot(ctx context.Context, p metadata.SnapshotPointer, drop []metadata.LogEntry, g metadata.Guard) error {
	d.asleep <- struct{}{}
	<-d.gate
	err := d.Driver.PutSnapshot(context.WithoutCancel(ctx), p, drop, g)
	d.results <- err
	return err
}

// I3: the housekeeper is paused beyond its claim, just before it moves a pointer. The store refuses the write, and its successor goes on.
func TestPausedHousekeeperCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		sleepy := &sleepyDriver{gate: make(chan struct{}), asleep: make(chan struct{}, 16), results: make(chan error, 16)}
		a := f.open(house(5), func(o *metadata.Options) {
			sleepy.Driver = o.Driver
			o.Driver = sleepy
		})
		topic := a.topic(t, "acme", "orders", 1)
		for range 10 {
			a.commit(t, batch{topic, 0, 1})
		}
		<-sleepy.asleep
		a.mem.SetReachable(false)
		time.Sleep(20 * time.Second) // virtual: its claim runs out
		b := f.open(house(5))
		for range 2 {
			for range 10 {
				b.commit(t, batch{topic, 0, 1})
			}
			time.Sleep(3 * time.Second) // b holds the claim, and takes a snapshot
		}
		before := f.load(t)
		if len(before.Snapshots) == 0 {
			t.Fatal("the successor took no snapshot")
		}
		a.mem.SetReachable(true)
		close(sleepy.gate)
		if err := <-sleepy.results; !errors.Is(err, metadata.ErrClaimLost) {
			t.Errorf("the paused holder's write: %v, want ErrClaimLost", err)
		}
		synctest.Wait()
		after := f.load(t)
		for shard, p := range before.Snapshots {
			if after.Snapshots[shard] != p {
				t.Errorf("shard %d: the pointer moved from %+v to %+v", shard, p, after.Snapshots[shard])
			}
		}
		time.Sleep(10 * time.Second)
		sameState(t, a, b)
		sameState(t, b, f.open())
	})
}

func TestRetentionAndBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open(house(1 << 20))
		topic, _, err := a.PutTopic(t.Context(), "acme", "short", func(*metadata.Topic) (api.TopicConfig, error) {
			c := api.DefaultTopicConfig()
			c.Partitions, c.RetentionTime = 3, 10*time.Minute
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stale := commitOf(batch{topic, 0, 1})
		a.commit(t, batch{topic, 0, 4}, batch{topic, 2, 1})
		time.Sleep(5 * time.Minute)
		a.commit(t, batch{topic, 0, 2})
		moved, release := a.Changed(topic.ID, 0, 6)
		defer release()
		time.Sleep(4 * time.Minute)
		if info, _ := a.Partition(topic.ID, 0); info.LogStart != 0 {
			t.Errorf("logStart %d before the retention time", info.LogStart)
		}
		<-moved // a waiter learns that logStart has moved
		time.Sleep(time.Minute)
		if info, _ := a.Partition(topic.ID, 0); info.LogStart != 4 || info.Head != 6 {
			t.Errorf("partition 0: %+v, want logStart 4", info)
		}
		if info, _ := a.Partition(topic.ID, 2); info.LogStart != 1 || info.Head != 1 {
			t.Errorf("partition 2: %+v, want logStart 1", info)
		}
		time.Sleep(2 * time.Hour)
		r, err := await(t, a.SubmitCommit(stale))
		if err != nil || api.CodeOf(r[0].Err) != api.CodeStorageUnavailable {
			t.Errorf("a commit older than the GC boundary: %+v, %v", r, err)
		}
		// An idle fabric gets no entries.
		time.Sleep(time.Hour)
		idle := len(f.load(t).Entries)
		time.Sleep(5 * time.Hour)
		if now := len(f.load(t).Entries); now != idle {
			t.Errorf("an idle fabric's log grew from %d to %d entries", idle, now)
		}
	})
}

func TestHousekeeperMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open(house(10))
		time.Sleep(2 * time.Second)
		b := f.open(house(10))
		topic := a.topic(t, "acme", "orders", 1)
		a.close()
		time.Sleep(2 * time.Second)
		for range 30 {
			b.commit(t, batch{topic, 0, 1})
		}
		time.Sleep(2 * time.Second)
		if l := f.load(t); len(l.Snapshots) == 0 || len(l.Entries) > 10 {
			t.Errorf("after the first housekeeper has left: %d snapshots, %d entries", len(l.Snapshots), len(l.Entries))
		}
	})
}

// The snapshot is written, and the answer of the pointer's move is lost: the next round finishes it.
func TestSnapshotWithLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(t)
		a := f.open(house(5))
		topic := a.topic(t, "acme", "orders", 1)
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			switch {
			case c.Op == metafault.PutSnapshot && c.N%3 == 1:
				return metafault.Action{Lost: true}
			case c.Op == metafault.PutSnapshot && c.N%3 == 2:
				return metafault.Action{Err: &metadata.IndefiniteError{Cause: errors.New("timeout")}}
			}
			return metafault.Action{}
		})
		for range 40 {
			a.commit(t, batch{topic, 0, 1})
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if l := f.load(t); len(l.Entries) > 6 {
			t.Errorf("%d entries are left", len(l.Entries))
		}
		sameState(t, a, f.open())
	})
}

func TestClaims(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	c, held, err := a.Claim(t.Context(), "compactor/0", time.Minute)
	if err != nil || !held {
		t.Fatalf("claim: %v, %v", held, err)
	}
	if _, held, err := b.Claim(t.Context(), "compactor/0", time.Minute); err != nil || held {
		t.Errorf("second holder: %v, %v", held, err)
	}
	topic := a.topic(t, "acme", "orders", 1)
	a.commit(t, batch{topic, 0, 5})
	guard := &metadata.Guard{Claim: c.Name, Epoch: c.Epoch}
	trim := &metadata.Trim{TopicID: topic.ID, LogStart: 5, Claim: c.Name, ClaimEpoch: c.Epoch}
	if r, err := a.Do(t.Context(), trim, guard); err != nil || r.Err != nil {
		t.Errorf("trim under the claim: %+v, %v", r, err)
	}
	if err := a.Release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Do(t.Context(), trim, guard); !errors.Is(err, metadata.ErrClaimLost) {
		t.Errorf("trim after the release: %v, want ErrClaimLost", err)
	}
	next, held, err := b.Claim(t.Context(), "compactor/0", time.Minute)
	if err != nil || !held || next.Epoch <= c.Epoch {
		t.Errorf("successor: %+v, %v, %v", next, held, err)
	}
	// A command to all shards.
	boundary := &metadata.GCBoundary{Boundary: time.Now().Add(time.Hour).UnixMilli(), Claim: next.Name, ClaimEpoch: next.Epoch}
	if r, err := b.Do(t.Context(), boundary, &metadata.Guard{Claim: next.Name, Epoch: next.Epoch}); err != nil || r.Err != nil {
		t.Errorf("boundary: %+v, %v", r, err)
	}
	if r, err := await(t, a.SubmitCommit(commitOf(batch{topic, 0, 1}))); err != nil || api.CodeOf(r[0].Err) != api.CodeStorageUnavailable {
		t.Errorf("commit below the boundary: %+v, %v", r, err)
	}
}
