#!/usr/bin/env bash
# Forebay on a real S3 API without Docker: versitygw over a folder, three etcd members, one or three nodes, all on loopback.
#
#   localstack/s3.sh start    install versitygw into .tools if it is not there, start everything, run the smoke test, leave it running
#   localstack/s3.sh smoke    run the smoke test again on what runs
#   localstack/s3.sh status   say what runs
#   localstack/s3.sh stop     stop it
#
# Settings, from the environment (names with FOREBAY_ are settings of forebay itself):
#   BIN=bin/forebay       the binary; nothing is built here
#   S3_DIR=.forebay-s3    data, logs and process IDs; kept over restarts, remove it to begin anew. Its file system must keep extended attributes
#   S3_PORT=8280          nodes listen on this port, +2 and +4, for operators on +1, +3 and +5; etcd on +100 to +112; the store on +120
#   S3_NODES=3            1 or 3
#   S3_DRIVER=s3          s3 or minio: the driver of the nodes
#   GO=go                 installs versitygw
set -euo pipefail

NAME=s3
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-bin/forebay}
DIR=${S3_DIR:-.forebay-s3}
PORT=${S3_PORT:-8280}
DRIVER=${S3_DRIVER:-s3}
STORE=versitygw
# shellcheck source=localstack/lib.sh
. "$HERE/lib.sh"
# shellcheck source=localstack/smoke.sh
. "$HERE/smoke.sh"
# shellcheck source=localstack/versions.env
. "$HERE/versions.env"
one_or_three "${S3_NODES:-3}"

TOOL=$HERE/../.tools/versitygw
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
  mkdir -p "$(dirname "$TOOL")"
  # The file of the version is that of the tests, which install it the same way. Only one of all that run at once installs.
  (
    flock 9
    if [[ ! -x $TOOL || $(cat "$TOOL.version" 2>/dev/null) != "$VERSITYGW_VERSION" ]]; then
      say "installing versitygw $VERSITYGW_VERSION, which takes minutes once"
      (cd "$(dirname "$TOOL")" && GOBIN=$PWD GOFLAGS='' "${GO:-go}" install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION")
      echo "$VERSITYGW_VERSION" >"$TOOL.version"
    fi
  ) 9>"$TOOL.lock"
}

# credentials: an account made up for this folder. The nodes find it in the environment, as in production.
credentials() {
  if [[ ! -s $DIR/store.env ]]; then
    (umask 077 && printf 'AWS_ACCESS_KEY_ID=forebay\nAWS_SECRET_ACCESS_KEY=%s\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$DIR/store.env")
  fi
  set -a
  # shellcheck source=/dev/null
  . "$DIR/store.env"
  set +a
  export AWS_EC2_METADATA_DISABLED=true
  unset AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 MINIO_ACCESS_KEY MINIO_SECRET_KEY
}

start_store() {
  credentials
  mkdir -p "$DIR/buckets"
  ROOT_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY \
    launch store "--port $HOST:$STORE_PORT " "$TOOL" --port "$HOST:$STORE_PORT" --keep-alive --quiet --health /health posix "$DIR/buckets"
  wait_url store "$(store_address)/health"
}

if [[ ${1:-} == smoke && -d $DIR ]]; then credentials; fi # a node is started again
main "$@"
