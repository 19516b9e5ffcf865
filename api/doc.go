// Package api is the vocabulary that every other package shares: wire types, the table of error codes, the limits, and the
// validation of names. It imports the standard library only.
//
// Domain packages (metadata, ingest, fetch, ...) return *Error for every condition that a caller of the REST API may see, so that
// the gateway maps nothing: it only renders. Conditions that no client should see stay ordinary wrapped errors and become a 500.
package api
