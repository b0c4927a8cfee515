#!/usr/bin/env bash
# tests/ranks/train/test_train.sh - `yoke train` on several ranks, from its configuration to its files.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

seq 3000 | tr '\n' ' ' >text
cat >c.yaml <<EOF
model: {preset: tiny-gpt2}
data: {train: text}
train: {batch: 12, micro_batch: 1, seq_len: 16, steps: 6}
eval: {every: 3, batches: 2}
debug: {check_replicas: 2}
comm: {reduce_every: step}
device: cpu
cpu: {threads: 1}
EOF

# numbers RUN KEY...: those of metrics.jsonl, a line a step.
numbers() {
    local run=$1 key
    shift
    for key in "$@"; do sed -n "s/.*\"$key\": \([^,}]*\).*/\1/p" "runs/$run/metrics.jsonl"; done
}

case_is "every stage writes the same losses and the same weights"
for zero in 0 1 2 3; do
    on_ranks 3 3 "$yoke" train c.yaml --set parallel.zero=$zero --set run.dir=runs/zero$zero
    expect_status 0
    [ "$(numbers zero$zero loss | wc -l)" -eq 6 ] || fail "not a line for each step"
    [ "$(numbers zero$zero loss val_loss grad_norm)" = "$(numbers zero0 loss val_loss grad_norm)" ] ||
        fail "stage $zero: other numbers"
    cmp -s runs/zero$zero/model/model.safetensors runs/zero0/model/model.safetensors ||
        fail "stage $zero: other weights"
done

case_is "one rank learns the same, up to the order of sums"
run "$yoke" train c.yaml --set run.dir=runs/one
paste <(numbers zero0 loss) <(numbers one loss) >both
awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-6 * $2) bad = 1 } END { exit bad }' both ||
    fail "$(cat both)"

case_is "steps send what the plan says"
for zero in 0 1 2 3; do
    run "$yoke" plan c.yaml --ranks 3 --set parallel.zero=$zero --json
    planned=$(sed -n 's/.*"bytes_sent": \([0-9]*\).*/\1/p' <<<"$out")
    sent=$(numbers zero$zero comm_bytes | awk '{ s += $1 } END { print s }')
    # in stage 3 the first step, and one after an evaluation, fetch what the step before has for others
    [ "$sent" -eq $((6 * planned)) ] ||
        { [ $zero -eq 3 ] && [ "$sent" -gt $((6 * planned)) ] && [ "$sent" -lt $((7 * planned)) ]; } ||
        fail "stage $zero: sent $sent in 6 steps, planned $planned in each"
done

case_is "every step tells how long it waited for communication"
for zero in 0 3; do
    paste <(numbers zero$zero comm_exposed_ms) <(numbers zero$zero step_ms) |
        awk '{ n++; if ($1 > 0) some = 1; if ($1 < 0 || $1 > 1.001 * $2) bad = 1 } END { exit !(n == 6 && some && !bad) }' ||
        fail "stage $zero: waited $(numbers zero$zero comm_exposed_ms) of $(numbers zero$zero step_ms)"
done

case_is "all ranks take the same steps, though the data end in the middle of a batch"
seq 40 | tr '\n' ' ' >little # six windows, and twelve sequences a step
on_ranks 3 3 "$yoke" train c.yaml --set data.train=little --set eval.every=0 --set run.dir=runs/little
expect_status 0
[ "$(numbers little loss | wc -l)" -eq 6 ] || fail "not six steps"

case_is "rank 0 traces what its streams did, collectives on their own, and no bit changes"
on_ranks 2 2 "$yoke" train c.yaml --set parallel.zero=3 --set run.dir=runs/plain
expect_status 0
on_ranks 2 2 "$yoke" train c.yaml --set parallel.zero=3 --set run.dir=runs/traced --set trace.steps=2
expect_status 0
[ "$(numbers traced loss grad_norm)" = "$(numbers plain loss grad_norm)" ] || fail "other numbers"
trace=runs/traced/trace.json
# lane STREAM: its number.
lane() {
    sed -n 's/.*"thread_name".*"tid": \([0-9]*\), .*"name": "'"$1"'"}}.*/\1/p' $trace
}
for span in "compute linear_forward" "gather all_gather" "reduce reduce_scatter"; do
    grep -q "\"name\": \"${span#* }\", \"pid\": 0, \"tid\": $(lane "${span% *}")," $trace ||
        fail "no ${span#* } on stream ${span% *}"
done
[ "$(grep -c '"name": "step [0-9]*"' $trace)" -eq 1 ] || fail "not one step"

# beside [OPTION]... PROGRAM...: rank 0 trains as c.yaml says, and rank 1 runs this.
beside() {
    run timeout -k 5 "$(limit 40)" mpirun -q --oversubscribe --bind-to none \
        -n 1 "$yoke" train "$PWD/c.yaml" : -n 1 "$@"
}

case_is "configurations that differ are an error that names the key"
beside "$yoke" train c.yaml --set optim.lr=0.5
expect_status 2
expect_text err "lr: 0.5"
expect_text err "rank 1"
[ ! -e runs/c ] || fail "a folder was made"

case_is "data that one rank lacks end the run, with that rank's name"
mkdir elsewhere
beside --wdir "$PWD/elsewhere" "$yoke" train "$PWD/c.yaml"
expect_status 2
expect_text err "yoke: text: cannot open: No such file or directory"
expect_text err "yoke: rank 1: it failed on $(hostname), as said above"

case_is "other data under the same name are told, by their length or by what they hold"
for other in shorter "as long"; do
    if [ "$other" = shorter ]; then head -c -7 text >elsewhere/text; else tr 0-8 1-9 <text >elsewhere/text; fi
    beside --wdir "$PWD/elsewhere" "$yoke" train "$PWD/c.yaml"
    expect_status 2
    expect_text err "yoke: data: this rank has"
    expect_text err "give every rank the same files"
    expect_text err "yoke: rank 1: it failed on $(hostname), as said above"
done
[ ! -e runs/c ] && [ ! -e elsewhere/runs/c ] || fail "a folder was made"

case_is "a shape that one rank alone cannot have is told with the key that differs"
beside "$yoke" train c.yaml --set model.heads=3
expect_status 2
expect_text err "heads: 3"
expect_text err "yoke: rank 1: it failed on $(hostname), as said above"

case_is "a rank that is asked for help beside one that trains is told at once"
rm -rf runs/c
run timeout -k 5 "$(limit 30)" mpirun -q --oversubscribe --bind-to none -n 1 "$yoke" train --help : \
    -n 1 "$yoke" train c.yaml
expect_status 2
expect_text out "usage: yoke train"
[ "$err" = "yoke: train: some ranks are asked for help and others to train; start every rank with the same words" ] ||
    fail "other words"
[ ! -e runs/c ] || fail "a folder was made"

case_is "more ranks than the batch has sequences is told with the nearest batch"
on_ranks 8 8 "$yoke" train c.yaml
expect_status 2
[ "$(wc -l <<<"$err")" -le 2 ] || fail "said more than once"
expect_text err "12 sequences do not divide over 8 ranks"

# A run in the background, until its first steps are made. It prints little: while mpirun ends its ranks it
# does not read what they print, and one that prints much waits for that.
begin() {
    rm -rf runs/long
    mpirun -q --oversubscribe --bind-to none -n 2 "$yoke" train c.yaml --set run.dir=runs/long --set eval.every=0 \
        --set train.steps=1000000 --set log.every=100000 >.out 2>.err </dev/null &
    parent=$!
    until_true grep -qs '"step": 3,' runs/long/metrics.jsonl
}

case_is "SIGUSR1 to mpirun saves the weights, with status 75"
begin
kill -USR1 $parent
wait $parent
status=$?
out=$(tail -n 3 .out) err=$(cat .err)
expect_status 75
[ -s runs/long/model/model.safetensors ] || fail "no model"

case_is "SIGTERM to mpirun saves the weights, though mpirun has a status of its own"
begin
kill -TERM $parent
wait $parent
[ $? -ne 0 ] || fail "status 0"
out=$(tail -n 3 .out) err=$(cat .err)
[ -s runs/long/model/model.safetensors ] || fail "no model"
expect_no_text err "yoke: rank"

# A rate of nearly 0 leaves the weights what they were at the start, so that the first ones are found in memory.
still=(--set optim.lr=1e-30 --set optim.weight_decay=0 --set parallel.zero=0 --set eval.every=0 --set log.every=100000)
if command -v python3 >/dev/null; then
    case_is "a bit that flips in the memory of a rank that trains is found, and the rank named"
    on_ranks 3 3 "$yoke" train c.yaml "${still[@]}" --set train.steps=1 --set run.dir=runs/first
    expect_status 0
    mpirun -q --oversubscribe --bind-to none -n 3 "$yoke" train c.yaml "${still[@]}" \
        --set train.steps=1000000 --set run.dir=runs/flipped >.out 2>.err </dev/null &
    parent=$!
    until_true grep -qs '"step": 5,' runs/flipped/metrics.jsonl
    for pid in $(pgrep -f run.dir=runs/flipped); do
        ! grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$pid/environ" || flipped=$pid
    done
    python3 - "$flipped" runs/first/model/model.safetensors <<'END'
import json, struct, sys
weights = open(sys.argv[2], "rb")
length = struct.unpack("<Q", weights.read(8))[0]
head = json.loads(weights.read(length))
at = next(v for k, v in head.items() if k.endswith("wte.weight"))["data_offsets"][0]
weights.seek(8 + length + at)
wanted, n = weights.read(256), 0
try:
    memory = open(f"/proc/{sys.argv[1]}/mem", "r+b", 0)
except PermissionError:
    sys.exit(77)
with open(f"/proc/{sys.argv[1]}/maps") as maps:
    for line in maps:
        begin, end = (int(x, 16) for x in line.split()[0].split("-"))
        if not line.split()[1].startswith("rw") or end - begin > 1 << 28: # a sanitizer has large ones
            continue
        try:
            memory.seek(begin)
            found = memory.read(end - begin).find(wanted)
        except OSError:
            continue
        if found >= 0:
            memory.seek(begin + found)
            memory.write(bytes([wanted[0] ^ 1]))
            n += 1
sys.exit(0 if n else 1)
END
    found=$?
    [ $found -eq 0 ] || kill -KILL $parent
    { wait $parent; status=$?; } 2>/dev/null
    out= err=$(cat .err)
    [ $found -ne 77 ] || echo "not shown: one process may not write into the memory of another here"
    [ $found -ne 1 ] || fail "no weights in memory"
fi
if [ "${found:-77}" -eq 0 ]; then
    expect_status 1
    [ "$(grep -c '^yoke: debug.check_replicas: ' .err)" -eq 1 ] || fail "not said once"
    expect_text err "weights differ from the other ranks' on rank 1 on $(hostname), first in unit 0"
fi

case_is "what one rank alone fails with is told once, and is the status of all"
run env YK_NODE_SIZE=1 timeout -k 5 "$(limit 40)" mpirun -q --oversubscribe --bind-to none -n 3 \
    bash -c 'trap "" XFSZ && ulimit -f 100 && exec "$0" "$@"' "$yoke" train c.yaml --set run.dir=runs/limited
expect_status 2
[ "$(wc -l <<<"$err")" -eq 1 ] || fail "not one line"
expect_text err "File too large"

case_is "a run of several nodes says what network between them it was planned with, others nothing of it"
run env YK_NODE_SIZE=1 timeout -k 5 "$(limit 40)" mpirun -q --oversubscribe --bind-to none -n 2 "$yoke" train c.yaml \
    --set run.dir=runs/network --set comm.network=25
expect_status 0
expect_text out "network   25 Gbit/s between nodes (comm.network)"
run env YK_NODE_SIZE=1 NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=none timeout -k 5 "$(limit 40)" mpirun -q --oversubscribe \
    --bind-to none -n 2 "$yoke" train c.yaml --set run.dir=runs/unknown
expect_status 0
expect_text out "network   10 Gbit/s between nodes (assumed; comm.network sets it)"
on_ranks 2 2 "$yoke" train c.yaml --set run.dir=runs/node
expect_no_text out "network"

passed
