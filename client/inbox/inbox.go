package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebaymq/forebay/client"
)

// DefaultTable is the name of the table unless WithTable says otherwise.
const DefaultTable = "forebay_inbox"

// maxIDBytes and maxConsumerBytes bound what is indexed. An event ID has at most 256 bytes, RecordID adds a few.
const (
	maxIDBytes       = 512
	maxConsumerBytes = 200
)

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,47}$`)

// Inbox is a table of what was handled. It holds no connection.
type Inbox struct {
	table    string // quoted
	base     string
	attempts int
}

// Option changes one setting of an Inbox.
type Option func(*config)

type config struct {
	table    string
	attempts int
}

// WithTable names the table, as name or schema.name, overriding the default of DefaultTable.
func WithTable(name string) Option { return func(c *config) { c.table = name } }

// WithAttempts sets how often Do begins at most, when the database ends its transaction in favour of another one, overriding the
// default of 10.
func WithAttempts(n int) Option { return func(c *config) { c.attempts = n } }

// New gives the inbox of a table. It does not connect.
func New(opts ...Option) (*Inbox, error) {
	c := config{table: DefaultTable, attempts: 10}
	for _, opt := range opts {
		opt(&c)
	}
	if !tableName.MatchString(c.table) {
		return nil, fmt.Errorf("inbox: table %q: want a name, or schema.name, of a-z 0-9 _ and at most 48 characters", c.table)
	}
	if c.attempts < 1 {
		return nil, fmt.Errorf("inbox: %d attempts", c.attempts)
	}
	i := &Inbox{base: c.table, attempts: c.attempts}
	if schema, rest, ok := strings.Cut(c.table, "."); ok {
		i.base, i.table = rest, `"`+schema+`".`
	}
	i.table += `"` + i.base + `"`
	return i, nil
}

func (i *Inbox) statements() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + i.table + ` (
	consumer text COLLATE "C" NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	done_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (consumer, event_id)
)`,
		`CREATE INDEX IF NOT EXISTS "` + i.base + `_done_at" ON ` + i.table + ` (done_at)`,
	}
}

// Schema gives the statements that make the table, for those who keep their migrations elsewhere. They may run more than once.
func (i *Inbox) Schema() string { return strings.Join(i.statements(), ";\n") + ";\n" }

// Migrate makes the table where it is missing. Several processes may do it at once.
func (i *Inbox) Migrate(ctx context.Context, db *sql.DB) error {
	err := transact(ctx, db, nil, func(tx *sql.Tx) error {
		// "If not exists" alone fails where two do it at once.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, "forebay inbox "+i.table); err != nil {
			return err
		}
		for _, s := range i.statements() {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate the inbox: %w", err)
	}
	return nil
}

// Tx is the transaction of the effect: a *sql.Tx, or what wraps one.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Once writes into the caller's transaction that a consumer has handled an ID, and says whether it is the first to do so. If not, the
// caller has nothing to do and may end the transaction as it likes. While another transaction that wrote the same ID is open, Once waits
// for its end. Under REPEATABLE READ and SERIALIZABLE the database may fail it, or the commit, with a serialization failure (SQLSTATE
// 40001): the whole transaction is to be repeated, as Do does.
func (i *Inbox) Once(ctx context.Context, tx Tx, consumer, id string) (first bool, err error) {
	if err := checkName("consumer", consumer, maxConsumerBytes); err != nil {
		return false, err
	}
	if err := checkName("event ID", id, maxIDBytes); err != nil {
		return false, err
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO `+i.table+` (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, consumer, id)
	if err != nil {
		return false, fmt.Errorf("look %s up in the inbox: %w", id, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("look %s up in the inbox: %w", id, err)
	}
	return n == 1, nil
}

func checkName(what, s string, most int) error {
	if s == "" || len(s) > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("inbox: %s %.80q: want 1 to %d bytes of UTF-8 without NUL", what, s, most)
	}
	return nil
}

// Do runs effect in a transaction, unless the consumer has handled the ID before, and says whether it did. Where effect fails nothing has
// happened, and its error is returned. Where Do fails otherwise (the connection broke during the commit) the effect may have happened:
// repeat the call, or let the record be delivered again.
//
// effect may run more than once, in new transactions, where the database ended one in favour of another (serialization failure,
// deadlock). It must neither commit nor roll back.
func (i *Inbox) Do(ctx context.Context, db *sql.DB, consumer, id string, effect func(ctx context.Context, tx *sql.Tx) error) (did bool, err error) {
	return i.DoTx(ctx, db, nil, consumer, id, effect)
}

// DoTx is Do in transactions with options of the caller's choice; nil = the database's default.
func (i *Inbox) DoTx(ctx context.Context, db *sql.DB, o *sql.TxOptions, consumer, id string, effect func(ctx context.Context, tx *sql.Tx) error) (did bool, err error) {
	pause := 2 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := transact(ctx, db, o, func(tx *sql.Tx) (err error) {
			if did, err = i.Once(ctx, tx, consumer, id); err != nil || !did {
				return err
			}
			return effect(ctx, tx)
		})
		if err == nil {
			return did, nil
		}
		if attempt == i.attempts || !repeatable(err) {
			return false, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, err
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

func transact(ctx context.Context, db *sql.DB, o *sql.TxOptions, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing; also where f panics
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// repeatable says whether the database ended a transaction, without effect, because of another one. Drivers give the code by a method.
func repeatable(err error) bool {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return false
	}
	state := coded.SQLState()
	return state == "40001" || state == "40P01"
}

// RecordID names a record for an inbox: by its event ID or, where it has none, by its place. topicID is the topic's (client.Topic.TopicID),
// not its name: a topic that is deleted and made again begins with the same offsets.
func RecordID(topicID string, r *client.Record) string {
	switch {
	case r.ID == "":
		return "@" + topicID + "/" + strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
	case strings.HasPrefix(r.ID, "@"): // not to be taken for a place
		return "@" + r.ID
	}
	return r.ID
}

// pruneRows is how many rows one statement deletes, so that none holds locks for long.
const pruneRows = 1000

// Prune forgets IDs that were handled longer ago than olderThan, by the clock of the database, a thousand in a transaction, and says how
// many. A record that is delivered again after its ID was forgotten has its effect again.
func (i *Inbox) Prune(ctx context.Context, db *sql.DB, olderThan time.Duration) (forgotten int64, err error) {
	statement := `DELETE FROM ` + i.table + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + i.table + `
		WHERE done_at < clock_timestamp() - $1::float8 * interval '1 second' ORDER BY done_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
	for {
		res, err := db.ExecContext(ctx, statement, olderThan.Seconds(), pruneRows)
		if err != nil {
			return forgotten, fmt.Errorf("prune the inbox: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return forgotten, fmt.Errorf("prune the inbox: %w", err)
		}
		if forgotten += n; n < pruneRows {
			return forgotten, nil
		}
	}
}
