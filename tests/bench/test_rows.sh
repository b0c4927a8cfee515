#!/usr/bin/env bash
# tests/bench/test_rows.sh - the comparisons on GPUs without one: what is listed, kept and run again.
. "$(dirname "$0")/../expect.sh" || exit 1
cd "$YK_SOURCE" || exit 1
command -v python3 >/dev/null || { echo "python3, which prints the tables, is not installed" && exit 77; }

# A program that says how it was called, and fails where it is told to.
cat >"$scratch/yoke" <<'END'
#!/bin/sh
echo "$* P2P=${NCCL_P2P_DISABLE-}" >>"$0.calls"
[ ! -e "$0.fails" ] || { echo "no such GPU" >&2 && exit 1; }
echo 'progress'
echo '{"label": "its own", "tokens_per_s": 1000, "ms": 2.5}'
END
chmod +x "$scratch/yoke"
calls() { wc -l <"$scratch/yoke.calls"; }

case_is "help, and what is wrong, come from the top of the script"
for script in gpu two_gpus; do
    run bench/$script.sh --help
    expect_status 0
    expect_text out "bench/$script.sh [OPTION]"
    for words in --what "--steps" nothing; do
        run bench/$script.sh $words
        expect_status 2
        expect_text out "bench/$script.sh [OPTION]"
    done
done

case_is "labels are listed, and nothing is run"
run bench/gpu.sh --yoke "$scratch/yoke" --out "$scratch/rows" --list gpt2-124m
expect_status 0
[ "$out" = "$(printf '%s\n' "yoke gpt2-124m fp32 states" "floor gpt2-124m" "yoke gpt2-124m bf16 states" \
    "yoke gpt2-124m fp16" "yoke gpt2-124m not deterministic" "torch gpt2-124m")" ] || fail "other labels"
run bench/two_gpus.sh --yoke "$scratch/yoke" --out "$scratch/rows" --list --only '^comm'
expect_status 0
[ "$out" = "$(printf '%s\n' "comm nop2p" "comm p2p")" ] || fail "other labels"
[ ! -e "$scratch/yoke.calls" ] || fail "something was run"

case_is "a row that is there is not run again, and one that failed is"
gpu() { run bench/gpu.sh --yoke "$scratch/yoke" --out "$scratch/rows" --steps 3 --only '^yoke' gpt2-124m "$@"; }
touch "$scratch/yoke.fails"
gpu
expect_status 1
expect_text err "no such GPU"
[ ! -s "$scratch/rows/gpu.jsonl" ] || fail "a row was kept"
rm "$scratch/yoke.fails" "$scratch/yoke.calls"
gpu
expect_status 0
[ "$(calls)" -eq 4 ] || fail "$(calls) rows were run"
grep -q '^{"label": "yoke gpt2-124m fp32 states", "tokens_per_s": 1000, "ms": 2.5}$' "$scratch/rows/gpu.jsonl" ||
    fail "the row is another: $(cat "$scratch/rows/gpu.jsonl")"
grep -q -- "--steps 3 --warmup 4 P2P=$" "$scratch/yoke.calls" || fail "called otherwise: $(cat "$scratch/yoke.calls")"
expect_text out "| yoke gpt2-124m fp16 | 1,000 |"
gpu qwen2.5-7b
[ "$(calls)" -eq 5 ] || fail "rows were run again"

case_is "a row that was cut short is run again, and none follows on its line"
truncate -s -40 "$scratch/rows/gpu.jsonl"
gpu qwen2.5-7b
expect_status 0
[ "$(calls)" -eq 6 ] || fail "$(calls) rows were run"
[ "$(grep -c '^{"label": [^{]*}$' "$scratch/rows/gpu.jsonl")" -eq 5 ] || fail "rows: $(cat "$scratch/rows/gpu.jsonl")"
expect_text out "| yoke qwen2.5-7b bf16 states | 1,000 |"

case_is "a pattern that is none, and a folder that cannot be, are refused"
run bench/gpu.sh --list --out "$scratch/rows" --only '(' gpt2-124m
expect_status 2
expect_text err "'(' is no regular expression"
run bench/gpu.sh --list --out "$scratch/yoke/rows" gpt2-124m
expect_status 1
expect_no_text out "gpt2-124m"

case_is "on two GPUs a row tells whether they met directly"
command -v mpirun >/dev/null || { passed && exit; }
run bench/two_gpus.sh --yoke "$scratch/yoke" --out "$scratch/rows" --only '^yoke gpt2-124m 2x64 zero-1 acc-1 .*bf16$' scale
expect_status 0
grep -q '"label": "yoke gpt2-124m 2x64 zero-1 acc-1 nop2p bf16", "p2p": 0, "tokens_per_s": 1000' "$scratch/rows/two_gpus.jsonl" ||
    fail "the row is another: $(cat "$scratch/rows/two_gpus.jsonl")"
[ "$(grep -c 'P2P=1$' "$scratch/yoke.calls")" -eq 2 ] || fail "not on two ranks: $(cat "$scratch/yoke.calls")"

passed
