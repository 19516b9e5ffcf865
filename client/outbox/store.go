package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebaymq/forebay/client"
)

// errNotOwner: the shard belongs to another relay now, or its state is not what this one left.
var errNotOwner = errors.New("the shard has another relay now")

// batch is what one publish carries.
type batch struct {
	sequence int64
	topic    string
	ids      []int64 // ascending
	records  []client.Record
}

// shardRow is the durable state of a shard.
type shardRow struct {
	producer string
	sequence int64  // of the newest publish
	topic    string // of the batch
	batch    []int64
}

// store is the relay's side of the tables. Every change to a shard's rows is made in a transaction that has locked the shard and seen that
// the relay still owns it.
type store struct {
	db   *sql.DB
	t    tables
	keep bool // published rows
}

// inTx runs f in a transaction whose commit is durable when it returns, whatever the database's default is: a sequence that was used and
// forgotten would be used twice.
func (s *store) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// lock locks a shard for the rest of the transaction.
func (s *store) lock(ctx context.Context, tx *sql.Tx, shard int, owner string) (*shardRow, error) {
	var r shardRow
	var have, topic, ids sql.NullString
	err := tx.QueryRowContext(ctx, s.t.sql(`SELECT owner, producer, sequence, topic, batch::text FROM {shards} WHERE shard = $1 FOR UPDATE`), shard).
		Scan(&have, &r.producer, &r.sequence, &topic, &ids)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotMigrated
	}
	if err != nil {
		return nil, fmt.Errorf("lock shard %d: %w", shard, err)
	}
	if have.String != owner {
		return nil, errNotOwner
	}
	r.topic = topic.String
	if r.batch, err = parseArray(ids.String); err != nil {
		return nil, fmt.Errorf("batch of shard %d: %w", shard, err)
	}
	return &r, nil
}

func parseArray(text string) ([]int64, error) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	out := make([]int64, len(parts))
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// done takes the rows of an acknowledged batch out of what waits.
func (s *store) done(ctx context.Context, tx *sql.Tx, ids []int64) error {
	statement := `DELETE FROM {rows} WHERE id = ANY ($1::text::bigint[])`
	if s.keep {
		statement = `UPDATE {rows} SET published_at = clock_timestamp(), refusal = NULL WHERE id = ANY ($1::text::bigint[])`
	}
	if _, err := tx.ExecContext(ctx, s.t.sql(statement), arrayOf(ids)); err != nil {
		return fmt.Errorf("mark rows as published: %w", err)
	}
	return nil
}

// setBatch makes b the publish under way; nil: there is none, and sequence is the newest one used.
func (s *store) setBatch(ctx context.Context, tx *sql.Tx, shard int, sequence int64, b *batch) error {
	var topic, ids any
	if b != nil {
		topic, ids = b.topic, arrayOf(b.ids)
	}
	_, err := tx.ExecContext(ctx, s.t.sql(`UPDATE {shards} SET sequence = $2, topic = $3, batch = $4::text::bigint[] WHERE shard = $1`), shard, sequence, topic, ids)
	if err != nil {
		return fmt.Errorf("write shard %d: %w", shard, err)
	}
	return nil
}

// nextTopic gives the first topic after another one, by name, that has rows waiting in the shard, and the first of these; "" = none. It costs
// one look into the index, however many rows there are.
func (s *store) nextTopic(ctx context.Context, tx *sql.Tx, shard int, after string) (topic string, first int64, err error) {
	err = tx.QueryRowContext(ctx, s.t.sql(`SELECT topic, id FROM {rows} WHERE shard = $1 AND topic > $2 AND {pending} ORDER BY topic, id LIMIT 1`), shard, after).
		Scan(&topic, &first)
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("look for rows: %w", err)
	}
	return topic, first, nil
}

// load reads the first rows of a topic: at most rows, and at most bytes or one row.
func (s *store) load(ctx context.Context, tx *sql.Tx, shard int, topic string, rows, bytes int) (*batch, error) {
	found, err := tx.QueryContext(ctx, s.t.sql(`
		SELECT id, event_id, key, value, kind, key_binary, headers::text, producer_time, deliver_at, partition FROM (
			SELECT *, sum(size) OVER (ORDER BY id) AS running FROM (
				SELECT *, coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce(octet_length(headers::text), 0) + octet_length(event_id) + 64 AS size
				FROM {rows} WHERE shard = $1 AND topic = $2 AND {pending} ORDER BY id LIMIT $3
			) firsts
		) sums WHERE running - size = 0 OR running <= $4 ORDER BY id`), shard, topic, rows, bytes)
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	defer found.Close()
	b := &batch{topic: topic}
	for found.Next() {
		var id int64
		var kind int16
		var headers sql.NullString
		var produced, deliver sql.NullTime
		var partition sql.NullInt32
		var r client.Record
		if err := found.Scan(&id, &r.ID, &r.Key, &r.Value, &kind, &r.KeyBinary, &headers, &produced, &deliver, &partition); err != nil {
			return nil, fmt.Errorf("read rows: %w", err)
		}
		if headers.Valid {
			var pairs [][2]string
			if err := json.Unmarshal([]byte(headers.String), &pairs); err != nil {
				return nil, fmt.Errorf("headers of row %d: %w", id, err)
			}
			for _, p := range pairs {
				r.Headers = append(r.Headers, client.Header{Name: p[0], Value: p[1]})
			}
		}
		r.Kind, r.ProducerTime, r.DeliverAt = client.Kind(kind), produced.Time, deliver.Time
		r.Pinned, r.Partition = partition.Valid, partition.Int32
		b.ids, b.records = append(b.ids, id), append(b.records, r)
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return b, nil
}

// refuse writes why the server does not take a row, and parks it if told to.
func (s *store) refuse(ctx context.Context, tx *sql.Tx, id int64, why string, park bool) error {
	statement := `UPDATE {rows} SET refusal = $2 WHERE id = $1`
	if park {
		statement = `UPDATE {rows} SET refusal = $2, parked_at = clock_timestamp() WHERE id = $1`
	}
	if _, err := tx.ExecContext(ctx, s.t.sql(statement), id, why); err != nil {
		return fmt.Errorf("write the refusal of row %d: %w", id, err)
	}
	return nil
}

// busy gives the shards of a relay that have something to do.
func (s *store) busy(ctx context.Context, owner string) ([]int, error) {
	return s.numbers(ctx, `SELECT shard FROM {shards} s WHERE owner = $1 AND
		(batch IS NOT NULL OR EXISTS (SELECT FROM {rows} r WHERE r.shard = s.shard AND {pending}))`, owner)
}

func (s *store) numbers(ctx context.Context, statement string, args ...any) ([]int, error) {
	rows, err := s.db.QueryContext(ctx, s.t.sql(statement), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}

// migrated says whether the tables are there.
func (s *store) migrated(ctx context.Context) error {
	var missing bool
	if err := s.db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NULL OR to_regclass($2) IS NULL OR to_regclass($3) IS NULL`,
		s.t.rows, s.t.shards, s.t.relays).Scan(&missing); err != nil {
		return err
	}
	if missing {
		return ErrNotMigrated
	}
	return nil
}
