#!/usr/bin/env bash
# tests/cli/test_eval.sh - `yoke eval`: the loss that training printed, and what is refused.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# refused TEXT ARGUMENT...: the command is refused with one line that says TEXT.
tried=("$yoke" eval)

# expect_loss LOSS: stdout gives this loss, to its last digit.
expect_loss() {
    awk -v a="$(sed -n 's/^loss \([0-9.]*\) .*/\1/p' <<<"$out")" -v b="$1" \
        'BEGIN {d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6)}' || fail "the loss is not $1"
}

for ((i = 0; i < 800; i++)); do echo "the yoke of line $i is easy"; done >text.txt
for ((i = 0; i < 91; i++)); do echo "and the burden of line $i is light"; done >val.txt
cat >tiny.yaml <<'END'
model: {preset: tiny-gpt2}
data: {train: text.txt, val: val.txt}
train: {batch: 4, seq_len: 32, steps: 5}
cpu: {threads: 1}
device: cpu
END

case_is "the validation loss of training, in every family"
for preset in tiny-gpt2 tiny-llama tiny-qwen2; do
    run "$yoke" train tiny.yaml --set run.dir=$preset --set model.preset=$preset
    expect_status 0
    val_loss=$(sed -n 's/.*"val_loss": \([^,]*\),.*/\1/p' $preset/metrics.jsonl)
    run "$yoke" eval $preset --data val.txt --seq-len 32
    expect_status 0
    [ -z "$err" ] || fail "words on stderr"
    expect_loss "$val_loss"
    expect_text out "tokens $(($(wc -c <val.txt) - 1))" # each but the first, the short last window too
done

case_is "that of the last part of the text, where it was cut from training"
run "$yoke" train tiny.yaml --set run.dir=cut --set data.val= --set data.val_fraction=0.05
expect_status 0
tail -c $((($(wc -c <text.txt) * 5 + 50) / 100)) text.txt >tail.txt
run "$yoke" eval cut --data tail.txt --seq-len 32
expect_status 0
expect_loss "$(sed -n 's/.*"val_loss": \([^,]*\),.*/\1/p' cut/metrics.jsonl)"

case_is "without --data it is what the run validates on"
for name in tiny-gpt2 cut; do
    run "$yoke" eval $name
    expect_status 0
    expect_loss "$(sed -n 's/.*"val_loss": \([^,]*\),.*/\1/p' $name/metrics.jsonl)"
done
run "$yoke" train tiny.yaml --set run.dir=masked --set data.doc_mask=true --set data.doc_token=10
run "$yoke" eval masked
expect_status 0
expect_loss "$(sed -n 's/.*"val_loss": \([^,]*\),.*/\1/p' masked/metrics.jsonl)"

case_is "in 16 bits, where that is asked for: the loss of a run that trained so"
run "$yoke" train tiny.yaml --set run.dir=half --set precision.compute=bf16
expect_status 0
run "$yoke" eval half --precision bf16
expect_status 0
expect_loss "$(sed -n 's/.*"val_loss": \([^,]*\),.*/\1/p' half/metrics.jsonl)"
half=$out
run "$yoke" eval half
expect_status 0
[ "$out" != "$half" ] || fail "the loss in fp32 is that in bf16"

case_is "token shards and several files"
perl -e 'print pack "V256", 20240520, 1, -s "val.txt"' >val_0.bin
perl -0777 -ne 'print pack "v*", unpack "C*"' val.txt >>val_0.bin
run "$yoke" eval tiny-gpt2 --data val.txt
expect_status 0
text_out=$out
run "$yoke" eval tiny-gpt2 --data 'val_*.bin'
[ "$out" = "$text_out" ] || fail "another loss than the text's"
head -c 1000 val.txt >part1.txt
tail -c +1001 val.txt >part2.txt
run "$yoke" eval tiny-gpt2 --data part1.txt --data part2.txt
[ "$out" = "$text_out" ] || fail "another loss than the text in one piece"

case_is "wrong input"
refused "DIR is missing"
refused '--precision: "fp8" is none of fp32, bf16, fp16' half --precision fp8
refused "the nearest is --precision" half --dtype bf16
refused "no folder of a run; give --data FILE" tiny-gpt2/model
refused "absent: there is no such directory" absent
cp -r cut unvalidated && sed -i 's/val_fraction: .*/val_fraction: 0/' unvalidated/config.yaml
refused "this run has no validation data; give --data FILE" unvalidated
refused "absent: there is no such directory" absent --data val.txt
refused "tiny.yaml: it is a file; give a model's or a run's folder" tiny.yaml
mkdir bare
refused "bare: it holds neither config.json nor model/config.json" bare
refused "absent.txt: cannot open" tiny-gpt2 --data absent.txt
: >empty.txt
refused "it is empty; give a file that has tokens or text" tiny-gpt2 --data empty.txt
printf x >one.txt
refused "too few" tiny-gpt2 --data one.txt
refused "129 is more than the model's 128 positions; give that or less" tiny-gpt2 --data val.txt --seq-len 129
perl -e 'print pack("V256", 20240520, 1, 200), pack("v*", (7) x 150, 300, (7) x 49)' >ids.bin
refused "token 150 is id 300, outside of the vocabulary of 256" tiny-gpt2 --data ids.bin

passed
