#!/usr/bin/env bash
# Forebay on LocalStack's S3 without Docker and without an account: s3.sh with LocalStack from its Python packages (3.13 or newer) as the server.
#
#   localstack/localstack.sh start | smoke | status | stop
#
# LocalStack keeps objects in memory, so each start begins with nothing. Settings as of s3.sh, with other defaults:
#   S3_DIR=.forebay-localstack
#   S3_PORT=8480
set -euo pipefail
S3_SERVER=localstack S3_DIR=${S3_DIR:-.forebay-localstack} S3_PORT=${S3_PORT:-8480} exec "$(dirname "$0")/s3.sh" "$@"
