package segment

import (
	"encoding/binary"
	"math/bits"
)

// uvarint reads an unsigned LEB128 number of at most 64 bits. n is the number of bytes read, or 0 when b ends too early, the number
// overflows, or its encoding is not the shortest: one number has one encoding, so that decode and encode are inverses.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	v, n = binary.Uvarint(b)
	if n <= 0 || b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// varint reads a zigzag number. n is 0 as with uvarint.
func varint(b []byte) (v int64, n int) {
	u, n := uvarint(b)
	return int64(u>>1) ^ -int64(u&1), n
}

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// uvarintSize is the length of the encoding of v: 1 to 10 bytes.
func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
