#!/usr/bin/env bash
# tests/cli/test_one_process.sh - a command whose work ranks do not share is refused under mpirun, once.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke

case_is "two processes are told to be one, by one of them"
for words in "plan $YK_SOURCE/configs/demo.yaml" "eval $scratch" "bench ops"; do
    # shellcheck disable=SC2086
    on_ranks 2 2 "$yoke" $words
    expect_refusal "2 processes were started, and each would do all of it; start one, without mpirun or srun"
done

case_is "one process may be started by mpirun"
on_ranks 1 1 "$yoke" config train.steps
expect_status 0
expect_text out train.steps

passed
