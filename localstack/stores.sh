#!/usr/bin/env bash
# The conformance suite, the fault cases and the log, by both S3 drivers, on other S3 servers than the one of the ordinary tests.
#
#   localstack/stores.sh                  moto and localstack
#   localstack/stores.sh moto
#   localstack/stores.sh localstack
#
# Settings, from the environment: GO=go, PYTHON=python3, STORES_PORT=8680 (moto; LocalStack on +1), TESTFLAGS=-race.
set -euo pipefail

NAME=stores
HERE=$(cd "$(dirname "$0")" && pwd)
DIR=$(mktemp -d)
PORT=${STORES_PORT:-8680}
# shellcheck source=localstack/lib.sh
. "$HERE/lib.sh"
# shellcheck source=localstack/python.sh
. "$HERE/python.sh"

finish() {
  halt store
  rm -rf "$DIR"
}
trap finish EXIT
trap 'exit 1' INT TERM

test_on() { # test_on NAME PORT TESTS
  say "testing on $1"
  (cd "$HERE/.." && FOREBAY_TEST_S3=http://$HOST:$2 FOREBAY_TEST_S3_NAME=$1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test \
    "${GO:-go}" test -count=1 ${TESTFLAGS:--race} -run "^($3)\$" ./objectstore/s3 ./objectstore/minio ./objectstore/open)
}

[[ $# -gt 0 ]] || set -- moto localstack
for store in "$@"; do
  case $store in
  moto)
    install_moto
    launch_moto store "$PORT"
    # Not the log: moto's conditional writes race, which a node's start-up probe may notice.
    test_on moto "$PORT" 'TestConformance|TestLifecycleRules'
    ;;
  localstack)
    install_localstack
    launch_localstack store $((PORT + 1))
    test_on localstack $((PORT + 1)) 'TestConformance|TestLifecycleRules|TestLog'
    ;;
  *) die "unknown store $store: want moto or localstack" ;;
  esac
  halt store
done
