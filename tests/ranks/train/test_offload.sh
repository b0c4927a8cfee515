#!/usr/bin/env bash
# tests/ranks/train/test_offload.sh - offload and rounded states in every stage, in bits.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
program=$YK_BUILD/tests/ranks/train/rank_offload

for n in 2 3; do
    case_is "$n ranks train the same wherever their state lies"
    on_ranks $n "$n" "$program" "$scratch"
    expect_status 0
    expect_text out "passed on $n ranks, 1 nodes"
done

case_is "4 ranks in nodes of two train the same wherever their state lies"
on_ranks 4 2 "$program" "$scratch"
expect_status 0
expect_text out "passed on 4 ranks, 2 nodes"

passed
