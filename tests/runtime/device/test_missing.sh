#!/usr/bin/env bash
# tests/runtime/device/test_missing.sh - a test of a GPU is skipped where there is none, and says so; where there
# is one that it cannot have it fails.
. "$(dirname "$0")/../../expect.sh" || exit 1
export YK_TEST_DEVICE=cuda CUDA_VISIBLE_DEVICES=

for program in runtime/device/test_timer models/test_cache engine/test_offload; do
    case_is "no GPU: $program is skipped, and says why"
    YK_TEST_GPU_FILE=$scratch/none run "$YK_BUILD/tests/$program"
    expect_status 77
    [ "$out$err" = "skipped: there is no GPU: NVIDIA's driver has made no /dev/nvidiactl" ] || fail "not one line that says why"

    case_is "a GPU that does not open: $program fails, and says why"
    YK_TEST_GPU_FILE=$scratch run "$YK_BUILD/tests/$program"
    expect_status 1
    expect_text err "yoke: device cuda: "
done

passed
