// Package forebayv1 is the generated binary form of publish, read, lease and settle (application/x-protobuf). records.proto and
// queue.proto are the contract; the gateway itself encodes and decodes it by hand, without building messages (package gateway/wire), and uses these types as the
// reference in its tests. Clients in Go use them directly.
package forebayv1

//go:generate ./generate.sh
