// Package journal keeps what a work queue may not lose when Redis is lost: how far each partition of a subscription is settled, which
// records are remembered one by one (retries, dead letters, delayed ones), and redrives under way.
//
// It is an ordinary topic of the tenant, `__journal`, compacted by key; a Log gives access to it. All records of a subscription are in one
// partition of that topic. docs/journal-format.md is the format, byte by byte, with the reasons.
//
// # Order
//
// Several nodes journal the same shard at the same time, and a record may land long after a newer one. Compaction keeps the last record of
// each key, whatever it says. So no two processes share a key that they both overwrite: keys of states and of pointers carry the incarnation and
// the writer, a random number of each Journal, and one Journal's writes of a subscription are in order. A reader puts the records of all writers
// together; that gives the same before and after compaction.
//
//   - States. What was settled stays settled until someone seeks. So the state of a shard is everything that any record since the
//     last seek says is settled, and its version the highest of theirs.
//   - Pointers. The record with the highest version counts. The end of a pointer is a record too, and becomes a tombstone only
//     minutes later (collect.go): a pointer that is late by less cannot rise again. One that is later costs a repeated delivery, nothing else.
//   - Openings. A seek is not overtaken by an opening that did not know it; see Entry.Open and ErrStale.
//
// # Reading
//
// A Journal keeps the newest record of each key of the subscriptions in use in memory, up to Options.CacheBytes, and reads only what
// is new. Calls that come while one read of a partition runs share the next one, so that every answer is linearizable.
//
// All methods may be called concurrently. A Journal starts no goroutines.
package journal
