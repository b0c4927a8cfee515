#!/usr/bin/env bash
# tests/ranks/train/test_step.sh - one big batch, bytes sent, memory kept, skipping together, overlap, and a
# flipped bit.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
program=$YK_BUILD/tests/ranks/train/rank_step

for n in 1 2 3 4 8; do
    case_is "a step of $n ranks keeps its promises"
    on_ranks $n "$n" "$program" "$scratch"
    expect_status 0
    expect_text out "passed on $n ranks"
done

# flipped N NODE_SIZE RANK STAGE: the bit is found and the rank named.
flipped() {
    on_ranks "$1" "$2" "$program" "$scratch" flip "$3" "$4"
    expect_status 0
    [ "$(wc -l <<<"$err")" -eq 1 ] || fail "not one line"
    expect_text err "after step 1 weights differ from the other ranks' on rank $3 on $(hostname), first in unit"
}

case_is "a bit that is flipped on one rank is found, and the rank named"
for zero in 0 1 2; do flipped 3 3 2 $zero; done
flipped 8 2 3 0

case_is "two ranks that differ are both named"
on_ranks 2 2 "$program" "$scratch" flip 1 0
expect_text err "rank 0 on $(hostname), rank 1 on"

case_is "in stage 3 nodes that are replicas of each other are compared"
on_ranks 8 2 "$program" "$scratch" flip 3 3
expect_status 0
expect_text err "rank 3 on"

passed
