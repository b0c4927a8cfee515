#!/usr/bin/env bash
# tests/tools/test_gpu_run.sh - tests/gpu/run.sh counts what passes, fails and is skipped, and shows the words
# of those that do not pass; with stand-ins for the programs.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1
[ ! -e /dev/nvidiactl ] || { echo "skipped: here is a GPU, which is more than the stand-ins know" && exit 77; }

case_is "the programs that can run on a GPU are listed"
run "$YK_SOURCE/tests/gpu/run.sh" --list
expect_status 0
expect_text out "tests/runtime/device/test_linear"
expect_text out "tests/ranks/comm/rank_stress"
expect_no_text out "/cpu/"
expect_no_text out ".c"
programs=$out

case_is "a program that is not built is named"
run "$YK_SOURCE/tests/gpu/run.sh" "$scratch/build"
expect_status 2
expect_text err "not built; run: make gpu-test"

for program in $programs; do
    printf '#!/bin/sh\necho "words of a pass"\n' | put "$scratch/build/$program"
    chmod +x "$scratch/build/$program"
done
n=$(grep -c /test_ <<<"$programs")
ranked=$(grep -c /rank_ <<<"$programs")

case_is "a program that is skipped says why, ranks too"
printf '#!/bin/sh\necho "skipped: there is no reason"\nexit 77\n' >"$scratch/build/tests/runtime/device/test_linear"
run "$YK_SOURCE/tests/gpu/run.sh" "$scratch/build"
expect_status 0
expect_text out "s  tests/runtime/device/test_linear
    skipped: there is no reason"
expect_text out "rank_stress, over hostmem
    skipped: there is no GPU"
expect_text out "$((n - 1)) passed, 0 failed, $((ranked + 1)) skipped"
expect_no_text out "words of a pass"

case_is "the words of programs that end at once stay together"
cp -r "$scratch/build" "$scratch/many"
for program in $(grep /test_ <<<"$programs"); do
    printf '#!/bin/sh\nfor i in 1 2 3; do echo "%s $i"; done\nexit 77\n' "$program" >"$scratch/many/$program"
done
run "$YK_SOURCE/tests/gpu/run.sh" "$scratch/many"
for program in $(grep /test_ <<<"$programs"); do
    expect_text out " s  $program
    $program 1
    $program 2
    $program 3"
done

case_is "a program that fails is shown with what it says"
printf '#!/bin/sh\necho "the sum is wrong"\nexit 1\n' >"$scratch/build/tests/runtime/device/test_linear"
run "$YK_SOURCE/tests/gpu/run.sh" "$scratch/build"
expect_status 1
expect_text out "    the sum is wrong"
expect_text out "$((n - 1)) passed, 1 failed, $ranked skipped"

passed
