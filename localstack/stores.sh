#!/usr/bin/env bash
# The conformance suite, the log, the real input and kills at every point of a publish, by both S3 drivers, on other S3 servers than the one of
# the ordinary tests (versitygw).
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

test_on() { # test_on SERVER TESTS PACKAGES...
  local server=$1 tests=$2
  shift 2
  say "testing on $server: $*"
  (cd "$HERE/.." && FOREBAY_TEST_S3=http://$HOST:$PORT FOREBAY_TEST_S3_NAME=$server \
    "${GO:-go}" test -count=1 ${TESTFLAGS:--race} -run "$tests" "$@")
}

[[ $# -gt 0 ]] || set -- minio moto localstack
for server in "$@"; do
  node=yes
  case $server in
  versitygw | minio | localstack) ;;
  moto) node=no ;; # its conditional writes race, which a node's start-up probe may notice
  *) die "unknown server $server: want versitygw, minio, moto or localstack" ;;
  esac
  "install_$server"
  credentials_for "$server"
  "launch_$server" store "$PORT"
  test_on "$server" '^(TestConformance|TestLifecycleRules)$' ./objectstore/s3 ./objectstore/minio
  if [[ $node = yes ]]; then
    test_on "$server" '^TestLog$' ./objectstore/open
    test_on "$server" '^TestChanges$/^(s3|minio)$' -tags failpoints ./internal/proof
    test_on "$server" '^TestCrashOnServer$' -tags failpoints ./internal/proof
  fi
  halt store
  PORT=$((PORT + 1))
done
