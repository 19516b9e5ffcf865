package journal

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/forebaymq/forebay/metadata"
)

// Values begin with valueVersion. Numbers are unsigned varints (7 bits a byte, the lowest first) of at most 2^63 - 1, but for the hash of a
// key, which is 8 bytes, little endian. A batch of the log has a checksum, so values have none.
const valueVersion = 1

// Flags of a pointer.
const (
	flagRemoved     = 1 << 0 // the pointer has ended; what follows the version is left out
	flagCopyPending = 1 << 1
	flagCopied      = 1 << 2
	flagExpired     = 1 << 3
	flagRelative    = 1 << 4 // the incarnation is that of an opening in the same append: its distance follows
	flagAttached    = 1 << 5
	flagsKnown      = 1<<6 - 1
)

// taskAll is the flag of a task that takes every dead letter.
const taskAll = 1 << 0

const (
	maxReasonBytes = 4096
	maxStateBytes  = 64
)

// state is the value of kindSeek, kindOpening and kindState.
type state struct {
	sequence int64 // kindState, else 0
	frontier int64
	skipped  int64
	settled  []Range
}

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func (s *state) encode() []byte {
	b := make([]byte, 1, 24+6*len(s.settled))
	b[0] = valueVersion
	b = appendNumbers(b, s.sequence, s.frontier, s.skipped, int64(len(s.settled)))
	at := s.frontier
	for _, r := range s.settled {
		b = appendNumbers(b, r.From-at, r.To-r.From)
		at = r.To
	}
	return b
}

// check says whether a shard's state can be encoded.
func (s *state) check() error {
	if s.sequence < 0 || s.frontier < 0 || s.skipped < 0 {
		return fmt.Errorf("a state has a negative number: %+v", *s)
	}
	at := s.frontier
	for _, r := range s.settled {
		if r.From <= at || r.To <= r.From {
			return fmt.Errorf("settled ranges are not ascending above frontier %d: %v", s.frontier, s.settled)
		}
		at = r.To
	}
	return nil
}

// reader takes a value apart. Its first error stays.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format+": %w", append(args, errFormat)...)
	}
}

func (r *reader) byte() byte {
	if r.err != nil || len(r.b) == 0 {
		r.fail("value ends early")
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) number() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > math.MaxInt64 {
		r.fail("value ends early, or a number is too large")
		return 0
	}
	r.b = r.b[size:]
	return int64(n)
}

func (r *reader) number32() int32 {
	n := r.number()
	if n > math.MaxInt32 {
		r.fail("%d is too large", n)
		return 0
	}
	return int32(n)
}

// count reads the number of elements that follow, each of at least size bytes.
func (r *reader) count(size int) int {
	n := r.number()
	if n > int64(len(r.b)/size) {
		r.fail("%d elements do not fit %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) text(most int) string {
	n := r.count(1)
	if n > most {
		r.fail("a text of %d bytes", n)
	}
	if r.err != nil {
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) begin() {
	if v := r.byte(); r.err == nil && v != valueVersion {
		r.fail("version %d", v)
	}
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

func decodeState(b []byte) (state, error) {
	r := reader{b: b}
	r.begin()
	s := state{sequence: r.number(), frontier: r.number(), skipped: r.number()}
	n := r.count(2)
	if n > 0 {
		s.settled = make([]Range, 0, n)
	}
	at := s.frontier
	for range n {
		gap, length := r.number(), r.number()
		if gap == 0 || length == 0 || gap > math.MaxInt64-at || length > math.MaxInt64-at-gap {
			r.fail("a settled range is empty, adjacent to the one before, or ends too high")
		}
		if r.err != nil {
			break
		}
		s.settled = append(s.settled, Range{From: at + gap, To: at + gap + length})
		at += gap + length
	}
	if err := r.end(); err != nil {
		return state{}, err
	}
	return s, nil
}

// mark is the value of kindPointer: a pointer, or its end.
type mark struct {
	removed  bool
	relative int64 // 0 = the incarnation is in the key; else how many records of the partition ago the opening was
	pointer  Pointer
}

// check says whether a pointer can be encoded.
func (m *mark) check() error {
	p := &m.pointer
	if p.Offset < 0 || p.Incarnation < 0 || p.Sequence < 0 || p.Attempts < 0 || p.FirstFailed < 0 || p.LastFailed < 0 || p.Due < 0 {
		return fmt.Errorf("a pointer has a negative number: %+v", *p)
	}
	if !m.removed && p.Kind != Retry && p.Kind != Dead && p.Kind != Scheduled {
		return fmt.Errorf("pointer at %d has no kind: %d", p.Offset, p.Kind)
	}
	return nil
}

func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

func (m *mark) encode() []byte {
	p := &m.pointer
	flags := bit(m.relative > 0, flagRelative)
	if m.removed {
		flags |= flagRemoved
	} else {
		flags |= bit(p.CopyPending, flagCopyPending) | bit(p.Copied, flagCopied) | bit(p.Expired, flagExpired) | bit(p.Attached, flagAttached)
	}
	b := make([]byte, 2, 48+len(p.Reason))
	b[0], b[1] = valueVersion, flags
	if m.relative > 0 {
		b = appendNumbers(b, m.relative)
	}
	b = appendNumbers(b, p.Sequence)
	if m.removed {
		return b
	}
	b = append(b, byte(p.Kind))
	b = appendNumbers(b, int64(p.Attempts), p.FirstFailed, p.LastFailed, p.Due)
	b = binary.LittleEndian.AppendUint64(b, p.KeyHash)
	reason := p.Reason[:min(len(p.Reason), maxReasonBytes)]
	b = appendNumbers(b, int64(len(reason)))
	return append(b, reason...)
}

// decodeMark reads a value of kindPointer. Offset and incarnation come from the key and from the offset in the journal.
func decodeMark(b []byte) (mark, error) {
	r := reader{b: b}
	r.begin()
	flags := r.byte()
	if flags&^flagsKnown != 0 {
		r.fail("flags %x", flags)
	}
	m := mark{removed: flags&flagRemoved != 0}
	if flags&flagRelative != 0 {
		if m.relative = r.number(); m.relative == 0 {
			r.fail("no distance to the opening")
		}
	}
	p := &m.pointer
	p.Sequence = r.number()
	if !m.removed {
		p.CopyPending, p.Copied, p.Expired = flags&flagCopyPending != 0, flags&flagCopied != 0, flags&flagExpired != 0
		p.Attached = flags&flagAttached != 0
		p.Kind = PointerKind(r.byte())
		p.Attempts, p.FirstFailed, p.LastFailed, p.Due = r.number32(), r.number(), r.number(), r.number()
		if r.err == nil && len(r.b) < 8 {
			r.fail("value ends early")
		}
		if r.err == nil {
			p.KeyHash = binary.LittleEndian.Uint64(r.b)
			r.b = r.b[8:]
		}
		p.Reason = r.text(maxReasonBytes)
		if r.err == nil && p.Kind != Retry && p.Kind != Dead && p.Kind != Scheduled {
			r.fail("a pointer of kind %d", p.Kind)
		}
	} else if flags&^(flagRemoved|flagRelative) != 0 {
		r.fail("flags %x of an end", flags)
	}
	if err := r.end(); err != nil {
		return mark{}, err
	}
	return m, nil
}

func encodeTask(t *Task) ([]byte, error) {
	if t.ID == "" || len(t.ID) > maxTaskID || len(t.State) > maxStateBytes {
		return nil, fmt.Errorf("task %q: an ID has 1 to %d bytes, a state at most %d", t.ID, maxTaskID, maxStateBytes)
	}
	if t.Rate < 0 || t.Total < 0 || t.Done < 0 || t.Created < 0 || t.Updated < 0 {
		return nil, fmt.Errorf("task %s has a negative number: %+v", t.ID, *t)
	}
	b := make([]byte, 2, 64+8*len(t.Offsets))
	b[0] = valueVersion
	if t.All {
		b[1] = taskAll
	}
	b = appendNumbers(b, int64(len(t.State)))
	b = append(b, t.State...)
	b = appendNumbers(b, int64(t.Rate), t.Total, t.Done, t.Created, t.Updated, int64(len(t.Offsets)))
	for _, o := range t.Offsets {
		if o.Partition < 0 || o.Offset < 0 {
			return nil, fmt.Errorf("task %s names partition %d offset %d", t.ID, o.Partition, o.Offset)
		}
		b = appendNumbers(b, int64(o.Partition), o.Offset)
	}
	return b, nil
}

func decodeTask(id string, sub metadata.SubscriptionID, b []byte) (Task, error) {
	r := reader{b: b}
	r.begin()
	flags := r.byte()
	if flags&^taskAll != 0 {
		r.fail("flags %x", flags)
	}
	t := Task{ID: id, Subscription: sub, All: flags&taskAll != 0, State: r.text(maxStateBytes)}
	t.Rate, t.Total, t.Done, t.Created, t.Updated = r.number32(), r.number(), r.number(), r.number(), r.number()
	if n := r.count(2); n > 0 {
		t.Offsets = make([]Target, n)
		for i := range t.Offsets {
			t.Offsets[i] = Target{Partition: r.number32(), Offset: r.number()}
		}
	}
	if err := r.end(); err != nil {
		return Task{}, err
	}
	return t, nil
}
