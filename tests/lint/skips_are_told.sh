#!/usr/bin/env bash
# tests/ctest_with_skips names what was skipped before CTest's closing lines, and ends as CTest does.
set -euo pipefail
root=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/build/Testing/Temporary"
# What CTest leaves of one program with two skipped cases, one of them without a reason.
cat >"$place/log" <<'EOF'
1/2 Testing: some_test
1/2 Test: some_test
Output:
----------------------------------------------------------
[ RUN      ] Real.Data
/a/b_test.cc:12: Skipped
no real data at /nowhere

[  SKIPPED ] Real.Data (0 ms)
[ RUN      ] Real.Other
[       OK ] Real.Other (0 ms)
[ RUN      ] Real.Quiet
/a/b_test.cc:14: Skipped


[  SKIPPED ] Real.Quiet (3 ms)
[ RUN      ] All/Real.Each/fp8
/a/b_test.cc:16: Skipped
not for this one

[  SKIPPED ] All/Real.Each/fp8, where GetParam() = 8-byte object <00-00> (0 ms)
[ RUN      ] All/Real.Each/int8
/a/b_test.cc:16: Skipped
not for this one

[  SKIPPED ] All/Real.Each/int8 (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Real.Data
[  SKIPPED ] Real.Quiet
EOF
cat >"$place/ctest" <<'EOF'
#!/usr/bin/env bash
cp "$(dirname "$0")/log" "$(dirname "$0")/build/Testing/Temporary/LastTest.log"
printf '1/2 Test #1: some_test ...   Passed\n\n50%% tests passed, 1 tests failed out of 2\n\nThe following tests FAILED:\n  2 - other_test\n'
exit 8
EOF
chmod +x "$place/ctest"
code=0
"$root/tests/ctest_with_skips" "$place/build" "$place/ctest" >"$place/out" || code=$?
cat >"$place/expected" <<'EOF'
1/2 Test #1: some_test ...   Passed


skipped within programs that count as run:
  some_test: Real.Data: no real data at /nowhere
  some_test: Real.Quiet
  some_test: All/Real.Each (2 of its parameters): not for this one

50% tests passed, 1 tests failed out of 2

The following tests FAILED:
  2 - other_test
EOF
diff -u "$place/expected" "$place/out"
[ "$code" -eq 8 ] || { echo "exit code $code; CTest's, 8, expected" >&2; exit 1; }
