package store

import (
	"fmt"
	"strconv"

	"github.com/forebaymq/forebay/leases/journal"
)

// packPointer is a pointer as P:<partition> has it. detached: the frontier does not wait for the record.
func packPointer(p *journal.Pointer, detached bool) string {
	flag := func(b bool) byte {
		if b {
			return '1'
		}
		return '0'
	}
	return fmt.Sprintf("%d %d %d %d %d %c %c %c %c %d %d %s %s", p.Kind, p.Attempts, p.FirstFailed, p.LastFailed, p.Due, flag(detached),
		flag(p.CopyPending), flag(p.Copied), flag(p.Expired), p.Sequence, p.Incarnation, hash(p.KeyHash), packReason(p.Reason))
}

// pointer reads a packed pointer but for its offset.
func (r *reply) pointer() journal.Pointer {
	p := journal.Pointer{Kind: journal.PointerKind(r.int()), Attempts: int32(r.int()), FirstFailed: r.int(), LastFailed: r.int(), Due: r.int()}
	p.Attached = !r.flag() // of a pointer that is loaded it follows from the shard's state
	p.CopyPending, p.Copied, p.Expired = r.flag(), r.flag(), r.flag()
	p.Sequence, p.Incarnation = r.int(), r.int()
	h, err := strconv.ParseUint(r.word(), 36, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: the hash of a key: %w", errReply, err)
	}
	p.KeyHash = h
	p.Reason = unpackReason(r.word())
	return p
}

// pad is an offset as the order of strings wants it.
func pad(offset int64) string { return fmt.Sprintf("%016d", offset) }
