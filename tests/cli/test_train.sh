#!/usr/bin/env bash
# tests/cli/test_train.sh - `yoke train` from a configuration to a run's folder: what it prints and
# writes, that a run can be had again, every data format, every precision, signals, a full disk.
#
# ctest: TIMEOUT 180
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

for ((i = 0; i < 800; i++)); do echo "the yoke of line $i is easy"; done >text.txt
for ((i = 0; i < 90; i++)); do echo "and the burden of line $i is light"; done >val.txt
cat >tiny.yaml <<'END'
model: {preset: tiny-gpt2}
data: {train: text.txt, val: val.txt}
train: {batch: 4, seq_len: 32, steps: 4}
schedule: {warmup: 1}
cpu: {threads: 1}
device: cpu
END

# train RUN [KEY=VALUE]...: a run in the folder RUN, which must succeed without a word on stderr.
train() {
    local dir=$1 sets=() assignment
    shift
    for assignment; do sets+=(--set "$assignment"); done
    run "$yoke" train tiny.yaml --set run.dir="$dir" "${sets[@]}"
    expect_status 0
    [ -z "$err" ] || fail "words on stderr"
}

# field RUN NAME: the values of a field of metrics.jsonl, a line each.
field() {
    sed -n 's/.*"'"$2"'": \([^,}]*\).*/\1/p' "$1/metrics.jsonl"
}

# expect_same RUN RUN: two runs computed the same bits.
expect_same() {
    cmp "$1/model/model.safetensors" "$2/model/model.safetensors" || fail "$1 and $2 have other weights"
    [ "$(field "$1" loss)" = "$(field "$2" loss)" ] || fail "$1 and $2 have other losses"
}

expect_other() {
    ! cmp -s "$1/model/model.safetensors" "$2/model/model.safetensors" || fail "$1 and $2 are the same"
}

case_is "a run goes to runs/ and says where, what it trains on and what came out"
run "$yoke" train tiny.yaml
expect_status 0
[ -z "$err" ] || fail "words on stderr"
[ "$(cd runs/tiny && echo *)" = "config.yaml metrics.jsonl model" ] || fail "other files"
[ "$(cd runs/tiny/model && echo *)" = "config.json model.safetensors" ] || fail "other files in model/"
expect_text out "124672 parameters"
expect_text out "$(wc -c <text.txt) tokens to train on, $(wc -c <val.txt) to validate on"
expect_text out "step 4/4  loss "
expect_text out "trained   4 steps, 512 tokens"
expect_text out "on the validation data"
expect_text out "folder    runs/tiny"
[ "$(wc -l <runs/tiny/metrics.jsonl)" -eq 4 ] || fail "not a line a step"

case_is "one step is told as one"
run "$yoke" train tiny.yaml --set train.steps=1 --set run.dir=runs/short
expect_status 0
expect_text out "trained   1 step, 128 tokens"

case_is "what is auto is chosen, said and kept, and the run can be made again from it"
run "$yoke" plan tiny.yaml --json --set train.micro_batch=2 --set memory.recompute=none
room=$(($(sed -n 's/.*"device_bytes": \([0-9]*\).*/\1/p' <<<"$out") - 1))
train chosen train.micro_batch=2 memory.recompute=auto memory.device_limit=$room
expect_text out "chosen    memory.recompute: "
expect_text out "fastest"
grep -q "recompute: \(cheap\|ffn\|qkv\|block\)\$" chosen/config.yaml || fail "config.yaml does not say it"
run "$yoke" train chosen/config.yaml --set run.dir=repeated
expect_status 0
expect_no_text out "chosen    "
expect_same chosen repeated
train roomy train.micro_batch=2 memory.recompute=none
expect_same chosen roomy

case_is "utilisation in every line, the time to start in the first"
[ "$(field runs/tiny mfu | awk '$1 > 0' | wc -l)" -eq 4 ] || fail "no utilisation"
[ "$(field runs/tiny start_s | awk '$1 > 0' | wc -l)" -eq 1 ] || fail "not one time to start"
head -n 1 runs/tiny/metrics.jsonl | grep -q start_s || fail "not in the first line"

case_is "trace.json shows the steps that are asked for, and changes no bit"
train traced trace.steps="[1, 3-4]"
[ "$(cd traced && echo *)" = "config.yaml metrics.jsonl model trace.json" ] || fail "other files"
expect_same runs/tiny traced
[ "$(grep -c '"name": "step [0-9]*"' traced/trace.json)" -eq 2 ] || fail "not steps 1 and 3"
grep -q '"name": "step 1"' traced/trace.json || fail "not step 1"
grep -q '"name": "linear_backward_weight".*"part": "backward 1"' traced/trace.json || fail "no spans"
[ "$(tail -n 1 traced/trace.json)" = "]}" ] || fail "the file does not end"

case_is "config.yaml makes the run again, to the last bit"
run "$yoke" train runs/tiny/config.yaml --set run.dir=again
expect_status 0
expect_same runs/tiny again
diff <(grep -v dir: runs/tiny/config.yaml) <(grep -v dir: again/config.yaml) || fail "another configuration"
run "$yoke" train runs/tiny/config.yaml
expect_status 2
expect_text err "a run is there already"

case_is "threads change nothing, the seed does"
train threads cpu.threads=2
expect_same runs/tiny threads
train seed train.seed=7
expect_other runs/tiny seed

case_is "model.init goes on from the weights of a run"
cat >init.yaml <<'END'
model: {init: runs/tiny}
data: {train: text.txt, val: val.txt}
train: {batch: 4, seq_len: 32, steps: 1}
cpu: {threads: 1}
device: cpu
END
run "$yoke" train init.yaml --set run.dir=kept --set optim.lr=0 --set model.init=runs/tiny/model
expect_status 0
cmp runs/tiny/model/model.safetensors kept/model/model.safetensors || fail "other weights"
cmp runs/tiny/model/config.json kept/model/config.json || fail "another config.json"
[ "$(field kept val_loss)" = "$(field runs/tiny val_loss)" ] || fail "another validation loss"

case_is "a model's keys may stand beside model.init as long as they say the same"
run "$yoke" train runs/tiny/config.yaml --set model.init=runs/tiny/model --set run.dir=agreed --set optim.lr=0
expect_status 0
cmp runs/tiny/model/model.safetensors agreed/model/model.safetensors || fail "other weights"
run "$yoke" train init.yaml --set model.init=runs/tiny/model --set run.dir=other --set model.layers=3
expect_status 2
expect_text err "layers is 2, and the configuration asks for 3"
run "$yoke" train init.yaml --set model.init=runs/tiny/model --set run.dir=other --set model.preset=tiny-qwen2
expect_status 2
expect_text err "of the family gpt2, and the configuration asks for qwen2"
[ ! -e other ] || fail "something was written"

case_is "a tokenizer is used, kept beside the weights and found there by the next run"
mkdir words
cp "$YK_SOURCE/tests/golden/tokenizers/gpt2.json" words/tokenizer.json
train words.run data.tokenizer=words model.vocab=480
cmp words/tokenizer.json words.run/model/tokenizer.json || fail "another tokenizer"
train file.run data.tokenizer=words/tokenizer.json model.vocab=480
expect_same words.run file.run
sed -i 's|init: .*|init: words.run/model}|' init.yaml
run "$yoke" train init.yaml --set run.dir=words.kept --set optim.lr=0
expect_status 0
[ "$(field words.kept val_loss)" = "$(field words.run val_loss)" ] || fail "another validation loss"
grep -q "tokenizer: .*words.run/model/tokenizer.json" words.kept/config.yaml || fail "the tokenizer is not recorded"
run "$yoke" generate words.run --prompt "the yoke" --max-tokens 4
expect_status 0

case_is "the same tokens in any format train the same model"
for file in text val; do
    perl -0777 -ne 'print pack "v*", unpack "C*"' $file.txt >$file.u16
    perl -0777 -ne 'print pack "V*", unpack "C*"' $file.txt >$file.u32
done
n=$(wc -c <text.txt)
{ perl -e 'print pack "V256", 20240520, 1, '"$n" && cat text.u16; } >llmc_0.bin
{ perl -e 'print pack "V256", 20240801, 7, '"$n" && cat text.u32; } >llmc32_0.bin
cp text.u16 megatron.bin
perl -e 'print "MMIDIDX\0\0", pack("Q<CQ<Q<VQ<Q<Q<", 1, 8, 1, 2, '"$n"', 0, 0, 1)' >megatron.idx
train llmc 'data.train=llmc_*.bin'
expect_same runs/tiny llmc
train llmc32 data.train=llmc32_0.bin
expect_same runs/tiny llmc32
train nanogpt data.train=text.u16 data.val=val.u16 data.format=raw data.dtype=uint16
expect_same runs/tiny nanogpt
train raw32 data.train=text.u32 data.val=val.u32 data.format=raw data.dtype=uint32
expect_same runs/tiny raw32
train megatron data.train=megatron
expect_same runs/tiny megatron

case_is "a file over 4 GiB is read to its end"
truncate -s 4400000000 large.txt # sparse: zeros that take no room
cat val.txt >>large.txt
train large data.train=large.txt data.format=text data.val= train.steps=2 \
    "data.val_fraction=$(perl -e 'printf "%.17g", (-s "val.txt") / -s "large.txt"')"
expect_text out "4400000000 tokens to train on, $(wc -c <val.txt) to validate on"
run "$yoke" eval large --data val.txt --seq-len 32
expect_status 0
awk -v a="$(field large val_loss)" -v b="$(sed -n 's/^loss \([0-9.]*\) .*/\1/p' <<<"$out")" \
    'BEGIN {exit !(a - b < 1e-6 && b - a < 1e-6)}' || fail "training found $(field large val_loss) at its end"
rm large.txt

case_is "documents are masked from each other"
train masked data.doc_mask=true data.doc_token=10
expect_other runs/tiny masked

case_is "a loss mask takes tokens out of the loss"
n=$(wc -c <text.txt)
head -c "$n" /dev/zero >none.mask
tr '\0' '\1' <none.mask >all.mask
{ head -c $((n / 2)) none.mask && head -c $((n - n / 2)) all.mask; } >half.mask
train all data.loss_mask=all.mask
expect_same runs/tiny all
train half data.loss_mask=half.mask
expect_other runs/tiny half
run "$yoke" train tiny.yaml --set run.dir=none --set data.loss_mask=none.mask --set train.steps=2
expect_status 0
expect_text err "warning: data: every target of step 1 is masked"
[ "$(field none loss | tr '\n' ' ')" = "0 0 " ] || fail "another loss"
[ "$(field none grad_norm | tr '\n' ' ')" = "0 0 " ] || fail "another norm"

case_is "bf16 and fp16 train as fp32 does"
train fp32 train.steps=30 optim.lr=3e-3
for precision in bf16 fp16; do
    train $precision train.steps=30 optim.lr=3e-3 precision.compute=$precision
    awk -v a="$(field fp32 val_loss)" -v b="$(field $precision val_loss)" \
        'BEGIN {exit !(a < 4 && b > 0.98 * a && b < 1.02 * a)}' || fail "$(field $precision val_loss) in $precision"
done
[ "$(field fp16 loss_scale | sort -u)" = 65536 ] || fail "another loss scale"
[ "$(field bf16 loss_scale | sort -u)" = 1 ] || fail "a loss scale in bf16"

case_is "steps that are skipped one after the other end the run"
run "$yoke" train tiny.yaml --set run.dir=lost --set precision.compute=fp16 --set guard.max_skips=3 \
    --set precision.loss_scale.ceiling=1e12 --set precision.loss_scale.start=1e12 \
    --set precision.loss_scale.floor=1e12
expect_status 1
expect_text err "not finite in 3 steps in a row"
expect_text err "; lower optim.lr, or raise precision with precision.compute"
[ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line"
[ "$(field lost skipped | tr '\n' ' ')" = "true true true " ] || fail "metrics.jsonl says something else"
run "$yoke" train tiny.yaml --set run.dir=far --set guard.max_skips=2 --set optim.lr=100 \
    --set optim.weight_decay=100
expect_status 1
expect_text err "not finite in 2 steps in a row"
expect_text err "; lower optim.lr, or give schedule.warmup more steps"

case_is "evaluation, samples and savings come when they are due"
train due eval.every=2 sample.every=2 sample.prompt="the yoke" sample.tokens=8 log.every=3
[ "$(grep -c "the yoke" <<<"$out")" -eq 2 ] || fail "not two samples"
[ "$(grep -A1 "^step [24]  the model writes:" <<<"$out" | grep -c "^the yoke")" -eq 2 ] || fail "not each under a line of its step"
[ "$(field due val_loss | wc -l)" -eq 2 ] || fail "not two validation losses"
[ "$(grep -c "^step ./4  loss" <<<"$out")" -eq 3 ] || fail "not the lines of steps 1, 3 and 4"
expect_same runs/tiny due

case_is "a sample moves no cursor"
train controls sample.every=1 sample.prompt='"the\x1b[31m\tyoke"' sample.tokens=64
[ "$(grep -ac $'^the?\\[31m\tyoke' <<<"$out")" -eq 4 ] || fail "the prompt is shown otherwise"
[ -z "$(LC_ALL=C tr -cd '\000-\010\013-\037\177' <<<"$out")" ] || fail "control characters"

case_is "of several ranks the first speaks"
if command -v mpirun >/dev/null; then
    # MPI unloads its parts at the end, and what they keep cannot be told from ours then.
    run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" \
        mpirun -q -n 2 --oversubscribe --bind-to none "$yoke" train tiny.yaml --set run.dir=two \
        --set sample.every=2 --set sample.prompt="the yoke" --set sample.tokens=8
    expect_status 0
    [ "$(grep -c "the yoke" <<<"$out")" -eq 2 ] || fail "not two samples"
    [ "$(grep -c "^folder" <<<"$out")" -eq 2 ] || fail "the end was said twice"
    [ "$(wc -l <two/metrics.jsonl)" -eq 4 ] || fail "not a line a step"
fi

case_is "on a terminal there is one live line"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then # else no pseudo-terminal can be had
    script -qec "$yoke train tiny.yaml --set run.dir=live" /dev/null >live.txt </dev/null
    grep -q $'\r.*4/4' live.txt || fail "no live line"
fi

# ---- signals -------------------------------------------------------------------------------------

# stopped_by SIGNAL RUN: a long run gets the signal after some steps.
stopped_by() {
    env --default-signal=HUP "$yoke" train tiny.yaml --set run.dir="$2" --set train.steps=1000000 \
        --set checkpoint.every=0 >"$scratch/.out" 2>"$scratch/.err" &
    local pid=$!
    until [ -s "$2/metrics.jsonl" ]; do sleep 0.02; done
    while kill -"$1" $pid 2>/dev/null && [ "$1" = HUP ]; do sleep 0.002; done
    wait $pid
    status=$?
    out=$(cat "$scratch/.out")
    err=$(cat "$scratch/.err")
    expect_status 75
    [ -z "$err" ] || fail "words on stderr"
    expect_text out "stopped by a signal after step"
    expect_text out "the weights are saved in $2/model; to go on from them: the same with model.init: $2 and another run.dir"
    [ "$(field "$2" step | tail -n 1)" -eq $(($(sed -n 's/^stopped .* step \([0-9]*\);.*/\1/p' <<<"$out") - 1)) ] ||
        fail "metrics.jsonl ends at another step"
    run "$yoke" eval "$2" --data val.txt --seq-len 32
    expect_status 0
}

case_is "SIGTERM and SIGINT save the weights and exit with 75"
stopped_by TERM stopped
stopped_by INT interrupted

case_is "SIGHUP, as often as a terminal that closes sends it, saves the weights and exits with 75"
stopped_by HUP hung

case_is "SIGHUP that is ignored, as nohup has it, ends no run"
env --ignore-signal=HUP "$yoke" train tiny.yaml --set run.dir=nohup --set train.steps=1000000 \
    --set checkpoint.every=0 >"$scratch/.out" 2>"$scratch/.err" &
pid=$!
until [ -s nohup/metrics.jsonl ]; do sleep 0.02; done
kill -HUP $pid
n=$(wc -l <nohup/metrics.jsonl)
until [ "$(wc -l <nohup/metrics.jsonl)" -gt $((n + 20)) ] || [ ! -d /proc/$pid ]; do sleep 0.02; done
kill -TERM $pid || fail "it has ended"
wait $pid
status=$? out=$(cat "$scratch/.out") err=$(cat "$scratch/.err")
expect_status 75

case_is "a run whose output nobody reads any longer saves the weights and exits with 75"
env --default-signal=PIPE timeout -s KILL "$(limit 60)" "$yoke" train tiny.yaml --set run.dir=unread \
    --set train.steps=1000000 --set checkpoint.every=0 --set log.every=1 2>"$scratch/.err" | head -n 12 >"$scratch/.out"
status=${PIPESTATUS[0]} out=$(cat "$scratch/.out") err=$(cat "$scratch/.err")
expect_status 75
run "$yoke" eval unread --data val.txt --seq-len 32
expect_status 0

case_is "a signal during a long sample ends it, saves the weights and exits with 75"
timeout -s KILL "$(limit 60)" "$yoke" train tiny.yaml --set run.dir=sampled --set train.steps=1000000 --set checkpoint.every=0 \
    --set sample.every=1 --set sample.tokens=1048576 >"$scratch/.out" 2>"$scratch/.err" &
pid=$!
until [ "$(wc -c <"$scratch/.out")" -gt 2000 ]; do sleep 0.02; done
kill -TERM $pid
wait $pid
status=$? out=$(tr -d '\0' <"$scratch/.out") err=$(cat "$scratch/.err")
expect_status 75
expect_text out "the weights are saved in sampled/model"

case_is "a signal during the start ends the run before its first step, and leaves no folder"
"$yoke" train tiny.yaml --set run.dir=early --set model.width=768 --set model.heads=12 --set model.ffn=3072 \
    --set model.vocab=50257 --set train.steps=1000000 --set checkpoint.every=0 >"$scratch/.out" 2>"$scratch/.err" &
pid=$!
until [ "$(cat /proc/$pid/comm)" = yoke ]; do sleep 0.01; done # no longer the shell, which blocks it for a moment
until grep -q '^SigBlk:.*[2367abef]$' /proc/$pid/status; do sleep 0.01; done # SIGINT waits to be looked for
kill -INT $pid
wait $pid
status=$? out=$(cat "$scratch/.out") err=$(cat "$scratch/.err")
expect_status 75
expect_text out "stopped by a signal before the first step"
[ ! -e early ] || fail "a folder is left"

# ---- a full disk ---------------------------------------------------------------------------------

case_is "a full disk leaves what was there before"
if [ "$(id -u)" -eq 0 ] && mkdir disk && mount -t tmpfs -o size=800k tmpfs disk 2>/dev/null; then
    run "$yoke" train tiny.yaml --set run.dir=disk/run --set checkpoint.every=1 # the first saving fits
    expect_status 2
    expect_text err "No space left on device; free some space"
    [ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line"
    [ "$(ls -A disk/run/model)" = "$(ls -A runs/tiny/model)" ] || fail "left behind: $(ls -A disk/run/model)"
    run "$yoke" eval disk/run --data val.txt --seq-len 32
    expect_status 0
    run "$yoke" train tiny.yaml --set run.dir=disk/other # and here not even that
    expect_status 2
    [ ! -e disk/other/model ] || fail "a part of the model was left"
fi

case_is "a limit of a file's size is met like a full disk"
out=$(trap '' XFSZ && ulimit -f 100 && "$yoke" train tiny.yaml --set run.dir=limited 2>"$scratch/.err")
status=$?
err=$(cat "$scratch/.err")
expect_status 2
expect_text err "File too large"
[ ! -e limited/model ] || fail "a part of the model was left"

passed
