#!/usr/bin/env bash
# Fails when a folder includes one above it, or a library has more than one user.
#   base <- codecs <- tiers <- daemon;  client sees base, codecs' types, the protocol and its own headers;
#   base <- codecs <- kernels, which the GPU child (daemon/gpu) sees alone: no other process makes a CUDA context.
set -euo pipefail
cd "$1"
status=0
complain() { echo "$1"; status=1; }
sources() { git ls-files --cached --others --exclude-standard "$1/**.h" "$1/**.cc" "$1/*.h" "$1/*.cc" \
  "$1/**.cu" "$1/**.cuh" "$1/*.cu" "$1/*.cuh" | sort -u; }

forbid() {  # forbid FOLDER PATTERN
  local hits
  hits="$(sources "$1" | xargs -r grep -nE "^#include \"($2)/" /dev/null || true)"
  [ -z "$hits" ] || complain "$1 includes what is above it:"$'\n'"$hits"
}
forbid base 'codecs|tiers|daemon|client|kernels|proto'
forbid codecs 'tiers|daemon|client|kernels|proto'
forbid tiers 'daemon|client|kernels|proto'
forbid kernels 'tiers|daemon|client|proto'
hits="$(sources daemon | grep -v '^daemon/gpu/' | xargs -r grep -nE '^#include ("(kernels|daemon/gpu)/|<cuda)' /dev/null || true)"
[ -z "$hits" ] || complain "the daemon includes what makes a CUDA context:"$'\n'"$hits"
forbid client 'daemon|kernels'

one_user() {  # one_user HEADER-PATTERN MOST WHAT
  local users
  users="$(git ls-files --cached --others --exclude-standard '*.h' '*.cc' | xargs -r grep -lE "^#include <($1)" 2>/dev/null | grep -vE '_test\.cc$|^tests/' || true)"
  [ "$(printf '%s' "$users" | grep -c . || true)" -le "$2" ] || complain "$3 has more than $2 user(s):"$'\n'"$users"
}
one_user 'liburing\.h' 1 liburing
one_user 'rocksdb/' 2 RocksDB                # The index, and its files that fail for tests.
one_user 'numa\.h|numaif\.h' 1 libnuma
one_user 'boost/beast' 1 Boost.Beast

hits="$(git ls-files --cached --others --exclude-standard '*.h' | grep -vE '_test_util\.h$' | xargs -r grep -lE '^#include <(boost/beast|rocksdb/|liburing\.h|numa\.h)' || true)"
[ -z "$hits" ] || complain "a header brings a heavy library to everyone who includes it:"$'\n'"$hits"
exit "$status"
