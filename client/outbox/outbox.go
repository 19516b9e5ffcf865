package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/forebaymq/forebay/api"
	"github.com/forebaymq/forebay/client"
)

// Outbox is a table of records that wait to be published. It holds no connection and is safe for concurrent use.
type Outbox struct {
	t       tables
	keyLock bool
}

// Option changes one setting of an Outbox.
type Option func(*config)

type config struct {
	table   string
	keyLock bool
}

// WithTable names the table, as name or schema.name, overriding the default of DefaultTable. Two more tables have its name with _shards
// and _relays behind it. Outboxes with tables of their own have nothing in common.
func WithTable(name string) Option { return func(c *config) { c.table = name } }

// WithKeyLock makes Add hold a lock on each key to the end of the transaction, overriding the default of none: the records of a key are then
// published in the order in which their transactions committed, whatever else these lock. Transactions that add keys in different
// orders may then end in a deadlock, which PostgreSQL resolves by failing one of them.
func WithKeyLock() Option { return func(c *config) { c.keyLock = true } }

// New gives the outbox of a table. It does not connect.
func New(opts ...Option) (*Outbox, error) {
	c := config{table: DefaultTable}
	for _, opt := range opts {
		opt(&c)
	}
	t, err := tablesOf(c.table)
	if err != nil {
		return nil, err
	}
	return &Outbox{t: t, keyLock: c.keyLock}, nil
}

// Tx is the transaction of the business change: a *sql.Tx, or what wraps one.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insertRows is how many rows one statement inserts: PostgreSQL takes 65,535 parameters.
const insertRows = 1000

// Add writes records into the outbox, as part of the transaction: they are published if it commits, and only then. It gives the event ID of
// each record: its own, or a new ULID where it has none. A record that no topic could take is refused here, where the
// mistake is, and not in the relay; what depends on the topic (its size limit, its schema, whether it exists) shows only there.
//
// Records that one transaction adds are published in that order per key. For those of several transactions see the package's promise.
func (o *Outbox) Add(ctx context.Context, tx Tx, topic string, records ...client.Record) (ids []string, err error) {
	if err := api.CheckName("topic", topic); err != nil {
		return nil, fmt.Errorf("add to the outbox: %w", err)
	}
	ids = make([]string, len(records))
	hashes := make([]uint32, len(records))
	for i := range records {
		r := &records[i]
		if err := check(r); err != nil {
			return nil, fmt.Errorf("add record %d to the outbox: %w", i, err)
		}
		if ids[i] = r.ID; ids[i] == "" {
			id, err := ulid.New(ulid.Now(), rand.Reader)
			if err != nil {
				return nil, fmt.Errorf("make an event ID: %w", err)
			}
			ids[i] = id.String()
		}
		hashes[i] = hashOf(topic, r, ids[i])
	}
	if o.keyLock {
		if err := o.lockKeys(ctx, tx, records, hashes); err != nil {
			return nil, err
		}
	}
	for from := 0; from < len(records); from += insertRows {
		to := min(from+insertRows, len(records))
		if err := o.insert(ctx, tx, topic, records[from:to], ids[from:to], hashes[from:to]); err != nil {
			return nil, fmt.Errorf("add to the outbox: %w", err)
		}
	}
	return ids, nil
}

// hashOf puts what must stay in order into one shard: the records of a key, those of a pinned partition. All others are spread.
func hashOf(topic string, r *client.Record, id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic)) // a hash takes everything
	switch {
	case r.Key != nil:
		_, _ = h.Write([]byte{0})
		_, _ = h.Write(r.Key)
	case r.Pinned:
		_, _ = h.Write(append([]byte{1}, strconv.Itoa(int(r.Partition))...))
	default:
		_, _ = h.Write(append([]byte{2}, id...))
	}
	return h.Sum32()
}

// lockKeys takes the locks in one order, so that two calls with the same keys do not end in a deadlock.
func (o *Outbox) lockKeys(ctx context.Context, tx Tx, records []client.Record, hashes []uint32) error {
	distinct := map[int32]struct{}{}
	for i := range records {
		if records[i].Key != nil || records[i].Pinned {
			distinct[int32(hashes[i])] = struct{}{}
		}
	}
	if len(distinct) == 0 {
		return nil
	}
	locks := slices.Sorted(maps.Keys(distinct))
	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext($1), h) FROM (SELECT h FROM unnest($2::text::int[]) h ORDER BY h) q`,
		"forebay outbox "+o.t.rows, arrayOf(locks))
	if err != nil {
		return fmt.Errorf("lock the keys of the outbox: %w", err)
	}
	return nil
}

func (o *Outbox) insert(ctx context.Context, tx Tx, topic string, records []client.Record, ids []string, hashes []uint32) error {
	const columns = 11
	var b strings.Builder
	b.WriteString(o.t.sql(`INSERT INTO {rows} (shard, topic, event_id, key, value, kind, key_binary, headers, producer_time, deliver_at, partition) VALUES `))
	args := make([]any, 0, columns*len(records))
	for i := range records {
		if i > 0 {
			b.WriteByte(',')
		}
		for c := range columns {
			b.WriteString(map[bool]string{true: "($", false: ",$"}[c == 0])
			b.WriteString(strconv.Itoa(i*columns + c + 1))
		}
		b.WriteByte(')')
		r := &records[i]
		var headers, partition any
		if len(r.Headers) > 0 {
			text, err := json.Marshal(headerPairs(r.Headers))
			if err != nil {
				return err
			}
			headers = string(text)
		}
		if r.Pinned {
			partition = r.Partition
		}
		args = append(args, int64(hashes[i]%Shards), topic, ids[i], bytesOrNull(r.Key), bytesOrNull(r.Value), int64(r.Kind), r.KeyBinary, headers,
			timeOrNull(r.ProducerTime), timeOrNull(r.DeliverAt), partition)
	}
	_, err := tx.ExecContext(ctx, b.String(), args...)
	return err
}

func headerPairs(hs []client.Header) [][2]string {
	pairs := make([][2]string, len(hs))
	for i, h := range hs {
		pairs[i] = [2]string{h.Name, h.Value}
	}
	return pairs
}

// bytesOrNull: drivers do not agree on what a nil slice is, and absent is not empty.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Truncate(time.Millisecond)
}

// check refuses what no topic takes.
func check(r *client.Record) error {
	headers := 0
	for _, h := range r.Headers {
		switch {
		case h.Name == "":
			return errors.New("a header needs a name")
		case !utf8.ValidString(h.Name) || !utf8.ValidString(h.Value):
			return errors.New("a header is not valid UTF-8")
		}
		headers += len(h.Name) + len(h.Value)
	}
	switch {
	case len(r.Key) > api.MaxKeyBytes:
		return fmt.Errorf("the key has %d bytes, at most %d are taken", len(r.Key), api.MaxKeyBytes)
	case len(r.Headers) > api.MaxHeaders:
		return fmt.Errorf("%d headers, at most %d are taken", len(r.Headers), api.MaxHeaders)
	case headers > api.MaxHeaderBytes:
		return fmt.Errorf("names and values of headers have %d bytes, at most %d are taken", headers, api.MaxHeaderBytes)
	case len(r.Key)+len(r.Value)+headers > api.MaxRecordBytes:
		return fmt.Errorf("key, value and headers have %d bytes, at most %d are taken", len(r.Key)+len(r.Value)+headers, api.MaxRecordBytes)
	case len(r.ID) > api.MaxIDBytes:
		return fmt.Errorf("the event ID has %d bytes, at most %d are taken", len(r.ID), api.MaxIDBytes)
	case !utf8.ValidString(r.ID) || strings.ContainsRune(r.ID, 0):
		return errors.New("the event ID is not valid UTF-8, or has a NUL in it, which PostgreSQL's text cannot hold")
	case r.Pinned && r.Key != nil:
		return errors.New("a record with a key goes to the partition of its key: it cannot be pinned")
	case r.Pinned && r.Partition < 0:
		return fmt.Errorf("partition %d", r.Partition)
	case r.Kind > client.KindJSON:
		return fmt.Errorf("kind %d is unknown", r.Kind)
	case r.Kind == client.KindText && !utf8.Valid(r.Value):
		return errors.New("the text is not valid UTF-8")
	case r.Kind == client.KindJSON && r.Value != nil && (!utf8.Valid(r.Value) || !json.Valid(r.Value)):
		return errors.New("the value is not one JSON text")
	}
	return nil
}

// arrayOf writes an array as PostgreSQL's text, which every driver can pass.
func arrayOf[T int32 | int64](numbers []T) string {
	b := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}
