#!/bin/sh
# Generates *.pb.go from the .proto files. Needs protoc 3.21 or newer and
# protoc-gen-go v1.36.12 (go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12).
set -eu
cd "$(dirname "$0")/../../.."
PATH="$(go env GOPATH)/bin:$PATH"
export PATH
protoc --go_out=. --go_opt=paths=source_relative api/forebay/v1/records.proto api/forebay/v1/queue.proto
