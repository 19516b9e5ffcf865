#!/usr/bin/env bash
# A cluster on one machine: three etcd members, one Redis and three Forebay nodes over one file store, all on loopback.
#
#   localstack/cluster.sh          start, print addresses and a token, stop all at Ctrl-C
#   localstack/cluster.sh up       start and leave it running
#   localstack/cluster.sh status   say what runs
#   localstack/cluster.sh stop     stop what `up` or an interrupted run left behind
#
# Settings, from the environment (names with FOREBAY_ are settings of forebay itself):
#   BIN=bin/forebay                the binary; nothing is built here
#   CLUSTER_DIR=.forebay-cluster   data, logs and process IDs; kept over restarts, remove it to begin anew
#   CLUSTER_PORT=8080              nodes listen on this port, +2 and +4, for operators on +1, +3 and +5;
#                                  etcd on +100 to +102 for clients and +110 to +112 for its members; Redis on +130
#   REDIS_SERVER=redis-server      the Redis of the work queues, from PATH
set -euo pipefail

NAME=cluster
BIN=${BIN:-bin/forebay}
DIR=${CLUSTER_DIR:-.forebay-cluster}
PORT=${CLUSTER_PORT:-8080}
NODES=(1 2 3)
# shellcheck source=localstack/lib.sh
. "$(dirname "$0")/lib.sh"

stop() { stop_cluster; }

start() {
  prepare
  make_token
  start_redis
  start_etcd
  start_nodes "file://$DIR/objects"
}

greet() {
  local one two
  one=$(node_url 1)
  two=$(node_url 2)
  echo "Three nodes are ready; data and logs are in $DIR."
  echo
  print_addresses
  cat <<TEXT

  token of tenant demo, also in $DIR/token:

$TOKEN

Publish to node 1, read from node 2:

  curl -s -X PUT $one/v1/topics/orders -H "Authorization: Bearer \$(cat $DIR/token)" && \\
  curl -s $one/v1/topics/orders/records -H "Authorization: Bearer \$(cat $DIR/token)" -H 'Content-Type: application/json' \\
    -d '{"records":[{"key":"o-1","value":{"total":12.50}}]}'
  curl -s '$two/v1/topics/orders/partitions/2/records?offset=earliest' -H "Authorization: Bearer \$(cat $DIR/token)"

TEXT
}

PARTS=(redis etcd1 etcd2 etcd3 node1 node2 node3)
status() { status_of "${PARTS[@]}"; }

case ${1:-run} in
run)
  not_twice "${PARTS[@]}"
  set -m # every process is the leader of a group of its own
  trap 'trap "" INT TERM; say "stopping"; stop; exit 0' INT TERM
  trap 'stop' EXIT
  start
  greet
  echo "Ctrl-C stops all of them."
  while status >/dev/null; do sleep 1 & wait $! || true; done
  die "all processes have ended; their logs are in $DIR"
  ;;
up)
  not_twice "${PARTS[@]}"
  set -m
  trap 'stop' EXIT
  start
  trap - EXIT
  greet
  echo "$0 stop ends them."
  ;;
stop) stop ;;
status) status ;;
*) die "unknown command $1: want run, up, stop or status" ;;
esac
