#!/usr/bin/env bash
# Shows FirnKV's main job on real keys and values: blocks are put at FP16, move hot -> warm -> cold as INT8, INT4 and INT2, are fetched
# from every tier and compared with what was put, with a restart of the daemon in the middle.
#
#   deploy/demo.sh                    installs what is missing, builds into build/release, runs
#   deploy/demo.sh --build-dir DIR    runs what was built there
#   deploy/demo.sh --file F.safetensors [--tokens T.npy]    other K and V (docs/cli.md says in which form)
#
# Needs root or sudo only for installing packages. Everything else lives in a temporary folder that is removed at the end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
shared=${FIRN_SHARED:-$root/../shared}
build=
file=
tokens=
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build=$2; shift 2 ;;
    --file) file=$2; shift 2 ;;
    --tokens) tokens=$2; shift 2 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
done

if [ -z "$build" ]; then
  "$root/deploy/install-deps.sh"
  build=$root/build/release
  (cd "$root" && cmake --preset release >/dev/null && cmake --build --preset release --target firnd firn)
fi
firnd=$build/daemon/firnd
firn=$build/client/cli/firn

if [ -z "$file" ]; then
  file=$shared/data/kv/wikitext2_1024tok.safetensors
  tokens=$shared/data/model/wikitext2_test_tokens.npy
  if [ ! -f "$file" ] || [ ! -f "$tokens" ]; then
    file=$root/tests/data/sample_128tok.safetensors
    tokens=
  fi
fi
arguments=("$file")
[ -z "$tokens" ] || arguments+=(--tokens "$tokens")

place=$(mktemp -d "${TMPDIR:-/tmp}/firnkv-demo-XXXXXX")
daemon=
cleanup() {
  local code=$?
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  if [ "$code" -ne 0 ] && [ -s "$place/firnd.log" ]; then
    echo "demo.sh: the daemon's log ends with:" >&2
    tail -n 20 "$place/firnd.log" >&2
  fi
  rm -rf "$place"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$place/state" "$place/run" "$place/cold"
cat >"$place/firnd.toml" <<EOF
state_dir = "$place/state"
runtime_dir = "$place/run"

[admin]
http = "off"

# The steps are made by hand here, so that every line of the table is what it says: fetching moves nothing.
[store]
promote_on_get = false

[[tier]]
name = "hot"
medium = "dram"
capacity = "128MiB"
precision = "fp16"

[[tier]]
name = "warm"
medium = "dram"
capacity = "64MiB"
precision = "int8"
least = "int4"

[[tier]]
name = "cold"
medium = "nvme"
path = "$place/cold"
capacity = "256MiB"
precision = "int4"
least = "int2"

[[listener]]
uds = "$place/run/firnd.sock"
admin = true
EOF

start() {
  "$firnd" --config "$place/firnd.toml" >>"$place/firnd.log" 2>&1 &
  daemon=$!
  "$firn" wait --timeout 60s
}
stop() {
  kill "$daemon"
  wait "$daemon"
  daemon=
}
export FIRN_SOCKET=$place/run/firnd.sock

start
"$firn" demo before "${arguments[@]}" --state "$place/demo.json"
stop
printf '%s\n' "-- the daemon has stopped, and starts again --"
start
"$firn" demo after "${arguments[@]}" --state "$place/demo.json"
echo
"$firn" tiers
stop
