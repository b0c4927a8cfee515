#!/usr/bin/env bash
# bench/gpu.sh - one GPU: training steps beside the floor that the card sets them, and beside PyTorch.
#
#   bench/gpu.sh [OPTION]... [MODEL]...
#
# MODEL is gpt2-124m, gpt2-1.5b, qwen2.5-0.5b, qwen2.5-1.5b or qwen2.5-7b; all when none is named. For each,
# one after the other on the same card, since its rate moves with power: Yoke; the floor (bench/floor.py: the
# model's products and attention back to back and the fewest bytes that the rest must move); Yoke with bf16 states,
# in fp16, and with numerics.deterministic: false; PyTorch. Rows are lines of JSON in OUT/gpu.jsonl; a table
# is printed at the end. A row that is there already is not run again.
#
#   --yoke FILE     the program (build/yoke)
#   --out DIR       where rows go (bench/out)
#   --steps N       timed steps of a row (10)
#   --warmup N      steps of Yoke before them (4)
#   --only REGEX    the rows whose label matches, such as 'yoke|floor'
#   --compile MODE  how PyTorch compiles: full, or block, which starts sooner (full)
#   --list          print the labels of the rows and run none
set -uo pipefail
. "$(dirname "$0")/rows.sh"
cd "$(dirname "$0")/.."

models=()
while [ $# -gt 0 ]; do
    take_option "$@"
    if [ $taken -eq 0 ]; then
        case $1 in
        gpt2-124m | gpt2-1.5b | qwen2.5-0.5b | qwen2.5-1.5b | qwen2.5-7b) models+=("$1") && taken=1 ;;
        *) usage 2 ;;
        esac
    fi
    shift $taken
done
[ ${#models[@]} -gt 0 ] || models=(qwen2.5-1.5b gpt2-124m gpt2-1.5b qwen2.5-0.5b qwen2.5-7b)
keep_rows_in gpu

row() { # LABEL COMMAND...
    local label=$1
    shift
    keep "$label" '' timeout -k 10 600 "$@"
}

bf16_states=(--set precision.master=bf16 --set precision.moments=bf16)

# step LABEL MODEL SEQUENCES OPTION...
step() {
    local label=$1 model=$2 sequences=$3
    shift 3
    row "yoke $model $label" "$yoke" bench step --model "$model" --micro-batch "$sequences" --seq 1024 \
        --steps "$steps" --warmup "$warmup" "$@"
}

all_rows() { # MODEL SEQUENCES, PyTorch's name or ''
    step "fp32 states" "$1" "$2"
    row "floor $1" python3 bench/floor.py "$1"
    step "bf16 states" "$1" "$2" "${bf16_states[@]}"
    step "fp16" "$1" "$2" --precision fp16
    step "not deterministic" "$1" "$2" --set numerics.deterministic=false
    row "torch $1" python3 bench/torch_gpu.py --model "$3" --micro-batch "$2" --seq 1024 --steps "$steps" --compile "$compile"
}

for model in "${models[@]}"; do
    case $model in
    gpt2-124m) all_rows $model 64 gpt2-124m ;;
    gpt2-1.5b) all_rows $model 32 gpt2-1.5b ;;
    qwen2.5-0.5b) all_rows $model 32 qwen-0.5b ;;
    qwen2.5-1.5b) all_rows $model 32 qwen-1.5b ;;
    qwen2.5-7b) # states in bf16 alone fit, and four micro-batches are a step
        step "bf16 states" $model 8 --batch 32 "${bf16_states[@]}"
        row "floor $model" python3 bench/floor.py $model
        ;;
    esac
done

[ -z "$list" ] || exit 0
python3 - "$rows" <<'END'
import json, sys

rows = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    rows[row["label"]] = row
print("| row | tokens/s | of the floor | step ms | planned ms |")
print("| --- | --- | --- | --- | --- |")
for label, row in rows.items():
    rate = row.get("tokens_per_s", row.get("floor_tokens_per_s"))
    floor = rows.get("floor " + label.split()[1], {}).get("floor_tokens_per_s")
    ms = row.get("ms", row.get("ms_median", row.get("floor_ms")))
    print("| %s | %s | %s | %.1f | %s |" % (label, "{:,.0f}".format(rate), "%.3f" % (rate / floor) if floor else "", ms,
                                          "%.1f" % row["planned_ms"] if "planned_ms" in row else ""))
END
[ $faults -eq 0 ]
