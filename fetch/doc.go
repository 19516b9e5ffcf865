// Package fetch is the read path: it finds the batches of a partition in the metadata view, reads them by range GETs through a block
// cache, decodes and slices them. Long polls wait on the apply loop, never on a timer loop.
//
// All methods of Fetcher are safe for concurrent use.
package fetch
