package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
)

func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	db := postgres.DB(t)
	if _, err := db.Exec("CREATE SCHEMA app"); err != nil {
		t.Fatal(err)
	}
	o, err := outbox.New(outbox.WithTable("app.outbox"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := outbox.NewRelay(o, db, newFakeLog(), quick()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(limited(t)); !errors.Is(err, outbox.ErrNotMigrated) {
		t.Errorf("without tables: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := o.Migrate(limited(t), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := db.Exec(o.Schema()); err != nil {
		t.Errorf("the statements of Schema: %v", err)
	}
	var shards int
	if err := db.QueryRow("SELECT count(DISTINCT producer) FROM app.outbox_shards").Scan(&shards); err != nil || shards != outbox.Shards {
		t.Errorf("%d shards with producers of their own, %v", shards, err)
	}
	for _, name := range []string{"", "Big", "a.b.c", `x"; DROP TABLE y; --`, "1a", strings.Repeat("x", 49)} {
		if _, err := outbox.New(outbox.WithTable(name)); err == nil {
			t.Errorf("table %q is taken", name)
		}
	}
}

// What comes out is what went in, absent and empty told apart.
func TestRecordsAreKeptExactly(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	at := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	in := []client.Record{
		{Key: nil, Value: nil, ID: "0"},
		{Key: []byte{}, Value: []byte{}, ID: "1"},
		{Key: every, Value: every, KeyBinary: true, Kind: client.KindData, ID: "2"},
		{Key: []byte("k"), Value: []byte(`{"n":12345678901234567890, "a":1}`), Kind: client.KindJSON, ID: "3"},
		{Key: []byte("k"), Value: []byte("null"), Kind: client.KindJSON, ID: "4"},
		{Key: []byte("k"), Value: []byte("tëxt\x00"), Kind: client.KindText, ID: "5", ProducerTime: at, DeliverAt: at.Add(time.Hour),
			Headers: []client.Header{{Name: "a", Value: "1"}, {Name: "a", Value: "<\x00é>"}, {Name: "b", Value: ""}}},
		{Value: []byte("pinned"), Pinned: true, Partition: 0, ID: "6"},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("x"), api.MaxRecordBytes-1), ID: "7"},
		{Value: []byte("no ID")},
	}
	ids := add(t, o, db, "t", in...)
	in[8].ID = ids[8]
	if len(ids[8]) != 26 {
		t.Errorf("event ID %q", ids[8])
	}
	drained(t, o, db, run(t, o, db, l))
	out := l.all("t")
	slices.SortFunc(out, func(a, b client.Record) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	if len(out) != len(in) {
		t.Fatalf("%d records, want %d", len(out), len(in))
	}
	for i := range in {
		got := out[i]
		if !got.ProducerTime.Equal(in[i].ProducerTime) || !got.DeliverAt.Equal(in[i].DeliverAt) {
			t.Errorf("record %d: times %s %s", i, got.ProducerTime, got.DeliverAt)
		}
		got.ProducerTime, got.DeliverAt = in[i].ProducerTime, in[i].DeliverAt
		if !reflect.DeepEqual(got, in[i]) {
			t.Errorf("record %d: %.200s, want %.200s", i, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", in[i]))
		}
	}
}

func TestAddRefusesWhatNoTopicTakes(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	for name, r := range map[string]client.Record{
		"key":          {Key: make([]byte, api.MaxKeyBytes+1)},
		"value":        {Value: make([]byte, api.MaxRecordBytes+1)},
		"headers":      {Headers: make([]client.Header, api.MaxHeaders+1)},
		"header bytes": {Headers: []client.Header{{Name: "a", Value: strings.Repeat("x", api.MaxHeaderBytes)}}},
		"header name":  {Headers: []client.Header{{Value: "x"}}},
		"header text":  {Headers: []client.Header{{Name: "a", Value: "\xff"}}},
		"id":           {ID: strings.Repeat("x", api.MaxIDBytes+1)},
		"id text":      {ID: "\xff"},
		"id NUL":       {ID: "a\x00"},
		"pinned":       {Key: []byte("k"), Pinned: true},
		"kind":         {Kind: 4},
		"text":         {Kind: client.KindText, Value: []byte("\xff")},
		"json":         {Kind: client.KindJSON, Value: []byte("{} {}")},
	} {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Add(limited(t), tx, "t", text("a", "b"), r); err == nil || !strings.Contains(err.Error(), "record 1") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := o.Add(limited(t), tx, "__t", text("a", "b")); err == nil {
			t.Error("a reserved topic is taken")
		}
		// The transaction is not broken by it: the caller may go on.
		if _, err := o.Add(limited(t), tx, "t", text("a", "b")); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := o.Stats(limited(t), db); err != nil || s != (outbox.Stats{}) {
		t.Errorf("after rollbacks: %+v, %v", s, err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	add(t, o, db, "t", text("a", "1"), text("b", "2"))
	if _, err := db.Exec("UPDATE forebay_outbox SET added_at = clock_timestamp() - interval '1 hour' WHERE key = 'a'"); err != nil {
		t.Fatal(err)
	}
	s, err := o.Stats(limited(t), db)
	if err != nil || s.Waiting != 2 || s.OldestAge < time.Hour || s.OldestAge > 2*time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
	// A clock that was put back gives no negative age.
	if _, err := db.Exec("UPDATE forebay_outbox SET added_at = clock_timestamp() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if s, err = o.Stats(limited(t), db); err != nil || s.OldestAge != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestMoreRowsThanOneStatementTakes(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	var rs []client.Record
	var want []string
	for i := range 2500 {
		rs = append(rs, text("k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	add(t, o, db, "t", rs...)
	drained(t, o, db, run(t, o, db, l))
	wantValues(t, l, "t", "k", want...)
}

// With the lock on keys, a second transaction that adds a key waits for the end of the first, whatever else they lock.
func TestKeyLock(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t, outbox.WithKeyLock())
	ctx := limited(t)
	first, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Add(ctx, first, "t", text("k", "1"), text("other", "1")); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		tx, err := db.Begin()
		if err == nil {
			if _, err = o.Add(ctx, tx, "t", text("x", "2"), text("k", "2")); err == nil {
				err = tx.Commit()
			}
		}
		second <- err
	}()
	eventually(t, "the second waits", func() error {
		var n int
		err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
	if _, err := o.Add(ctx, first, "t", text("k", "1b")); err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	l := newFakeLog("t")
	drained(t, o, db, run(t, o, db, l))
	wantValues(t, l, "t", "k", "1", "1b", "2")
	wantValues(t, l, "t", "x", "2")
}

func TestPruneKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	var rs []client.Record
	for i := range 1500 {
		rs = append(rs, text(fmt.Sprint(i%7), fmt.Sprint(i)))
	}
	add(t, o, db, "t", rs...)
	r := run(t, o, db, l, outbox.WithRetention(time.Hour))
	drained(t, o, db, r)
	r.stop()
	add(t, o, db, "t", text("a", "waits"))
	count := func() (n int) {
		if err := db.QueryRow("SELECT count(*) FROM forebay_outbox").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n, err := o.Prune(limited(t), db, time.Hour); err != nil || n != 0 || count() != 1501 {
		t.Errorf("%d pruned of what is young, %d there, %v", n, count(), err)
	}
	if n, err := o.Prune(limited(t), db, 0); err != nil || n != 1500 || count() != 1 {
		t.Errorf("%d pruned, %d there, %v", n, count(), err)
	}
	// A relay prunes by itself.
	run(t, o, db, l, outbox.WithRetention(50*time.Millisecond))
	eventually(t, "nothing is left", func() error {
		if n := count(); n > 0 {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
	if n := len(l.all("t")); n != 1501 {
		t.Errorf("%d records, want 1501", n)
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	r := run(t, o, db, l, outbox.WithPoll(time.Hour, time.Hour))
	eventually(t, "the relay has its shards", func() error {
		if n := len(r.Stats().Shards); n != outbox.Shards {
			return fmt.Errorf("%d shards", n)
		}
		return nil
	})
	for i := range 20 {
		add(t, o, db, "t", text(fmt.Sprint(i), "x"))
	}
	r.Wake()
	drained(t, o, db, r)
	if n := len(l.all("t")); n != 20 {
		t.Errorf("%d records", n)
	}
	if err := r.Run(context.Background()); err == nil {
		t.Error("a relay runs twice")
	}
}
