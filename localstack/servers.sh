# Sourced after lib.sh: S3 servers that run without Docker, in pinned versions, installed into .tools. For each: install_X, launch_X NAME PORT.
#
# Settings: GO=go builds those in Go; PYTHON=python3 runs those in Python, and others are looked for if it is too old.
# shellcheck shell=bash

SERVERS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOOLS=$SERVERS/../.tools
# shellcheck source=localstack/versions.env
. "$SERVERS/versions.env"

# install_go NAME PACKAGE VERSION: a program in .tools. The file beside it that says the version is that of the tests, which install versitygw
# the same way. Of all that come at once only one installs.
install_go() {
  mkdir -p "$TOOLS"
  (
    flock 9
    if [[ ! -x $TOOLS/$1 || $(cat "$TOOLS/$1.version" 2>/dev/null) != "$3" ]]; then
      say "installing $1 $3, which takes minutes once"
      (cd "$TOOLS" && GOBIN=$PWD GOFLAGS='' "${GO:-go}" install "$2@$3")
      echo "$3" >"$TOOLS/$1.version"
    fi
  ) 9>"$TOOLS/$1.lock"
}

# find_python MINOR: a Python 3 of at least that minor version, in PYTHON_FOUND.
find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3.14 python3.13 "$HOME"/.pyenv/versions/3.1[3-9]*/bin/python3; do
    if "$candidate" -c "import sys, venv; sys.exit(sys.version_info < (3, $1))" 2>/dev/null; then
      PYTHON_FOUND=$candidate
      return
    fi
  done
  die "no Python 3.$1 or newer with venv was found: install one, or set PYTHON"
}

# install_python NAME MINOR: a virtual environment of requirements-NAME.txt in .tools/NAME.
install_python() {
  local dir=$TOOLS/$1 wanted=$SERVERS/requirements-$1.txt
  mkdir -p "$TOOLS"
  (
    flock 9
    if ! cmp -s "$wanted" "$dir/installed.txt"; then
      find_python "$2"
      say "installing $1 into .tools/$1"
      rm -rf "$dir"
      "$PYTHON_FOUND" -m venv "$dir"
      "$dir/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
      cp "$wanted" "$dir/installed.txt"
    fi
  ) 9>"$TOOLS/$1.lock"
}

install_versitygw() { install_go versitygw github.com/versity/versitygw/cmd/versitygw "$VERSITYGW_VERSION"; }
install_minio() { install_go minio github.com/minio/minio "$MINIO_VERSION"; }
install_localstack() { install_python localstack 13; }
install_moto() { install_python moto 10; }

# credentials_for SERVER: puts an account into the environment, where the nodes look for it, as in production. One that is made up is kept in DIR.
credentials_for() {
  local file=$DIR/store.env
  case $1 in
  versitygw | minio)
    [[ -s $file ]] || (umask 077 && printf 'AWS_ACCESS_KEY_ID=forebay\nAWS_SECRET_ACCESS_KEY=%s\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$file")
    set -a
    # shellcheck source=/dev/null
    . "$file"
    set +a
    ;;
  *) export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test ;;
  esac
  export AWS_EC2_METADATA_DISABLED=true
  unset AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 MINIO_ACCESS_KEY MINIO_SECRET_KEY
}

# launch_versitygw keeps buckets as folders of DIR/buckets, on a file system with extended attributes.
launch_versitygw() {
  mkdir -p "$DIR/buckets"
  ROOT_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY \
    launch "$1" "--port $HOST:$2 " "$TOOLS/versitygw" --port "$HOST:$2" --keep-alive --quiet --health /health posix "$DIR/buckets"
  wait_url "$1" "http://$HOST:$2/health"
}

launch_minio() {
  mkdir -p "$DIR/minio"
  MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY MINIO_BROWSER=off MINIO_UPDATE=off \
    launch "$1" "--address $HOST:$2 " "$TOOLS/minio" server --address "$HOST:$2" "$DIR/minio"
  wait_url "$1" "http://$HOST:$2/minio/health/ready"
}

# launch_localstack starts S3 only, and asks nothing of the network. Its usual server takes only the port of GATEWAY_LISTEN and listens on all
# addresses; hypercorn keeps to the one that is given.
launch_localstack() {
  mkdir -p "$DIR/localstack"
  GATEWAY_SERVER=hypercorn SERVICES=s3 EAGER_SERVICE_LOADING=1 GATEWAY_LISTEN=$HOST:$2 LOCALSTACK_VOLUME_DIR=$DIR/localstack DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 DNS_ADDRESS=0 \
    launch "$1" localstack.runtime.main "$TOOLS/localstack/bin/python" -m localstack.runtime.main
  wait_url "$1" "http://$HOST:$2/_localstack/health"
}

launch_moto() {
  launch "$1" "moto_server -H $HOST -p $2" "$TOOLS/moto/bin/moto_server" -H "$HOST" -p "$2"
  wait_url "$1" "http://$HOST:$2/moto-api/"
}
