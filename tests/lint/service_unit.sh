#!/usr/bin/env bash
# Fails when systemd does not understand the unit, or when it exposes more than it did: service_unit.sh SOURCE_DIR FIRND.
# Ends with 77 where there is no systemd-analyze.
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "service_unit.sh: no systemd-analyze here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed "s#^ExecStart=/usr/bin/firnd#ExecStart=$2#" "$1/deploy/firnd.service" >"$folder/firnd.service"
complaints=$(systemd-analyze verify "$folder/firnd.service" 2>&1) || { echo "$complaints"; exit 1; }
# What systemd does not know it only warns of.
if grep -F "$folder/firnd.service" <<<"$complaints"; then exit 1; fi
# Tenths; 10 is "OK", 100 the worst. docs/operations.md says why what is left is open.
systemd-analyze security --offline=true --threshold=20 --no-pager "$folder/firnd.service" | tail -n 1
