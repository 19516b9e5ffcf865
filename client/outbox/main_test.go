package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
	"github.com/forebaymq/forebay/internal/pgtest"
)

// postgres serves all tests of this package, each with a database of its own.
var postgres = pgtest.New()

func TestMain(m *testing.M) {
	if spec := os.Getenv("CRASH_CHILD"); spec != "" {
		if err := runChild(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(postgres.Tests(m))
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newOutbox(t testing.TB, opts ...outbox.Option) (*outbox.Outbox, *sql.DB) {
	t.Helper()
	db := postgres.DB(t)
	o, err := outbox.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Migrate(limited(t), db); err != nil {
		t.Fatal(err)
	}
	return o, db
}

// add adds records in a transaction of their own.
func add(t testing.TB, o *outbox.Outbox, db *sql.DB, topic string, records ...client.Record) []string {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := o.Add(limited(t), tx, topic, records...)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return ids
}

func text(key, value string) client.Record {
	return client.Record{Key: []byte(key), Value: []byte(value), Kind: client.KindText}
}

// quick makes a relay that waits for nothing and logs nothing.
func quick(opts ...outbox.RelayOption) []outbox.RelayOption {
	return append([]outbox.RelayOption{
		outbox.WithPoll(5*time.Millisecond, 40*time.Millisecond), outbox.WithLease(300 * time.Millisecond), outbox.WithPauses(2*time.Millisecond, 20*time.Millisecond),
		outbox.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}, opts...)
}

// running is a relay under way.
type running struct {
	*outbox.Relay
	stop func() // ends it and waits
}

func run(t testing.TB, o *outbox.Outbox, db *sql.DB, p outbox.Publisher, opts ...outbox.RelayOption) *running {
	t.Helper()
	r, err := outbox.NewRelay(o, db, p, quick(opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop := func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return &running{r, stop}
}

// eventually waits for what another goroutine or process does.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-late.C:
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// drained waits until no row waits.
func drained(t testing.TB, o *outbox.Outbox, db *sql.DB, relays ...*running) {
	t.Helper()
	eventually(t, "an empty outbox", func() error {
		s, err := o.Stats(context.Background(), db)
		if err == nil && s.Waiting > 0 {
			err = fmt.Errorf("%+v", s)
			for _, r := range relays {
				err = errors.Join(err, r.Stats().Err)
			}
		}
		return err
	})
}

// wantValues compares the values of a key in the log, in order.
func wantValues(t testing.TB, l *fakeLog, topic, key string, want ...string) {
	t.Helper()
	if got := l.values(topic, key); !slices.Equal(got, want) {
		t.Errorf("key %s has %q, want %q", key, got, want)
	}
}
