#!/usr/bin/env bash
# bench/two_gpus.sh - two ranks on two GPUs: are the sums right, and how much of twice one GPU is reached.
#
#   bench/two_gpus.sh [OPTION]... [PART]...
#
#   correct   equal losses, to the bit, in stages 0 to 3, over nccl and hostmem, for every wire; a rank that
#             is killed or stopped ends the run in time
#   comm      yoke bench comm, peer-to-peer on and off
#   scale     GPT-2 124M and 1.5B and Qwen2.5 1.5B on one GPU and on two, beside PyTorch
#   large     Qwen2.5 7B in stage 3
#   nodes     two nodes on this machine, in network namespaces: NCCL through sockets
#
# All parts are run in this order unless some are named. Each row is a line of JSON in OUT/two_gpus.jsonl,
# with what was set; a table is printed at the end. A row that is there already is not run again, so a
# run that was cut short goes on where it was.
#
#   --yoke FILE    the program (build/yoke)
#   --torch FILE   bench/torch_gpu.py, for rows of PyTorch; without it there are none
#   --out DIR      where rows go (bench/out)
#   --only REGEX   the rows whose label matches, such as '124m.*nop2p.*bf16'
#   --steps N      timed steps of a row (20)
#   --warmup N     steps before them (4)
#   --compile MODE  how PyTorch compiles: full, or block, which starts sooner (full)
#   --full         every stage, accumulation and wire with peer-to-peer too
#   --list         print the labels of the rows and run none
#
# NVLink multicast stays off (NCCL_NVLS_ENABLE=0). "nop2p" is NCCL_P2P_DISABLE=1, which makes cards with
# NVLink behave like those without: through host memory.
set -uo pipefail
. "$(dirname "$0")/rows.sh"
cd "$(dirname "$0")/.."

steps=20 torch='' full=''
parts=()
while [ $# -gt 0 ]; do
    take_option "$@"
    if [ $taken -eq 0 ]; then
        taken=1
        case $1 in
        --torch) torch=${2-} taken=2 && [ -n "$torch" ] || usage 2 ;;
        --full) full=1 ;;
        correct | comm | scale | large | nodes) parts+=("$1") ;;
        *) usage 2 ;;
        esac
    fi
    shift $taken
done
[ ${#parts[@]} -gt 0 ] || parts=(correct comm scale large nodes)
keep_rows_in two_gpus

export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# on N COMMAND...: the command on N ranks.
on() { # in the foreground group, so that what ends this script ends the ranks
    local n=$1
    shift
    timeout --foreground -k 10 400 mpirun -q --bind-to none --oversubscribe -n "$n" "$@"
}

# row LABEL P2P COMMAND...
row() {
    local label=$1 p2p=$2
    shift 2
    NCCL_P2P_DISABLE=$((1 - p2p)) keep "$label" "\"p2p\": $p2p, " "$@"
}

# field LABEL NAME: a number or word of a row.
field() {
    grep -F "\"label\": \"$1\"" "$rows" | tail -n 1 | sed -n "s/.*\"$2\": \"\{0,1\}\([^,\"}]*\).*/\1/p"
}

step() { # N OPTION...
    local n=$1
    shift
    on "$n" "$yoke" bench step --steps "$steps" --warmup "$warmup" "$@"
}

# ---- correct ------------------------------------------------------------------------------------

# Every stage sums at each micro-batch here, so that all form the same sums.
correct_losses() {
    local wire backend zero label first
    for precision in bf16 fp32; do
        for wire in fp32 bf16 fp16; do
            [ $precision = bf16 ] && [ $wire = fp32 ] && continue
            first=''
            for backend in nccl hostmem; do
                for zero in 0 1 2 3; do
                    label="correct $precision wire-$wire $backend zero-$zero"
                    row "$label" 1 step 2 --model tiny-gpt2 --micro-batch 4 --batch 16 --seq 128 --precision $precision \
                        --set parallel.zero=$zero --set comm.wire=$wire --set comm.backend=$backend \
                        --set comm.reduce_every=micro
                    [ -n "$list" ] && continue
                    [[ $label =~ $only ]] || continue
                    first=${first:-$(field "$label" loss_last)}
                    [ "$(field "$label" loss_last)" = "$first" ] && [ -n "$first" ] && continue
                    say "   WRONG: the loss is $(field "$label" loss_last), and was $first"
                    faults=$((faults + 1))
                done
            done
        done
    done
}

# A rank of a long training gets a signal after some steps; all must be gone within the deadline + 5 s,
# and what is said must name it.
correct_faults() {
    local signal backend label dir pid victim begin took status
    for backend in nccl hostmem; do
        for signal in KILL STOP; do
            label="correct fault-$signal $backend"
            wanted "$label" || continue
            say "== $label"
            dir=$(mktemp -d)
            cat README.md docs/*.md >"$dir/text.txt"
            on 2 "$yoke" train configs/demo.yaml --set "run.dir=$dir/run" --set "data.train=$dir/text.txt" \
                --set train.steps=1000000 --set device=cuda --set comm.backend=$backend --set comm.timeout=10 \
                >"$dir/out" 2>"$dir/err" &
            pid=$!
            for _ in $(seq 240); do
                [ "$(grep -c '"step"' "$dir/run/metrics.jsonl" 2>/dev/null || true)" -gt 20 ] 2>/dev/null && break
                sleep 0.5
            done
            victim=$(pgrep -f "run.dir=$dir/run" | while read -r p; do
                tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx OMPI_COMM_WORLD_RANK=1 && echo "$p"
            done | head -n 1)
            begin=$(date +%s.%N)
            kill -s $signal "$victim"
            wait $pid
            status=$?
            took=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
            printf '{"label": "%s", "status": %d, "seconds": %s, "said": "%s"}\n' "$label" $status "$took" \
                "$(head -n 1 "$dir/err" | tr -d '"\\')" >>"$rows"
            awk -v t="$took" 'BEGIN { exit !(t <= 16) }' && [ $status -ne 0 ] && grep -q 'rank 1' "$dir/err" ||
                { say "   WRONG: $took s, status $status: $(head -n 2 "$dir/err")" && faults=$((faults + 1)); }
            rm -rf "$dir"
        done
    done
}

part_correct() {
    if [ -z "$list" ]; then
        for test in runtime/device/test_ops_wire gpu/test_nccl; do
            YK_TEST_DEVICE=cuda "$(dirname "$yoke")/tests/$test" >"$out/last.err" 2>&1 ||
                { say "   WRONG: $test: $(tail -n 3 "$out/last.err")" && faults=$((faults + 1)); }
        done
    fi
    correct_losses
    correct_faults
}

# ---- speed --------------------------------------------------------------------------------------

part_comm() {
    local p2p
    for p2p in 0 1; do
        row "comm $(word $p2p)" $p2p on 2 "$yoke" bench comm --max 512 --json
    done
}

word() {
    [ "$1" = 1 ] && echo p2p || echo nop2p
}

# yoke_row MODEL BATCH ZERO ACCUMULATION P2P WIRE [KEY=VALUE...]
yoke_row() {
    local model=$1 batch=$2 zero=$3 accumulate=$4 p2p=$5 wire=$6 sets=()
    shift 6
    for set in "$@"; do sets+=(--set "$set"); done
    row "yoke $model 2x$batch zero-$zero acc-$accumulate $(word "$p2p") $wire${*:+ $*}" "$p2p" \
        step 2 --model "$model" --micro-batch "$batch" --batch $((2 * batch * accumulate)) \
        --set "parallel.zero=$zero" --set "comm.wire=$wire" --set comm.backend=nccl "${sets[@]}"
}

# One GPU does what a rank of two does.
yoke_single() { # MODEL BATCH ACCUMULATION
    row "yoke $1 1x$2 acc-$3" 1 step 1 --model "$1" --micro-batch "$2" --batch $(($2 * $3))
}

torch_row() { # LABEL P2P N OPTION...
    local label=$1 p2p=$2 n=$3 port=$((20000 + RANDOM % 20000))
    shift 3
    [ -n "$torch" ] || return 0
    row "torch $label" "$p2p" timeout --foreground -k 10 600 python3 -m torch.distributed.run --nproc-per-node="$n" \
        --master-port=$port "$torch" --steps "$steps" --warmup "$warmup" --compile "$compile" "$@"
}

# yoke's name, bench_torch.py's, sequences a rank
models='gpt2-1.5b gpt2-1.5b 16
gpt2-124m gpt2-124m 64
qwen2.5-1.5b qwen-1.5b 32'

# What most depends on first: without peer-to-peer, stage 1.
part_scale() {
    local model name batch zero accumulate wire
    while read -r model name batch <&3; do
        yoke_single "$model" "$batch" 1
        yoke_row "$model" "$batch" 1 1 0 bf16
        torch_row "$name ddp 2x$batch nop2p" 0 2 --model "$name" --micro-batch "$batch" --ddp
    done 3<<<"$models"
    while read -r model name batch <&3; do
        yoke_row "$model" "$batch" 1 1 1 bf16
        torch_row "$name 1x$batch" 1 1 --model "$name" --micro-batch "$batch"
        torch_row "$name ddp 2x$batch p2p" 1 2 --model "$name" --micro-batch "$batch" --ddp
        yoke_single "$model" "$batch" 4
        for wire in bf16 fp16; do
            for accumulate in 1 4; do
                for zero in 1 0 2 3; do
                    yoke_row "$model" "$batch" $zero $accumulate 0 $wire
                    [ -n "$full" ] && yoke_row "$model" "$batch" $zero $accumulate 1 $wire
                done
            done
        done
        yoke_row "$model" "$batch" 1 1 0 bf16 comm.backend=hostmem
        torch_row "$name fsdp 2x$batch nop2p" 0 2 --model "$name" --micro-batch "$batch" --fsdp 3
    done 3<<<"$models"
}

part_large() {
    yoke_row qwen2.5-7b 8 3 1 0 bf16
    yoke_row qwen2.5-7b 8 3 1 0 bf16 comm.backend=hostmem
    torch_row "llama-7b fsdp 2x8 nop2p" 0 2 --model llama-7b --micro-batch 8 --fsdp 3 --ckpt
}

# A rank a node, each with a GPU of its own, and nothing shared between them but a network: in namespaces where
# they can be had, else on this host, with names that NCCL takes for two machines.
two_nodes() {
    local network=eth0 hosts=(--host n0 --host n1) node ranks=()
    . tests/launch/hosts.sh
    if (scratch=$(mktemp -d) && hosts_up n0 n1) >/dev/null; then
        scratch=$(mktemp -d)
        hosts_up n0 n1
        enter_host n0
    else
        say "   no namespaces here: both nodes are this host"
        network=lo hosts=() entered=()
    fi
    for node in 0 1; do
        ranks+=(${ranks:+:} -n 1 "${hosts[@]:2 * node:2}" -x CUDA_VISIBLE_DEVICES=$node -x NCCL_HOSTID=yoke-node-$node
            -x NCCL_SOCKET_IFNAME=$network -x YK_NODE_SIZE=1 "$(realpath "$yoke")" bench step --steps "$steps" --warmup "$warmup" "$@")
    done
    timeout --foreground -k 10 400 "${entered[@]}" mpirun -q --bind-to none --oversubscribe \
        --mca btl_tcp_if_include $network --mca oob_tcp_if_include $network "${ranks[@]}"
}

# What it makes goes with it.
in_subshell() {
    ("$@")
}

part_nodes() {
    local shard
    for shard in world node; do
        row "yoke gpt2-124m 2x64 zero-1 sockets shard-$shard" 0 in_subshell two_nodes --model gpt2-124m --micro-batch 64 \
            --batch 128 --set parallel.zero=1 --set parallel.shard=$shard
    done
}

# ---- the table ----------------------------------------------------------------------------------

table() {
    python3 - "$rows" <<'END'
import json, re, sys

rows = {}
for line in open(sys.argv[1]):
    try:
        row = json.loads(line)
    except ValueError:
        continue
    rows[row["label"]] = row
singles = {}
for label, row in rows.items():
    single = re.match(r"(yoke|torch) (\S+) 1x(\d+)(?: acc-(\d))?", label)
    if single and "tokens_per_s" in row:
        singles[single.group(1, 2, 3) + (single.group(4) or "1",)] = row["tokens_per_s"]
print("| row | tokens/s | of twice one GPU | step ms | exposed ms | MB sent | planned ms |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for label, row in rows.items():
    if "tokens_per_s" not in row:
        continue
    two = re.match(r"(yoke|torch) (\S+) (?:ddp |fsdp )?2x(\d+)", label)
    accumulate = re.search(r"acc-(\d)", label)
    key = two and two.group(1, 2, 3) + (accumulate.group(1) if accumulate else "1",)
    ratio = "%.3f" % (row["tokens_per_s"] / 2 / singles[key]) if key in singles else ""
    def cell(name, scale=1.0):
        return "%.1f" % (row[name] * scale) if name in row else ""
    print("| %s | %s | %s | %s | %s | %s | %s |" % (
        label, "{:,.0f}".format(row["tokens_per_s"]), ratio, cell("ms") or cell("ms_median"),
        cell("comm_exposed_ms"), cell("comm_bytes", 1e-6), cell("planned_ms")))
END
}

for part in "${parts[@]}"; do "part_$part"; done
[ -n "$list" ] && exit 0
table
[ "$faults" -eq 0 ] || say "$faults rows failed or were wrong"
[ "$faults" -eq 0 ]
