#!/usr/bin/env bash
# tests/ranks/watchdog/test_watchdog.sh - who is named, and who is not. Nodes of one rank are as far apart as
# two machines are.
# ctest: TIMEOUT 240
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
program=$YK_BUILD/tests/ranks/watchdog/rank_watchdog
time_limit=$(limit 20)

names_nobody() {
    expect_status 0
    expect_text out done
    expect_no_text err "rank "
}

# expect_named RANK WHERE: it, nobody else, and once.
expect_named() {
    [ "$status" -ne 0 ] || fail "exit status 0"
    [ "$(grep -c '^yoke: rank' <<<"$err")" -eq 1 ] || fail "not one rank is named"
    expect_text err "yoke: rank $1: its process "
    expect_text err "$2"
    expect_no_text out done
}

case_is "a thousand steps of equal ranks name nobody"
on_ranks 2 2 "$program" fine
names_nobody

case_is "a rank that is slow for a moment is not named, however short its steps are"
on_ranks 2 2 "$program" moment
names_nobody

for nodes in 3 1; do
    case_is "a slow rank is named once, within 20 steps (nodes of $nodes)"
    on_ranks 3 $nodes "$program" slow
    expect_status 0
    [ "$(grep -c 'warning: slow rank: rank 1 (process [0-9]* on ' <<<"$err")" -eq 1 ] || fail "not named once"
    [ "$(grep -c 'slow rank' <<<"$err")" -eq 1 ] || fail "another is named"
    expect_text err "for 10 steps up to step 1"

    case_is "a rank that hangs is named with its place, and all leave (nodes of $nodes)"
    SECONDS=0
    on_ranks 3 $nodes "$program" hang
    [ $SECONDS -le "$(limit 7)" ] || fail "it took $SECONDS s"
    expect_named 1 "has not gone on for 1 s while others wait for it, in step 5, the forward pass of unit 2"

    case_is "a rank that crashes is named (nodes of $nodes)"
    on_ranks 3 $nodes "$program" crash 1
    expect_named 1 "in step 4"

    case_is "a rank that has said why it failed is not named, and the others leave (nodes of $nodes)"
    SECONDS=0
    on_ranks 3 $nodes "$program" fail
    [ $SECONDS -le "$(limit 7)" ] || fail "it took $SECONDS s"
    [ "$status" -ne 0 ] || fail "exit status 0"
    expect_text err "yoke: this: failed"
    expect_no_text err "yoke: rank"
done

case_is "a rank by which its node is heard is named once by all nodes"
for i in 1 2 3 4; do
    on_ranks 4 2 "$program" crash 0
    expect_named 0 "in step 4"
done

case_is "a first step and a saving may take longer than the deadline"
on_ranks 3 3 "$program" start
names_nobody

case_is "a run that is stopped as a whole for longer than the deadline goes on"
for nodes in 2 1; do
    on_ranks 2 $nodes "$program" still "$scratch" &
    for ((i = 0; i < 100; i++)); do
        mapfile -t pids < <(pgrep -f "^$program still $scratch")
        [ ${#pids[@]} -lt 2 ] || break
        sleep 0.1
    done
    sleep 0.8
    kill -STOP "${pids[@]}"
    sleep 2.5
    kill -CONT "${pids[@]}"
    wait
    err=$(cat "$scratch/.err")
    grep -q done "$scratch/.out" || fail "it did not go on"
    expect_no_text err "yoke: rank"
done

passed
