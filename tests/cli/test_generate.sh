#!/usr/bin/env bash
# tests/cli/test_generate.sh - `yoke generate`: what it prints, that it can be had again, what it draws
# from, and what it refuses.
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

# refused TEXT ARGUMENT...: the command is refused with one line that says TEXT.
tried=("$yoke" generate)

# text FILE ARGUMENT...: what `yoke generate runs/tiny` prints, bytes and all.
text() {
    local file=$1
    shift
    "$yoke" generate runs/tiny "$@" >"$file" 2>"$scratch/.err" || fail "exit status $?"
    [ ! -s "$scratch/.err" ] || fail "words on stderr"
}

# Letters are the bytes up to 122, so that a vocabulary of 123 holds them; it has 128 rows.
for ((i = 0; i < 800; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >tiny.yaml <<'END'
model: {preset: tiny-llama, vocab: 123}
data: {train: text.txt, val_fraction: 0}
train: {batch: 8, seq_len: 32, steps: 60}
optim: {lr: 3e-3}
cpu: {threads: 1}
device: cpu
END
run "$yoke" train tiny.yaml
expect_status 0

case_is "the prompt and as many tokens as were asked for, of a run and of its model"
text a --prompt "the yoke" --max-tokens 20
[ "$(wc -c <a)" -eq 29 ] || fail "not the prompt, 20 bytes and a newline"
[ "$(head -c 8 a)" = "the yoke" ] || fail "the prompt is not first"
"$yoke" generate runs/tiny/model --prompt "the yoke" --max-tokens 20 | cmp - a || fail "another text"
text none --prompt "the yoke" --max-tokens 0
[ "$(cat none)" = "the yoke" ] || fail "something after the prompt"
text unasked --max-tokens 5
[ "$(wc -c <unasked)" -eq 6 ] || fail "not 5 bytes and a newline"

case_is "16 bits write what 32 do, where what comes next is certain"
text whole --prompt "the yoke of line" --max-tokens 8 --temperature 0
text half --prompt "the yoke of line" --max-tokens 8 --temperature 0 --precision bf16
cmp whole half || fail "another text"
refused '--precision: "int8" is none of fp32, bf16, fp16' runs/tiny --precision int8

case_is "temperature 0 takes the most probable token, whatever the seed"
text greedy --prompt "the yoke of" --max-tokens 60 --temperature 0
text again --prompt "the yoke of" --max-tokens 60 --temperature 0 --seed 5
cmp greedy again || fail "two texts"
text first --prompt "the yoke of" --max-tokens 60 --top-k 1
cmp greedy first || fail "top-k 1 is another text"
text first --prompt "the yoke of" --max-tokens 60 --top-p 0
cmp greedy first || fail "top-p 0 is another text"

case_is "a seed writes one text, another seed another"
text one --max-tokens 60 --seed 1
text again --max-tokens 60 --seed 1
text two --max-tokens 60 --seed 2
cmp one again || fail "two texts of one seed"
! cmp -s one two || fail "one text of two seeds"
text all --max-tokens 60 --seed 1 --top-p 1 --top-k 0
cmp one all || fail "top-p 1 leaves tokens out"

case_is "beyond the context it goes on"
text long --prompt "the yoke" --max-tokens 300
[ "$(wc -c <long)" -eq 309 ] || fail "not 300 bytes"

case_is "rows beyond the vocabulary are never drawn"
text flat --prompt a --max-tokens 3000 --temperature 100
od -An -v -tu1 -w1 flat | awk '$1 > 122 {n++} END {exit n > 0}' || fail "a byte over 122"
[ "$(od -An -v -tu1 -w1 flat | sort -u | wc -l)" -gt 100 ] || fail "hardly any byte was drawn"

case_is "a terminal gets no control characters, and a file each byte"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then # else no pseudo-terminal can be had
    hot="--temperature 50 --max-tokens 200"
    # shellcheck disable=SC2086
    text raw $hot
    script -qec "$yoke generate runs/tiny $hot" /dev/null >shown </dev/null
    tr -d '\r' <shown | LC_ALL=C tr '\1-\10\13-\37\177' '?' | cmp -s - <(tr -d '\r' <shown) ||
        fail "control characters on a terminal"
    LC_ALL=C grep -q $'[\1-\10\13-\37]' raw || fail "none in a file"
fi

case_is "wrong input"
refused "DIR is missing"
refused "absent: there is no such directory" absent
mkdir empty
refused "empty: it holds neither config.json nor model/config.json" empty
refused "temperature" runs/tiny --temperature -1
refused "temperature" runs/tiny --temperature hot
refused "top-p" runs/tiny --top-p 1.5
refused "max-tokens" runs/tiny --max-tokens -3
refused "outside the vocabulary of 123" runs/tiny --prompt "~"
refused "absent.json: cannot open" runs/tiny --tokenizer absent.json
cp -r runs/tiny/model damaged && truncate -s -4 damaged/model.safetensors
refused "bytes of data; it is truncated or damaged, fetch it again" damaged
: >damaged/model.safetensors
refused "0 bytes are too few for a safetensors file; it is truncated, fetch it again" damaged
pointer='version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 9\n'
printf "$pointer" >damaged/model.safetensors
refused "damaged/model.safetensors: is a pointer of Git LFS and not the file; run git lfs pull" damaged
printf "$pointer" >pointer.json
refused "pointer.json: is a pointer of Git LFS and not the file" runs/tiny --tokenizer pointer.json
rm damaged/model.safetensors
refused "damaged: holds neither model.safetensors nor" damaged

case_is "a folder of the Hub's cache leads to what it holds, and one that is closed is told as such"
mkdir -p models--x/snapshots/1 closed
refused "models--x: it is of the Hugging Face Hub's cache; give the folder in its snapshots/" models--x
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
chmod 711 . && chmod 700 closed
if [ "$(id -u)" -eq 0 ] && "${nobody[@]}" test -x "$yoke" -a -d "$PWD/closed" 2>/dev/null; then
    tried=("${nobody[@]}" "$yoke" generate)
    refused "closed: it cannot be looked into; check who may use it" closed
    tried=("$yoke" generate)
fi

case_is "a full standard output"
if [ -w /dev/full ]; then
    "$yoke" generate runs/tiny --max-tokens 5 >/dev/full 2>"$scratch/.err"
    status=$?
    err=$(cat "$scratch/.err")
    expect_status 1
    [ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line"
fi

passed
