# Sourced by the scripts of this folder: processes known by their ID, and Forebay's part of a cluster on loopback.
#
# The caller sets NAME (of the script, for messages), BIN (the forebay binary), DIR (data, logs and process IDs), PORT (nodes listen on it,
# +2 and +4, for operators on +1, +3 and +5; etcd on +100 to +102 for clients and +110 to +112 for its members; Redis on +130) and NODES (an array
# of numbers). REDIS_SERVER names the redis-server, from PATH if it is not set.
# shellcheck shell=bash

HOST=127.0.0.1
MEMBERS=(1 2 3)

say() { printf '%s\n' "$*" >&2; }
die() { say "$NAME: $*"; exit 1; }

rest_port() { echo $((PORT + 2 * ($1 - 1))); }
ops_port() { echo $((PORT + 2 * ($1 - 1) + 1)); }
etcd_port() { echo $((PORT + 99 + $1)); }
peer_port() { echo $((PORT + 109 + $1)); }
redis_port() { echo $((PORT + 130)); }
node_url() { echo "http://$HOST:$(rest_port "$1")"; }

# running PIDFILE: the process is there, and is the one that was started (a number may have been given to another since).
running() {
  local pid command
  [[ -s $1 ]] || return 1
  pid=$(head -n 1 "$1")
  command=$(ps -ww -o command= -p "$pid" 2>/dev/null) || return 1
  [[ $command == *"$(sed -n 2p "$1")"* ]]
}

pid_of() { head -n 1 "$DIR/$1.pid"; }

# launch NAME MARK COMMAND...: start a process whose command line contains MARK, of its own group where the caller has set -m, so that Ctrl-C
# reaches the script only and each process gets one signal.
launch() {
  local name=$1 mark=$2 tries=0
  shift 2
  running "$DIR/$name.pid" && die "$name runs already (process $(pid_of "$name")): $0 stop"
  "$@" >>"$DIR/$name.log" 2>&1 </dev/null &
  printf '%s\n%s\n' "$!" "$mark" >"$DIR/$name.pid"
  # Until it has become the program it looks like this script, and who asks at once would be told that it has ended.
  while ((tries++ < 50)) && kill -0 "$!" 2>/dev/null && ! running "$DIR/$name.pid"; do sleep 0.05; done
}

# halt NAME...: ask all to end, wait for them, and end by force what does not.
halt() {
  local name pid tries
  for name in "$@"; do
    running "$DIR/$name.pid" && kill -TERM "$(pid_of "$name")" 2>/dev/null || true
  done
  for name in "$@"; do
    tries=0
    while running "$DIR/$name.pid"; do
      if ((tries++ > 400)); then
        pid=$(pid_of "$name")
        say "$name does not stop, killing process $pid"
        kill -KILL "$pid" 2>/dev/null || true
      fi
      sleep 0.1
    done
    rm -f "$DIR/$name.pid"
  done
}

# wait_url NAME URL: until the process answers there, or has ended.
wait_url() {
  local tries=0
  until curl -fsS -o /dev/null --max-time 2 "$2" 2>/dev/null; do
    running "$DIR/$1.pid" || { tail -n 20 "$DIR/$1.log" >&2; die "$1 has ended; its log is $DIR/$1.log"; }
    ((tries++ < 300)) || die "$1 is not ready after a minute; its log is $DIR/$1.log"
    sleep 0.2
  done
}

# prepare: what all runs need. Paths become absolute.
prepare() {
  local name
  [[ -x $BIN ]] || die "there is no $BIN: make build, or set BIN"
  command -v curl >/dev/null || die "curl is needed"
  command -v "${REDIS_SERVER:-redis-server}" >/dev/null || die "redis-server 6.2 or newer is needed: install it (Debian: apt-get install redis-server), or set REDIS_SERVER"
  mkdir -p "$DIR"
  chmod 700 "$DIR"
  DIR=$(cd "$DIR" && pwd)
  BIN=$(cd "$(dirname "$BIN")" && pwd)/$(basename "$BIN")
  # Settings of other commands in the environment must not reach the nodes.
  while read -r name; do unset "$name"; done < <(compgen -e | grep '^FOREBAY_' | grep -v '^FOREBAY_FAILPOINTS$' || true)
}

# make_token: a token of tenant demo, in TOKEN and in a file.
make_token() {
  TOKEN=$("$BIN" token --tenant demo --subject demo --expires 8760h --data "$DIR")
  (umask 077 && printf '%s\n' "$TOKEN" >"$DIR/token")
}

start_etcd() {
  local i members=''
  for i in "${MEMBERS[@]}"; do members+=,etcd$i=$HOST:$(peer_port "$i"); done
  for i in "${MEMBERS[@]}"; do
    launch "etcd$i" "etcd --name etcd$i " "$BIN" etcd --name "etcd$i" --data "$DIR/etcd$i" --listen-client "$HOST:$(etcd_port "$i")" \
      --listen-peer "$HOST:$(peer_port "$i")" --initial-cluster "${members#,}"
  done
}

# start_redis: one Redis for all nodes, without persistence: what it holds may be lost at any moment.
start_redis() {
  local at=$HOST:$(redis_port) tries=0
  # The title makes the process known by the same words before and after it has set it.
  launch redis "redis-server $at" "${REDIS_SERVER:-redis-server}" --bind $HOST --port "$(redis_port)" --save '' --appendonly no --dir "$DIR" \
    --proc-title-template "redis-server $at"
  until [[ $(redis_call PING) == +PONG* ]]; do
    running "$DIR/redis.pid" || { tail -n 20 "$DIR/redis.log" >&2; die "redis has ended; its log is $DIR/redis.log"; }
    ((tries++ < 300)) || die "redis is not ready after a minute; its log is $DIR/redis.log"
    sleep 0.2
  done
}

# redis_call COMMAND: the first line of the answer, or nothing.
redis_call() {
  local line=''
  { exec 3<>"/dev/tcp/$HOST/$(redis_port)"; } 2>/dev/null || return 0
  printf '%s\r\n' "$1" >&3
  IFS= read -r -t 2 line <&3 || true
  exec 3>&-
  printf '%s\n' "$line"
}

# start_node N STORE: one node over an object store, given as its URL.
start_node() {
  local i endpoints=''
  for i in "${MEMBERS[@]}"; do endpoints+=,$HOST:$(etcd_port "$i"); done
  launch "node$1" "serve --node-id node$1 " "$BIN" serve --node-id "node$1" --listen "$HOST:$(rest_port "$1")" --ops-listen "$HOST:$(ops_port "$1")" \
    --object-store "$2" --etcd "${endpoints#,}" --redis "redis://$HOST:$(redis_port)" --dev-key "$DIR/dev.key"
}

wait_node() { wait_url "node$1" "http://$HOST:$(ops_port "$1")/readyz"; }

start_nodes() {
  local i
  for i in "${NODES[@]}"; do start_node "$i" "$1"; done
  for i in "${NODES[@]}"; do wait_node "$i"; done
}

stop_cluster() {
  halt node1 node2 node3
  halt etcd1 etcd2 etcd3 redis
}

# status_of NAME...: says what runs; fails if nothing does.
status_of() {
  local name any=1
  for name in "$@"; do
    if running "$DIR/$name.pid"; then
      echo "$name runs, process $(pid_of "$name")"
      any=0
    else
      echo "$name does not run"
    fi
  done
  return $any
}

# not_twice NAME...: dies if any of them runs, before anything is touched.
not_twice() {
  if status_of "$@" >/dev/null; then die "it runs already in $DIR: $0 stop"; fi
}

print_addresses() {
  local i
  for i in "${NODES[@]}"; do
    printf '  node%s  %s   ops http://%s:%s   process %s\n' "$i" "$(node_url "$i")" $HOST "$(ops_port "$i")" "$(pid_of "node$i")"
  done
  for i in "${MEMBERS[@]}"; do
    printf '  etcd%s  %s:%s   process %s\n' "$i" $HOST "$(etcd_port "$i")" "$(pid_of "etcd$i")"
  done
  printf '  redis  %s:%s   process %s\n' $HOST "$(redis_port)" "$(pid_of redis)"
}
