package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/inbox"
	"github.com/forebaymq/forebay/internal/pgtest"
)

// postgres serves all tests of this package, each with a database of its own.
var postgres = pgtest.New()

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgres.Tests(m)) }

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newInbox makes one, and a table account with one row.
func newInbox(t testing.TB, opts ...inbox.Option) (*inbox.Inbox, *sql.DB) {
	t.Helper()
	db := postgres.DB(t)
	if _, err := db.Exec("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO account VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	box, err := inbox.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(limited(t), db); err != nil {
		t.Fatal(err)
	}
	return box, db
}

func deposit(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE id = 1")
	return err
}

func wantBalance(t testing.TB, db *sql.DB, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow("SELECT balance FROM account WHERE id = 1").Scan(&got); err != nil || got != want {
		t.Errorf("balance %d, want %d (%v)", got, want, err)
	}
}

func TestDoOnce(t *testing.T) {
	box, db := newInbox(t)
	ctx := limited(t)
	for n := range 3 {
		if did, err := box.Do(ctx, db, "c", "e1", deposit); err != nil || did != (n == 0) {
			t.Errorf("call %d: %v %v", n, did, err)
		}
	}
	if did, err := box.Do(ctx, db, "another", "e1", deposit); err != nil || !did {
		t.Errorf("another consumer: %v %v", did, err)
	}
	wantBalance(t, db, 2)
}

func TestAFailedEffectIsNoEffect(t *testing.T) {
	box, db := newInbox(t)
	ctx := limited(t)
	boom := errors.New("boom")
	if _, err := box.Do(ctx, db, "c", "e1", func(ctx context.Context, tx *sql.Tx) error { return errors.Join(deposit(ctx, tx), boom) }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = box.Do(ctx, db, "c", "e1", func(ctx context.Context, tx *sql.Tx) error { _ = deposit(ctx, tx); panic("boom") })
		t.Error("no panic")
	}()
	wantBalance(t, db, 0)
	if did, err := box.Do(ctx, db, "c", "e1", deposit); err != nil || !did {
		t.Errorf("again: %v %v", did, err)
	}
	wantBalance(t, db, 1)
}

// The second of two deliveries at a time waits for the first, and does what the first did not.
func TestTwoDeliveriesAtATime(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s commit %v", level, commit), func(t *testing.T) {
				box, db := newInbox(t)
				ctx := limited(t)
				first, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				if once, err := box.Once(ctx, first, "c", "e1"); err != nil || !once {
					t.Fatal(once, err)
				}
				if err := deposit(ctx, first); err != nil {
					t.Fatal(err)
				}
				type result struct {
					did bool
					err error
				}
				second := make(chan result, 1)
				go func() {
					did, err := box.DoTx(ctx, db, &sql.TxOptions{Isolation: level}, "c", "e1", deposit)
					second <- result{did, err}
				}()
				for waits := 0; waits == 0; {
					if err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waits); err != nil {
						t.Fatal(err)
					}
				}
				if commit {
					err = first.Commit()
				} else {
					err = first.Rollback()
				}
				if err != nil {
					t.Fatal(err)
				}
				if r := <-second; r.err != nil || r.did == commit {
					t.Errorf("%+v", r)
				}
				wantBalance(t, db, 1)
			})
		}
	}
}

// Many consumers get each record several times, in any order, at every level of isolation; connections are cut meanwhile, also during
// commits. Each effect happens once.
func TestManyDeliveries(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			box, db := newInbox(t, inbox.WithAttempts(1000))
			ctx := limited(t)
			const events, workers = 60, 6
			var did, cuts atomic.Int64
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(w)))
					for _, e := range rng.Perm(events) {
						for {
							ok, err := box.DoTx(ctx, db, &sql.TxOptions{Isolation: level}, "c", fmt.Sprint(e), func(ctx context.Context, tx *sql.Tx) error {
								if rng.IntN(20) == 0 { // the connection goes; sometimes as late as during the commit
									cuts.Add(1)
									var pid int
									if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
										return err
									}
									go func() { _, _ = db.Exec("SELECT pg_terminate_backend($1)", pid) }()
								}
								return deposit(ctx, tx)
							})
							if err == nil {
								if ok {
									did.Add(1)
								}
								break
							}
							if ctx.Err() != nil {
								t.Error(err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			wantBalance(t, db, events)
			if cuts.Load() == 0 || did.Load() > events {
				t.Errorf("%d cuts, %d calls say that they did it", cuts.Load(), did.Load())
			}
		})
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	box, db := newInbox(t, inbox.WithAttempts(3))
	calls := 0
	_, err := box.Do(limited(t), db, "c", "e1", func(ctx context.Context, tx *sql.Tx) error {
		calls++
		_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = '40001'; END $$")
		return err
	})
	if err == nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	calls = 0
	_, err = box.Do(limited(t), db, "c", "e1", func(ctx context.Context, tx *sql.Tx) error {
		calls++
		_, err := tx.ExecContext(ctx, "SELECT 1/0")
		return err
	})
	if err == nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestRecordID(t *testing.T) {
	long := strings.Repeat("x", 256)
	seen := map[string]bool{}
	for _, r := range []client.Record{
		{ID: "a"}, {ID: "@a"}, {ID: "@@a"}, {ID: "@7/1/2"}, {Partition: 1, Offset: 2}, {Partition: 1, Offset: 3}, {Partition: 2, Offset: 2},
		{ID: "7/1/2"}, {ID: long}, {ID: "@" + long[1:]},
	} {
		id := inbox.RecordID("7", &r)
		if seen[id] {
			t.Errorf("%q twice", id)
		}
		seen[id] = true
	}
	if a, b := inbox.RecordID("7", &client.Record{}), inbox.RecordID("8", &client.Record{}); a == b {
		t.Error("two topics of one name are one")
	}
	box, db := newInbox(t)
	for id := range seen {
		if did, err := box.Do(limited(t), db, "c", id, deposit); err != nil || !did {
			t.Errorf("%q: %v %v", id, did, err)
		}
	}
}

func TestRubbishIsRefused(t *testing.T) {
	box, db := newInbox(t)
	for _, bad := range []string{"", "\xff", "a\x00", strings.Repeat("x", 600)} {
		if _, err := box.Do(limited(t), db, "c", bad, deposit); err == nil {
			t.Errorf("ID %.20q is taken", bad)
		}
		if _, err := box.Do(limited(t), db, bad, "e", deposit); err == nil {
			t.Errorf("consumer %.20q is taken", bad)
		}
	}
	for _, name := range []string{"", "Big", "a.b.c", `x"; DROP TABLE y; --`} {
		if _, err := inbox.New(inbox.WithTable(name)); err == nil {
			t.Errorf("table %q is taken", name)
		}
	}
	if _, err := inbox.New(inbox.WithAttempts(0)); err == nil {
		t.Error("no attempts at all")
	}
	wantBalance(t, db, 0)
}

func TestMigrateByManyAtOnce(t *testing.T) {
	db := postgres.DB(t)
	if _, err := db.Exec("CREATE SCHEMA app"); err != nil {
		t.Fatal(err)
	}
	box, err := inbox.New(inbox.WithTable("app.seen"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := box.Migrate(limited(t), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := db.Exec(box.Schema()); err != nil {
		t.Errorf("the statements of Schema: %v", err)
	}
}

func TestPrune(t *testing.T) {
	box, db := newInbox(t)
	ctx := limited(t)
	if _, err := db.Exec(`INSERT INTO forebay_inbox SELECT 'c', 'old' || n, clock_timestamp() - interval '2 days' FROM generate_series(1, 2500) n`); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Do(ctx, db, "c", "young", deposit); err != nil {
		t.Fatal(err)
	}
	// Two at a time share the work.
	var total atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			n, err := box.Prune(ctx, db, 24*time.Hour)
			if err != nil {
				t.Error(err)
			}
			total.Add(n)
		})
	}
	wg.Wait()
	n, err := box.Prune(ctx, db, 24*time.Hour)
	if total.Add(n); err != nil || total.Load() != 2500 {
		t.Errorf("%d forgotten, %v", total.Load(), err)
	}
	if did, err := box.Do(ctx, db, "c", "young", deposit); err != nil || did {
		t.Errorf("the young one: %v %v", did, err)
	}
	if did, err := box.Do(ctx, db, "c", "old7", deposit); err != nil || !did {
		t.Errorf("a forgotten one: %v %v", did, err)
	}
}
