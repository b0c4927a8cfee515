#!/usr/bin/env bash
# tests/cli/test_plan.sh - `yoke plan`: what a run would take, without a file written or memory taken.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

refused() {
    run "$yoke" plan "${@:2}"
    expect_refusal "$1"
}

# number NAME: a number of the JSON object in $out.
number() {
    sed -n 's/.*"'"$1"'": \([0-9.e+]*\)[,}].*/\1/p' <<<"$out"
}

for ((i = 0; i < 400; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >tiny.yaml <<'END'
model: {preset: tiny-qwen2}
data: {train: text.txt}
train: {batch: 8, micro_batch: 4, seq_len: 32, steps: 2}
cpu: {threads: 1}
device: cpu
END
cat >large.yaml <<'END'
model: {preset: gpt2-1.5b}
data: {train: nowhere.bin}
train: {batch: 32, seq_len: 1024}
precision: {compute: bf16}
END

case_is "the memory that a run then has, and nothing written"
run "$yoke" plan tiny.yaml --json
expect_status 0
[ ! -e runs ] || fail "a run's folder was written"
bytes=$(number device_bytes)
[ "$(number micro_batches)" -eq 2 ] || fail "not two micro-batches"
run "$yoke" train tiny.yaml
expect_status 0
[ "$(sed -n '$s/.*"device_bytes": \([0-9]*\).*/\1/p' runs/tiny/metrics.jsonl)" -eq "$bytes" ] ||
    fail "the run has other memory than the planned $bytes"

case_is "the table adds up"
run "$yoke" plan tiny.yaml
expect_status 0
for name in parameters gradients "first moments" "second moments" logits; do expect_text out " $name "; done
awk '$1 == "persistent" || $1 == "activation" || $1 == "workspace" {sum += $NF}
     $1 == "device" {exit sum != $NF}' <<<"$out" || fail "the items are not the sum"
awk '$1 == "device" {exit $NF != '"$bytes"'}' <<<"$out" || fail "JSON says something else"

case_is "a large model on a card that is not here, data and all"
run "$yoke" plan large.yaml --device h200 --json
expect_status 0
[ "$(number device_bytes)" -gt 25000000000 ] || fail "less than weights, gradients and moments"
refused "would fit" large.yaml --device h200 --set train.micro_batch=32 --set memory.device_limit=60GiB
refused "no micro-batch fits" large.yaml --device 4090d

case_is "micro_batch auto takes what fits"
run "$yoke" plan large.yaml --device h200 --json --set memory.device_limit=60GiB
expect_status 0
[ "$(number device_bytes)" -le $((60 << 30)) ] || fail "more than the limit"
[ "$(number micro_batch)" -gt 1 ] || fail "the smallest micro-batch"

case_is "wrong input"
refused "CONFIG is missing"
refused "absent.yaml: cannot open" absent.yaml
refused "4090d" tiny.yaml --device 4091
refused "the nearest is train.steps" tiny.yaml --set train.stepz=1

passed
