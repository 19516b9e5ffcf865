package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebaymq/forebay/client/outbox"
	"github.com/forebaymq/forebay/internal/pgtest"
)

// IDs are given when rows are written, and seen when transactions commit. A lower ID that is seen later than higher ones were published is
// not lost, and the transaction that holds it back holds nobody else back.
func TestALateCommitIsNotLost(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	ctx := limited(t)
	l := newFakeLog("t")
	r := run(t, o, db, l)
	late, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Add(ctx, late, "t", text("k", "late"), text("other", "late")); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
	}
	drained(t, o, db, r)
	if n := len(l.values("t", "k")); n != 10 {
		t.Fatalf("%d records while a transaction is open, want 10", n)
	}
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "late")
	wantValues(t, l, "t", "other", "late")
}

// Transactions that lock the row that their event is about before they call Add are published in the order in which that row changed,
// however they overlap otherwise, with relays coming and going.
func TestOrderOfTransactionsThatLockTheirRow(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	ctx := limited(t)
	const keys, writers, changes = 5, 8, 60
	if _, err := db.Exec("CREATE TABLE thing (id int PRIMARY KEY, version int NOT NULL); INSERT INTO thing SELECT n, 0 FROM generate_series(0, 4) n"); err != nil {
		t.Fatal(err)
	}
	l := newFakeLog("t")
	l.lose, l.drop = 0.05, 0.05
	r := run(t, o, db, l, outbox.WithBatch(7, 1<<20))
	second := run(t, o, db, l, outbox.WithBatch(3, 1<<20))
	var committed [keys]atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(w)))
			for range changes {
				id, id2 := rng.IntN(keys), rng.IntN(keys)
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				rows := slices.Compact([]int{min(id, id2), max(id, id2)})
				for _, id := range rows {
					var version int
					if err := tx.QueryRow("UPDATE thing SET version = version + 1 WHERE id = $1 RETURNING version", id).Scan(&version); err != nil {
						t.Error(err)
					}
					if _, err := o.Add(ctx, tx, "t", text(fmt.Sprint(id), fmt.Sprint(version))); err != nil {
						t.Error(err)
					}
				}
				if rng.IntN(5) == 0 {
					err = tx.Rollback()
				} else if err = tx.Commit(); err == nil {
					for _, id := range rows {
						committed[id].Add(1)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	second.stop()
	drained(t, o, db, r)
	for id := range keys {
		var want []string
		for v := range committed[id].Load() {
			want = append(want, fmt.Sprint(v+1))
		}
		wantValues(t, l, "t", fmt.Sprint(id), want...)
	}
}

func TestShareIsFair(t *testing.T) {
	t.Parallel()
	for n := 1; n < 40; n++ {
		var relays []string
		for i := range n {
			relays = append(relays, fmt.Sprint("r", i))
		}
		rand.New(rand.NewPCG(3, uint64(n))).Shuffle(n, func(i, j int) { relays[i], relays[j] = relays[j], relays[i] })
		sum, low, high := 0, outbox.Shards, 0
		for _, r := range relays {
			s := outbox.Share(r, relays, outbox.Shards)
			sum, low, high = sum+s, min(low, s), max(high, s)
		}
		if sum != outbox.Shards || high-low > 1 {
			t.Errorf("%d relays: %d to %d shards, %d in all", n, low, high, sum)
		}
	}
	if outbox.Share("nobody", []string{"a"}, 16) != 0 {
		t.Error("who is not registered has a share")
	}
}

// wantShards waits until the relays have so many shards each, in any order, all different.
func wantShards(t *testing.T, relays []*running, want ...int) {
	t.Helper()
	eventually(t, "shards are shared", func() error {
		var counts []int
		seen := map[int]bool{}
		for _, r := range relays {
			s := r.Stats().Shards
			counts = append(counts, len(s))
			for _, shard := range s {
				if seen[shard] {
					return fmt.Errorf("shard %d twice", shard)
				}
				seen[shard] = true
			}
		}
		slices.Sort(counts)
		if !slices.Equal(counts, want) {
			return fmt.Errorf("relays have %v shards, want %v", counts, want)
		}
		return nil
	})
}

func TestRelaysShareTheWork(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	a := run(t, o, db, l)
	wantShards(t, []*running{a}, 16)
	b, c := run(t, o, db, l), run(t, o, db, l)
	wantShards(t, []*running{a, b, c}, 5, 5, 6)
	b.stop()
	wantShards(t, []*running{a, c}, 8, 8)
	for i := range 200 {
		add(t, o, db, "t", text(fmt.Sprint(i), "x"))
	}
	drained(t, o, db, a, c)
	if x, y := a.Stats().Published, c.Stats().Published; x == 0 || y == 0 || x+y != 200 {
		t.Errorf("published %d and %d of 200", x, y)
	}
	a.stop()
	wantShards(t, []*running{c}, 16)
}

// A relay stands still at each step, for longer than its lease; another one takes over and finishes; then the first goes on. Nothing is
// published twice or out of order, and the one that slept finds its way back.
func TestASleeperHarmsNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"opened", "assigned", "published"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			o, db := newOutbox(t)
			l := newFakeLog("t")
			asleep, awake := make(chan struct{}), make(chan struct{})
			var once sync.Once
			sleeps := func(at string) {
				if at == step {
					once.Do(func() { close(asleep); <-awake })
				}
			}
			rouse := sync.OnceFunc(func() { close(awake) })
			t.Cleanup(rouse)
			for i := range 30 {
				add(t, o, db, "t", text("k", fmt.Sprint(i)))
			}
			// The whole process is to sleep, heartbeats included: evict it by hand, as a relay does whose clock runs fast.
			a := run(t, o, db, l, outbox.WithHook(sleeps), outbox.WithBatch(4, 1<<20), outbox.WithLease(time.Hour))
			<-asleep
			if _, err := db.Exec("WITH gone AS (DELETE FROM forebay_outbox_relays) UPDATE forebay_outbox_shards SET owner = NULL"); err != nil {
				t.Fatal(err)
			}
			b := run(t, o, db, l, outbox.WithBatch(3, 1<<20))
			drained(t, o, db, b)
			add(t, o, db, "t", text("k", "30"))
			drained(t, o, db, b)
			rouse()
			add(t, o, db, "t", text("k", "31"))
			drained(t, o, db, b)
			a.stop()
			b.stop()
			var want []string
			for i := range 32 {
				want = append(want, fmt.Sprint(i))
			}
			wantValues(t, l, "t", "k", want...)
			if step == "published" && b.Stats().Settled == 0 {
				t.Error("the batch that was published and not marked was not found in the log")
			}
		})
	}
}

// Two relays stand still between publish and mark, the second one after it has taken over. The first one wakes up: what it believes of the shard is
// twice out of date, and it must see that before it writes anything, because what the second one has published is in the database alone.
func TestTwoSleepers(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	var want []string
	for i := range 20 {
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	begin := func(then string, done chan struct{}) (r *running, asleep chan struct{}, rouse func()) {
		asleep, awake := make(chan struct{}), make(chan struct{})
		var first, last sync.Once
		rouse = sync.OnceFunc(func() { close(awake) })
		r = run(t, o, db, l, outbox.WithBatch(4, 1<<20), outbox.WithLease(time.Hour), outbox.WithHook(func(step string) {
			switch step {
			case "published":
				first.Do(func() { close(asleep); <-awake })
			case "lost", "assigned":
				select {
				case <-awake:
					last.Do(func() {
						if step != then {
							t.Errorf("the next step of a relay that has woken up is %s, want %s", step, then)
						}
						close(done)
					})
				default:
				}
			}
		}))
		t.Cleanup(rouse)
		return r, asleep, rouse
	}
	aLost, bGoesOn := make(chan struct{}), make(chan struct{})
	a, asleep, rouse := begin("lost", aLost)
	<-asleep
	if _, err := db.Exec("DELETE FROM forebay_outbox_relays"); err != nil {
		t.Fatal(err)
	}
	b, asleep2, rouse2 := begin("assigned", bGoesOn)
	<-asleep2
	rouse()
	<-aLost
	a.stop()
	rouse2()
	<-bGoesOn
	drained(t, o, db, b)
	wantValues(t, l, "t", "k", want...)
}

// A relay that dies without a word is missed after a lease.
func TestTheDeadAreMissed(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	if _, err := db.Exec("INSERT INTO forebay_outbox_relays VALUES ('dead', 7); UPDATE forebay_outbox_shards SET owner = 'dead' WHERE shard < 10"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := run(t, o, db, l, outbox.WithLease(200*time.Millisecond))
	wantShards(t, []*running{r}, 16)
	// The owner of these has not even a row.
	r.stop()
	if _, err := db.Exec("UPDATE forebay_outbox_shards SET owner = 'ghost' WHERE shard > 3"); err != nil {
		t.Fatal(err)
	}
	wantShards(t, []*running{run(t, o, db, l)}, 16)
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("the dead one was given up after %s, before its lease was over", took)
	}
}

// A relay that the others took for dead registers again.
func TestTheUndeadComeBack(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	r := run(t, o, db, l)
	wantShards(t, []*running{r}, 16)
	if _, err := db.Exec("WITH gone AS (DELETE FROM forebay_outbox_relays) UPDATE forebay_outbox_shards SET owner = 'another', sequence = sequence + 5"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO forebay_outbox_relays VALUES ('another', 0)"); err != nil {
		t.Fatal(err)
	}
	wantShards(t, []*running{r}, 16)
	add(t, o, db, "t", text("k", "1"))
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", "1")
}

// A database that was restored from a backup has forgotten sequences that the server knows. Rows are published again, with their IDs, and none is
// taken for published that is not.
func TestARestoredDatabase(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	for i := range 5 {
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
	}
	if _, err := db.Exec("CREATE TABLE backup AS SELECT * FROM forebay_outbox; CREATE TABLE shards AS SELECT * FROM forebay_outbox_shards"); err != nil {
		t.Fatal(err)
	}
	r := run(t, o, db, l, outbox.WithBatch(2, 1<<20))
	drained(t, o, db, r)
	for i := range 100 { // far ahead of what the backup knows
		add(t, o, db, "t", text("k", fmt.Sprint("lost", i)))
		if i%10 == 0 {
			drained(t, o, db, r)
		}
	}
	drained(t, o, db, r)
	before := len(l.all("t"))
	// While the relay runs, and keeps what it thinks of the shards.
	if _, err := db.Exec(`UPDATE forebay_outbox_shards s SET sequence = b.sequence, topic = NULL, batch = NULL FROM shards b WHERE b.shard = s.shard;
		INSERT INTO forebay_outbox OVERRIDING SYSTEM VALUE SELECT * FROM backup`); err != nil {
		t.Fatal(err)
	}
	add(t, o, db, "t", text("k", "new"))
	drained(t, o, db, r)
	got := l.values("t", "k")
	if again := got[before:]; !slices.Equal(again, []string{"0", "1", "2", "3", "4", "new"}) {
		t.Errorf("after the restore: %q", again)
	}
	ids := map[string]string{}
	for _, rec := range l.all("t") {
		if v, ok := ids[string(rec.Value)]; ok && v != rec.ID {
			t.Errorf("record %s has the IDs %s and %s", rec.Value, v, rec.ID)
		}
		ids[string(rec.Value)] = rec.ID
	}
}

// Settings of the database that an application may have chosen change nothing.
func TestUnusualDatabaseSettings(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	var name string
	if err := db.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"default_transaction_isolation = 'serializable'", "synchronous_commit = off", "timezone = 'Asia/Kathmandu'",
		"extra_float_digits = -15", "datestyle = 'SQL, DMY'", "bytea_output = 'escape'"} {
		if _, err := db.Exec("ALTER DATABASE " + name + " SET " + set); err != nil {
			t.Fatal(err)
		}
	}
	db.SetMaxIdleConns(0) // new connections have the settings
	db.SetMaxOpenConns(3) // and there are few of them
	l := newFakeLog("t")
	a, b := run(t, o, db, l), run(t, o, db, l)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for i := range 30 {
		rec := text(fmt.Sprint(i%3), fmt.Sprint(i))
		rec.ProducerTime = at
		add(t, o, db, "t", rec)
	}
	drained(t, o, db, a, b)
	if n := len(l.all("t")); n != 30 {
		t.Errorf("%d records", n)
	}
	for _, rec := range l.all("t") {
		if !rec.ProducerTime.Equal(at) {
			t.Errorf("producer time %s", rec.ProducerTime)
		}
	}
}

// PostgreSQL ends in the middle and comes back.
func TestTheDatabaseCrashes(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db := server.DB(t)
	o, err := outbox.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Migrate(limited(t), db); err != nil {
		t.Fatal(err)
	}
	l := newFakeLog("t")
	var batches atomic.Int64
	some := make(chan struct{})
	r := run(t, o, db, l, outbox.WithBatch(5, 1<<20), outbox.WithHook(func(step string) {
		if step == "published" && batches.Add(1) == 4 {
			close(some)
		}
	}))
	var want []string
	for i := range 100 {
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	<-some
	server.Crash(t)
	server.Restart(t)
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", want...)
}
