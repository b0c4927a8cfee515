#!/usr/bin/env bash
# tests/cli/test_bench_ops.sh - `yoke bench ops` times the operations that it is asked for, and knows all of them
# before it measures anything.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke

tried=(timeout "$(limit 60)" "$yoke" bench ops --device cpu --model tiny-llama --micro-batch 1 --seq 32 --stretch 1)
bench() { run "${tried[@]}" "$@"; }

case_is "a name that no operation has in it is refused with the names that there are"
refused '--only: "zzz" is in the name of no operation; there are: copy, zero, product, embed_forward' --only zzz
for name in norm_backward "qkv forward" rope attention_backward "attention_cached prompt" "attention_cached token" \
    swiglu_forward cross_entropy loss_sum adamw sum_squares step_begin step_finish sum_values "pack fp32 to fp16"; do
    expect_text err ", $name"
done
refused '"zzz" is in the name of no operation' --only rope,zzz
refused "a word between its commas is missing" --only rope,,adamw
refused "a word between its commas is missing" --only rope,
refused "--only: its value is empty" --only ""

case_is "an operation that this model lacks is not among them"
run "$yoke" bench ops --device cpu --model tiny-gpt2 --only rope
expect_refusal '"rope" is in the name of no operation'
expect_no_text err swiglu

case_is "gradients of biases are timed alone, and products without the GELU that belongs to them"
for alone in "qkv bias alone" "attention out bias alone" "up bias alone" "up forward no gelu" "down input no gelu"; do
    expect_text err ", $alone"
done

case_is "what is small and what generation has is timed too"
bench --only step_,sum_values,attention_cached
expect_status 0
names=$(tail -n +6 <<<"$out" | sed 's/   .*//')
[ "$names" = "attention_cached prompt
attention_cached token
step_begin
sum_values
step_finish" ] || fail "other operations: $names"

case_is "several names are given with commas between them"
bench --only rope,swiglu_f,bf16\ states
expect_status 0
names=$(tail -n +3 <<<"$out" | sed 's/   .*//')
[ "$names" = "copy
zero
product
rope
swiglu_forward
adamw bf16 states" ] || fail "other operations: $names"

case_is "other wrong words are refused"
refused "--device: \"tpu\" is none of auto, cpu, cuda" --device tpu
refused "--dtype: \"fp8\" is none of fp32, bf16, fp16" --dtype fp8

passed
