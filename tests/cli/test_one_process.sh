#!/usr/bin/env bash
# tests/cli/test_one_process.sh - what several processes are refused is told once: a command whose work ranks
# do not share, and words that none of them understands.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke

case_is "two processes are told to be one, by one of them"
for words in "plan $YK_SOURCE/configs/demo.yaml" "eval $scratch" "bench ops --nothing" \
    "launch -n 2 train $YK_SOURCE/configs/demo.yaml"; do
    # shellcheck disable=SC2086
    on_ranks 2 2 "$yoke" $words
    expect_refusal "2 processes were started, and each would do all of it; start one, without mpirun or srun"
done

case_is "wrong words are told by one rank"
while IFS=: read -r words text; do
    # shellcheck disable=SC2086
    on_ranks 2 2 "$yoke" $words
    expect_refusal "$text"
done <<'END'
trian x.yaml:there is no such command; the nearest is `yoke train`
train --nothing:there is no option "--nothing"
bench step --nothing:there is no option "--nothing"
bench comm --nothing:there is no option "--nothing"
bench comm --backend tcp:"tcp" is none of all, mpi, nccl, hostmem
END

case_is "one rank whose words are wrong ends all of them, and is named"
on_ranks 2 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "$@" --nothing; exec "$@"' yoke "$yoke" \
    bench step --device cpu --model tiny-gpt2 --seq 32 --micro-batch 2 --set cpu.threads=1
expect_status 2
expect_text err 'there is no option "--nothing"'
expect_text err "rank 1: it failed on $(hostname), as said above"
[ -z "$out" ] || fail "words on stdout"

case_is "one process may be started by mpirun"
on_ranks 1 1 "$yoke" config train.steps
expect_status 0
expect_text out train.steps

passed
