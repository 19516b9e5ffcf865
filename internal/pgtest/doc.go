// Package pgtest starts a real PostgreSQL for the tests of one package and gives each test a database of its own.
//
// The binaries (initdb, postgres) are looked for in PATH and in /usr/lib/postgresql/*/bin. A missing one fails the test: nothing here is
// ever skipped. FOREBAY_TEST_POSTGRES, a URL such as postgres://user:secret@host:5432/postgres, makes the tests use that server instead; its
// user must be allowed to create databases.
//
// PostgreSQL refuses to run as root. Where the test does, the server runs as the user postgres, or nobody.
//
// A Server listens on a unix socket in a folder of its own, so it needs no port, and it ends with the process that started it,
// however that ends. Its methods may be called from any goroutine, those that start and end the process one at a time.
package pgtest
