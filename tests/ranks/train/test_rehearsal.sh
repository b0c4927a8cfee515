#!/usr/bin/env bash
# tests/ranks/train/test_rehearsal.sh - a step that ranks rehearse before the first, so that one of them can
# time kernels for all: it changes no bit, and is not made twice.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
program=$YK_BUILD/tests/ranks/train/rank_rehearsal

while read -r n node_size; do
    case_is "$n ranks, $node_size to a node, rehearse without a trace and choose as the first of their kind"
    on_ranks "$n" "$node_size" "$program" "$scratch"
    expect_status 0
    expect_text out "passed on $n ranks, $((n / node_size)) nodes"
done <<'END'
2 2
4 2
END

passed
