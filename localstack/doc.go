// Package localstack holds what runs Forebay on one machine over a real object store, with Docker and without: compose files and scripts. The
// only Go here is their test.
package localstack
