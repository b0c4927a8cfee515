#!/usr/bin/env bash
# tests/ranks/train/test_stages.sh - the stages against each other, in bits, on 1 to 8 ranks.
# ctest: TIMEOUT 240
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
program=$YK_BUILD/tests/ranks/train/rank_stages

for n in 1 2 3 4 8; do
    case_is "$n ranks train the same in every stage, wire and number of micro-batches"
    on_ranks $n "$n" "$program" "$scratch"
    expect_status 0
    expect_text out "passed on $n ranks, 1 nodes"
done

for n in 4 8; do
    case_is "$n ranks in nodes of two train the same, sharing out over all or inside nodes"
    on_ranks $n 2 "$program" "$scratch"
    expect_status 0
    expect_text out "passed on $n ranks, $((n / 2)) nodes"
done

while read -r n node_size; do
    case_is "$n ranks, $node_size to a node, train the same through host memory that they share"
    on_ranks "$n" "$node_size" "$program" "$scratch" hostmem
    expect_status 0
    expect_text out "passed on $n ranks, $((n / node_size)) nodes"
done <<'END'
2 2
4 4
4 2
END

passed
