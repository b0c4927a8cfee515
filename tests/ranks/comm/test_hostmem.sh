#!/usr/bin/env bash
# tests/ranks/comm/test_hostmem.sh - thousands of collectives through host memory that ranks share, and
# nothing of it left behind.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
export YK_RANK_BACKEND=hostmem

program=$YK_BUILD/tests/ranks/comm/rank_stress
shared_files() { find /dev/shm -maxdepth 1 -name '*yoke*' | wc -l; }
before=$(shared_files)

# A seed is shown when it fails; it may be given.
seed=${YK_STRESS_SEED:-$RANDOM}

while read -r n collectives; do
    case_is "$collectives collectives of all kinds and sizes on $n ranks, some of them late (seed $seed)"
    on_ranks "$n" "$n" "$program" "$collectives" "$seed"
    expect_status 0
    expect_text out "passed $collectives collectives over hostmem on $n ranks"
    [ -z "$err" ] || fail "something was said"
done <<'END'
2 10000
3 3000
5 1000
END

for n in 2 3 5; do
    case_is "what is on a shelf is what $n ranks put there last, some of them late (seed $seed)"
    on_ranks "$n" "$n" "$YK_BUILD/tests/ranks/comm/rank_shelf" 12 "$seed"
    expect_status 0
    expect_text out "passed 12 rounds over hostmem on $n ranks"
    [ -z "$err" ] || fail "something was said"
done

case_is "where gathers alone go through host memory, they have the shelf (seed $seed)"
YK_RANK_BACKEND='' YK_RANK_GATHERS=hostmem on_ranks 2 2 "$YK_BUILD/tests/ranks/comm/rank_shelf" 12 "$seed"
expect_status 0
expect_text out "passed 12 rounds over mpi, gathers hostmem on 2 ranks"
[ -z "$err" ] || fail "something was said"

case_is "two levels, host memory in nodes and messages between them, do so too (seed $seed)"
on_ranks 4 2 "$program" 2004 "$seed"
expect_status 0
expect_text out "passed 2004 collectives over hostmem+mpi on 4 ranks"
[ -z "$err" ] || fail "something was said"

case_is "the other backend gives the same sums"
YK_RANK_BACKEND='' on_ranks 2 2 "$program" 1000 "$seed"
expect_text out "passed 1000 collectives over mpi on 2 ranks"

for n in 2 3; do
    case_is "where one way of a link is late, the other one overwrites nothing ($n ranks)"
    on_ranks "$n" "$n" "$YK_BUILD/tests/ranks/comm/rank_late"
    expect_status 0
    expect_text out "passed on $n ranks"
    [ -z "$err" ] || fail "something was said"
done

for n in 2 3; do
    case_is "nothing waits for what is issued behind it, where all streams of a rank are one ($n ranks, seed $seed)"
    on_ranks "$n" "$n" "$YK_BUILD/tests/ranks/comm/rank_one_queue" 100 "$seed"
    expect_status 0
    expect_text out "passed 200 collectives in one queue on $n ranks"
    [ -z "$err" ] || fail "something was said"
done

case_is "two backends race, and all ranks see the same winner"
on_ranks 3 3 "$YK_BUILD/tests/ranks/comm/rank_race"
expect_status 0
expect_text out "passed on 3 ranks"

case_is "no file is left, though ranks are killed"
export YK_SEED=$seed
on_ranks 2 2 bash -c '
    "$0" 1000000 "$YK_SEED" & pid=$!
    sleep 1
    kill -KILL $pid
    wait $pid' "$program"
[ "$status" -ne 0 ] || fail "it was not killed"
[ "$(shared_files)" -eq "$before" ] || fail "there are $(shared_files) files, not $before"

passed
