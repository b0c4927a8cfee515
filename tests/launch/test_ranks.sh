#!/usr/bin/env bash
# tests/launch/test_ranks.sh - real ranks under a real mpirun on this machine: what they are bound to,
# what becomes of a signal, and that nothing is left behind.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1
program=$YK_BUILD/tests/ranks/launch/rank_launch
unset "${!SLURM_@}" "${!OMP_PROC@}"
reports=$scratch/reports

# launched N WORDS...: N ranks of the program, by launch.
launched() {
    rm -rf "$reports" && mkdir "$reports"
    run timeout -k 5 "$(limit 50)" "$program" start "$1" "" rank "$reports" "${@:2}"
}

# line RANK NAME: what a rank wrote.
line() {
    sed -n "s/^$2 //p" "$reports/$1"
}

n_cpus=$(env -u OMP_NUM_THREADS nproc) # which also heeds OpenMP

case_is "launched ranks share out the processors, each on its own"
launched "$n_cpus"
expect_status 0
[ "$(grep -c "^ *[0-9]*  $(hostname) " <<<"$out")" -eq "$n_cpus" ] || fail "not a line for each rank"
for ((i = 0; i < n_cpus; i++)); do
    [ "$(line $i size)" = "$n_cpus" ] || fail "rank $i is one of $(line $i size)"
    [ "$(line $i 'as planned')" = 1 ] || fail "rank $i is bound to $(line $i bound)"
    [ -z "$(line $i note)" ] || fail "rank $i has a note: $(line $i note)"
    # the table says the same before the start
    grep -q "^ *$i .*  $(line $i bound)\$" <<<"$out" || fail "the table says otherwise"
done
[ "$(cat "$reports"/* | grep '^bound' | sort -u | wc -l)" -eq "$n_cpus" ] || fail "two ranks on one processor"

case_is "more ranks than processors run all the same, and they themselves say it"
launched $((n_cpus + 1))
expect_status 0
[ -z "$err" ] || fail "launch says it, too"
for ((i = 0; i <= n_cpus; i++)); do
    [ "$(line $i size)" = $((n_cpus + 1)) ] || fail "rank $i is one of $(line $i size)"
    [[ $(line $i note) == *"ranks share"* ]] || fail "rank $i has no note"
done

case_is "ranks that mpirun has bound keep to what they were given"
if [ "$n_cpus" -ge 2 ]; then
    rm -rf "$reports" && mkdir "$reports"
    run timeout -k 5 "$(limit 50)" mpirun -q --bind-to hwthread -n 2 "$program" rank "$reports"
    expect_status 0
    for i in 0 1; do
        [ "$(line $i 'as planned')" = 1 ] || fail "rank $i is bound to $(line $i bound)"
        [[ $(line $i bound) =~ ^[0-9]+$ ]] || fail "rank $i is on several processors"
    done
    [ "$(line 0 bound)" != "$(line 1 bound)" ] || fail "both on one processor"
fi

# The processes of this test's program.
alive() { pgrep -f "$program rank $reports" >/dev/null; }
gone() { ! alive; }
n_reports() { [ "$(find "$reports" -type f | wc -l)" -eq "$1" ]; }
begin() {
    rm -rf "$reports" && mkdir "$reports"
    "$program" start 2 "" rank "$reports" 75 >"$scratch/.out" 2>"$scratch/.err" &
    launcher=$!
    until_true n_reports 2
    sleep 0.3
}

case_is "a request to stop lets the ranks save, and their status comes back"
begin
kill -TERM $launcher
wait $launcher
status=$?
expect_status 75
alive && fail "a rank is left"

case_is "when launch is killed its ranks end"
begin
kill -KILL $launcher
{ wait $launcher; } 2>/dev/null
until_true gone

case_is "when mpirun is killed a training ends, and nothing stays in shared memory"
segments() { find /dev/shm -maxdepth 1 -name 'vader_segment.*' -newer "$scratch/mark" 2>/dev/null; }
seq 4000 >"$scratch/text"
touch "$scratch/mark"
env -u OMPI_MCA_btl_vader_backing_directory "$YK_BUILD/yoke" launch -n 2 train "$YK_SOURCE/configs/demo.yaml" --set data.train="$scratch/text" \
    --set run.dir="$scratch/run" --set model.layers=1 --set train.steps=1000000 --set device=cpu >/dev/null 2>"$scratch/launch.err" </dev/null &
launcher=$!
until_true grep -qs '"step": 3,' "$scratch/run/metrics.jsonl"
[ -n "$(segments)" ] || echo "Open MPI has no such segments here"
kill -KILL "$(pgrep -P $launcher)"
wait $launcher
status=$?
err=$(cat "$scratch/launch.err")
expect_status 1
no_rank() { ! pgrep -f "run.dir=$scratch/run" >/dev/null; }
until_true no_rank
[ -z "$(segments)" ] || fail "left in shared memory: $(segments)"

passed
