package proof

import (
	"strings"
	"testing"
	"time"
)

// TestQueueCheckerTellsRightFromWrong: the judge of the queue tests, by histories made by hand. Times are in milliseconds.
func TestQueueCheckerTellsRightFromWrong(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	lease := func(receipt string, attempt int, received, expires int64) *delivery {
		return &delivery{slot: slot{0, 7}, receipt: receipt, attempt: attempt, asked: ms(received - 1), received: ms(received), expires: ms(expires), key: "k"}
	}
	settle := func(d *delivery, what string, began, ended int64, f fate) *delivery {
		d.settle, d.began, d.ended, d.fate = what, ms(began), ms(ended), f
		return d
	}
	other := func(d *delivery, offset int64, index int) *delivery {
		d.offset, d.index = offset, index
		return d
	}
	rules := queueRules{maxAttempts: 3}
	ordered := queueRules{maxAttempts: 3, ordered: true}
	after := queueRules{maxAttempts: 3, repeats: 100 * time.Millisecond}
	for _, tc := range []struct {
		name   string
		rules  queueRules
		ds     []*delivery
		breaks []span
		want   string // in the first problem, "" = none
	}{
		{"acked once", rules, []*delivery{settle(lease("a", 1, 10, 100), "ack", 20, 21, fateOK)}, nil, ""},
		{"lapsed, then acked by another", rules, []*delivery{settle(lease("a", 1, 10, 100), "ack", 150, 151, fateLost), settle(lease("b", 2, 110, 200), "ack", 160, 161, fateOK)}, nil, ""},
		{"two live leases", rules, []*delivery{lease("a", 1, 10, 100), lease("b", 2, 90, 200)}, nil, "two live leases"},
		{"leased again after the nack began", rules, []*delivery{settle(lease("a", 1, 10, 100), "nack", 20, 30, fateOK), lease("b", 2, 25, 200)}, nil, ""},
		{"leased again after a break", after, []*delivery{lease("a", 1, 10, 100), lease("b", 1, 60, 200)}, []span{{ms(40), ms(50), "flush"}}, ""},
		{"a late ack is answered OK", rules, []*delivery{settle(lease("a", 1, 10, 100), "ack", 150, 151, fateOK)}, nil, "after the lease lapsed"},
		{"settled twice", rules, []*delivery{settle(lease("a", 1, 10, 100), "ack", 90, 101, fateOK), settle(lease("b", 2, 105, 200), "ack", 150, 151, fateOK)}, nil, "and again by"},
		{"one ack repeated", rules, []*delivery{settle(lease("a", 1, 10, 100), "ack", 20, 21, fateOK), settle(lease("a", 1, 10, 100), "ack", 30, 31, fateOK)}, nil, ""},
		{"settled again, first ack just before a break", after, []*delivery{settle(lease("a", 1, 10, 100), "ack", 20, 21, fateOK), settle(lease("b", 1, 80, 200), "ack", 90, 91, fateOK)}, []span{{ms(60), ms(70), "flush"}}, ""},
		{"settled again, first ack long before the break", after, []*delivery{settle(lease("a", 1, 10, 100), "ack", 20, 21, fateOK), settle(lease("b", 1, 380, 500), "ack", 390, 391, fateOK)}, []span{{ms(360), ms(370), "flush"}}, "and again by"},
		{"attempt beyond the limit", rules, []*delivery{lease("a", 4, 10, 100)}, nil, "attempt 4 of 3"},
		{"attempts fall", rules, []*delivery{lease("a", 2, 10, 100), lease("b", 1, 110, 200)}, nil, "attempt 1 after attempt 2"},
		{"attempts fall, the failure came just before a break", after, []*delivery{settle(lease("a", 1, 10, 100), "nack", 20, 30, fateOK), lease("b", 2, 51, 150), lease("c", 1, 70, 170)},
			[]span{{ms(45), ms(50), "flush"}}, ""},
		{"attempts fall, the break came while the nack was under way", after, []*delivery{settle(lease("a", 1, 10, 100), "nack", 20, 30, fateOK), lease("b", 2, 26, 150), lease("c", 1, 70, 170)},
			[]span{{ms(25), ms(26), "flush"}}, ""},
		{"attempts fall, the failure came long before the break", after, []*delivery{settle(lease("a", 1, 10, 100), "nack", 20, 30, fateOK), lease("b", 2, 351, 450), lease("c", 1, 370, 470)},
			[]span{{ms(345), ms(350), "flush"}}, "attempt 1 after attempt 2"},
		{"one receipt for two records", rules, []*delivery{lease("a", 1, 10, 100), other(lease("a", 1, 10, 100), 8, 1)}, nil, "was given for"},
		{"a key in order", ordered, []*delivery{settle(lease("a", 1, 10, 100), "ack", 20, 21, fateOK), other(lease("b", 1, 30, 100), 8, 1)}, nil, ""},
		{"a key's second record too early", ordered, []*delivery{settle(lease("a", 1, 10, 100), "nack", 20, 21, fateOK), other(lease("b", 1, 30, 100), 8, 1)}, nil, "before record 0 was settled"},
		{"a key twice at a time", ordered, []*delivery{lease("a", 1, 10, 100), other(lease("b", 1, 30, 100), 8, 1)}, nil, "leased at one time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newQueueHistory()
			h.breaks = tc.breaks
			for _, d := range tc.ds {
				h.add(d)
			}
			r := h.Check(tc.rules)
			switch {
			case tc.want == "" && len(r.problems) > 0:
				t.Errorf("a right history was refused: %v", r.problems)
			case tc.want != "" && (len(r.problems) == 0 || !strings.Contains(strings.Join(r.problems, "\n"), tc.want)):
				t.Errorf("problems %v, want %q", r.problems, tc.want)
			}
		})
	}
}
