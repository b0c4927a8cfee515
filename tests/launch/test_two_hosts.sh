#!/usr/bin/env bash
# tests/launch/test_two_hosts.sh - ranks on two hosts with a network between them, launched from one.
# ctest: TIMEOUT 180
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
. "$YK_SOURCE/tests/launch/hosts.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1
unset "${!SLURM_@}" "${!NCCL_@}"
program=$YK_BUILD/tests/ranks/launch/rank_launch
reports=$scratch/reports
hosts_up --decoy n0 n1

# launched HOST N HOSTS WORDS...: ranks of the program, launched on HOST.
launched() {
    rm -rf "$reports" && mkdir "$reports"
    on_host "$1" timeout -k 5 "$(limit 40)" "$program" start "$2" "$3" rank "$reports" "${@:4}"
}
# The processes of this test's program.
alive() { pgrep -f "$program rank $reports" >/dev/null; }
gone() { ! alive; }
n_reports() { [ "$(find "$reports" -type f | wc -l)" -eq "$1" ]; }
line() {
    sed -n "s/^$2 //p" "$reports/$1"
}

case_is "ranks fill the hosts in order and find each other over the one network that leads to both"
launched n0 0 n0:2,n1:1
expect_status 0
[ -z "$err" ] || fail "a word on stderr"
for i in 0 1 2; do
    [ "$(line $i size)" = 3 ] || fail "rank $i is one of $(line $i size)"
    [ "$(line $i nccl)" = "=eth0" ] || fail "NCCL is told '$(line $i nccl)'"
done
[ "$(line 0 host) $(line 1 host) $(line 2 host)" = "n0 n0 n1" ] || fail "on other hosts"
[ "$(line 1 local)" = "1 of 2" ] || fail "rank 1 is $(line 1 local)"
[ "$(line 2 local)" = "0 of 1" ] || fail "rank 2 is $(line 2 local)"

case_is "the table shows what the other host answered"
for i in 0 1 2; do
    grep -q "^ *$i  $(line $i host) .*  $(line $i bound)\$" <<<"$out" || fail "no line for rank $i"
done

case_is "all ranks may be on the other host"
launched n0 2 n1:2
expect_status 0
[ "$(line 0 host) $(line 1 host)" = "n1 n1" ] || fail "on other hosts"

case_is "another host under two names is found"
launched n0 0 n1:1,10.77.0.11:1
expect_status 2
[ "$err" = "yoke: hosts: n1 and 10.77.0.11 are the same machine; name it once, with the slots of both: n1:2" ] ||
    fail "other words"

begin() {
    rm -rf "$reports" && mkdir "$reports"
    background_host n0 "$program" start 0 n0:1,n1:1 rank "$reports" 75 >"$scratch/.out" 2>"$scratch/.err"
    launcher=$!
    until_true n_reports 2
    sleep 0.3
}

case_is "stage 3 across two hosts trains the same as on one, in bits"
seq 3000 | tr '\n' ' ' >"$scratch/text"
cat >"$scratch/c.yaml" <<EOF
model: {preset: tiny-gpt2}
data: {train: $scratch/text}
train: {batch: 12, micro_batch: 3, seq_len: 16, steps: 6}
parallel: {zero: 3}
device: cpu
cpu: {threads: 1}
EOF
on_host n0 timeout -k 5 "$(limit 40)" "$YK_BUILD/yoke" launch --hosts n0:2,n1:2 train "$scratch/c.yaml" \
    --set run.dir="$scratch/two"
expect_status 0
expect_text out "ranks     4 on 2 nodes, ZeRO stage 3"
on_ranks 4 2 "$YK_BUILD/yoke" train "$scratch/c.yaml" --set run.dir="$scratch/one"
expect_status 0
losses() { sed -n 's/.*"loss": \([^,}]*\).*/\1/p' "$scratch/$1/metrics.jsonl"; }
[ "$(losses two | wc -l)" -eq 6 ] && [ "$(losses two)" = "$(losses one)" ] || fail "other losses"
cmp -s "$scratch"/{one,two}/model/model.safetensors || fail "other weights"

case_is "a request to stop reaches ranks on both hosts, and their status comes back"
begin
kill -TERM $launcher
wait $launcher
status=$?
expect_status 75
alive && fail "a rank is left"

case_is "when launch is killed the ranks on both hosts end"
begin
kill -KILL $launcher
{ wait $launcher; } 2>/dev/null
until_true gone

case_is "a host that cannot be reached is told before anything is started"
rm "$scratch/host-n1"
launched n0 0 n0:1,n1:1
expect_status 2
expect_text err "mpirun could not start $program on every host"
expect_no_text out rank
[ -z "$(ls "$reports")" ] || fail "a rank ran"

case_is "a request to stop while hosts are asked leaves nothing behind, and says that nothing was started"
cp "$scratch/agent" "$scratch/agent.kept"
printf '#!/bin/bash\necho $$ >"%s"\nexec sleep 300\n' "$scratch/asked" >"$scratch/agent"
background_host n0 "$program" start 0 n0:1,n1:1 rank "$reports" >"$scratch/.out" 2>"$scratch/.err"
launcher=$!
until_true test -s "$scratch/asked"
kill -TERM $launcher
wait $launcher
status=$? out=$(cat "$scratch/.out") err=$(cat "$scratch/.err")
expect_status 75
expect_text err "nothing was started"
expect_no_text err "save"
kill -0 "$(cat "$scratch/asked")" 2>/dev/null && fail "its ssh is left"
cp "$scratch/agent.kept" "$scratch/agent"

case_is "a name that does not resolve is told in one line"
launched n0 0 n0:1,n7:1
expect_status 2
[ "$(wc -l <<<"$err")" -eq 1 ] || fail "more than one line"
expect_text err "yoke: n7: this host's name has no IPv4 address"

passed
