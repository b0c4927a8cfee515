#!/usr/bin/env bash
# tests/ranks/comm/test_stream_exact.sh - exact sums as work of streams, as GPUs form them, give the bits
# of the sum that one process forms, on ranks of one node and of several.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1

while read -r n node_size nodes; do
    case_is "$n ranks, $node_size to a node"
    on_ranks "$n" "$node_size" "$YK_BUILD/tests/ranks/comm/rank_stream_exact"
    expect_status 0
    expect_text out "passed on $n ranks, $nodes nodes"
    [ -z "$err" ] || fail "something was said"
done <<'END'
2 2 1
2 1 2
3 3 1
3 1 3
4 2 2
6 2 3
END

passed
