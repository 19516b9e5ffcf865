#!/usr/bin/env bash
# Forebay on LocalStack's S3 without Docker and without an account: LocalStack from its Python packages, three etcd members, one or three
# nodes, all on loopback.
#
#   localstack/localstack.sh start    install LocalStack into .tools if it is not there, start everything, run the smoke test, leave it running
#   localstack/localstack.sh smoke    run the smoke test again on what runs
#   localstack/localstack.sh status   say what runs
#   localstack/localstack.sh stop     stop it
#
# LocalStack keeps objects in memory, so each start begins with nothing: what etcd knew of the objects before is removed as well.
#
# Settings, from the environment (names with FOREBAY_ are settings of forebay itself):
#   BIN=bin/forebay                 the binary; nothing is built here
#   LOCAL_DIR=.forebay-localstack   logs and process IDs
#   LOCAL_PORT=8480                 nodes listen on this port, +2 and +4, for operators on +1, +3 and +5; etcd on +100 to +112; the store on +120
#   LOCAL_NODES=3                   1 or 3
#   LOCAL_DRIVER=s3                 s3 or minio: the driver of the nodes
#   PYTHON=python3                  Python 3.13 or newer; others are looked for if this one is older
set -euo pipefail

NAME=localstack
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-bin/forebay}
DIR=${LOCAL_DIR:-.forebay-localstack}
PORT=${LOCAL_PORT:-8480}
DRIVER=${LOCAL_DRIVER:-s3}
STORE=LocalStack
# shellcheck source=localstack/lib.sh
. "$HERE/lib.sh"
# shellcheck source=localstack/smoke.sh
. "$HERE/smoke.sh"
# shellcheck source=localstack/python.sh
. "$HERE/python.sh"
one_or_three "${LOCAL_NODES:-3}"

STORE_PORT=$((PORT + 120))

store_address() { echo "http://$HOST:$STORE_PORT"; }

store_url() {
  case $DRIVER in
  s3) echo "s3://forebay?region=us-east-1&path-style=true&create=true&endpoint=$(store_address)" ;;
  minio) echo "minio://$HOST:$STORE_PORT/forebay?secure=false&create=true" ;;
  *) die "driver $DRIVER: want s3 or minio" ;;
  esac
}

install_store() {
  store_url >/dev/null
  install_localstack
}

credentials() {
  export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true
  unset AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 MINIO_ACCESS_KEY MINIO_SECRET_KEY
}

start_store() {
  credentials
  rm -rf "$DIR/etcd1" "$DIR/etcd2" "$DIR/etcd3"
  launch_localstack store "$STORE_PORT"
}

if [[ ${1:-} == smoke ]]; then credentials; fi # a node is started again
main "$@"
