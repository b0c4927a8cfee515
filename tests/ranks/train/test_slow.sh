#!/usr/bin/env bash
# tests/ranks/train/test_slow.sh - a training names the rank that computes for longer than the others, and, on
# free cores, nobody else.
# ctest: TIMEOUT 300 PROCESSORS 2
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke

seq 4000 | tr '\n' ' ' >"$scratch/text"
cat >"$scratch/c.yaml" <<EOF
model: {preset: tiny-gpt2}
data: {train: $scratch/text}
train: {batch: 8, micro_batch: 4, seq_len: 32, steps: 1000}
device: cpu
cpu: {threads: 1}
EOF

# Sleep without starting a process.
exec {never}<> <(:)
pause() { read -r -t "$1" -u $never || true; }

# Hundredths of a second that all processors together were not idle, up to a constant. The kernel counts idle
# time as it passes, and what is at work only at its ticks.
worked() {
    awk -v us="${EPOCHREALTIME/./}" '
        /^cpu / { idle = $5 + $6 }
        /^cpu[0-9]/ { n++ }
        END { printf "%.0f", n * us / 10000 - idle }' /proc/stat
}

# Those that this script has had, the children that it has waited for, and the processes $pids, into $had.
# What becomes of a killed rank's time nobody can tell: count before the kill.
count_had() {
    times >"$scratch/times" # not in a pipe: it would be another shell's
    had=$(awk -F'[ms ]+' '{ s += 60 * ($1 + $3) + $2 + $4 } END { print int(100 * s) }' "$scratch/times")
    local pid line
    for pid in $pids; do
        read -r line <"/proc/$pid/stat" || continue
        # shellcheck disable=SC2086
        set -- ${line##*) }
        had=$((had + ${12} + ${13}))
    done
}

watch_cores() {
    pids=
    count_had
    before=$(($(worked) - had)) begin=${EPOCHREALTIME/./}
}

# Since then, have others had less than a twentieth of a core?
were_free() {
    count_had
    local others=$(($(worked) - had - before)) took=$(((${EPOCHREALTIME/./} - begin) / 10000))
    echo "others had $others of $took hundredths of a second"
    [ $((20 * others)) -gt $took ] || return 0
    echo "not judged"
    return 1
}

[ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ] || { echo "one core is not enough" && exit 77; }

case_is "in a thousand steps on free cores nobody is named as slow"
watch_cores
on_ranks 2 2 "$yoke" train "$scratch/c.yaml" --set run.dir="$scratch/equal"
expect_status 0
[ "$(wc -l <"$scratch/equal/metrics.jsonl")" -eq 1000 ] || fail "not a thousand steps"
! were_free || expect_no_text err "slow rank"

# The second of two ranks is kept from working for most of the time, in so many pieces of a step that it does not
# only wait meanwhile.
case_is "a rank that dozes in its steps is named once, on free cores within 20 of them"
for node in 2 1; do
    watch_cores
    YK_NODE_SIZE=$node mpirun -q --oversubscribe --bind-to none -n 2 "$yoke" train "$scratch/c.yaml" \
        --set "run.dir=$scratch/slow$node" --set train.micro_batch=48 --set train.batch=96 \
        >"$scratch/out" 2>"$scratch/err" </dev/null &
    parent=$!
    for ((k = 0; k < 1200; k++)); do
        [ ! -s "$scratch/slow$node/metrics.jsonl" ] || break
        pause 0.05
    done
    slow= pids=$parent
    for pid in $(pgrep -f "run.dir=$scratch/slow$node"); do
        [ "/proc/$pid/exe" -ef "$yoke" ] || continue
        pids+=" $pid"
        ! grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$pid/environ" || slow=$pid
    done
    [ -n "$slow" ] || fail "no rank 1"
    from=$(wc -l <"$scratch/slow$node/metrics.jsonl")
    for ((k = 0; k < 2000; k++)); do
        ! grep -q "slow rank: rank 1" "$scratch/err" || break
        kill -STOP "$slow"
        pause 0.04
        kill -CONT "$slow"
        pause 0.004
    done
    pause 0.5 # to be named again, or somebody else
    free=true
    were_free || free=false
    kill -KILL "$slow"
    wait $parent
    out= err=$(cat "$scratch/err")
    [ "$(grep -c 'slow rank: rank 1' "$scratch/err")" -eq 1 ] || fail "the rank is not named once"
    ! $free || [ "$(grep -c 'slow rank' "$scratch/err")" -eq 1 ] || fail "another rank is named"
    upto=$(sed -n 's/.*slow rank: rank 1 (process .* up to step \([0-9]*\):.*/\1/p' "$scratch/err")
    echo "dozing from step $from, named at $upto: $(grep -o 'step [0-9]*: .* ms' "$scratch/err")"
    ! $free || [ "$upto" -le $((from + 20)) ] || fail "named after step $upto, and slow from step $from"
done

passed
