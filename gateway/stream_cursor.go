package gateway

import (
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/api"
)

// cursor is the vector of next offsets of an event stream: of one partition, or of all partitions from 0 on. Its text is the id of
// every event, so a client that comes back with it as Last-Event-ID goes on exactly after the last event that it has seen, on any node.
//
//	cursor = first ":" run *("," run)
//	run    = offset ["x" count]          ; count partitions in a row with the same next offset
//
// "0:17,0x6,4" is a topic of eight partitions: 17 is next in partition 0, nothing was written to 1 to 6, 4 is next in 7. "3:120" is a stream of
// partition 3 alone. Offsets are decimal. The text has no characters that a header or an event could not carry.
type cursor struct {
	first   int32
	offsets []int64
}

// append writes the text of the cursor.
func (c *cursor) append(b []byte) []byte {
	b = strconv.AppendInt(b, int64(c.first), 10)
	sep := byte(':')
	for i := 0; i < len(c.offsets); {
		n := 1
		for i+n < len(c.offsets) && c.offsets[i+n] == c.offsets[i] {
			n++
		}
		b = append(b, sep)
		b = strconv.AppendInt(b, c.offsets[i], 10)
		if n > 1 {
			b = append(b, 'x')
			b = strconv.AppendInt(b, int64(n), 10)
		}
		sep = ','
		i += n
	}
	return b
}

// parseCursor reads the text of a cursor. It allocates no more than api.MaxPartitions offsets, whatever the text says.
func parseCursor(s string) (*cursor, error) {
	bad := func() (*cursor, error) {
		return nil, invalidField("Last-Event-ID", "is not the id of an event of this API")
	}
	head, rest, ok := strings.Cut(s, ":")
	first, okFirst := decimal(head)
	if !ok || !okFirst || first >= api.MaxPartitions {
		return bad()
	}
	c := &cursor{first: int32(first)}
	for run := range strings.SplitSeq(rest, ",") {
		value, times, repeated := strings.Cut(run, "x")
		offset, ok := decimal(value)
		if !ok {
			return bad()
		}
		n := int64(1)
		if repeated {
			if n, ok = decimal(times); !ok || n < 2 {
				return bad()
			}
		}
		if n > int64(api.MaxPartitions)-first-int64(len(c.offsets)) {
			return bad()
		}
		for range n {
			c.offsets = append(c.offsets, offset)
		}
	}
	return c, nil
}

// decimal reads a decimal number without sign or leading zeros.
func decimal(s string) (int64, bool) {
	if s == "" || len(s) > 19 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
