package store

import "testing"

func TestLeaseAndAck(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		q := queue(7)
		r.open(q, 0, 1)
		a := r.acquire(q, 10, at(0, 4), at(1, 100))
		r.wantGrants(a, "0:0+4/1 1:0+6/1")
		if len(a.Positions) != 2 || a.Positions[1] != (Position{Partition: 1, Frontier: 0, Cursor: 6, Room: 994}) {
			t.Fatal(a.Positions)
		}
		r.audit(q)
		// Out of order, by record, whole blocks.
		r.wantOK(q, OpAck, SettleOptions{}, "1", receipts(a.Grants[0])[2])
		if s := r.stats(q, 0); s.Frontier != 0 || s.AckedAhead != 1 || s.InFlight != 3 || s.OldestOffset != 0 {
			t.Fatalf("%+v", s)
		}
		r.audit(q)
		r.wantOK(q, OpAck, SettleOptions{}, "111", receipts(a.Grants[0])[0], receipts(a.Grants[0])[1], receipts(a.Grants[0])[3])
		r.wantOK(q, OpAck, SettleOptions{}, "111111", receipts(a.Grants[1])...)
		for p, f := range map[int32]int64{0: 4, 1: 6} {
			if s := r.stats(q, p); s.Frontier != f || s.Cursor != f || s.InFlight != 0 || s.AckedAhead != 0 || s.OldestOffset != -1 {
				t.Fatalf("%+v", s)
			}
		}
		// Again: still a success.
		r.wantOK(q, OpAck, SettleOptions{}, "1111111111", receipts(a.Grants...)...)
		r.wantOK(q, OpAck, SettleOptions{}, "00", Receipt{0, 2, "01MADEUP"}, Receipt{0, 9, a.Grants[0].Nonce})
		r.audit(q)
		r.wantGrants(r.acquire(q, 1, at(1, 100)), "1:6+1/1")
	})
}
