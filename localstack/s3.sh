#!/usr/bin/env bash
# Forebay on a real S3 API without Docker: an S3 server, three etcd members, one Redis, one or three nodes, all on loopback.
#
#   localstack/s3.sh start    install the S3 server into .tools if it is not there, start everything, run the smoke test, leave it running
#   localstack/s3.sh smoke    run the smoke test again on what runs
#   localstack/s3.sh status   say what runs
#   localstack/s3.sh stop     stop it
#
# Settings, from the environment (names with FOREBAY_ are settings of forebay itself):
#   BIN=bin/forebay        the binary; nothing is built here
#   S3_SERVER=versitygw    versitygw (over a folder whose file system keeps extended attributes), minio or localstack (in memory: each start
#                          begins with nothing, and what etcd knew of the objects before is removed as well)
#   S3_DIR=.forebay-s3     data, logs and process IDs; kept over restarts, remove it to begin anew
#   S3_PORT=8280           nodes listen on this port, +2 and +4, for operators on +1, +3 and +5; etcd on +100 to +112; the S3 server on +120; Redis on +130
#   S3_NODES=3             1 or 3
#   S3_DRIVER=s3           s3 or minio: the driver of the nodes
#   GO=go, PYTHON=python3  install and run the S3 server; LocalStack needs Python 3.13 or newer
#   REDIS_SERVER=redis-server   the Redis of the work queues, from PATH
# A run is told by S3_DIR and S3_PORT: give stop and smoke the settings of the start.
set -euo pipefail

NAME=s3
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-bin/forebay}
DIR=${S3_DIR:-.forebay-s3}
PORT=${S3_PORT:-8280}
STORE=${S3_SERVER:-versitygw}
DRIVER=${S3_DRIVER:-s3}
# shellcheck source=localstack/lib.sh
. "$HERE/lib.sh"
# shellcheck source=localstack/servers.sh
. "$HERE/servers.sh"
# shellcheck source=localstack/smoke.sh
. "$HERE/smoke.sh"
main "$@"
