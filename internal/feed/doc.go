// Package feed sends lines into a topic, strictly in order and resumably: the engine of `forebay publish`.
//
// Lines reads text lines (gzip is recognised by its magic) and Shape makes records of them. Publish groups records into requests and
// sends them one at a time, so that the order of the lines is the order of each key.
//
// # Resuming
//
// With a producer, the sequence of a request is the number of its last line. A request is atomic, requests go out in line order, and the
// sequence that a partition has accepted is that of the last request that touched it. So a line whose partition has accepted its number or
// a higher one is stored, and any other line is not: whatever the requests' boundaries were before, and wherever client or server were
// killed. For that to hold, the partition of a line must be the same in every run: with a key it is api.PartitionForKey, without one the
// line's number picks it, and the number of partitions must not change between runs.
package feed
