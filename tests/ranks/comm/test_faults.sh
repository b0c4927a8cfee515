#!/usr/bin/env bash
# tests/ranks/comm/test_faults.sh - a rank that does not come is named within the deadline; transfers run
# beside work and take no processor to wait.
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1

program=$YK_BUILD/tests/ranks/comm/rank_faults

while read -r n node_size what; do
    case_is "a $what that rank $((n - 1)) does not come to, on $n ranks, $node_size to a node"
    on_ranks "$n" "$node_size" "$program" "$what"
    expect_status 3
    expect_text err "did not arrive within 0.5 s"
    expect_no_text err FAILED
done <<'END'
2 2 reduction
3 1 reduction
2 2 gather
4 2 gather
2 2 broadcast
2 1 values
3 3 world
END

while read -r n what; do
    case_is "a $what through host memory that rank $((n - 1)) does not come to, on $n ranks"
    YK_RANK_BACKEND=hostmem on_ranks "$n" "$n" "$program" "$what"
    expect_status 3
    expect_text err "rank $((n - 1)) did not arrive within 0.5 s"
    expect_no_text err "rank 0 did not"
    expect_no_text err FAILED
done <<'END'
2 reduction
3 gather
3 take
4 broadcast
3 values
2 exit
END

while read -r what; do
    case_is "a $what by two levels that rank 3 does not come to"
    YK_RANK_BACKEND=hostmem on_ranks 4 2 "$program" "$what"
    expect_status 3
    expect_text err "did not arrive within 0.5 s"
    expect_no_text err FAILED
done <<'END'
reduction
gather
values
exit
END

case_is "who leaves instead of aborting waits for nobody"
on_ranks 2 2 "$program" exit
expect_status 3
expect_text err "rank "
expect_no_text err FAILED

case_is "the rank that is waited for is named"
on_ranks 3 3 "$program" gather
expect_status 3
expect_text err "rank 2 did not arrive within 0.5 s"
expect_no_text err "rank 0 did not"

for backend in mpi hostmem; do
    case_is "transfers over $backend run beside work, and waiting is cheap"
    YK_RANK_BACKEND=$backend on_ranks 2 2 "$program" beside
    expect_status 0
    expect_text out passed
done

passed
