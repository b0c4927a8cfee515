#!/usr/bin/env bash
# tests/ranks/train/faults.sh - a random rank of a training is killed or stopped at a random point: it
# is named, once, with where it was, everything is gone in time, and nothing is left behind.
#
#   [YK_FAULT_TRIALS=40] [YK_FAULT_SEED=N] [YK_FAULT_BACKEND=hostmem] tests/ranks/train/faults.sh
#
# Time is counted in looks, of which each counts for little more than the pause before it: what a busy
# machine takes from this script it takes from the ranks too. Where the machine stood still for a second
# (a virtual machine may), or somebody woke the stopped rank, nothing is shown, and the trial is made again.
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke
trials=${YK_FAULT_TRIALS:-40}
seed=${YK_FAULT_SEED:-$RANDOM}
timeout_s=2 # comm.timeout
at_once=$((5 * $(env -u OMP_NUM_THREADS nproc) / 2))
[ $at_once -le 16 ] || at_once=16

seq 4000 | tr '\n' ' ' >"$scratch/text"
cat >"$scratch/c.yaml" <<EOF
model: {preset: tiny-gpt2}
data: {train: $scratch/text}
train: {batch: 24, micro_batch: 2, seq_len: 16, steps: 1000000}
checkpoint: {every: 7}
eval: {every: 5, batches: 1}
comm: {timeout: $timeout_s, backend: ${YK_FAULT_BACKEND:-auto}, shelf: on}
device: cpu
cpu: {threads: 1}
EOF

# Sleep without starting a process.
exec {never}<> <(:)
pause() { read -r -t "$1" -u $never || true; }

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# The processes of the trial in the folder $1, as "rank pid"; mpirun and launch are not among them.
ranks_of() {
    local pid
    for pid in $(pgrep -f "run.dir=$1/run"); do
        [ "/proc/$pid/exe" -ef "$yoke" ] 2>/dev/null || continue
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null |
            sed -n "s/^OMPI_COMM_WORLD_RANK=\(.*\)/\1 $pid/p"
    done | sort -n
}

any_alive() {
    local pid
    for pid in "$@"; do [ ! -d "/proc/$pid" ] || return 0; done
    return 1
}

# watch_ending PID...: wait until the processes have ended, for 20 s at most. $took is how long it was, in
# ms; false: this process stood still meanwhile.
watch_ending() {
    local last now steady=0
    took=0 last=$(now_ms)
    while any_alive "$@" && [ $took -lt 20000 ]; do
        pause 0.05
        now=$(now_ms)
        [ $((now - last)) -le 1000 ] || steady=1
        took=$((took + (now - last > 150 ? 150 : now - last))) last=$now
    done
    return $steady
}

# judge TRIAL_FOLDER STATUS RANK PID EXPECTED: what is wrong, on stdout.
judge() {
    [ $took -le $(((timeout_s + 5) * 1000)) ] || echo "the last process left after $took ms"
    [ "$2" -ne 0 ] || echo "exit status 0"
    [ "$(grep -c '^yoke: rank [0-9]*: ' "$1/err")" -eq 1 ] || echo "not one rank is named"
    grep -q "^yoke: rank $3: its process $4 on .* $5.* in step [0-9]" "$1/err" ||
        echo "rank $3 is not named as one that $5"
    [ -z "$(find "$1/tmp" -type f)" ] || echo "left behind: $(find "$1/tmp" -type f | tr '\n' ' ')"
}

# trial NUMBER: one run and its fault. What is wrong is written to the trial's folder, and how long the last
# process took to leave. False: it shows nothing.
trial() {
    local i=$1 dir=$scratch/$1 n zero node rank signal delay words expected
    RANDOM=$((seed + i))
    n=$((2 + RANDOM % 3)) zero=$((RANDOM % 4))
    node=$((RANDOM % 2 ? n : n % 2 ? 1 : 2)) rank=$((RANDOM % n)) delay=0.$((RANDOM % 5000 + 1000))
    signal=KILL expected="has died"
    [ $((i % 2)) -eq 0 ] || signal=STOP expected="has not stirred for $timeout_s s"
    # A node that has died with its only rank is heard of by its silence alone.
    [ $node -gt 1 ] || expected="has \(died\|not stirred for $timeout_s s\)"
    rm -rf "$dir"
    mkdir -p "$dir/tmp"
    export TMPDIR=$dir/tmp OMPI_MCA_btl_vader_backing_directory=$dir/tmp YK_NODE_SIZE=$node
    words=(train "$scratch/c.yaml" --set "parallel.zero=$zero" --set "run.dir=$dir/run")
    if [ $((i % 4)) -lt 2 ]; then
        words=(mpirun -q --oversubscribe --bind-to none -n $n "$yoke" "${words[@]}")
    else
        words=("$yoke" launch -n $n "${words[@]}")
    fi
    "${words[@]}" >"$dir/out" 2>"$dir/err" </dev/null &
    local parent=$! pids pid k took shown=0 status
    for ((k = 0; k < 1200; k++)); do
        [ ! -s "$dir/run/metrics.jsonl" ] && kill -0 $parent 2>/dev/null || break
        pause 0.05
    done
    pause "$delay"
    mapfile -t pids < <(ranks_of "$dir")
    if [ ${#pids[@]} -ne $n ]; then
        kill $parent && wait $parent
        echo "there are ${#pids[@]} ranks, not $n" >"$dir/wrong"
        return
    fi
    pid=${pids[rank]#* }
    kill -$signal "$pid"
    watch_ending "${pids[@]#* }" $parent || shown=1
    [ -d "/proc/$pid" ] && ! grep -q '^State:.*[TZ]' "/proc/$pid/status" && ! grep -q '^yoke: rank' "$dir/err" &&
        shown=1 # the run goes on
    kill -KILL "${pids[@]#* }" 2>/dev/null
    wait $parent
    status=$?
    judge "$dir" $status $rank "$pid" "$expected" >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || echo "$signal to rank $rank of $n, nodes of $node, stage $zero: ${words[*]}" >>"$dir/wrong"
    [ -s "$dir/wrong" ] || shown=0
    echo "$signal $took" >"$dir/took"
    return $shown
}

# Try it again, a few times, until it shows something.
try() {
    local k
    for ((k = 0; k < 5; k++)); do ! trial "$1" || return 0; done
    : >"$scratch/$1/void" >"$scratch/$1/wrong"
    rm -f "$scratch/$1/took"
}

case_is "$trials ranks that are killed or stopped are named, and all processes leave in time (seed $seed)"
for ((t = 0; t < trials; t++)); do
    [ "$(jobs -rp | wc -l)" -lt $at_once ] || wait -n
    try $t &
done
wait
for ((t = 0; t < trials; t++)); do
    [ -e "$scratch/$t/wrong" ] && [ ! -s "$scratch/$t/wrong" ] && continue
    out=$(cat "$scratch/$t/wrong" "$scratch/$t/out") err=$(cat "$scratch/$t/err")
    fail "trial $t"
done
voids=$(find "$scratch" -name void | wc -l)
[ "$voids" -le $((trials / 4)) ] || fail "$voids trials show nothing"
[ "$voids" -eq 0 ] || echo "$voids trials show nothing: the machine stood still in them"
for signal in KILL STOP; do
    cat "$scratch"/*/took | sort -k 2 -n | awk -v signal=$signal '
        $1 == signal { t[n++] = $2 }
        END { if (n) printf "%s: %d trials, last exit after %.2f s (median), %.2f s (most)\n", signal, n, t[int(n / 2)] / 1000, t[n - 1] / 1000 }'
done
passed
