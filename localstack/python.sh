# Sourced after lib.sh: S3 servers that are Python packages, installed in the versions of requirements-*.txt into folders of their own.
# shellcheck shell=bash

PACKAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

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

# install_packages NAME MINOR: a virtual environment of requirements-NAME.txt in .tools/NAME.
install_packages() {
  local dir=$PACKAGES/../.tools/$1 wanted=$PACKAGES/requirements-$1.txt
  mkdir -p "$PACKAGES/../.tools"
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
  ) 9>"$PACKAGES/../.tools/$1.lock"
}

install_localstack() { install_packages localstack 13; }
install_moto() { install_packages moto 10; }

# launch_localstack NAME PORT: LocalStack with S3 only, that asks nothing of the network.
launch_localstack() {
  mkdir -p "$DIR/localstack"
  SERVICES=s3 EAGER_SERVICE_LOADING=1 GATEWAY_LISTEN=$HOST:$2 LOCALSTACK_VOLUME_DIR=$DIR/localstack DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 DNS_ADDRESS=0 \
    launch "$1" localstack.runtime.main "$PACKAGES/../.tools/localstack/bin/python" -m localstack.runtime.main
  wait_url "$1" "http://$HOST:$2/_localstack/health"
}

# launch_moto NAME PORT
launch_moto() {
  launch "$1" "moto_server -H $HOST -p $2" "$PACKAGES/../.tools/moto/bin/moto_server" -H "$HOST" -p "$2"
  wait_url "$1" "http://$HOST:$2/moto-api/"
}
