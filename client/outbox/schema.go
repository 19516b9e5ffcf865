package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Shards is into how many parts an outbox is cut. The records of a topic with one key are in one shard, a shard has one relay at a time, and
// so no more than Shards relays share the work.
const Shards = 16

// DefaultTable is the name of the table unless WithTable says otherwise.
const DefaultTable = "forebay_outbox"

// ErrNotMigrated: the tables are not there. Migrate makes them.
var ErrNotMigrated = errors.New("outbox: the tables do not exist: run Migrate, or the statements of Schema")

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,47}$`)

// tables are the quoted names that statements use.
type tables struct {
	rows, shards, relays string
	base                 string // without schema and quotes: names of indexes
}

func tablesOf(name string) (tables, error) {
	if !tableName.MatchString(name) {
		return tables{}, fmt.Errorf("outbox: table %q: want a name, or schema.name, of a-z 0-9 _ and at most 48 characters", name)
	}
	prefix, base := "", name
	if schema, rest, ok := strings.Cut(name, "."); ok {
		prefix, base = `"`+schema+`".`, rest
	}
	return tables{rows: prefix + `"` + base + `"`, shards: prefix + `"` + base + `_shards"`, relays: prefix + `"` + base + `_relays"`, base: base}, nil
}

// sql fills the names of the tables into a statement: {rows}, {shards}, {relays}, {base}, and {pending}, the condition of a row that waits.
func (t *tables) sql(statement string) string {
	return strings.NewReplacer("{rows}", t.rows, "{shards}", t.shards, "{relays}", t.relays, "{base}", t.base,
		"{pending}", "published_at IS NULL AND parked_at IS NULL").Replace(statement)
}

// schema, one statement each, all of them harmless where they have run before.
var schema = [...]string{
	// Rows come and go: without eager vacuuming the index of what waits would grow over entries that are long gone.
	`CREATE TABLE IF NOT EXISTS {rows} (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	shard         smallint NOT NULL,
	topic         text COLLATE "C" NOT NULL,
	event_id      text NOT NULL,
	key           bytea,
	value         bytea,
	kind          smallint NOT NULL,
	key_binary    boolean NOT NULL,
	headers       json,
	producer_time timestamptz,
	deliver_at    timestamptz,
	partition     integer,
	added_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
	published_at  timestamptz,
	refusal       text,
	parked_at     timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)`,
	`CREATE INDEX IF NOT EXISTS "{base}_pending" ON {rows} (shard, topic, id) WHERE {pending}`,
	`CREATE INDEX IF NOT EXISTS "{base}_published" ON {rows} (published_at) WHERE published_at IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS "{base}_refused" ON {rows} (id) WHERE refusal IS NOT NULL`,
	// batch names the rows of the publish with the number sequence, as long as it is not known to have been marked.
	`CREATE TABLE IF NOT EXISTS {shards} (
	shard    smallint PRIMARY KEY,
	producer text NOT NULL DEFAULT 'outbox.' || gen_random_uuid(),
	owner    text,
	sequence bigint NOT NULL DEFAULT 0,
	topic    text COLLATE "C",
	batch    bigint[]
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`,
	`INSERT INTO {shards} (shard) SELECT generate_series(0, ` + fmt.Sprint(Shards-1) + `) ON CONFLICT DO NOTHING`,
	`CREATE TABLE IF NOT EXISTS {relays} (
	relay text PRIMARY KEY,
	beat  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20)`,
}

// Schema gives the statements that make the tables, for those who keep their migrations elsewhere. They need PostgreSQL 13 or later and
// may run more than once.
func (o *Outbox) Schema() string {
	var b strings.Builder
	for _, s := range schema {
		b.WriteString(o.t.sql(s))
		b.WriteString(";\n")
	}
	return b.String()
}

// Migrate makes the tables where they are missing. Several processes may do it at once.
func (o *Outbox) Migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("migrate the outbox: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	// "If not exists" alone fails where two do it at once.
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, "forebay outbox "+o.t.rows); err != nil {
		return fmt.Errorf("migrate the outbox: %w", err)
	}
	for _, s := range schema {
		if _, err := tx.ExecContext(ctx, o.t.sql(s)); err != nil {
			return fmt.Errorf("migrate the outbox: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("migrate the outbox: %w", err)
	}
	return nil
}
