package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// memMaxBytes bounds one Append of a MemDriver, as etcd's request limit does: values and an allowance for each key.
const memMaxBytes = 1_500_000

// ErrSnapshotStale: the shard's pointer is at a newer revision already. Definite, nothing was written.
var ErrSnapshotStale = errors.New("snapshot pointer is newer")

// errMemClosed is what a closed MemDriver answers; it wraps ErrNoQuorum, because nothing was done.
var errMemClosed = fmt.Errorf("%w: driver closed", ErrNoQuorum)

// MemOptions configure a MemDriver. The zero value works.
type MemOptions struct {
	Clock clockwork.Clock // times claims of unreachable holders; default the real clock
}

// MemDriver is a Driver in memory, for tests and simulations. A MemDriver is one node's connection to a store; Peer makes another
// connection to the same store. Nothing survives the process.
type MemDriver struct {
	store *memStore
	stop  chan struct{} // closed by Close
	mu    struct {
		sync.Mutex
		closed      bool
		unreachable bool
		moved       chan struct{} // closed and replaced when unreachable changes
	}
}

var _ Driver = (*MemDriver)(nil)

type memKey struct {
	shard  int
	stream Stream
	seq    uint64
}

// memClaim is a held claim. lost and free run while its holder is unreachable: lost is the holder's own deadline, and comes first.
type memClaim struct {
	owner *MemDriver
	epoch int64
	ttl   time.Duration
	done  chan struct{}
	gone  bool // done is closed
	lost  clockwork.Timer
	free  clockwork.Timer
}

type memStore struct {
	clock clockwork.Clock
	mu    struct {
		sync.Mutex
		revision  int64
		fabric    *Fabric
		entries   map[memKey]LogEntry
		heads     map[int]int64
		snapshots map[int]SnapshotPointer
		claims    map[string]*memClaim
		history   []LogEntry // ascending; what watches see
		compacted int64      // lowest revision that may still be watched
		changed   chan struct{}
	}
}

// NewMemDriver makes an empty store and a connection to it.
func NewMemDriver(o MemOptions) *MemDriver {
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	s := &memStore{clock: o.Clock}
	s.mu.revision = 1
	s.mu.entries = map[memKey]LogEntry{}
	s.mu.heads = map[int]int64{}
	s.mu.snapshots = map[int]SnapshotPointer{}
	s.mu.claims = map[string]*memClaim{}
	s.mu.changed = make(chan struct{})
	return s.connect()
}

func (s *memStore) connect() *MemDriver {
	d := &MemDriver{store: s, stop: make(chan struct{})}
	d.mu.moved = make(chan struct{})
	return d
}

// Peer makes another connection to the same store, as another node has it.
func (d *MemDriver) Peer() *MemDriver { return d.store.connect() }

// SetReachable cuts this connection from its store (false) or restores it. While it is cut, calls answer ErrNoQuorum, watches stand still,
// and claims run out.
func (d *MemDriver) SetReachable(ok bool) {
	d.mu.Lock()
	if d.mu.unreachable == !ok {
		d.mu.Unlock()
		return
	}
	d.mu.unreachable = !ok
	close(d.mu.moved)
	d.mu.moved = make(chan struct{})
	d.mu.Unlock()
	d.store.holderMoved(d, ok)
}

// check answers why a call cannot be made now.
func (d *MemDriver) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.closed:
		return errMemClosed
	case d.mu.unreachable:
		return ErrNoQuorum
	}
	return nil
}

// Init implements Driver.
func (d *MemDriver) Init(ctx context.Context, f Fabric) (Fabric, error) {
	if err := d.check(ctx); err != nil {
		return Fabric{}, err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.fabric == nil {
		s.mu.fabric = &f
		s.mu.revision++
	}
	return *s.mu.fabric, nil
}

// Append implements Driver.
func (d *MemDriver) Append(ctx context.Context, entries []LogEntry, guard *Guard) (int64, error) {
	if err := ValidateAppend(entries); err != nil {
		return 0, err
	}
	size := 0
	for _, e := range entries {
		size += len(e.Value) + 256
	}
	if size > memMaxBytes {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	if err := d.check(ctx); err != nil {
		return 0, err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if old, ok := s.mu.entries[memKey{e.Shard, e.Stream, e.Seq}]; ok {
			return old.Revision, nil
		}
	}
	if guard != nil && !s.guardedLocked(*guard) {
		return 0, ErrClaimLost
	}
	s.mu.revision++
	made := make([]LogEntry, 0, len(entries))
	for _, e := range entries {
		e.Revision = s.mu.revision
		e.Value = bytes.Clone(e.Value)
		s.mu.entries[memKey{e.Shard, e.Stream, e.Seq}] = e
		s.mu.heads[e.Shard] = e.Revision
		made = append(made, e)
	}
	sort.Slice(made, func(i, j int) bool { return made[i].Shard < made[j].Shard })
	s.mu.history = append(s.mu.history, made...)
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	return s.mu.revision, nil
}

// ValidateAppend checks what Driver.Append demands of its entries. What it finds is a bug of the caller.
func ValidateAppend(entries []LogEntry) error {
	if len(entries) == 0 {
		return errors.New("append: no entries")
	}
	seen := make(map[int]bool, len(entries))
	for _, e := range entries {
		switch {
		case e.Stream == "" || e.Stream != entries[0].Stream || e.Seq != entries[0].Seq:
			return fmt.Errorf("append: entries of several streams or sequences: %s/%d, %s/%d", entries[0].Stream, entries[0].Seq, e.Stream, e.Seq)
		case e.Shard < 0 || seen[e.Shard]:
			return fmt.Errorf("append: shard %d is negative or twice", e.Shard)
		}
		seen[e.Shard] = true
	}
	return nil
}

func (s *memStore) guardedLocked(g Guard) bool {
	c := s.mu.claims[g.Claim]
	return c != nil && c.epoch == g.Epoch
}

// Head implements Driver.
func (d *MemDriver) Head(ctx context.Context) (int64, error) {
	if err := d.check(ctx); err != nil {
		return 0, err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var head int64
	for _, r := range s.mu.heads {
		head = max(head, r)
	}
	return head, nil
}

// Load implements Driver.
func (d *MemDriver) Load(ctx context.Context) (*Loaded, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Loaded{Revision: s.mu.revision, Snapshots: make(map[int]SnapshotPointer, len(s.mu.snapshots))}
	for shard, p := range s.mu.snapshots {
		l.Snapshots[shard] = p
	}
	l.Entries = make([]LogEntry, 0, len(s.mu.entries))
	for _, e := range s.mu.entries {
		l.Entries = append(l.Entries, e)
	}
	SortEntries(l.Entries)
	return l, nil
}

// SortEntries puts entries into the order of the log: by revision, then shard.
func SortEntries(entries []LogEntry) {
	sort.Slice(entries, func(i, j int) bool {
		a, b := &entries[i], &entries[j]
		if a.Revision != b.Revision {
			return a.Revision < b.Revision
		}
		return a.Shard < b.Shard
	})
}

// Watch implements Driver.
func (d *MemDriver) Watch(ctx context.Context, from int64, fn func(Events) error) error {
	s := d.store
	for {
		d.mu.Lock()
		closed, cut, moved := d.mu.closed, d.mu.unreachable, d.mu.moved
		d.mu.Unlock()
		if closed {
			return errMemClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if cut {
			select {
			case <-moved:
			case <-d.stop:
			case <-ctx.Done():
			}
			continue
		}
		s.mu.Lock()
		if from < s.mu.compacted {
			compacted := s.mu.compacted
			s.mu.Unlock()
			return fmt.Errorf("%w: from %d, compacted to %d", ErrCompacted, from, compacted)
		}
		i := sort.Search(len(s.mu.history), func(i int) bool { return s.mu.history[i].Revision >= from })
		batch := append([]LogEntry(nil), s.mu.history[i:]...)
		through, changed := s.mu.revision, s.mu.changed
		s.mu.Unlock()
		if through >= from {
			if err := fn(Events{Entries: batch, Through: through}); err != nil {
				return err
			}
			from = through + 1
			continue
		}
		select {
		case <-changed:
		case <-moved:
		case <-d.stop:
		case <-ctx.Done():
		}
	}
}

// PutSnapshot implements Driver.
func (d *MemDriver) PutSnapshot(ctx context.Context, p SnapshotPointer, drop []LogEntry, guard Guard) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.guardedLocked(guard) {
		return ErrClaimLost
	}
	old, had := s.mu.snapshots[p.Shard]
	if had && (old.Revision > p.Revision || old.Revision == p.Revision && old != p) {
		return fmt.Errorf("%w: shard %d has %d, got %d", ErrSnapshotStale, p.Shard, old.Revision, p.Revision)
	}
	upTo := StreamEnds(p.Shard, drop)
	s.mu.revision++
	s.mu.snapshots[p.Shard] = p
	for k := range s.mu.entries {
		if last, ok := upTo[k.stream]; ok && k.shard == p.Shard && k.seq <= last {
			delete(s.mu.entries, k)
		}
	}
	return nil
}

// StreamEnds gives, for the entries of one shard that a snapshot contains, the last sequence of each stream. A stream's entries are
// created in sequence order, so that a snapshot which contains one contains all before it.
func StreamEnds(shard int, drop []LogEntry) map[Stream]uint64 {
	ends := make(map[Stream]uint64)
	for _, e := range drop {
		if e.Shard == shard {
			ends[e.Stream] = max(ends[e.Stream], e.Seq)
		}
	}
	return ends
}

// Compact implements Driver.
func (d *MemDriver) Compact(ctx context.Context, revision int64) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.mu.revision {
		return fmt.Errorf("compact: revision %d is in the future of %d", revision, s.mu.revision)
	}
	if revision <= s.mu.compacted {
		return nil
	}
	s.mu.compacted = revision
	i := sort.Search(len(s.mu.history), func(i int) bool { return s.mu.history[i].Revision >= revision })
	s.mu.history = append([]LogEntry(nil), s.mu.history[i:]...)
	return nil
}

// Close implements Driver. Claims of this connection are released.
func (d *MemDriver) Close() error {
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil
	}
	d.mu.closed = true
	close(d.stop)
	d.mu.Unlock()
	d.store.dropHolder(d)
	return nil
}
