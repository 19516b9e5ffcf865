// Package fetch is the read path: it finds the batches of a partition in the metadata view, reads them by range GETs through a block
// cache, decodes and slices them. Long polls wait on the apply loop, never on a timer loop.
//
// The main type is Fetcher, made by New. It implements Reader (Read, ReadWait, OffsetForTime) for those who serve records, and Put for
// ingest, which hands over what it has just uploaded. All methods are safe for concurrent use. Close ends the GETs in flight.
//
// # Blocks and extents
//
// Objects are read in blocks of fixed size. Adjacent missing blocks of one read are one GET; what it brings is an extent, cached and evicted
// as one piece, and batches are decoded straight from it. A block that is on its way is shared by everyone who wants it. A GET belongs to no
// request: a reader that gives up does not take it from the others, and a queued GET that nobody wants any more is given up.
//
// # Recent and old data
//
// Data is recent until its append time is Options.OldAge ago. Recent data is cached by recency, because the newest is what is read next.
// Old data is cached by frequency, in a cache of its own, and its misses go through a small pool of GETs and a rate per tenant. So a
// backfill neither pushes out what tailing readers need nor stands in their way. Before old data gets to that cache it is in a window, where
// what was loaded ahead of a scan waits for it: a cache by frequency would refuse that. A scan loads ahead by halves of what is loaded
// ahead altogether, so that its GETs are large, however little each of its reads takes.
//
// Decompressed batches are cached as well, for tailing readers and for reads that page through a batch.
//
// # What a read promises
//
// At least one record however small the byte limit; records in offset order; holes left by compaction are passed and NextOffset always moves on,
// never beyond the head; an offset below logStart is an error and never a silent jump. A read that meets a fault after some records
// returns these; the next read begins at the fault and reports it. A batch that will never be readable is an *UnreadableError inside the
// *api.Error, counted and logged once.
package fetch
