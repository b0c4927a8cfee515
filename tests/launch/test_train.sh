#!/usr/bin/env bash
# tests/launch/test_train.sh - `yoke launch -n 2 train`, all of it: a run that ends, one that is asked to
# stop, and one whose input is wrong.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1
unset "${!SLURM_@}"
unset OMP_NUM_THREADS
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

for ((i = 0; i < 600; i++)); do echo "In the beginning was line $((i * 7919 % 600))."; done >text.txt
cat >run.yaml <<'EOF'
model: {family: gpt2, layers: 1, width: 32, heads: 2, vocab: 256, max_seq_len: 32}
data: {train: text.txt, val_fraction: 0.1}
train: {batch: 4, micro_batch: 1, seq_len: 32, steps: 20}
schedule: {warmup: 5}
device: cpu
EOF

case_is "two ranks train to the end, and only one of them speaks"
run timeout -k 5 "$(limit 40)" "$yoke" launch -n 2 train run.yaml
expect_status 0
expect_text out "rank  host"
[ "$(grep -c "^trained " <<<"$out")" -eq 1 ] || fail "not one line at the end"
expect_text out "trained   20 steps"
[ -s runs/run/model/model.safetensors ] || fail "no model"

case_is "where nobody watches a terminal there are plain lines"
case $out in
*$'\e'* | *$'\r'?*$'\r'*) fail "a live line" ;;
esac

case_is "that ranks share processors is said once, by a run and by a dry run"
n=$(($(env -u OMP_NUM_THREADS nproc) + 1))
if [ "$n" -le 9 ]; then
    for dry in "" --dry-run; do
        rm -rf runs
        run timeout -k 5 "$(limit 60)" "$yoke" launch -n $n $dry train run.yaml --set train.batch=$n \
            --set train.steps=6 --set cpu.threads=1
        expect_status 0
        [ "$(grep -c "$n ranks share" <<<"$err")" -eq 1 ] || fail "not one line"
    done
fi

case_is "a request to stop saves the weights, and the status is 75"
rm -rf runs
"$yoke" launch -n 2 train run.yaml --set train.steps=1000000 --set log.every=1 \
    >.out 2>.err </dev/null &
launcher=$!
until_true grep -q "step 3/" .out
kill -TERM $launcher
wait $launcher
status=$?
out=$(tail .out) err=$(cat .err)
expect_status 75
expect_text out "stopped by a signal after step"
[ -s runs/run/model/model.safetensors ] || fail "no model"

case_is "a run whose output nobody reads any longer saves its weights, too"
for errors in .err /dev/stdout; do
    rm -rf runs .err
    env --default-signal=PIPE timeout -s KILL "$(limit 40)" "$yoke" launch -n 2 train run.yaml \
        --set train.steps=1000000 --set log.every=1 2>$errors | head -n 12 >.out
    status=${PIPESTATUS[0]} out=$(cat .out) err=$(cat .err 2>/dev/null)
    expect_status 75
    [ $errors != .err ] || expect_text err "asked to stop (Broken pipe); the ranks save and end after their step"
    expect_no_text err mpirun
    [ -s runs/run/model/model.safetensors ] || fail "no model"
done

case_is "ranks that are all stopped for longer than comm.timeout are ended, and it is said"
rm -rf runs
"$yoke" launch -n 2 train run.yaml --set train.steps=1000000 --set log.every=1 --set comm.timeout=2 \
    >.out 2>.err </dev/null &
launcher=$!
until_true grep -q "step 3/" .out
mapfile -t ranks < <(pgrep -P "$(pgrep -P $launcher)")
[ ${#ranks[@]} -eq 2 ] || fail "there are ${#ranks[@]} ranks"
kill -STOP "${ranks[@]}"
gone() { ! kill -0 $launcher 2>/dev/null; }
until_true gone
wait $launcher
status=$? err=$(cat .err)
expect_status 1
expect_text err "yoke: launch: all ranks of this machine (2, the first is process ${ranks[0]}) have been stopped for more than 2 s"
[ "$(grep -c '^yoke: [^w]' <<<"$err")" -eq 1 ] || fail "not one line"
no_rank() { [ ! -e "/proc/${ranks[0]}/exe" ] && [ ! -e "/proc/${ranks[1]}/exe" ]; }
until_true no_rank

case_is "a request to stop while ranks wait for each other ends the start, and it is said"
rm -rf runs
mpirun -q --oversubscribe --bind-to none -n 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" -eq 0 ] || kill -STOP $$
exec "$0" train run.yaml' "$yoke" >.out 2>.err </dev/null &
parent=$!
blocks() { # the first rank has blocked SIGUSR1 and looks around
    local pid mask
    for pid in $(pgrep -P $parent); do
        mask=$(sed -n 's/^SigBlk:\s*//p' "/proc/$pid/status" 2>/dev/null)
        [ "/proc/$pid/exe" -ef "$yoke" ] && (((0x${mask:-0} & 0x200) != 0)) && return 0
    done
    return 1
}
until_true blocks
kill -USR1 $parent
ended() { ! kill -0 $parent 2>/dev/null; }
until_true ended
wait $parent
status=$? err=$(cat .err)
expect_status 75
[ "$err" = "yoke: start: asked to stop, and the ranks had not all met seconds later: nothing was begun" ] ||
    fail "other words"

case_is "wrong data is told once, with status 2, and nothing is written"
rm -rf runs
run timeout -k 5 "$(limit 40)" "$yoke" launch -n 2 train run.yaml --set data.train=none.txt
expect_status 2
[ "$err" = "yoke: none.txt: cannot open: No such file or directory; check the path, from the folder you are in" ] || fail "other words"
[ ! -e runs ] || fail "a folder was made"

passed
