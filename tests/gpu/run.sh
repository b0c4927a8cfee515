#!/usr/bin/env bash
# tests/gpu/run.sh - the tests that can run on a GPU, on it; what `make gpu-test` does.
#
#   tests/gpu/run.sh [BUILD] [TOOL]...
#   tests/gpu/run.sh --list
#
# BUILD   a folder built with -DYK_CUDA=ON (build-cuda)
# TOOL    memcheck, racecheck, initcheck: run kernels and tiny models under compute-sanitizer's tool instead
# --list  print the programs that are run, as paths in BUILD
#
# Operations and whole models are held against the same oracles and recorded values as on the cpu; only
# the device differs. The programs need nothing but the tree and their libraries, so that a build made
# on one machine can be run on another.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-cuda}
tools=("${@:2}")
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
export YK_TEST_DEVICE=cuda OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Programs that are one test each, and those that two ranks run.
ranked=(tests/ranks/comm/rank_{stress,shelf} tests/ranks/train/rank_{stages,offload,step,rehearsal})
mapfile -t tests < <(grep -lE '(op_device|tested_device|rig|stored)_missing' -r tests --include='test_*.c' |
    grep -v /cpu/ | sed 's/\.c$//' | sort)
if [ "$build" = --list ]; then
    printf '%s\n' "${tests[@]}" "${ranked[@]}"
    exit
fi

programs=()
for test in "${tests[@]}"; do
    program=$build/$test
    [ -x "$program" ] || { echo "yoke: $program: not built; run: make gpu-test" >&2; exit 2; }
    programs+=("$program")
done

# What the sanitizer is for: every kernel of ours that has shared memory, and every kernel of a step, each in a
# minute; and models through forward, backward, update and generation, graphs and all, in many. racecheck takes
# the first alone: it follows each access to shared memory, and cuBLASLt's kernels for sm_90 fail beside it.
watched() {
    echo tests/runtime/device/test_kernels
    [ "$1" = racecheck ] || printf '%s\n' tests/engine/test_{heads,golden,graphs} tests/models/test_{oracle_model,cache}
}

# Libraries check their kernels themselves; but initcheck has to see what they write.
others='cutlass|xmma|cublas|nvjet|gemm|splitK|cudnn'

sanitize() {
    local tool program log=$logs/sanitizer status all=0 exclude
    command -v compute-sanitizer >/dev/null || {
        echo "yoke: compute-sanitizer: not found; it is part of the CUDA toolkit" >&2
        exit 2
    }
    for tool in "${tools[@]}"; do
        exclude=(--kernel-name-exclude "regex=$others")
        [ "$tool" != initcheck ] || exclude=()
        for program in $(watched "$tool"); do
            local begin=$SECONDS
            status=0
            timeout 1200 compute-sanitizer --tool "$tool" --error-exitcode 99 "${exclude[@]}" "$build/$program" \
                >"$log" 2>&1 || status=$?
            printf '%3d %4d s  %s %s\n' "$status" $((SECONDS - begin)) "$tool" "${program#tests/}"
            [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || { all=1; tail -n 40 "$log" | sed 's/^/    /'; }
        done
    done
    return $all
}
if [ ${#tools[@]} -gt 0 ]; then
    sanitize
    exit
fi

# One line a program: its exit status, its seconds, its name; below it what it says unless it passes.
one() {
    local log text begin=$SECONDS status=0
    log=$1/$(echo "$2" | tr / .)
    timeout 600 "$2" >"$log" 2>&1 || status=$?
    text=$(printf '%3d %4d s  %s\n' "$status" $((SECONDS - begin)) "${2#"$build"/}"
        [ "$status" -eq 0 ] || sed 's/^/    /' "$log")
    flock "$1" cat <<<"$text" # in one piece, for others print too
}
export -f one
export build
# Four at a time: of sixteen that start CUDA at once, most are refused memory by the driver.
printf '%s\n' "${programs[@]}" | xargs -P 4 -I{} bash -c 'one "$0" "$1"' "$logs" {} | tee "$logs/summary"

# Two ranks, on a GPU each where there are two, else sharing one: after the others, for two processes take
# turns there.
ranks() {
    local log=$logs/ranks begin=$SECONDS status=77
    if [ ! -e /dev/nvidiactl ]; then
        echo "skipped: there is no GPU" >"$log"
    elif [ ! -x "$build/$1" ]; then
        echo "skipped: $build/$1 is not built" >"$log"
    elif ! command -v mpirun >/dev/null; then
        echo "skipped: there is no mpirun" >"$log"
    else
        status=0
        timeout 600 mpirun -q --oversubscribe --bind-to none -n 2 "$build/$1" "${@:2}" >"$log" 2>&1 || status=$?
    fi
    printf '%3d %4d s  %s, over %s\n' "$status" $((SECONDS - begin)) "$1" "$YK_RANK_BACKEND" | tee -a "$logs/summary"
    [ "$status" -eq 0 ] || sed 's/^/    /' "$log"
}
export YK_RANK_DEVICE=cuda OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ -n "${CUDA_VISIBLE_DEVICES-}" ]; then
    gpus=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
else
    gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
fi
seed=${YK_STRESS_SEED:-$RANDOM} # said where it fails; it may be given
export YK_RANK_BACKEND=hostmem
ranks tests/ranks/comm/rank_stress 3000 "$seed"
ranks tests/ranks/comm/rank_shelf 12 "$seed"
ranks tests/ranks/train/rank_stages "$logs" hostmem
ranks tests/ranks/train/rank_offload "$logs"
ranks tests/ranks/train/rank_step "$logs" flip 1 0 # the rest of it looks into the memory of a processor
ranks tests/ranks/train/rank_rehearsal "$logs"
if [ "$gpus" -ge 2 ]; then # for NCCL wants a GPU a rank
    export YK_RANK_BACKEND=nccl
    ranks tests/ranks/comm/rank_stress 3000 "$seed"
    YK_RANK_GATHERS=hostmem ranks tests/ranks/comm/rank_shelf 12 "$seed"
    ranks tests/ranks/train/rank_stages "$logs" nccl few # each training makes its groups, most of the time
fi

failed=$(grep -cE '^ *[0-9]+ +[0-9]+ s  ' "$logs/summary") || true
passed=$(grep -cE '^  0 +[0-9]+ s  ' "$logs/summary") || true
skipped=$(grep -cE '^ 77 +[0-9]+ s  ' "$logs/summary") || true
failed=$((failed - passed - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
