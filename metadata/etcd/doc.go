// Package etcd is the metadata.Driver on etcd: a client of a cluster, or a member inside this process.
//
// Main types:
//
//   - Driver: metadata.Driver over one client. Made by Dial (a cluster), OpenEmbedded (a member of one's own) or Server.Driver.
//   - Server: one etcd member in this process, alone or of a cluster.
//
// docs/metadata-keys.md is the normative table of keys. It is the only package that imports etcd's client and server.
//
// Concurrency: all methods are safe for concurrent use.
package etcd
