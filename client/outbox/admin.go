package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Stats says how an outbox stands.
type Stats struct {
	Waiting   int64         // rows not yet published, parked ones apart
	OldestAge time.Duration // of the one that has waited longest, by the clock of the database; 0 = none waits
	Parked    int64
	Refused   int64 // rows that wait and were refused: with what is behind them they wait for a remedy
}

// Stats counts. It reads the index of all rows that wait.
func (o *Outbox) Stats(ctx context.Context, db *sql.DB) (Stats, error) {
	var s Stats
	var age float64
	err := db.QueryRowContext(ctx, o.t.sql(`SELECT
		(SELECT count(*) FROM {rows} WHERE {pending}),
		(SELECT coalesce(extract(epoch FROM clock_timestamp() - min(added_at)), 0)::float8 FROM {rows} WHERE {pending}),
		(SELECT count(*) FROM {rows} WHERE refusal IS NOT NULL AND parked_at IS NOT NULL),
		(SELECT count(*) FROM {rows} WHERE refusal IS NOT NULL AND {pending})`)).Scan(&s.Waiting, &age, &s.Parked, &s.Refused)
	if err != nil {
		return Stats{}, fmt.Errorf("count the outbox: %w", err)
	}
	s.OldestAge = max(0, time.Duration(age*float64(time.Second)))
	return s, nil
}

// Refused is a row that the server does not take.
type Refused struct {
	Row     int64
	Topic   string
	EventID string
	Key     []byte // nil = absent
	Refusal string // what the server said last
	Parked  bool   // set aside; else it is tried again, and what is behind it waits
	AddedAt time.Time
}

// Refused lists up to limit rows that the server does not take, the oldest first.
func (o *Outbox) Refused(ctx context.Context, db *sql.DB, limit int) ([]Refused, error) {
	rows, err := db.QueryContext(ctx, o.t.sql(`SELECT id, topic, event_id, key, refusal, parked_at IS NOT NULL, added_at FROM {rows}
		WHERE refusal IS NOT NULL AND published_at IS NULL ORDER BY id LIMIT $1`), limit)
	if err != nil {
		return nil, fmt.Errorf("list refused rows: %w", err)
	}
	defer rows.Close()
	var out []Refused
	for rows.Next() {
		var r Refused
		if err := rows.Scan(&r.Row, &r.Topic, &r.EventID, &r.Key, &r.Refusal, &r.Parked, &r.AddedAt); err != nil {
			return nil, fmt.Errorf("list refused rows: %w", err)
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// Park sets refused rows aside: they are not published, and what waits behind them goes on. It gives how many there were. A row that was
// not refused, or is being tried at this moment, is left as it is.
func (o *Outbox) Park(ctx context.Context, db *sql.DB, rows ...int64) (int64, error) {
	return o.change(ctx, db, `UPDATE {rows} r SET parked_at = clock_timestamp() WHERE id = ANY ($1::text::bigint[]) AND refusal IS NOT NULL AND {pending}`, rows)
}

// Unpark makes parked rows wait again. They are published now, behind what has passed them.
func (o *Outbox) Unpark(ctx context.Context, db *sql.DB, rows ...int64) (int64, error) {
	return o.change(ctx, db, `UPDATE {rows} r SET parked_at = NULL, refusal = NULL WHERE id = ANY ($1::text::bigint[]) AND parked_at IS NOT NULL`, rows)
}

// Discard deletes parked rows for good.
func (o *Outbox) Discard(ctx context.Context, db *sql.DB, rows ...int64) (int64, error) {
	return o.change(ctx, db, `DELETE FROM {rows} r WHERE id = ANY ($1::text::bigint[]) AND parked_at IS NOT NULL`, rows)
}

// change locks the shards of the rows, as relays do, and leaves alone what is in a batch under way.
func (o *Outbox) change(ctx context.Context, db *sql.DB, statement string, rows []int64) (n int64, err error) {
	s := store{db: db, t: o.t}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, o.t.sql(`SELECT 1 FROM {shards} WHERE shard IN (SELECT shard FROM {rows} WHERE id = ANY ($1::text::bigint[])) ORDER BY shard FOR UPDATE`), arrayOf(rows))
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, o.t.sql(statement+` AND NOT EXISTS (SELECT FROM {shards} s WHERE s.shard = r.shard AND r.id = ANY (s.batch))`), arrayOf(rows))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("change rows of the outbox: %w", err)
	}
	return n, nil
}

// pruneRows is how many rows one statement deletes, so that none holds locks for long.
const pruneRows = 1000

// Prune deletes rows that were published longer ago than olderThan, by the clock of the database, a thousand in a transaction. Relays with
// WithRetention do it by themselves.
func (o *Outbox) Prune(ctx context.Context, db *sql.DB, olderThan time.Duration) (deleted int64, err error) {
	return prune(ctx, db, o.t, olderThan)
}

func prune(ctx context.Context, db *sql.DB, t tables, olderThan time.Duration) (deleted int64, err error) {
	for {
		res, err := db.ExecContext(ctx, t.sql(`DELETE FROM {rows} WHERE id IN (SELECT id FROM {rows}
			WHERE published_at < clock_timestamp() - $1::float8 * interval '1 second' ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)`), olderThan.Seconds(), pruneRows)
		if err != nil {
			return deleted, fmt.Errorf("prune the outbox: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return deleted, fmt.Errorf("prune the outbox: %w", err)
		}
		if deleted += n; n < pruneRows {
			return deleted, nil
		}
	}
}
