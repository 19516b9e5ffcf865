// Package s3bucket is the part of an S3 driver that does not depend on a client library: what each answer of an S3 API means for the
// contract of package objectstore, and how each operation of the contract is made from requests of that API.
//
// A driver brings a Client, a thin layer over its library that makes exactly one request a call and retries nothing. Store makes an
// objectstore.Store of it. Transport goes under the library as its http.RoundTripper: libraries hide what Store must know (whether a
// request was sent at all, the status of its answer), so Transport notes it in the Call that Store has put into the context.
//
// # What makes a write indefinite
//
// A request whose headers were written and which got no answer, or an answer that does not say that nothing happened (500, 502, 504, a
// 503 that is not the store's own "slow down"), may have taken effect, now or later. Everything else is definite. The table is in
// classify.go, with a reason for each line.
//
// # Writers' IDs
//
// The ID of a writer is kept as user metadata of the object (header x-amz-meta-forebay-id). A create that meets 412 asks for the
// metadata and so tells the object of an own earlier attempt from a rival's.
package s3bucket
