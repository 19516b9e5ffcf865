#!/usr/bin/env bash
# A cluster on one machine: three etcd members and three Forebay nodes over one file store, all on loopback.
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
#                                  etcd on +100 to +102 for clients and +110 to +112 for its members
set -euo pipefail

BIN=${BIN:-bin/forebay}
DIR=${CLUSTER_DIR:-.forebay-cluster}
PORT=${CLUSTER_PORT:-8080}
HOST=127.0.0.1
NODES=(1 2 3)

say() { printf '%s\n' "$*" >&2; }
die() { say "cluster: $*"; exit 1; }

rest_port() { echo $((PORT + 2 * ($1 - 1))); }
ops_port() { echo $((PORT + 2 * ($1 - 1) + 1)); }
etcd_port() { echo $((PORT + 99 + $1)); }
peer_port() { echo $((PORT + 109 + $1)); }

# running PIDFILE: the process is there, and is the one that was started (a number may have been given to another since).
running() {
  local pid command
  [[ -s $1 ]] || return 1
  pid=$(head -n 1 "$1")
  command=$(ps -o command= -p "$pid" 2>/dev/null) || return 1
  [[ $command == *"$(sed -n 2p "$1")"* ]]
}

# launch NAME MARK ARGS...: start a process of its own group, so that Ctrl-C reaches this script only and each process gets one signal.
launch() {
  local name=$1 mark=$2
  shift 2
  running "$DIR/$name.pid" && die "$name runs already (process $(head -n 1 "$DIR/$name.pid")): $0 stop"
  "$BIN" "$@" >>"$DIR/$name.log" 2>&1 </dev/null &
  printf '%s\n%s\n' "$!" "$mark" >"$DIR/$name.pid"
}

# halt NAME...: ask all to end, wait for them, and end by force what does not.
halt() {
  local name pid tries
  for name in "$@"; do
    running "$DIR/$name.pid" && kill -TERM "$(head -n 1 "$DIR/$name.pid")" 2>/dev/null || true
  done
  for name in "$@"; do
    tries=0
    while running "$DIR/$name.pid"; do
      if ((tries++ > 400)); then
        pid=$(head -n 1 "$DIR/$name.pid")
        say "$name does not stop, killing process $pid"
        kill -KILL "$pid" 2>/dev/null || true
      fi
      sleep 0.1
    done
    rm -f "$DIR/$name.pid"
  done
}

stop() {
  halt node1 node2 node3
  halt etcd1 etcd2 etcd3
}

# wait_ready N: until the node's ops port says so, or its process has ended.
wait_ready() {
  local url tries=0
  url=http://$HOST:$(ops_port "$1")/readyz
  until curl -fsS -o /dev/null --max-time 2 "$url" 2>/dev/null; do
    running "$DIR/node$1.pid" || { tail -n 20 "$DIR/node$1.log" >&2; die "node $1 has ended; its log is $DIR/node$1.log"; }
    ((tries++ < 300)) || die "node $1 is not ready after a minute; its log is $DIR/node$1.log"
    sleep 0.2
  done
}

start() {
  local i members='' endpoints='' store
  [[ -x $BIN ]] || die "there is no $BIN: make build, or set BIN"
  command -v curl >/dev/null || die "curl is needed"
  mkdir -p "$DIR"
  chmod 700 "$DIR"
  DIR=$(cd "$DIR" && pwd)
  BIN=$(cd "$(dirname "$BIN")" && pwd)/$(basename "$BIN")
  # Settings of other commands in the environment must not reach the nodes.
  while read -r i; do unset "$i"; done < <(compgen -e | grep '^FOREBAY_' | grep -v '^FOREBAY_FAILPOINTS$' || true)
  for i in "${NODES[@]}"; do
    members+=,etcd$i=$HOST:$(peer_port "$i")
    endpoints+=,$HOST:$(etcd_port "$i")
  done
  store=file://$DIR/objects
  TOKEN=$("$BIN" token --tenant demo --subject demo --expires 8760h --data "$DIR")
  (umask 077 && printf '%s\n' "$TOKEN" >"$DIR/token")
  for i in "${NODES[@]}"; do
    launch "etcd$i" "etcd --name etcd$i " etcd --name "etcd$i" --data "$DIR/etcd$i" --listen-client "$HOST:$(etcd_port "$i")" \
      --listen-peer "$HOST:$(peer_port "$i")" --initial-cluster "${members#,}"
  done
  for i in "${NODES[@]}"; do
    launch "node$i" "serve --node-id node$i " serve --node-id "node$i" --listen "$HOST:$(rest_port "$i")" --ops-listen "$HOST:$(ops_port "$i")" \
      --object-store "$store" --etcd "${endpoints#,}" --dev-key "$DIR/dev.key"
  done
  for i in "${NODES[@]}"; do wait_ready "$i"; done
}

greet() {
  local i one two
  one=http://$HOST:$(rest_port 1)
  two=http://$HOST:$(rest_port 2)
  echo "Three nodes are ready; data and logs are in $DIR."
  echo
  for i in "${NODES[@]}"; do
    printf '  node%s  http://%s:%s   ops http://%s:%s   process %s\n' "$i" $HOST "$(rest_port "$i")" $HOST "$(ops_port "$i")" "$(head -n 1 "$DIR/node$i.pid")"
  done
  for i in "${NODES[@]}"; do
    printf '  etcd%s  %s:%s   process %s\n' "$i" $HOST "$(etcd_port "$i")" "$(head -n 1 "$DIR/etcd$i.pid")"
  done
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

status() {
  local name any=1
  for name in etcd1 etcd2 etcd3 node1 node2 node3; do
    if running "$DIR/$name.pid"; then
      echo "$name runs, process $(head -n 1 "$DIR/$name.pid")"
      any=0
    else
      echo "$name does not run"
    fi
  done
  return $any
}

case ${1:-run} in
run)
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
