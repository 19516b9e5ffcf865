//go:build failpoints

package metadata_test

import (
	"testing"
	"testing/synctest"

	"github.com/forebaymq/forebay/internal/failpoint"
	"github.com/forebaymq/forebay/metadata/metafault"
)

// A build without the linearizable read shows old heads, and one that retries under new keys stores a commit twice: so the tests that demand
// the contrary can fail.

func TestWithoutLinearizableRead(t *testing.T) {
	f := newFabric(t)
	a, b := f.open(), f.open()
	topic := a.topic(t, "acme", "orders", 1)
	b.head(t, topic, 0)
	gate := make(chan struct{})
	b.faults.SetHook(func(c metafault.Call) metafault.Action {
		if c.Op == metafault.Deliver {
			return metafault.Action{Wait: gate}
		}
		return metafault.Action{}
	})
	failpoint.Set(failpoint.NoLinearizableRead, true)
	defer failpoint.Set(failpoint.NoLinearizableRead, false)
	a.commit(t, batch{topic, 0, 1})
	if got := b.head(t, topic, 0); got != 0 {
		t.Errorf("head %d: the fence was removed, and the read is still linearizable", got)
	}
	close(gate)
	failpoint.Set(failpoint.NoLinearizableRead, false)
	if got := b.head(t, topic, 0); got != 1 {
		t.Errorf("head %d with the fence, want 1", got)
	}
}

func TestWithoutCommitDedup(t *testing.T) {
	for _, broken := range []bool{true, false} {
		f := newFabric(t)
		a := f.open()
		topic := a.topic(t, "acme", "orders", 1)
		first := a.faults.Calls(metafault.Append) + 1
		gate := make(chan struct{})
		a.faults.SetHook(func(c metafault.Call) metafault.Action {
			switch {
			case c.Op == metafault.Append && c.N == first:
				return metafault.Action{Lost: true}
			case c.Op == metafault.Append:
				defer func() { close(gate) }()
			case c.Op == metafault.Deliver:
				return metafault.Action{Wait: gate} // the answer does not come from the watch before the retry
			}
			return metafault.Action{}
		})
		failpoint.Set(failpoint.NoCommitDedup, broken)
		a.commit(t, batch{topic, 0, 1})
		failpoint.Set(failpoint.NoCommitDedup, false)
		a.faults.SetHook(nil)
		want := int64(1)
		if broken {
			want = 2
		}
		if got := a.head(t, topic, 0); got != want {
			t.Errorf("broken %v: head %d, want %d", broken, got, want)
		}
	}
}

// Without the fence of groups, the simulation of zombies finds what they wrote.
func TestWithoutGroupFence(t *testing.T) {
	failpoint.Set(failpoint.NoGroupFence, true)
	defer failpoint.Set(failpoint.NoGroupFence, false)
	synctest.Test(t, func(t *testing.T) {
		if behind, _, _ := zombies(t, 1); behind == 0 {
			t.Error("the fence was removed, and no zombie has written anything")
		}
	})
}
