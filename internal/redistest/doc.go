// Package redistest starts real redis-servers for tests, and does to them what happens to Redis in production: killed, restarted
// empty, stopped in its tracks, failed over to a replica that lacks the last writes, rolled back.
//
// The binary is redis-server from PATH, or the one that FOREBAY_TEST_REDIS names (valkey-server, another version). A missing one fails
// the test: nothing here is ever skipped.
//
// A Server belongs to one test. Its methods may be called from any goroutine, those that start and end the process one at a time.
package redistest
