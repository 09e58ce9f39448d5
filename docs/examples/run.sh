#!/usr/bin/env bash
# Runs put_get.py as docs/api.md says, against a daemon of its own.
#
#   docs/examples/run.sh BUILD_DIR      for example build/release
#
# Needs protobuf-compiler, protobuf-compiler-grpc, python3-grpcio and python3-protobuf. Ends with 77 where Python has no gRPC.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
python=${FIRN_PYTHON:-/usr/bin/python3}
"$python" -c 'import grpc, google.protobuf' 2>/dev/null || { echo "run.sh: $python has no grpc or no protobuf"; exit 77; }

place=$(mktemp -d "${TMPDIR:-/tmp}/firnkv-example-XXXXXX")
daemon=
cleanup() {
  [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon" || true; }
  rm -rf "$place"
}
trap cleanup EXIT

mkdir "$place/stubs" "$place/state" "$place/run"
protoc -I "$root/proto" --python_out="$place/stubs" --grpc_out="$place/stubs" \
  --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" "$root"/proto/firn/v1/*.proto

printf '[admin]\nhttp = "off"\n' >"$place/firnd.toml"
"$build/daemon/firnd" --config "$place/firnd.toml" --state-dir "$place/state" --runtime-dir "$place/run" 2>"$place/log" &
daemon=$!
socket=unix:$place/run/firnd.sock
"$build/client/cli/firn" --socket "$socket" wait --timeout 60s || { cat "$place/log" >&2; exit 1; }
usage=$(PYTHONPATH="$place/stubs" "$python" "$root/docs/examples/put_get.py" 2>&1 || true)
case $usage in *"put_get.py SOCKET"*) ;; *) echo "put_get.py without a socket: $usage"; exit 1 ;; esac
PYTHONPATH="$place/stubs" "$python" "$root/docs/examples/put_get.py" "$socket"
