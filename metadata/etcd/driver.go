package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/forebaymq/forebay/metadata"
)

// Driver is a metadata.Driver over one etcd client.
type Driver struct {
	c     *clientv3.Client
	keys  keys
	clock clockwork.Clock
	log   *slog.Logger
	owned func() error // closes the client, and the server where there is one

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup // of the keepers
	keepers keepers
	once    sync.Once
	err     error
}

var _ metadata.Driver = (*Driver)(nil)

// DriverOptions are what a Driver needs beside its client. The zero value works.
type DriverOptions struct {
	Prefix string          // of all keys, ending with "/"; default DefaultPrefix
	Clock  clockwork.Clock // for the deadlines of claims; default the real clock
	Logger *slog.Logger    // default: discards
}

// newDriver makes a driver over a client. closeFn ends what was made for it.
func newDriver(ctx context.Context, c *clientv3.Client, o DriverOptions, closeFn func() error) *Driver {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Clock == nil {
		o.Clock = clockwork.NewRealClock()
	}
	if o.Logger == nil {
		o.Logger = discard()
	}
	d := &Driver{c: c, keys: keys{o.Prefix}, clock: o.Clock, log: o.Logger, owned: closeFn}
	d.keepers.m = map[int64]*keeper{}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

// Close implements metadata.Driver. Claims are given back.
func (d *Driver) Close() error {
	d.once.Do(func() {
		d.cancel()
		d.releaseAll()
		d.err = d.owned()
	})
	return d.err
}

// open answers why a call cannot be made any more. Nothing was sent then.
func (d *Driver) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", metadata.ErrNoQuorum, err)
	}
	if d.ctx.Err() != nil {
		return fmt.Errorf("%w: driver closed", metadata.ErrNoQuorum)
	}
	return nil
}

// leader makes a request fail at once, and definitely, on a member that knows no leader.
func leader(ctx context.Context) context.Context { return clientv3.WithRequireLeader(ctx) }

// Init implements metadata.Driver.
func (d *Driver) Init(ctx context.Context, f metadata.Fabric) (metadata.Fabric, error) {
	if err := d.open(ctx); err != nil {
		return f, err
	}
	value, err := json.Marshal(f)
	if err != nil {
		return f, fmt.Errorf("encode fabric: %w", err)
	}
	key := d.keys.fabric()
	r, err := d.c.Txn(leader(ctx)).If(absent(key)).Then(clientv3.OpPut(key, string(value))).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return f, fmt.Errorf("init fabric: %w", classifyWrite(err))
	}
	if r.Succeeded {
		return f, nil
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) != 1 {
		return f, errors.New("init fabric: the key is neither absent nor there")
	}
	var have metadata.Fabric
	if err := json.Unmarshal(kvs[0].Value, &have); err != nil {
		return f, fmt.Errorf("decode fabric: %w", err)
	}
	return have, nil
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

func (d *Driver) held(g metadata.Guard) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(d.keys.claim(g.Claim)), "=", g.Epoch)
}

// Append implements metadata.Driver:
//
//	If    every entry key is absent [and the claim has the epoch]
//	Then  put the entries and the heads of their shards
//	Else  get the entry keys
//
// An entry that is there already is an earlier attempt of the same transaction, so one of them answers for all. All are compared, not
// only the first: a snapshot of one shard may have deleted its entry while another shard's is still there.
func (d *Driver) Append(ctx context.Context, entries []metadata.LogEntry, guard *metadata.Guard) (int64, error) {
	if err := metadata.ValidateAppend(entries); err != nil {
		return 0, err
	}
	if err := d.open(ctx); err != nil {
		return 0, err
	}
	cmps := make([]clientv3.Cmp, 0, len(entries)+1)
	puts := make([]clientv3.Op, 0, 2*len(entries))
	gets := make([]clientv3.Op, 0, len(entries))
	for _, e := range entries {
		key := d.keys.entry(e.Shard, e.Stream, e.Seq)
		cmps = append(cmps, absent(key))
		puts = append(puts, clientv3.OpPut(key, string(e.Value)), clientv3.OpPut(d.keys.head(e.Shard), ""))
		gets = append(gets, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	if guard != nil {
		cmps = append(cmps, d.held(*guard))
	}
	r, err := d.c.Txn(leader(ctx)).If(cmps...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		return 0, classifyWrite(err)
	}
	if r.Succeeded {
		return r.Header.Revision, nil
	}
	for _, resp := range r.Responses {
		if kvs := resp.GetResponseRange().Kvs; len(kvs) > 0 {
			return kvs[0].ModRevision, nil
		}
	}
	if guard == nil {
		return 0, errors.New("append: refused although no entry is there")
	}
	return 0, metadata.ErrClaimLost
}

// Head implements metadata.Driver: the highest revision of a head key, not etcd's own, which other keys raise too.
func (d *Driver) Head(ctx context.Context) (int64, error) {
	if err := d.open(ctx); err != nil {
		return 0, err
	}
	r, err := d.c.Get(leader(ctx), d.keys.heads(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("read head: %w", classifyRead(err))
	}
	var head int64
	for _, kv := range r.Kvs {
		head = max(head, kv.ModRevision)
	}
	return head, nil
}

const (
	loadPage     = 64 // entries a page: up to 64 MiB in the worst case
	loadAttempts = 5
)

// Load implements metadata.Driver. The first read fixes the revision, the others read at it; when a compaction passes it meanwhile, it
// starts again.
func (d *Driver) Load(ctx context.Context) (*metadata.Loaded, error) {
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	var err error
	for range loadAttempts {
		var l *metadata.Loaded
		if l, err = d.loadOnce(ctx); err == nil {
			return l, nil
		}
		if !errors.Is(err, metadata.ErrCompacted) {
			return nil, err
		}
	}
	return nil, err
}

func (d *Driver) loadOnce(ctx context.Context) (*metadata.Loaded, error) {
	ctx = leader(ctx)
	r, err := d.c.Get(ctx, d.keys.snaps(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("load snapshot pointers: %w", classifyRead(err))
	}
	l := &metadata.Loaded{Revision: r.Header.Revision, Snapshots: map[int]metadata.SnapshotPointer{}}
	for _, kv := range r.Kvs {
		shard, err := d.keys.parseSnap(string(kv.Key))
		if err != nil {
			return nil, err
		}
		if l.Snapshots[shard], err = decodePointer(shard, kv.Value); err != nil {
			return nil, err
		}
	}
	from, end := d.keys.logs(), clientv3.GetPrefixRangeEnd(d.keys.logs())
	for {
		r, err := d.c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(loadPage), clientv3.WithRev(l.Revision),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		if err != nil {
			return nil, fmt.Errorf("load log entries: %w", classifyRead(err))
		}
		for _, kv := range r.Kvs {
			e, err := d.decodeEntry(kv.Key, kv.Value, kv.ModRevision)
			if err != nil {
				return nil, err
			}
			l.Entries = append(l.Entries, e)
		}
		if !r.More || len(r.Kvs) == 0 {
			break
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
	metadata.SortEntries(l.Entries)
	return l, nil
}

func (d *Driver) decodeEntry(key, value []byte, revision int64) (metadata.LogEntry, error) {
	shard, stream, seq, err := d.keys.parseEntry(string(key))
	if err != nil {
		return metadata.LogEntry{}, err
	}
	return metadata.LogEntry{Revision: revision, Shard: shard, Stream: stream, Seq: seq, Value: value}, nil
}

// deletesPerTxn keeps a transaction of PutSnapshot under etcd's 128 operations.
const deletesPerTxn = 120

// PutSnapshot implements metadata.Driver. One transaction moves the pointer and deletes one key range a stream; further transactions
// delete what did not fit (docs/adr/0002).
//
// The pointer is compared with what was read before. Without that, a put that was delayed past its own retry and past the next
// snapshot could move the pointer back to a snapshot whose following entries are deleted.
func (d *Driver) PutSnapshot(ctx context.Context, p metadata.SnapshotPointer, drop []metadata.LogEntry, guard metadata.Guard) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	value, err := encodePointer(p)
	if err != nil {
		return fmt.Errorf("encode snapshot pointer: %w", err)
	}
	key := d.keys.snap(p.Shard)
	cur, err := d.c.Get(leader(ctx), key)
	if err != nil {
		return fmt.Errorf("read snapshot pointer: %w", classifyRead(err))
	}
	var seen int64 // mod revision of the pointer; 0 = absent
	same := false
	if len(cur.Kvs) > 0 {
		old, err := decodePointer(p.Shard, cur.Kvs[0].Value)
		if err != nil {
			return err
		}
		if same = old == p; !same && old.Revision >= p.Revision {
			return fmt.Errorf("%w: shard %d has %d, got %d", metadata.ErrSnapshotStale, p.Shard, old.Revision, p.Revision)
		}
		seen = cur.Kvs[0].ModRevision
	}
	dels := d.deletions(p.Shard, drop)
	for first := true; first || len(dels) > 0; first = false {
		n := min(len(dels), deletesPerTxn)
		ops := slices.Clone(dels[:n])
		if first && !same {
			ops = append([]clientv3.Op{clientv3.OpPut(key, value)}, ops...)
		}
		dels = dels[n:]
		r, err := d.c.Txn(leader(ctx)).If(d.held(guard), clientv3.Compare(clientv3.ModRevision(key), "=", seen)).
			Then(ops...).Else(clientv3.OpGet(d.keys.claim(guard.Claim))).Commit()
		if err != nil {
			return classifyWrite(err)
		}
		if !r.Succeeded {
			if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != guard.Epoch {
				return metadata.ErrClaimLost
			}
			return fmt.Errorf("%w: shard %d was moved meanwhile", metadata.ErrSnapshotStale, p.Shard)
		}
		if first && !same {
			seen = r.Header.Revision
		}
	}
	return nil
}

// deletions makes one range delete a stream: from its first sequence to the last that the snapshot contains.
func (d *Driver) deletions(shard int, drop []metadata.LogEntry) []clientv3.Op {
	ends := metadata.StreamEnds(shard, drop)
	ops := make([]clientv3.Op, 0, len(ends))
	for stream, last := range ends {
		from, to := d.keys.entry(shard, stream, 0), d.keys.entry(shard, stream, last)
		ops = append(ops, clientv3.OpDelete(from, clientv3.WithRange(to+"\x00")))
	}
	return ops
}

// Compact implements metadata.Driver.
func (d *Driver) Compact(ctx context.Context, revision int64) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	_, err := d.c.Compact(leader(ctx), revision)
	if err = classifyRead(err); err != nil && !errors.Is(err, metadata.ErrCompacted) {
		return fmt.Errorf("compact to %d: %w", revision, err)
	}
	return nil // compacted already is what was wanted
}

const (
	watchRetryMin = 20 * time.Millisecond
	watchRetryMax = time.Second
)
