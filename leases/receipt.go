package leases

import (
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/leases/store"
)

// maxNonceBytes bounds what a receipt may name; nonces are shorter.
const maxNonceBytes = 64

// parseReceipt is the inverse of a receipt's text "partition:offset:nonce"; ok is false for what no lease can have been.
func parseReceipt(s string) (r store.Receipt, ok bool) {
	p, rest, ok := strings.Cut(s, ":")
	if !ok {
		return r, false
	}
	o, nonce, ok := strings.Cut(rest, ":")
	if !ok || nonce == "" || len(nonce) > maxNonceBytes {
		return r, false
	}
	for i := range len(nonce) {
		switch c := nonce[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-', c == '_', c == '.':
		default:
			return r, false
		}
	}
	partition, ok := parseDecimal(p)
	if !ok || partition >= api.MaxPartitions {
		return r, false
	}
	offset, ok := parseDecimal(o)
	if !ok {
		return r, false
	}
	return store.Receipt{Partition: int32(partition), Offset: offset, Nonce: nonce}, true
}

// maxExactOffset is the highest offset that the store's scripts can tell from its neighbours.
const maxExactOffset = 1 << 53

// parseDecimal reads a number as receipts carry it: digits alone, no leading zero, at most 2^53.
func parseDecimal(s string) (int64, bool) {
	if s == "" || len(s) > 16 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= maxExactOffset
}

// receiptText writes receipts of one run. All texts of a run share one allocation.
type receiptText struct {
	buf  []byte
	ends []int
}

func (t *receiptText) add(partition int32, offset int64, nonce string) {
	t.buf = strconv.AppendInt(t.buf, int64(partition), 10)
	t.buf = append(t.buf, ':')
	t.buf = strconv.AppendInt(t.buf, offset, 10)
	t.buf = append(t.buf, ':')
	t.buf = append(t.buf, nonce...)
	t.ends = append(t.ends, len(t.buf))
}

// assign gives the texts to the messages, in the order in which they were added, and starts anew.
func (t *receiptText) assign(ms []Message) {
	all, from := string(t.buf), 0
	for i := range ms {
		ms[i].Receipt = all[from:t.ends[i]]
		from = t.ends[i]
	}
	t.buf, t.ends = t.buf[:0], t.ends[:0]
}
