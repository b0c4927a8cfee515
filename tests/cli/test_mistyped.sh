#!/usr/bin/env bash
# tests/cli/test_mistyped.sh - words that are nearly right: what was meant is named, never taken silently.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# refused MESSAGE WORD...: yoke refuses the words in one line that holds the message.
refused() {
    run "$yoke" "${@:2}"
    expect_refusal "$1"
}

for ((i = 0; i < 400; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >own.yaml <<'END_OF_FILE'
model: {family: llama, layers: 2, width: 32, heads: 2, vocab: 256}
data: {train: text.txt}
train: {batch: 2, seq_len: 32, steps: 1}
cpu: {threads: 1}
device: cpu
END_OF_FILE

case_is "a preset of another family than the file's is refused, by both names"
refused "gpt2-124m is of the family gpt2, and model.family is llama" train own.yaml --set model.preset=gpt2-124m
refused "gpt2-124m is of the family gpt2, and model.family is llama" plan own.yaml --set model.preset=gpt2-124m

case_is "keys that take the place of a preset's sizes are told"
run "$yoke" plan own.yaml --set model.preset=tiny-llama
expect_status 0
expect_text out "preset      tiny-llama with width 32, heads 2, "
run "$yoke" train own.yaml --set model.preset=tiny-llama --set run.dir=preset
expect_status 0
expect_text out "preset    tiny-llama with width 32, heads 2, "
run "$yoke" plan own.yaml
expect_no_text out "preset"

passed
