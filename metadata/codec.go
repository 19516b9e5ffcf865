package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/oklog/ulid/v2"
)

// ErrUndecodable is the class of every error about bytes that are not valid commands or a valid snapshot.
var ErrUndecodable = errors.New("undecodable metadata")

// DecodeError says where bytes are bad.
type DecodeError struct {
	Structure string // "entry", "commit", "snapshot", ...
	Offset    int    // byte offset in the decoded buffer
	Reason    string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("undecodable metadata: %s at byte %d: %s", e.Structure, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrUndecodable) true.
func (e *DecodeError) Is(target error) bool { return target == ErrUndecodable }

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func appendVarint(dst []byte, v int64) []byte { return binary.AppendUvarint(dst, zigzag(v)) }

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// reader decodes with a sticky error: after the first fault every read answers zero, and loops end because counts are zero.
type reader struct {
	b         []byte
	off       int
	structure string
	err       error
}

func (r *reader) fail(reason string) {
	if r.err == nil {
		r.err = &DecodeError{Structure: r.structure, Offset: r.off, Reason: reason}
		r.off = len(r.b)
	}
}

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) byte() byte {
	if r.off >= len(r.b) {
		r.fail("truncated")
		return 0
	}
	c := r.b[r.off]
	r.off++
	return c
}

func (r *reader) bool() bool {
	switch r.byte() {
	case 0:
	case 1:
		return true
	default:
		r.fail("bad flag")
	}
	return false
}

func (r *reader) uvarint() uint64 {
	if r.off < len(r.b) && r.b[r.off] < 0x80 {
		r.off++
		return uint64(r.b[r.off-1])
	}
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.off += n
	return v
}

func (r *reader) varint() int64 { return unzigzag(r.uvarint()) }

// upTo reads an unsigned number that may not exceed limit.
func (r *reader) upTo(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail("number out of range")
		return 0
	}
	return v
}

func (r *reader) uint32() uint32 { return uint32(r.upTo(math.MaxUint32)) }
func (r *reader) int32() int32   { return int32(r.upTo(math.MaxInt32)) }
func (r *reader) int63() int64   { return int64(r.upTo(math.MaxInt64)) }

// count reads the length of a list whose elements take at least min bytes each, so that what is allocated for it is bounded by what
// is there to decode.
func (r *reader) count(min int) int {
	n := r.uvarint()
	if n > uint64(r.left()/min) {
		r.fail("count exceeds the data")
		return 0
	}
	return int(n)
}

// bytes returns n bytes that share memory with the buffer.
func (r *reader) bytes(n int) []byte {
	if n > r.left() {
		r.fail("truncated")
		return nil
	}
	b := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

func (r *reader) string() string { return string(r.bytes(r.count(1))) }

func (r *reader) ulid() (id ulid.ULID) {
	copy(id[:], r.bytes(len(id)))
	return id
}

// finish fails when bytes are left over.
func (r *reader) finish() error {
	if r.err == nil && r.left() > 0 {
		r.fail("trailing bytes")
	}
	return r.err
}
