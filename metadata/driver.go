package metadata

import (
	"context"
	"errors"
	"time"
)

// Errors of drivers.
var (
	// ErrCompacted: the watch starts below what the store still has. Reload.
	ErrCompacted = errors.New("metadata log compacted below the watch")
	// ErrNoQuorum: refused before any effect, because the store has no leader or cannot be reached. Definite.
	ErrNoQuorum = errors.New("metadata store has no quorum")
	// ErrClaimLost: the claim that guards a write is not held any more. Definite, nothing was written.
	ErrClaimLost = errors.New("claim lost")
	// ErrTooLarge: the transaction is larger than the store takes. Definite.
	ErrTooLarge = errors.New("metadata transaction too large")
)

// IndefiniteError: the write may have had its effect, now or later. Retrying the same keys is safe and finds out.
type IndefiniteError struct{ Cause error }

func (e *IndefiniteError) Error() string { return "metadata write outcome unknown: " + e.Cause.Error() }

// Unwrap gives the cause.
func (e *IndefiniteError) Unwrap() error { return e.Cause }

// IsIndefinite says whether a failed write may have had its effect.
func IsIndefinite(err error) bool {
	var u *IndefiniteError
	return errors.As(err, &u)
}

// Stream names one writer's sequence of entries: a node incarnation. Entry keys are shard/stream/sequence and a writer creates them in
// sequence order, so that the entries of a stream up to a revision are a key range.
type Stream string

// LogEntry is one entry of the log.
type LogEntry struct {
	Revision int64 // set by the store
	Shard    int
	Stream   Stream
	Seq      uint64
	Value    []byte // encoded commands
}

// SnapshotPointer says where a shard's newest snapshot is.
type SnapshotPointer struct {
	Shard    int
	Revision int64    // the snapshot contains every entry at or below it
	Object   string   // key in the object store
	Hash     [32]byte // of the state, State.Hash
}

// Loaded is a consistent picture of the store at one revision.
type Loaded struct {
	Revision  int64 // watch from Revision+1
	Snapshots map[int]SnapshotPointer
	Entries   []LogEntry // ascending by revision, then shard; may include entries that a snapshot contains
}

// Events is what a watch delivers: all entries of one or more whole revisions, ascending. Through is the revision up to which the
// watcher has now seen everything (it may rise without entries).
type Events struct {
	Entries []LogEntry
	Through int64
}

// Fabric is the fixed shape of a fabric, written once.
type Fabric struct {
	Format int    `json:"format"`
	Shards int    `json:"shards"`
	ID     string `json:"id"` // ULID
	Region string `json:"region"`
}

// Guard makes a write conditional on a held claim.
type Guard struct {
	Claim string
	Epoch int64
}

// HeldClaim is a claim while it is held.
type HeldClaim struct {
	Name  string
	Epoch int64           // rises with every holder; carried by every write of the holder
	Done  <-chan struct{} // closed when the claim is lost or released
}

// Driver is the ordered store under the log. Conformance: metadata/metatest.
type Driver interface {
	// Init writes f if the store has no fabric yet, and returns what the store has.
	Init(ctx context.Context, f Fabric) (Fabric, error)
	// Append creates the entries, at most one a shard and all with one Stream and Seq, and moves the heads of their shards, in one
	// transaction: one revision, all or none. If they exist already (an earlier attempt had its effect) it answers their revision.
	// Errors are ErrNoQuorum, ErrTooLarge, ErrClaimLost (guard not nil), or *IndefiniteError; anything else is a bug.
	Append(ctx context.Context, entries []LogEntry, guard *Guard) (revision int64, err error)
	// Head is a linearizable read: a revision at or above that of every Append that succeeded before the call, and not above the store's
	// newest entry (so that a watcher will reach it).
	Head(ctx context.Context) (int64, error)
	// Load reads pointers and entries at one revision.
	Load(ctx context.Context) (*Loaded, error)
	// Watch calls fn, in order and never concurrently, with everything from the revision on, until ctx ends, fn fails, or the store
	// loses its place (ErrCompacted). It survives reconnects by itself and never skips or repeats.
	Watch(ctx context.Context, from int64, fn func(Events) error) error
	// PutSnapshot moves the shard's pointer and then deletes, for each entry given, every entry of its shard and stream up to its sequence
	// (the snapshot contains them all, because a stream's entries are created in sequence order), guarded. The pointer moves before or with
	// the deletions, and never back; deletions may be finished by a later call. Errors as of Append, and ErrSnapshotStale.
	PutSnapshot(ctx context.Context, p SnapshotPointer, drop []LogEntry, guard Guard) error
	// Compact drops the store's history below the revision. Watches below it get ErrCompacted.
	Compact(ctx context.Context, revision int64) error
	// Claim takes the named claim, or answers held=false at once when another holder has it. The store frees it ttl after its holder
	// has gone. The epoch of a claim is greater than every earlier epoch of that name.
	Claim(ctx context.Context, name, holder string, ttl time.Duration) (c *HeldClaim, held bool, err error)
	// Release gives a claim back.
	Release(ctx context.Context, c *HeldClaim) error
	// Close ends everything that the driver started.
	Close() error
}
