#!/usr/bin/env bash
# tests/tools/test_demo.sh - tools/demo.sh with a budget of seconds, in a tree of its own where setting up
# and building are fakes and the program is the real one; and what it says to wrong input.
#
# ctest: TIMEOUT 120
. "$(dirname "$0")/../expect.sh" || exit 1
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI's, which it unloads at its end

tree=$scratch/tree
mkdir -p "$tree/tools" "$tree/configs" "$scratch/bin"
cp "$YK_SOURCE/tools/demo.sh" "$tree/tools/"
{
    sed 's/^  layers: .*/  layers: 1/; s/^  width: .*/  width: 32/; s/^  ffn: .*/  ffn: 64/' \
        "$YK_SOURCE/configs/demo.yaml"
    printf 'cpu:\n  threads: 1\n'
} >"$tree/configs/demo.yaml"
printf 'all:\n\t@echo built\n' >"$tree/Makefile"
printf '#!/bin/sh\necho set up "$@"\n' >"$tree/tools/setup"
printf '#!/bin/sh\nexec cat "%s/book"\n' "$scratch" >"$scratch/bin/bible"
chmod +x "$tree/tools/setup" "$scratch/bin/bible"
for ((i = 0; i < 3000; i++)); do echo "gen1:$i the yoke of line $i is easy, and its burden light"; done >"$scratch/book"

demo() {
    run env PATH="$scratch/bin:$PATH" BUILD="$YK_BUILD" DEMO_SECONDS=1 "$@" "$tree/tools/demo.sh"
}

# Nothing on stderr, but that a rank is slow, which is so where other programs take its core.
expect_quiet() {
    ! grep -v '^yoke: warning: slow rank: ' <<<"$err" | grep -q . || fail "words on stderr"
}

# refused TEXT ASSIGNMENT...: exit status 2, one line on stderr that says TEXT, no run.
refused() {
    local text=$1
    shift
    demo "$@"
    expect_status 2
    expect_text err "$text"
    [ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line"
    [ ! -e "$tree/runs/demo" ] || fail "a run was begun"
}

case_is "wrong input"
refused "there is no file '$tree/absent.txt'" DATA="$tree/absent.txt"
printf 'too short' >"$scratch/short.txt"
refused "has 9 bytes; the demo needs 400" DATA="$scratch/short.txt"
head -c 5000 /dev/zero >"$scratch/zeros"
refused "neither text in UTF-8 nor a known format" DATA="$scratch/zeros"

case_is "a word behind it begins no run: help, or a text that DATA is for"
run "$tree/tools/demo.sh" --help
expect_status 0
expect_text out "make demo DATA=my.txt"
run "$tree/tools/demo.sh" my.txt
expect_refusal "'my.txt' is a word too many; a text of your own is DATA=my.txt tools/demo.sh"
[ ! -e "$tree/runs/demo" ] || fail "a run was begun"

case_is "the book is made into a text, learnt and written from"
demo
expect_status 0
expect_quiet
cmp <(sed 's/^[^ ]* //' "$scratch/book") "$tree/data/demo.txt" || fail "another text"
expect_text out "steps fill 1 seconds"
expect_text out "on the validation data"
expect_text out "tokens/s"
expect_text out "folder    runs/demo"
steps=$(sed -n 's/.* ms here: \([0-9]*\) steps fill.*/\1/p' <<<"$out")
grep -q "steps: $steps\$" "$tree/runs/demo/config.yaml" || fail "the steps are not recorded"
[ "$(wc -l <"$tree/runs/demo/metrics.jsonl")" -eq "$steps" ] || fail "not $steps steps"
[ "$(ls "$tree/runs")" = demo ] || fail "left behind: $(ls "$tree/runs")"
sample=$(sed -n '/what it writes now/,/^go on/p' <<<"$out")
[ ${#sample} -gt 400 ] || fail "no sample"

case_is "what it says to go on with works"
while read -r command; do
    (cd "$tree" && eval "$command" >/dev/null 2>&1) || fail "this fails: $command"
done < <(sed -n '/^go on/,$s/^\(go on:\)\{0,1\} *//p' <<<"$out")

case_is "a text of one's own, from where one stands, whatever its name"
mkdir "$scratch/here" && cd "$scratch/here" || exit 1
name="one's [own], text: \"*\".txt"
sed 's/^[^ ]* //' "$scratch/book" | head -c 60000 >"$name"
demo DATA="$name"
expect_status 0
expect_quiet
expect_text out "57000 tokens to train on, 3000 to validate on"
expect_text out "the earlier run in runs/demo is now runs/demo.1"
grep -q "train: .*data/demo.txt" "$tree/runs/demo.1/config.yaml" || fail "it is not the earlier run"
[ -z "$(ls | grep -vF "$name")" ] || fail "something was written here"

passed
