#!/usr/bin/env bash
# Installs the client library from a build folder into an empty place, builds a program that only knows find_package(firnkv), and
# runs it against a daemon of its own: run.sh BUILD_FOLDER FIRND
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1
firnd=$2

place=$(mktemp -d "${TMPDIR:-/tmp}/firnkv-consumer-XXXXXX")
daemon=
cleanup() {
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$place"
}
trap cleanup EXIT

cmake --install "$build" --prefix "$place/usr" --component firnkv >/dev/null
cmake -S "$here" -B "$place/build" -DCMAKE_PREFIX_PATH="$place/usr" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$place/build"
cat >"$place/firnd.toml" <<EOF
state_dir = "$place/state"
runtime_dir = "$place/run"
[admin]
http = "off"
[[tier]]
name = "hot"
medium = "dram"
capacity = "64MiB"
EOF
mkdir -p "$place/state" "$place/run"
"$firnd" --config "$place/firnd.toml" 2>"$place/log" &
daemon=$!
export FIRN_SOCKET="$place/run/firnd.sock"
"$place/build/consumer" || {
  cat "$place/log" >&2
  exit 1
}
