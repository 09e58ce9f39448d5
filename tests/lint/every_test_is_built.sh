#!/usr/bin/env bash
# Fails when a *_test.cc of the tree is in no CMakeLists.txt beside or above it: an unbuilt test is decoration.
set -euo pipefail
cd "$1"
status=0
while IFS= read -r test; do
  folder="$(dirname "$test")"
  found=no
  at="$folder"
  while :; do
    relative="${test#"$at"/}"
    [ "$at" = . ] && relative="$test"
    if [ -f "$at/CMakeLists.txt" ] && grep -qwF -- "$relative" "$at/CMakeLists.txt"; then found=yes; fi
    [ "$at" = . ] && break
    at="$(dirname "$at")"
  done
  if [ "$found" = no ]; then
    echo "$test is in no CMakeLists.txt"
    status=1
  fi
done < <(git ls-files --cached --others --exclude-standard '*_test.cc' '*_test.cu')
exit "$status"
