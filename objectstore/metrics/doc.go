// Package metrics counts and times the operations of an object store.
//
// Put it beneath the retry wrapper, so that every request to the store counts. PUTs per GiB ingested is
//
//	increase(forebay_objectstore_requests_total{op="put"}[..]) / increase(forebay_objectstore_bytes_total{op="put"}[..]) * 2^30
package metrics
