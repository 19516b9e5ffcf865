#!/bin/sh
# Makes the development key of a local run and a token of tenant demo where there are none, then becomes forebay.
set -eu
KEYS=${KEYS:-/keys}
if [ ! -s "$KEYS/token" ]; then
  umask 077
  forebay token --tenant demo --subject demo --expires 8760h --data "$KEYS" >"$KEYS/token.new"
  mv "$KEYS/token.new" "$KEYS/token"
fi
exec forebay "$@"
