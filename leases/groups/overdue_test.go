package groups

import (
	"testing"
	"time"

	"github.com/forebaymq/forebay/api"
)

// A member that heartbeats and never lets go loses its membership in the end, and the others get what it held; one that takes its time does not.
func TestAMemberThatNeverLetsGo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fabric) {
		n := f.nodeWith(func(o *Options) { quiet(o); o.RebalanceTimeout = 30 * time.Second })
		n.makeTopic("orders", 4)
		n.publish("orders", 0, "a")
		a, b := n.peer("g", "orders"), n.peer("g", "orders")
		a.session, b.session = MaxSessionTimeout, MaxSessionTimeout
		a.join()
		b.join()
		for range 2 { // each time it lets go just in time
			for range 5 {
				a.beat()
				time.Sleep(5 * time.Second)
			}
			calm(t, a, b)
			if err := n.Leave(t.Context(), named("g"), b.id); err != nil {
				t.Fatal(err)
			}
			if a.beat(); len(a.at) != 4 {
				t.Fatal(a.at)
			}
			b.id = ""
			clear(b.at)
			b.join()
		}
		start := time.Now()
		for {
			if _, err := a.tryBeat(); err != nil {
				wantCode(t, err, api.CodeStaleGeneration)
				break
			}
			if time.Since(start) > 31*time.Second {
				t.Fatal("it is a member still")
			}
			time.Sleep(5 * time.Second)
		}
		if took := time.Since(start); took < 30*time.Second {
			t.Fatal(took)
		}
		if b.beat(); len(b.at) != 4 {
			t.Fatal(b.at)
		}
		wantCode(t, a.commit(a.owned()[0]), api.CodeStaleGeneration)
		d := n.describe("g")
		if d.State != stateStable || len(d.Members) != 1 {
			t.Fatalf("%+v", d)
		}
		// It may come again.
		clear(a.at)
		a.join()
		calm(t, a, b)
		if len(a.at) != 2 || len(b.at) != 2 {
			t.Fatal(a.at, b.at)
		}
	})
}
