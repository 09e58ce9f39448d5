#!/usr/bin/env bash
# Installs what FirnKV is built and tested with, on Debian 12. The only list of dependencies there is.
#
#   deploy/install-deps.sh             what building, testing and running need
#   deploy/install-deps.sh --quality   also what tests/quality needs (PyTorch with OpenBLAS)
#   deploy/install-deps.sh --list      prints the packages, installs nothing
#
# Installs nothing when everything is there. Needs root, or sudo.
set -euo pipefail

build=(
  g++ cmake ninja-build pkg-config ccache      # the build; ccache makes the sanitizer builds bearable on small machines
  clang-format clang-tidy                      # the lint target
)
libraries=(
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev  # the API
  librocksdb-dev                               # the location index of the cold tier
  liburing-dev                                 # NVMe I/O
  libboost1.81-dev                             # Asio executors and timers, Beast for the admin endpoint
  libabsl-dev                                  # Status, hash maps
  libssl-dev                                   # SHA-256 of keys, namespaces and artifacts
  libhwy-dev                                   # SIMD codecs on every target
  libisal-dev                                  # CRC-64, Reed-Solomon
  libnuma-dev                                  # binding memory to nodes, CXL nodes
  libspdlog-dev libfmt-dev                     # logs and messages
  prometheus-cpp-dev                           # metrics
  libtomlplusplus-dev                          # configuration
  libcli11-dev                                 # command lines
  nlohmann-json3-dev                           # safetensors headers, --json output
  libsystemd-dev                               # readiness and watchdog
)
tests=(
  libgtest-dev libgmock-dev libbenchmark-dev   # tests and benchmarks
  fio                                          # what the cold tier is measured against
  e2fsprogs util-linux                         # loop file systems of the disk-full tests
  nbdkit libnbd-bin                            # disks that fail, of the failing-disk test
  clang libclang-rt-14-dev                     # libFuzzer (tests/fuzz/run)
  openssl                                      # makes the certificates of the TLS tests
  python3-grpcio python3-protobuf              # the example of docs/api.md
  curl                                         # the admin endpoint in tests and in the demonstration
)
quality=(python3 python3-numpy python3-torch libopenblas0-pthread)

packages=("${build[@]}" "${libraries[@]}" "${tests[@]}")
case "${1:-}" in
  "") ;;
  --quality) packages+=("${quality[@]}") ;;
  --list) printf '%s\n' "${packages[@]}" "${quality[@]}"; exit 0 ;;
  *) echo "install-deps.sh: unknown option $1 (there are --quality and --list)" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "install-deps: everything is there"
  exit 0
fi
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "install-deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "install-deps: done"
