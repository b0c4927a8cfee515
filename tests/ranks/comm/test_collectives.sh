#!/usr/bin/env bash
# tests/ranks/comm/test_collectives.sh - every collective on 1 to 8 ranks of 1 to 8 nodes gives the bits
# of the sum that one process forms, and sends the bytes that were planned.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1

program=$YK_BUILD/tests/ranks/comm/rank_collectives

# cases VARIABLE HOW: RANKS NODE_SIZE NODES BUFFERS in each line of stdin, with VARIABLE=hostmem unless it is
# empty.
cases() {
    local n node_size nodes what
    [ -z "$1" ] || local -x "$1=hostmem"
    while read -r n node_size nodes what; do
        case_is "$what buffers on $n ranks, $node_size to a node$2"
        on_ranks "$n" "$node_size" "$program" "$what"
        expect_status 0
        expect_text out "passed on $n ranks, $nodes nodes"
        [ -z "$err" ] || fail "something was said"
    done
}

cases '' '' <<'END'
1 1 1 short
2 2 1 short
2 1 2 short
3 4 1 short
3 1 3 short
4 4 1 short
4 2 2 short
4 1 4 short
8 4 2 brief
8 2 4 brief
2 2 1 long
4 2 2 long
3 1 3 long
END
cases YK_RANK_BACKEND ", through host memory" <<'END'
2 2 1 short
3 3 1 short
4 2 2 short
6 3 2 brief
8 8 1 brief
8 2 4 brief
2 2 1 long
3 3 1 long
4 2 2 long
END
cases YK_RANK_GATHERS ", gathers alone through host memory" <<'END'
2 2 1 brief
4 2 2 brief
END

case_is "a group of one process needs no MPI"
run "$program" short
expect_status 0
expect_text out "passed on 1 ranks, 1 nodes"

passed
