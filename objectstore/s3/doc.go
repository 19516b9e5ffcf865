// Package s3 keeps objects in Amazon S3, or a store that speaks its API, by way of aws-sdk-go-v2.
//
// The SDK retries nothing here: a repeated conditional PUT turns an own success into 412, and only package objectstore/retry knows what
// was asked for. Credentials come from the SDK's default chain (environment, shared files, web identity, container, instance). Bodies are
// sent as they are, with a CRC-32C that the store checks; over TLS they are not hashed a second time for the signature.
//
// A bucket whose name ends in --x-s3 is a directory bucket (S3 Express One Zone): the SDK opens sessions with it by itself. Such buckets
// list in no order and know no start, so a List reads all keys of a folder; see docs/object-stores.md for what that costs.
package s3
