package outbox_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
	"github.com/forebaymq/forebay/client/outbox"
)

// A server that is away, busy or does not know us anymore is no reason to park a record: it is shown, tried again, and over when it is over.
func TestFailuresThatAreNoFaultOfTheRecord(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	r := run(t, o, db, l, outbox.WithParking())
	for i, code := range []api.Code{api.CodeUnauthenticated, api.CodeConflict, api.CodeQuotaExceeded, api.CodeOverloaded, api.CodeMetadataUnavailable, api.CodeOutcomeUnknown} {
		l.setRefuse(func(string, []client.Record) api.Code { return code })
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
		eventually(t, "the relay says so", func() error {
			if err := r.Stats().Err; !errors.Is(err, &client.Error{Code: code}) {
				return fmt.Errorf("it says %v, want %s", err, code)
			}
			return nil
		})
		if s, err := o.Stats(limited(t), db); err != nil || s.Waiting != 1 || s.Parked != 0 || s.Refused != 0 {
			t.Errorf("%s: %+v, %v", code, s, err)
		}
		l.setRefuse(nil)
		drained(t, o, db, r)
		eventually(t, "the relay is content", func() error { return r.Stats().Err })
	}
	wantValues(t, l, "t", "k", "0", "1", "2", "3", "4", "5")
}

// The server has forgotten the producer since the last publish. Its refusal of the session is not held against the record.
func TestTheServerForgetsTheProducer(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	r := run(t, o, db, l, outbox.WithParking())
	for i := range 3 {
		add(t, o, db, "t", text("k", fmt.Sprint(i)))
		drained(t, o, db, r)
		l.forget()
	}
	wantValues(t, l, "t", "k", "0", "1", "2")
	if s, err := o.Stats(limited(t), db); err != nil || s.Parked != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A topic gains partitions between a publish and its mark: the same rows would go elsewhere now, where the server has never seen their
// sequence. That they are in the log is known all the same.
func TestATopicGainsPartitionsInBetween(t *testing.T) {
	t.Parallel()
	o, db := newOutbox(t)
	l := newFakeLog("t")
	asleep, awake := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rouse := sync.OnceFunc(func() { close(awake) })
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint("k", i))
		add(t, o, db, "t", text(keys[i], "1"), text(keys[i], "2"))
	}
	a := run(t, o, db, l, outbox.WithLease(time.Hour), outbox.WithHook(func(step string) {
		if step == "published" {
			once.Do(func() { close(asleep) })
			<-awake
		}
	}))
	t.Cleanup(rouse)
	<-asleep
	if _, err := db.Exec("DELETE FROM forebay_outbox_relays"); err != nil {
		t.Fatal(err)
	}
	l.grow("t", 11)
	b := run(t, o, db, l)
	drained(t, o, db, b)
	rouse()
	a.stop()
	if b.Stats().Settled == 0 {
		t.Error("no batch was found in the log")
	}
	for _, k := range keys {
		wantValues(t, l, "t", k, "1", "2")
	}
}
