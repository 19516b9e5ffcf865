// Package outbox publishes records if and only if a database transaction commits: a transactional outbox over database/sql on
// PostgreSQL 13 or later.
//
// An application adds records to a table in the transaction of its business change (Outbox.Add). A Relay, in the same process or in others,
// reads what has been committed and publishes it. Any PostgreSQL driver for database/sql will do; nothing is kept in a database session, so
// a pooler in transaction mode may be in between (a driver that prepares statements by itself must know of it).
//
// # What is promised
//
// Once: each committed row is in the log once, and no row of a transaction that was rolled back is. That holds when a relay, the
// application, the server or the network fails at any point, because a publish carries a producer's sequence that was written to the
// database before, and because who takes over first ends the earlier session and then asks the server what it accepted (the
// protocol is in worker.go). It rests on what the server remembers of a producer, which is 7 days: if all relays are down for longer than
// that, exactly between a publish and its mark, that one batch is published again. It is also published again where the
// database itself forgets what it had committed: restored from a backup, or failed over to a replica that lacked the last commits. And it
// is published again if its topic is deleted and made anew in that moment. Event IDs are the same in all these cases, so a
// consumer with an inbox (package inbox) sees an effect once even then. Nothing of this ever loses a row.
//
// In order: the records of a topic with one key are in the log in this order: those of one transaction as they were added; and those
// of a transaction that had committed before Add was called in another one, before the other's. The second is given where both
// transactions lock the row that the events are about (UPDATE, SELECT FOR UPDATE) before they call Add. Transactions that do not exclude each
// other, or call Add first, have no order of their own, and their records may come in either, or mixed; WithKeyLock makes
// the order that of the commits there. There is no order between keys, nor between topics. Records without a key have none, except
// that those pinned to a partition keep theirs. When a topic gains partitions, a key moves to another one, as with any producer.
//
// Rows are found by being there, not by a cursor. A transaction that commits late, with lower IDs than others which are published
// already, is published when it commits, and a long transaction holds nobody up. (It does hold up PostgreSQL's vacuum: while one
// is open for hours, reading the table becomes slower.)
//
// # Relays
//
// The table is cut into 16 shards by topic and key. A shard has one relay at a time, relays share the shards evenly, and when a relay ends
// or dies the others take its shards: at once where Run ended, after WithLease where it died. Who is alive is seen by counters that stand
// still, timed by the observer's own monotonic clock; no two clocks are ever compared, and a wrong guess costs nothing but work: a relay
// that wakes up after its shard was taken can neither publish nor mark.
//
// # Refusals
//
// Add refuses what no topic could ever take. What the server refuses later (a topic's own size limit, its schema, a topic that does not
// exist) is found by halving the batch, written to the row (Outbox.Refused), logged as an error at each attempt, and tried again with growing
// pauses of at most 30 s. What is behind it in its shard and topic waits, because publishing it would break the order; everything else goes
// on. Remove the cause, or set the row aside with Outbox.Park; WithParking does that by itself for records that are refused for
// what they are.
//
// # Operating it
//
// Rows are deleted when they are published, or kept for WithRetention. Watch Outbox.Stats: OldestAge is how far the log is behind the database.
// The relay needs permission to publish to the topics and to the producers "outbox.*".
//
// Outbox and Relay are safe for concurrent use.
package outbox
