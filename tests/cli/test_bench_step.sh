#!/usr/bin/env bash
# tests/cli/test_bench_step.sh - `yoke bench step`: one JSON object of a real step, nothing written but
# the trace that is asked for.
#
# ctest: TIMEOUT 120
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# bench [OPTION]...: on the cpu, with a tiny model.
tried=("$yoke" bench step --device cpu --seq 32 --micro-batch 2 --steps 3 --warmup 2 --set cpu.threads=1)
bench() { run "${tried[@]}" "$@"; }

# number NAME: a number of the JSON object in $out.
number() {
    sed -n 's/.*"'"$1"'": \([-0-9.e+]*\)[,}].*/\1/p' <<<"$out"
}

# holds EXPRESSION: what awk says of it.
holds() {
    awk "BEGIN { exit !($1) }" || fail "not so: $1"
}

case_is "one object whose figures fit together, and nothing written"
bench --model tiny-gpt2 --precision fp32 --batch 4
expect_status 0
[ -z "$err" ] || fail "words on stderr"
[ "$(wc -l <<<"$out")" -eq 1 ] || fail "not one line"
[ -z "$(ls)" ] || fail "a file was written: $(ls)"
holds "$(number tokens_per_s) > 0 && $(number ms_min) <= $(number ms) && $(number ms) <= $(number ms_max)"
holds "$(number tokens_per_s) * $(number ms) / 1000 > 127 && $(number tokens_per_s) * $(number ms) / 1000 < 129"
holds "$(number mfu) > 0 && $(number mfu_product) > 0 && $(number host_ms) > 0 && $(number start_s) > 0"
[ "$(number batch)" -eq 4 ] || fail "another batch"
[ "$(number graphs)" -eq 0 ] || fail "graphs on a cpu"
parts=$(($(number persistent_bytes) + $(number activation_bytes)))
[ "$(number device_bytes)" -eq "$parts" ] || fail "the arenas do not add up"

case_is "the product that a step is compared with is timed for long enough to have the processors for a while"
holds "$(number product) >= 0.25 && $(number mfu_product) < 1"

case_is "it learns the batch that it is given again and again"
holds "$(number loss_last) < $(number loss_first)"
holds "$(number loss_first) > 5 && $(number loss_first) < 6.5"

case_is "the operations a model needs do not depend on what is recomputed"
flops=$(number model_flops)
bench --model tiny-gpt2 --precision fp32 --batch 4 --set memory.recompute=block
expect_status 0
[ "$(number model_flops)" = "$flops" ] || fail "other operations"

case_is "the first step can be timed, too"
bench --model tiny-gpt2 --warmup 0 --steps 1
expect_status 0
holds "$(number ms) > 0 && $(number ms_min) == $(number ms_max) && $(number loss_first) == $(number loss_last)"

case_is "every precision"
for precision in bf16 fp16; do
    bench --model tiny-llama --precision $precision
    expect_status 0
    expect_text out "\"precision\": \"$precision\""
    holds "$(number loss_last) < $(number loss_first)"
done

case_is "the bytes that ranks send in a step do not depend on how many are timed"
sent='' OMPI=OMPI_ALLOW_RUN_AS_ROOT
for steps in 2 5; do
    command -v mpirun >/dev/null || break
    run env $OMPI=1 ${OMPI}_CONFIRM=1 mpirun -q --oversubscribe --bind-to none -n 2 "$yoke" bench step --device cpu --model tiny-gpt2 --seq 32 \
        --micro-batch 2 --set cpu.threads=1 --set parallel.zero=1 --steps $steps
    expect_status 0
    bytes=$(number comm_bytes)
    holds "${bytes:-0} > 0"
    [ "$bytes" = "${sent:-$bytes}" ] || fail "$bytes of $steps steps, and was $sent"
    sent=$bytes
done

case_is "a step operation by operation"
bench --model tiny-qwen2 --precision fp32 --trace step.json
expect_status 0
[ "$(ls)" = step.json ] || fail "other files: $(ls)"
expect_text err linear_backward_weight
expect_text err attention_forward
for name in embed_forward linear_forward cross_entropy adamw step; do
    grep -q '"ph": "X", "name": "'$name'"' step.json || fail "no $name in the trace"
done
for part in "forward 0" "backward 1" finish update; do
    grep -q '"part": "'"$part"'"' step.json || fail "nothing is part of $part"
done
# Spans lie inside the step's: columns are the lane, the begin and the duration.
grep '"ph": "X"' step.json | sed 's/.*"tid": \([0-9]*\), "ts": \([0-9.]*\), "dur": \([0-9.]*\),.*/\1 \2 \3/' |
    awk '$1 == 0 { step = $3 } $1 > 0 && $2 + $3 > end { end = $2 + $3 } END { exit !(end > 0 && end <= step + 1) }' ||
    fail "operations lie outside of the step"

case_is "refusals name what is wrong"
refused precision.compute --precision int8
refused model.preset --model gpt5
refused device --device tpu
refused train.batch --model tiny-gpt2 --batch 3
refused --steps --steps 0
refused "optim.nothing" --set optim.nothing=1

passed
