#!/usr/bin/env bash
# tests/launch/test_launch.sh - `yoke launch` as the parent of mpirun: what it starts, what becomes of
# signals and exit statuses, and when it starts again. mpirun is a fake.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/launch/fakes.sh" || exit 1
unset "${!SLURM_@}" "${!OMPI_@}" "${!NCCL_@}" "${!OMP_@}" "${!YK_LAUNCH_@}" CUDA_VISIBLE_DEVICES

case_is "a dry run prints places and the command, and starts nothing"
fake mpirun <<<'exit 1'
launch -n 2 --dry-run train "$config" --set train.steps=500
expect_status 0
expect_text out "rank  host"
[ "$(grep -c "^ *[01]  $(hostname) " <<<"$out")" -eq 2 ] || fail "not a line for each rank"
expect_text out "mpirun -q -n 2 --map-by slot --bind-to none "
expect_text out " $(readlink -f "$yoke") train $config --set train.steps=500"
[ "$(calls mpirun)" = "" ] || fail "mpirun was started"

case_is "the command that a dry run prints is the one that is run"
fake mpirun <<<'exit 0'
launch -n 2 --dry-run train "$config" --set 'sample.prompt=two words'
printed=$(tail -n 1 <<<"$out")
launch -n 2 train "$config" --set 'sample.prompt=two words'
expect_status 0
[ "$(calls mpirun)" = 1 ] || fail "mpirun was started $(calls mpirun) times"
started=$(tail -n +2 "$scratch/mpirun.words")
[ "$(eval "set -- ${printed#*mpirun }"; printf '%s\n' "$@")" = "$started" ] || fail "other words: $started"

case_is "far more ranks than cores are refused before any is started"
fake mpirun <<<'exit 0'
for dry in "" --dry-run; do
    launch -n 65536 $dry train "$config" --set train.batch=65536
    expect_status 2
    expect_text err "yoke: launch: 65536 ranks are more than 32 for each of this machine's cores ("
done
[ "$(calls mpirun)" = "" ] || fail "mpirun was started"

case_is "a table that standard output does not take is told, without a reason that is none"
if [ -w /dev/full ]; then
    run env PATH="$scratch/bin:$PATH" bash -c '"$@" >/dev/full' - "$yoke" launch -n 2 train "$config"
    expect_status 1
    [ "$err" = "yoke: standard output: a part of it could not be written; see whether its disk is full" ] ||
        fail "other words"
fi

case_is "options after the first word are train's"
launch -n 1 train --set train.steps=500 "$config" -n 4
expect_status 2
expect_text err "yoke: launch: -n is launch's"
launch --help
expect_text out "usage: yoke launch [OPTION]... train CONFIG"
launch train --help
expect_text out "usage: yoke train CONFIG"

case_is "options on the wrong side of the command are told where they belong"
for words in "--dry-run" "-n 4" "-n4" "--hosts=a:1" "--set train.steps=9 --restarts 2"; do
    launch -n 2 train "$config" $words
    expect_status 2
    expect_text err "launch's options stand before the command: yoke launch -n 4 train CONFIG --set KEY=VALUE"
done
for words in "--set train.steps=9" "-n 2 --set=train.steps=9"; do
    launch $words train "$config"
    expect_status 2
    expect_text err "--set is train's, and stands after it: yoke launch -n 4 train CONFIG --set KEY=VALUE"
done
fake mpirun <<<'exit 0'
launch -n 1 train --set sample.prompt=-n "$config" --set sample.prompt=--dry-run
expect_status 0

case_is "without -n there is one rank where there is no GPU"
launch --dry-run train "$config" --set device=cpu
expect_text out "mpirun -q -n 1 "

case_is "the environment comes along, and input does not"
fake mpirun <<<"cat >'$scratch/input'; env >'$scratch/env'"
NCCL_DEBUG=WARN launch -n 1 train "$config" <<<"keys pressed"
grep -qx NCCL_DEBUG=WARN "$scratch/env" || fail "NCCL_DEBUG is lost"
grep -qx -e NCCL_DEBUG "$scratch/mpirun.words" || fail "NCCL_DEBUG is not forwarded"
[ ! -s "$scratch/input" ] || fail "mpirun has an input"
if [ "$(id -u)" -eq 0 ]; then
    grep -qx OMPI_ALLOW_RUN_AS_ROOT=1 "$scratch/env" || fail "root is not admitted"
fi

case_is "faults of the configuration are told once, before anything is started"
fake mpirun <<<'exit 0'
launch -n 2 train "$config" --set train.stepz=500
expect_status 2
expect_text err 'train.stepz'
launch -n 2 train "$scratch/no-such.yaml"
expect_status 2
expect_text err 'no-such.yaml'
launch -n 1000 train "$config"
expect_status 2
[ "$err" = "yoke: train.batch: 360 sequences do not divide over 1000 ranks in micro-batches of 1; the nearest batch that does is 1000" ] ||
    fail "other words"
[ -z "$out" ] || fail "a word on stdout"
launch -n 4 train "$config" --set train.batch=4 --set train.micro_batch=2
expect_status 2
expect_text err "4 sequences do not divide over 4 ranks in micro-batches of 2"
[ "$(calls mpirun)" = "" ] || fail "mpirun was started"

case_is "one machine under two names is found, by its names and its addresses"
own=$(ip -4 -o addr show 2>/dev/null | sed -n 's/.* inet \([0-9.]*\).* scope global.*/\1/p' | head -n 1)
for other in "$(hostname)" 127.0.0.2 $own; do
    launch --hosts "localhost:1,$other:2" train "$config"
    expect_status 2
    [ "$err" = "yoke: hosts: localhost and $other are the same machine; name it once, with the slots of both: localhost:3" ] ||
        fail "other words"
done
[ "$(calls mpirun)" = "" ] || fail "mpirun was started"

case_is "a dry run shows hosts whose names do not resolve here"
launch --hosts a.invalid:2,b.invalid:1 --dry-run train "$config" --set device=cpu
expect_status 0
[ "$(grep -c "^ *[0-2]  [ab].invalid .* ?  ?$" <<<"$out")" -eq 3 ] || fail "not a line for each rank"
expect_text out "--host a.invalid:2,b.invalid:1"
[ "$(wc -l <<<"$err")" -eq 1 ] || fail "not one line"
expect_text err "b.invalid has no IPv4 address here"

case_is "launch's own faults are one line"
for words in "-n 0 train $config" "-n x train $config" "plan $config" "trian $config" "" "-n 2" \
    "--hosts a:x train $config" "--hostfile $scratch/none train $config" "--submit train $config" \
    "--hosts a:1 --hostfile b train $config" "--hostfile /dev/zero train $config" "--hosts no..name:1 train $config" "place"; do
    launch $words
    expect_status 2
    [ "$(wc -l <<<"$err")" -eq 1 ] || fail "not one line for: $words"
    [ -z "$out" ] || fail "a word on stdout for: $words"
done
[ "$(calls mpirun)" = "" ] || fail "mpirun was started"

case_is "the exit status is mpirun's, of those that mean something"
for pair in 0:0 1:1 2:2 75:75 3:1 77:1 137:1 139:1; do
    fake mpirun <<<"exit ${pair%:*}"
    launch -n 2 train "$config"
    expect_status "${pair#*:}"
done
expect_text err "a rank or mpirun ended by a signal (Segmentation fault)"
fake mpirun <<<'kill -9 $$'
launch -n 2 train "$config"
expect_status 1
expect_text err "was killed (SIGKILL)"
fake mpirun <<<'exit 1'
launch -n 2 train "$config"
[ -z "$err" ] || fail "the rank has said why, and launch adds to it"

case_is "that mpirun was killed is said before its segments are waited for"
fake mpirun <<EOF
segment=/dev/shm/vader_segment.yoke-test.\$\$
: >"\$segment" && touch -d '+2 seconds' "\$segment" && echo "\$segment" >"$scratch/segment"
kill -9 \$\$
EOF
PATH="$scratch/bin:$PATH" "$yoke" launch -n 1 train "$config" 2>&1 >/dev/null </dev/null |
    while read -r line; do
        [[ $line == *"was killed (SIGKILL)"* ]] && [ -e "$(cat "$scratch/segment")" ] && echo told >"$scratch/told"
    done
if [ -s "$scratch/segment" ]; then
    [ -s "$scratch/told" ] || fail "said after they were removed"
    [ ! -e "$(cat "$scratch/segment")" ] || fail "the segment is left"
fi

case_is "where there is no mpirun the package is named"
mkdir "$scratch/nothing"
run env PATH="$scratch/nothing" "$yoke" launch -n 2 train "$config"
expect_status 2
[ "$err" = "yoke: mpirun: there is no such program in PATH; install it (apt-get install openmpi-bin), or load its module" ] ||
    fail "other words"

case_is "a run that fails is started again, as often as asked"
fake mpirun <<<"[ \$(grep -c -x -e -- '$scratch/mpirun.words') -lt 2 ] && exit 1; exit 0"
launch -n 2 --restarts 3 train "$config"
expect_status 0
[ "$(calls mpirun)" = 2 ] || fail "started $(calls mpirun) times"
expect_text err "the run failed (exit status 1) and is started again in 1 s, from its first step (restart 1 of at most 3)"
fake mpirun <<<'exit 1'
launch -n 2 --restarts 1 train "$config"
expect_status 1
[ "$(calls mpirun)" = 2 ] || fail "started $(calls mpirun) times"

case_is "a run that cannot be started again keeps the status of its failure"
fake mpirun <<<"[ \$(grep -c -x -e -- '$scratch/mpirun.words') -lt 2 ] && exit 137; exit 2"
launch -n 2 --restarts 3 train "$config" --set run.dir="$scratch/run"
expect_status 1
[ "$(calls mpirun)" = 2 ] || fail "started $(calls mpirun) times"

case_is "a run that has saved weights is not started again, and it is said"
fake mpirun <<<"mkdir -p '$scratch/run/model' && echo {} >'$scratch/run/model/config.json'; exit 1"
launch -n 2 --restarts 3 train "$config" --set run.dir="$scratch/run"
expect_status 1
[ "$(calls mpirun)" = 1 ] || fail "started $(calls mpirun) times"
expect_text err "is not started again: it has saved weights ($scratch/run/model/config.json)"

case_is "wrong input, an end on a signal and success are not tried again"
for status_ in 0 2 75; do
    fake mpirun <<<"exit $status_"
    launch -n 2 --restarts 3 train "$config"
    expect_status $status_
    [ "$(calls mpirun)" = 1 ] || fail "started $(calls mpirun) times after $status_"
done

# A run that notes the signals it gets, and ends with status 75 on the first unless told to go on.
noting() {
    fake mpirun <<EOF
for s in INT TERM HUP USR1 USR2; do trap "echo \$s >>'$scratch/got'; ${1:-exit 75}" \$s; done
echo \$\$ >'$scratch/up'
while :; do sleep 0.02; done
EOF
    rm -f "$scratch/got" "$scratch/up"
}
# Start yoke in the background and wait until its mpirun runs.
begin() {
    # Job control, for without it what a script starts in the background ignores SIGINT.
    set -m
    env "${hangup---default-signal=HUP}" PATH="$scratch/bin:$PATH" "$yoke" launch "$@" >"$scratch/.out" 2>"$scratch/.err" </dev/null &
    set +m
    parent=$!
    until_true test -s "$scratch/up"
    child=$(cat "$scratch/up")
}
end() {
    wait $parent 2>/dev/null
    status=$?
    out=$(cat "$scratch/.out") err=$(cat "$scratch/.err")
}
got() { [ -s "$scratch/got" ] && [ "$(tr '\n' ' ' <"$scratch/got")" = "$1 " ]; }

case_is "the first request to stop reaches the ranks as SIGUSR1, and they end with 75"
for signal in INT TERM HUP; do
    noting
    begin -n 2 train "$config"
    kill -$signal $parent
    end
    expect_status 75
    got USR1 || fail "mpirun got $(cat "$scratch/got")"
    expect_text err "asked to stop"
done

case_is "the second request ends mpirun"
noting true
begin -n 2 train "$config"
kill -INT $parent
until_true got USR1
kill -INT $parent
until_true got "USR1 TERM"
kill -9 "$child"
end
expect_status 1

case_is "SIGHUP comes more than once where a terminal closes, and is one request"
noting true
begin -n 2 train "$config"
kill -HUP $parent
until_true got USR1
kill -HUP $parent
kill -USR2 $parent
until_true got "USR1 USR2"
kill -9 "$child"
end
expect_status 1

case_is "SIGHUP that is ignored, as nohup has it, is no request"
noting true
hangup=--ignore-signal=HUP begin -n 2 train "$config"
kill -HUP $parent
kill -USR2 $parent
until_true got USR2
kill -9 "$child"
end
expect_status 1

case_is "mpirun that does not end when it is told to is killed"
noting true
begin -n 2 train "$config"
kill -INT $parent
until_true got USR1
kill -INT $parent
end
expect_status 1
expect_text err "yoke: launch: mpirun had not ended 8 s after it was told to, and was killed"
[ ! -d "/proc/$child" ] || fail "it is left"

case_is "a request to stop while ranks are started ends mpirun at once"
fake mpirun <<EOF
OMPI_COMM_WORLD_RANK=0 sleep 100 &
for s in TERM USR1; do trap "echo \$s >>'$scratch/got'; kill \$!; exit 75" \$s; done
echo \$\$ >'$scratch/up'
while :; do sleep 0.02; done
EOF
rm -f "$scratch/got" "$scratch/up"
begin -n 2 train "$config"
until_true pgrep -P "$child" -f '^sleep 100$' >/dev/null
kill -INT $parent
end
expect_status 75
got TERM || fail "mpirun got $(cat "$scratch/got")"

case_is "SIGUSR1 and SIGUSR2 are passed on as they are"
noting true
begin -n 2 train "$config"
kill -USR2 $parent
until_true got USR2
kill -USR1 $parent
until_true got "USR2 USR1"
kill -9 "$child"
end
expect_status 1

case_is "what a terminal sends reaches this process alone"
noting
begin -n 2 train "$config"
[ "$(ps -o pgid= -p "$child")" -ne "$(ps -o pgid= -p $parent)" ] || fail "one process group"
kill $parent
end

case_is "a run that was asked to stop is not started again"
noting 'exit 1'
begin -n 2 --restarts 3 train "$config"
kill $parent
end
expect_status 1
[ "$(calls mpirun)" = 1 ] || fail "started $(calls mpirun) times"

case_is "a request to stop ends the pause before a restart"
fake mpirun <<<"echo up >'$scratch/up'; exit 1"
rm -f "$scratch/up"
begin -n 2 --restarts 3 train "$config"
until_true grep -q "started again" "$scratch/.err"
sleep 0.1
kill $parent
end
expect_status 1
[ "$(calls mpirun)" = 1 ] || fail "started $(calls mpirun) times"

case_is "when launch is killed its mpirun is told to end"
noting
begin -n 2 train "$config"
kill -9 $parent
wait $parent 2>/dev/null
until_true got TERM

passed
