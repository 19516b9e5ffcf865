//go:build failpoints

package store

import (
	"testing"

	"github.com/forebaymq/forebay/internal/failpoint"
)

// Without the check of the nonce a lapsed receipt settles what another consumer holds: that is what the proofs must notice.
func TestBrokenWithoutNonceCheck(t *testing.T) {
	failpoint.Set(failpoint.NoNonceCheck, true)
	defer failpoint.Set(failpoint.NoNonceCheck, false)
	r := miniRig(t)
	q := queue(1)
	r.open(q, 0)
	first := receipts(r.acquireFor(q, 2, lease, at(0, 2)).Grants...)
	r.advance(lease)
	r.wantOK(q, OpAck, SettleOptions{}, "1", first[1]) // owed by now
	second := r.acquire(q, 2, at(0, 2))
	r.wantGrants(second, "0:0+1/2")
	r.wantOK(q, OpAck, SettleOptions{}, "1", first[0])
	if s := r.stats(q, 0); s.Frontier != 2 || s.InFlight != 0 || s.Owed != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestBrokenWithoutKeyLock(t *testing.T) {
	failpoint.Set(failpoint.NoKeyLock, true)
	defer failpoint.Set(failpoint.NoKeyLock, false)
	r := miniRig(t)
	q := queue(1)
	q.Ordered = true
	r.open(q, 0)
	r.admit(q, 0, 0, 1, 1, 1)
	r.wantGrants(r.acquire(q, 9), "0:0+3/1")
}
