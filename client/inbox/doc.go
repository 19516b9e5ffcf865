// Package inbox makes the effect of a record happen once, however often the record is delivered: over database/sql on PostgreSQL 13 or later,
// with any driver.
//
// The ID of what was handled is written in the transaction of the effect. Both are committed or neither is, and the table takes an ID once
// per consumer. So a record that is delivered again (a lease that lapsed, an offset that was not committed, a redrive, a publisher that
// repeated itself) is seen to be done:
//
//	done, err := box.Do(ctx, db, "billing", inbox.RecordID(topicID, record), func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + $1 WHERE id = $2", amount, account)
//		return err
//	})
//
// Then, and only where err is nil, ack the lease or commit the offset. The order matters: acknowledged first and handled later, a
// crash in between loses the effect.
//
// # What is promised
//
// Of all calls with one consumer and one ID, at most one commits its effect; and if any returns without an error, exactly one has. Two at the
// same time, from different processes: the second waits for the end of the first one's transaction, and then does nothing or, where that
// was rolled back, does it itself. The effect is what the transaction writes: an e-mail that the function sends is not part of it.
//
// It holds for as long as the IDs are kept. Prune deletes old ones; keep them longer than a record can come back: longer
// than the retention of its topic, and than that of the dead-letter topic it may be redriven from.
//
// # IDs
//
// RecordID gives a record's event ID, which the outbox keeps stable (package outbox), or where it has none its place in the log. A consumer
// is a name for the effect: two consumers of one topic that do different things have different names.
//
// An Inbox is safe for concurrent use.
package inbox
