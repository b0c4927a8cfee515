#!/usr/bin/env bash
# tests/tree/test_format.sh - sources are as clang-format lays them out. Versions differ in taste, so
# only version 14 is asked (Debian 12's; Ubuntu has it as clang-format-14); `make format` repairs.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1

for formatter in clang-format-14 clang-format none; do
    "$formatter" --version 2>/dev/null | grep -q 'version 14\.' && break
done
if [ $formatter = none ]; then
    echo "skipped: there is no clang-format 14"
    exit 77
fi

# check_format ROOT: clang-format's complaints.
check_format() {
    (cd "$1" && sources . '*.c' '*.h' '*.cu' '*.cuh' | xargs -r "$formatter" --dry-run --Werror 2>&1)
}

case_is "a file that is laid out otherwise is found"
put "$scratch/tree/.clang-format" <"$YK_SOURCE/.clang-format"
put "$scratch/tree/good.c" <<<'int yk_good;'
run check_format "$scratch/tree"
expect_status 0
put "$scratch/tree/bad.c" <<<'int   yk_bad ;'
run check_format "$scratch/tree"
expect_text out "bad.c:1:4: error: code should be clang-formatted"

case_is "this tree is laid out as it should be; make format does it"
run check_format "$YK_SOURCE"
[ "$status" -eq 0 ] || fail "$(grep -c 'error:' <<<"$out") places"

passed
