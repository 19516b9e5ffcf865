// Package minio keeps objects in MinIO, or a store that speaks the S3 API, by way of minio-go.
//
// It differs from package s3 in where things come from, not in what it does: the address is a host in the URL, credentials are MinIO's
// variables or Amazon's, a role taken at the store's own STS, or those of the machine, and the bucket can be made at the start. The library
// makes each request once; package objectstore/retry is the only place that tries again.
package minio
