// Package store keeps the leases of work queues in Redis. Everything in it may be lost at any moment: what must survive is exported to the
// journal, and loaded again from there.
//
// # Concepts
//
// A subscription has a shard for each partition of its topic. A shard's frontier is the offset below which everything is settled; its cursor is
// the next new record. Between the two every offset is in exactly one place: settled ahead of the frontier, leased, owed (given back, lapsed,
// nacked or redriven, to be delivered again at a due time), waiting (behind its key, or for its turn in a fair queue), or a dead letter whose
// copy is not committed yet. Records that the frontier has passed but that are to be delivered all the same, since they were redriven or
// scheduled, live by their pointer alone: they are detached.
//
// A lease is a run of consecutive records that were handed out together: one nonce, one block in Redis. So leasing and acking a run costs the same
// whether it has one record or a thousand. A nonce is a ULID and never repeats, and a receipt (partition, offset, nonce) is honoured only while the
// block says that this record of it is live and its deadline, by Redis's own clock, has not come. Finished blocks are kept for a while, so that a
// repeated ack is answered as the first was.
//
// docs/lease-keys.md has every key and value in Redis, and a test compares it with what this package writes.
//
// # Scripts
//
// A subscription changes by Lua scripts only, one round trip each, atomic. A script is made of several files of lua/. The common lease and the common ack run in a fast part at the top, before the library below is defined; everything else falls through to
// it before anything has been written. Scripts answer with one string, which is the same under RESP2 and RESP3; any other reply is an error.
//
// All keys of a subscription are in one hash slot, so a cluster may hold them. Numbers in Lua are doubles: offsets are exact up to 2^53.
//
// # Lives
//
// A Redis that was restarted, failed over or swapped may have older state than was acknowledged. It is noticed because scripts are called by hash
// and never sent along: NOSCRIPT means a Redis that this process has not met. The texts of scripts carry the process's instance and the number of
// the life, so each process notices for itself, and a call begun in one life cannot run in a Redis met in a later one. A new connection also
// compares the server's run and replication IDs, and READONLY tells of a demotion. Each of these raises [Store.Life]; from then on every call on a
// subscription answers [NotLoadedError], with no effect, until the subscription has been opened in the new life: [Store.Survey] says what is there,
// the caller decides by the journal what to keep, [Store.Load] puts it in place, [Store.Ready] ends the opening. Two openings at once are harmless:
// [ErrStale] tells the slower one.
//
// # Errors
//
// Whatever is wrong with Redis is an *api.Error with LEASES_UNAVAILABLE and RetryAfter: not reachable, LOADING, READONLY, OOM, a reply that no
// script gives. No call is sent twice. An ack, nack, extension or release of unknown outcome may be repeated. A lease call of unknown outcome may
// have granted records that nobody knows of; the Store looks for them under the nonce that it had drawn and gives them back as soon as Redis
// answers.
//
// # Addresses
//
//	redis://[user:password@]host[:port][/db]              one server
//	redis://[user:password@]host:port,host:port           a cluster, by some of its nodes
//	redis+cluster://[user:password@]host:port             a cluster, by one of its nodes
//	redis+sentinel://[user:password@]host:port,…/name[/db]  the primary that Sentinels name
//
// rediss, rediss+cluster and rediss+sentinel do the same over TLS 1.2 or newer. Special characters in user and password are percent-encoded.
// Settings follow as a query: protocol (2 or 3), pool_size (64), dial_timeout (2s), timeout (3s, of one command), sentinel_username,
// sentinel_password; with TLS: ca_file, cert_file, key_file, server_name, insecure_skip_verify.
package store
