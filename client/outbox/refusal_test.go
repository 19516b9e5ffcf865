package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
)

// refuseValue makes the fake refuse requests with such a value in them.
func refuseValue(bad *atomic.Pointer[string], code api.Code) func(string, []client.Record) api.Code {
	return func(_ string, rs []client.Record) api.Code {
		for _, r := range rs {
			if b := bad.Load(); b != nil && string(r.Value) == *b {
				return code
			}
		}
		return ""
	}
}

// A record that is refused holds back what is behind it and nothing else, shows where an operator looks, and goes when its cause does.
func TestPoisonBlocksItsLane(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	ctx := limited(t)
	l := newFakeLog("t", "u")
	poison := "poison"
	var bad atomic.Pointer[string]
	bad.Store(&poison)
	l.refuse = refuseValue(&bad, api.CodeSchemaViolation)
	for i := range 40 {
		value := fmt.Sprint(i)
		if i == 23 {
			value = poison
		}
		add(t, o, db, "t", text("k", value))
		add(t, o, db, "u", text("k", value[:1]))
	}
	r := run(t, o, db, l)
	eventually(t, "all that can be published is", func() error {
		s, err := o.Stats(ctx, db)
		if err == nil && (s.Waiting != 17 || s.Refused != 1) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	if n := len(l.values("t", "k")); n != 23 {
		t.Errorf("%d records before the poison, want 23", n)
	}
	if n := len(l.values("u", "k")); n != 40 {
		t.Errorf("%d records of the other topic, want 40", n)
	}
	found, err := o.Refused(ctx, db, 10)
	if err != nil || len(found) != 1 || found[0].Topic != "t" || string(found[0].Key) != "k" || found[0].Parked || !strings.Contains(found[0].Refusal, "SCHEMA_VIOLATION") {
		t.Fatalf("refused: %+v, %v", found, err)
	}
	eventually(t, "the relay says so", func() error {
		if err := r.Stats().Err; !errors.Is(err, &client.Error{Code: api.CodeSchemaViolation}) {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	bad.Store(nil) // the schema was changed
	drained(t, o, db, r)
	if n := len(l.values("t", "k")); n != 40 {
		t.Errorf("%d records, want 40", n)
	}
	eventually(t, "the relay is content", func() error { return r.Stats().Err })
	if s, err := o.Stats(ctx, db); err != nil || s != (outbox.Stats{}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestParkByHand(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	ctx := limited(t)
	l := newFakeLog("t")
	poison := "poison"
	var bad atomic.Pointer[string]
	bad.Store(&poison)
	l.refuse = refuseValue(&bad, api.CodeTooLarge)
	add(t, o, db, "t", text("k", "1"), text("k", poison), text("k", "2"))
	r := run(t, o, db, l)
	var row int64
	eventually(t, "it is parked", func() error {
		found, err := o.Refused(ctx, db, 10)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("refused: %v %v", found, err)
		}
		row = found[0].Row
		n, err := o.Park(ctx, db, row, row+1000)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows parked", n) // it was being tried
		}
		return err
	})
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", "1", "2")
	if s, err := o.Stats(ctx, db); err != nil || s.Parked != 1 || s.Waiting != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if n, err := o.Discard(ctx, db, row+1000); n != 0 || err != nil {
		t.Error(n, err)
	}
	bad.Store(nil)
	if n, err := o.Unpark(ctx, db, row); n != 1 || err != nil {
		t.Error(n, err)
	}
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", "1", "2", poison)
	// What was never refused cannot be parked, what is not parked cannot be discarded.
	r.stop()
	add(t, o, db, "t", text("k", "3"))
	if err := db.QueryRow("SELECT id FROM forebay_outbox").Scan(&row); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Park(ctx, db, row); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := o.Discard(ctx, db, row); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestParkingByItself(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	poison := "poison"
	var bad atomic.Pointer[string]
	bad.Store(&poison)
	l.refuse = refuseValue(&bad, api.CodeInvalidRequest)
	var want []string
	for i := range 50 {
		if i%10 == 3 {
			add(t, o, db, "t", text("k", poison))
		} else {
			add(t, o, db, "t", text("k", fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
		}
	}
	r := run(t, o, db, l, outbox.WithParking())
	drained(t, o, db, r)
	wantValues(t, l, "t", "k", want...)
	found, err := o.Refused(limited(t), db, 10)
	if err != nil || len(found) != 5 || !found[0].Parked {
		t.Fatalf("%+v, %v", found, err)
	}
	if n, err := o.Discard(limited(t), db, found[0].Row, found[1].Row); n != 2 || err != nil {
		t.Error(n, err)
	}
}

// A topic that does not exist parks nothing, and everything is published once it does.
func TestAMissingTopic(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("there")
	for i := range 20 {
		add(t, o, db, "missing", text("k", fmt.Sprint(i)))
		add(t, o, db, "there", text("k", fmt.Sprint(i)))
	}
	r := run(t, o, db, l, outbox.WithParking())
	eventually(t, "the other topic is published", func() error {
		if n := len(l.values("there", "k")); n != 20 {
			return fmt.Errorf("%d", n)
		}
		s, err := o.Stats(context.Background(), db)
		if err == nil && s != (outbox.Stats{Waiting: 20, Refused: 1, OldestAge: s.OldestAge}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	l.create("missing", 2)
	drained(t, o, db, r)
	if n := len(l.values("missing", "k")); n != 20 {
		t.Errorf("%d records, want 20", n)
	}
}
