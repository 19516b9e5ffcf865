# Sourced by s3.sh after lib.sh and servers.sh: a cluster over an S3 server, and the smoke test that ends each start.
#
# The caller sets STORE (versitygw, minio or localstack) and DRIVER (s3 or minio).
# shellcheck shell=bash

PARTS=(store redis etcd1 etcd2 etcd3 node1 node2 node3)

store_port() { echo $((PORT + 120)); }
store_address() { echo "http://$HOST:$(store_port)"; }

store_url() {
  case $DRIVER in
  s3) echo "s3://forebay?region=us-east-1&path-style=true&create=true&endpoint=$(store_address)" ;;
  minio) echo "minio://$HOST:$(store_port)/forebay?secure=false&create=true" ;;
  esac
}

# check_settings: refuses what is none before anything is touched.
check_settings() {
  case $STORE in versitygw | minio | localstack) ;; *) die "server $STORE: want versitygw, minio or localstack" ;; esac
  case $DRIVER in s3 | minio) ;; *) die "driver $DRIVER: want s3 or minio" ;; esac
  case ${S3_NODES:-3} in
  1) NODES=(1) ;;
  3) NODES=(1 2 3) ;;
  *) die "$S3_NODES nodes: want 1 or 3" ;;
  esac
}

api() { # api METHOD NODE PATH [BODY]
  local data=()
  [[ $# -lt 4 ]] || data=(-H 'Content-Type: application/json' -d "$4")
  curl -sS --fail-with-body --max-time 30 -X "$1" "$(node_url "$2")$3" -H "Authorization: Bearer $(cat "$DIR/token")" "${data[@]}"
}

publish_ten() { # publish_ten NODE TOPIC FIRST
  local n records=''
  for ((n = $3; n < $3 + 10; n++)); do records+=",{\"key\":\"k$n\",\"value\":{\"n\":$n}}"; done
  api POST "$1" "/v1/topics/$2/records" "{\"records\":[${records#,}]}" >/dev/null
}

# expect NODE TOPIC COUNT: the node shows the records 0 to COUNT-1, each once.
expect() {
  local p got='' want
  for p in 0 1; do got+=$(api GET "$1" "/v1/topics/$2/partitions/$p/records?offset=earliest&limit=1000" | grep -o '"value":{"n":[0-9]*}' || true)$'\n'; done
  got=$(grep -o '[0-9][0-9]*' <<<"$got" | sort -n || true)
  want=$(seq 0 $(($3 - 1)))
  [[ $got == "$want" ]] || die "smoke test: node $1 shows $(wc -w <<<"$got") records of $3 that were acknowledged"
}

# drain NODE TOPIC: leases everything that a subscription has, acks it, and prints the values.
drain() {
  local answer receipts
  while answer=$(api POST "$1" "/v1/topics/$2/subscriptions/smoke/lease" '{"max":100}') && [[ -n $answer ]]; do
    grep -o '"value":{"n":[0-9]*}' <<<"$answer" | grep -o '[0-9][0-9]*'
    receipts=$(grep -o '"receipt":"[^"]*"' <<<"$answer" | cut -d: -f2-)
    [[ $(api POST "$1" "/v1/topics/$2/subscriptions/smoke/ack" "{\"receipts\":[$(paste -sd, <<<"$receipts")]}" | grep -o '"code":"OK"' | wc -l) == $(wc -l <<<"$receipts") ]] ||
      die "smoke test: node $1 did not take every ack"
  done
}

# expect_queue NODE TOPIC FIRST LAST: the subscription has the records FIRST to LAST, each once, and then nothing.
expect_queue() {
  local got
  got=$(drain "$1" "$2" | sort -n)
  [[ $got == "$(seq "$3" "$4")" ]] || die "smoke test: the queue on node $1 had $(wc -w <<<"$got") records, want $3 to $4"
}

# smoke: publish, read back, work off, restart a node, read and work off again. What it writes is a topic of its own, which it deletes.
smoke() {
  local topic first i count=0
  topic=smoke-$(date +%s)-$$
  first=${NODES[0]}
  api PUT "$first" "/v1/topics/$topic" '{"partitions":2}' >/dev/null
  api PUT "$first" "/v1/topics/$topic/subscriptions/smoke" '{}' >/dev/null
  for i in "${NODES[@]}"; do
    publish_ten "$i" "$topic" $count
    count=$((count + 10))
  done
  for i in "${NODES[@]}"; do expect "$i" "$topic" $count; done
  expect_queue "$first" "$topic" 0 $((count - 1))
  halt "node$first"
  start_node "$first" "$(store_url)"
  wait_node "$first"
  expect "$first" "$topic" $count # from the store: a node that has just started has nothing cached
  publish_ten "$first" "$topic" $count
  count=$((count + 10))
  for i in "${NODES[@]}"; do expect "$i" "$topic" $count; done
  expect_queue "${NODES[-1]}" "$topic" $((count - 10)) $((count - 1))
  api DELETE "$first" "/v1/topics/$topic" >/dev/null
  echo "smoke test passed: $count records published, read back from each of ${#NODES[@]} node(s) over $STORE and worked off, one node restarted meanwhile"
}

stop() {
  stop_cluster
  halt store
}

start() {
  prepare
  "install_$STORE"
  make_token
  credentials_for "$STORE"
  if [[ $STORE == localstack ]]; then rm -rf "$DIR"/etcd[123]; fi
  "launch_$STORE" store "$(store_port)"
  start_redis
  start_etcd
  start_nodes "$(store_url)"
}

# main ARGS: the command line.
main() {
  check_settings
  case ${1:-start} in
  start)
    not_twice "${PARTS[@]}"
    set -m # every process is the leader of a group of its own
    trap 'stop' EXIT
    start
    smoke
    trap - EXIT
    echo
    echo "${#NODES[@]} node(s) are ready on $STORE; data and logs are in $DIR, a token of tenant demo is in $DIR/token."
    echo
    print_addresses
    printf '  store  %s   process %s\n' "$(store_address)" "$(pid_of store)"
    echo
    echo "Stop them with: $0 stop"
    ;;
  smoke)
    [[ -s $DIR/token ]] || die "nothing runs: $0 start"
    set -m
    prepare
    credentials_for "$STORE" # a node is started again
    smoke
    ;;
  stop) stop ;;
  status) status_of "${PARTS[@]}" ;;
  *) die "unknown command $1: want start, smoke, status or stop" ;;
  esac
}
