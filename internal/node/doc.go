// Package node puts a node together: object store, metadata log, ingest, fetch and gateway, from one Config.
//
// `forebay dev` and `forebay serve` run a Node, and so do tests that need whole nodes in one process: the code paths are the same, only
// addresses differ. Start builds and starts from the store upwards; Stop ends in the opposite order, in one function (stop.go). Both are
// idempotent and may be called from any goroutine.
package node
