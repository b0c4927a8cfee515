#!/usr/bin/env bash
# tests/ranks/train/test_wire.sh - training with compressed gradients ends where it does with fp32 ones.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke
time_limit=$(limit 60)
cd "$scratch" || exit 1

for ((i = 0; i < 3000; i++)); do echo "In the beginning was line $((i * 7919 % 3000))."; done >text
cat >c.yaml <<'EOF2'
model: {preset: tiny-gpt2}
data: {train: text, val_fraction: 0.1}
train: {batch: 8, micro_batch: 4, seq_len: 32, steps: 150}
optim: {lr: 3e-3}
eval: {every: 150, batches: 8}
device: cpu
cpu: {threads: 1}
EOF2

# ended WIRE SEED: the validation loss at the end of a training of two ranks.
ended() {
    on_ranks 2 2 "$yoke" train c.yaml --set comm.wire="$1" --set train.seed="$2" --set run.dir="runs/$1-$2"
    expect_status 0
    sed -n 's/.*"val_loss": \([^,}]*\).*/\1/p' "runs/$1-$2/metrics.jsonl" | tail -n 1
}

case_is "gradients in fp16 and bf16 move the end by less than the spread of three seeds"
for seed in 1 2 3; do
    for wire in fp32 fp16 bf16; do echo "$wire $seed $(ended $wire $seed)" >>losses; done
done
cat losses
[ "$(grep -c '[0-9]\.[0-9]' losses)" -eq 9 ] || fail "a loss is missing"
awk '
    $1 == "fp32" { plain[$2] = $3; if (!low || $3 < low) low = $3; if ($3 > high) high = $3 }
    $1 != "fp32" { d = $3 - plain[$2]; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "moved by at most %g, seeds spread over %g\n", most, high - low; exit !(most < high - low && high < 4) }' losses ||
    fail "a wire moves the end by more"

passed
