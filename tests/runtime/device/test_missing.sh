#!/usr/bin/env bash
# tests/runtime/device/test_missing.sh - a test of a GPU is skipped where there is none, and fails where there is
# one that it cannot have.
. "$(dirname "$0")/../../expect.sh" || exit 1
export YK_TEST_DEVICE=cuda CUDA_VISIBLE_DEVICES=

for program in runtime/device/test_timer models/test_cache engine/test_offload; do
    case_is "no GPU: $program is skipped"
    YK_TEST_GPU_FILE=$scratch/none run "$YK_BUILD/tests/$program"
    expect_status 77
    [ -z "$out$err" ] || fail "a word"

    case_is "a GPU that does not open: $program fails, and says why"
    YK_TEST_GPU_FILE=$scratch run "$YK_BUILD/tests/$program"
    expect_status 1
    expect_text err "yoke: device cuda: "
done

passed
