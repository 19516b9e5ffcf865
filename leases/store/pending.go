package store

import (
	"context"
	"errors"
	"time"

	"github.com/forebaymq/forebay/leases/journal"
	"github.com/forebaymq/forebay/metadata"
)

var errPending = errors.New("lease store: not built yet")

// Store is the lease store on Redis.
type Store struct{}

// New connects.
func New(ctx context.Context, o Options) (*Store, error) { return nil, errPending }

// Close ends it.
func (s *Store) Close() error { return errPending }

// Life counts the Redis processes seen.
func (s *Store) Life() uint64 { return 0 }

// Ping asks Redis.
func (s *Store) Ping(ctx context.Context) error { return errPending }

// Acquire leases records.
func (s *Store) Acquire(ctx context.Context, q *Queue, r AcquireRequest) (*Acquired, error) {
	return nil, errPending
}

// Admit makes new records of a keyed queue deliverable. moved is false when the cursor is elsewhere.
func (s *Store) Admit(ctx context.Context, q *Queue, r AdmitRequest) (moved bool, e *Effects, err error) {
	return false, nil, errPending
}

// Positions says where shards stand; absent ones are not loaded.
func (s *Store) Positions(ctx context.Context, q *Queue, partitions []int32) (positions []Position, absent []int32, err error) {
	return nil, nil, errPending
}

// Settle acks, nacks, extends, releases or skips.
func (s *Store) Settle(ctx context.Context, q *Queue, op Op, receipts []Receipt, o SettleOptions) (*Settled, error) {
	return nil, errPending
}

// Schedule sets leased records aside until they are due.
func (s *Store) Schedule(ctx context.Context, q *Queue, rs []ScheduleRequest) (*Effects, error) {
	return nil, errPending
}

// Sweep finds what has lapsed or became due.
func (s *Store) Sweep(ctx context.Context, q *Queue) (*Effects, error) { return nil, errPending }

// Audit finds and repairs disagreements.
func (s *Store) Audit(ctx context.Context, q *Queue) (Repairs, *Effects, error) {
	return Repairs{}, nil, errPending
}

// DueSubscriptions are those with something due.
func (s *Store) DueSubscriptions(ctx context.Context) ([]metadata.SubscriptionID, error) {
	return nil, errPending
}

// DirtySubscriptions are those with changes older than that which are not journalled.
func (s *Store) DirtySubscriptions(ctx context.Context, olderThan time.Duration) ([]metadata.SubscriptionID, error) {
	return nil, errPending
}

// IdleSubscriptions are those not touched for that long.
func (s *Store) IdleSubscriptions(ctx context.Context, olderThan time.Duration) ([]metadata.SubscriptionID, error) {
	return nil, errPending
}

// Evict removes an idle subscription from Redis; false when something is dirty, leased or due.
func (s *Store) Evict(ctx context.Context, q *Queue) (bool, error) { return false, errPending }

// Export gives the durable state of dirty shards; partitions nil = all dirty ones.
func (s *Store) Export(ctx context.Context, q *Queue, partitions []int32) ([]Exported, error) {
	return nil, errPending
}

// Clean takes the marks away where nothing has changed since the export.
func (s *Store) Clean(ctx context.Context, q *Queue, es []Exported) error { return errPending }

// Survey says what Redis has.
func (s *Store) Survey(ctx context.Context, q *Queue) (map[int32]journal.Version, error) {
	return nil, errPending
}

// Load puts shards in place.
func (s *Store) Load(ctx context.Context, q *Queue, rs []LoadRequest) error { return errPending }

// Ready marks a subscription as loaded, in the life in which its loading began; ErrStale when there is a newer one.
func (s *Store) Ready(ctx context.Context, q *Queue, life uint64) error { return errPending }

// Stats gives the statistics of every loaded shard.
func (s *Store) Stats(ctx context.Context, q *Queue) ([]ShardStats, error) { return nil, errPending }

// DeadLetters lists by partition and offset after a cursor; "" starts, and ends.
func (s *Store) DeadLetters(ctx context.Context, q *Queue, after string, limit int) ([]DeadLetter, string, error) {
	return nil, "", errPending
}

// Redrive makes at most max of the selected dead letters deliverable, from cursor next on ("" = the first); cursor "" = that was all.
func (s *Store) Redrive(ctx context.Context, q *Queue, sel Selection, max int, next string) (done int, cursor string, e *Effects, err error) {
	return 0, "", nil, errPending
}

// Discard forgets at most max of the selected dead letters.
func (s *Store) Discard(ctx context.Context, q *Queue, sel Selection, max int) (int, *Effects, error) {
	return 0, nil, errPending
}

// CountDead counts the selected dead letters.
func (s *Store) CountDead(ctx context.Context, q *Queue, sel Selection) (int64, error) {
	return 0, errPending
}

// PendingCopies gives dead letters that wait for their copy, longest waiting first.
func (s *Store) PendingCopies(ctx context.Context, q *Queue, max int) ([]DeadLetter, error) {
	return nil, errPending
}

// Buried says that the copies of these are committed: they are settled now.
func (s *Store) Buried(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return nil, errPending
}

// MarkExpired says that retention has deleted the records of these dead letters.
func (s *Store) MarkExpired(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return nil, errPending
}

// MarkCopied says that a copy of these dead letters, settled before, is in the dead-letter topic.
func (s *Store) MarkCopied(ctx context.Context, q *Queue, ts []journal.Target) (*Effects, error) {
	return nil, errPending
}

// Peek says what would be handed out next.
func (s *Store) Peek(ctx context.Context, q *Queue, max int, fresh []Fresh) ([]Peeked, error) {
	return nil, errPending
}

// Remember keeps which leases a request got.
func (s *Store) Remember(ctx context.Context, q *Queue, requestID string, receipts []Receipt, ttl time.Duration) error {
	return errPending
}

// Remembered is a lease that is still live.
type Remembered struct {
	Receipt
	Attempt int32
	Expires int64 // Unix ms
}

// Recall gives those leases of a request that are still live.
func (s *Store) Recall(ctx context.Context, q *Queue, requestID string) ([]Remembered, error) {
	return nil, errPending
}

// Lock takes or renews a named hint for a while; false when another holder has it.
func (s *Store) Lock(ctx context.Context, q *Queue, name, holder string, ttl time.Duration) (bool, error) {
	return false, errPending
}

// Unlock gives it back, if the holder has it.
func (s *Store) Unlock(ctx context.Context, q *Queue, name, holder string) error { return errPending }

// Drop removes everything of a subscription.
func (s *Store) Drop(ctx context.Context, q *Queue) error { return errPending }

// Notify tells every node that listens.
func (s *Store) Notify(ctx context.Context, w Wake) error { return errPending }

// Listen calls f for each Wake of any node, this one included, until ctx ends.
func (s *Store) Listen(ctx context.Context, f func(Wake)) error { return errPending }
