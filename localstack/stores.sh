#!/usr/bin/env bash
# The conformance suite and the log, by both S3 drivers, on other S3 servers than the one of the ordinary tests (versitygw).
#
#   localstack/stores.sh                     minio, moto and localstack
#   localstack/stores.sh SERVER...           some of versitygw, minio, moto, localstack
#
# Settings, from the environment: GO=go, PYTHON=python3, STORES_PORT=8680 (the next ports are used as well), TESTFLAGS=-race.
set -euo pipefail

NAME=stores
HERE=$(cd "$(dirname "$0")" && pwd)
DIR=$(mktemp -d)
PORT=${STORES_PORT:-8680}
# shellcheck source=localstack/lib.sh
. "$HERE/lib.sh"
# shellcheck source=localstack/servers.sh
. "$HERE/servers.sh"

finish() {
  halt store
  rm -rf "$DIR"
}
trap finish EXIT
trap 'exit 1' INT TERM

test_on() { # test_on SERVER TESTS
  say "testing on $1"
  (cd "$HERE/.." && FOREBAY_TEST_S3=http://$HOST:$PORT FOREBAY_TEST_S3_NAME=$1 \
    "${GO:-go}" test -count=1 ${TESTFLAGS:--race} -run "^($2)\$" ./objectstore/s3 ./objectstore/minio ./objectstore/open)
}

[[ $# -gt 0 ]] || set -- minio moto localstack
for server in "$@"; do
  tests='TestConformance|TestLifecycleRules|TestLog'
  case $server in
  versitygw | minio | localstack) ;;
  moto) tests='TestConformance|TestLifecycleRules' ;; # its conditional writes race, which a node's start-up probe may notice
  *) die "unknown server $server: want versitygw, minio, moto or localstack" ;;
  esac
  "install_$server"
  credentials_for "$server"
  "launch_$server" store "$PORT"
  test_on "$server" "$tests"
  halt store
  PORT=$((PORT + 1))
done
