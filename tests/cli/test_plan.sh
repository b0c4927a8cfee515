#!/usr/bin/env bash
# tests/cli/test_plan.sh - `yoke plan`: what a run would take, without a file written or memory taken.
#
# ctest: TIMEOUT 180
. "$(dirname "$0")/../expect.sh" || exit 1
yoke=$YK_BUILD/yoke
cd "$scratch" || exit 1

tried=("$yoke" plan)

# number NAME: a number of the JSON object in $out.
number() {
    sed -n 's/.*"'"$1"'": \([0-9.e+]*\)[,}].*/\1/p' <<<"$out"
}

# is_about BYTES: the limit of the object in $out is that, for what is available changes by the moment.
is_about() {
    [ "$(number limit_bytes)" -gt $(($1 / 4 * 3)) ] && [ "$(number limit_bytes)" -lt $(($1 / 4 * 5)) ]
}

# check_changes WORDS: three changes are told in $err, each of which `yoke plan WORDS` with it then takes.
check_changes() {
    local changes change sets text
    changes=$(sed -n 's/.*what would fit: //p' <<<"$err" | sed 's/; or /\n/g')
    [ "$(wc -l <<<"$changes")" -eq 3 ] || fail "not three changes in: $err"
    while read -r change; do
        sets=$(sed 's/ (.*//; /^[0-9]* ranks/!s/^/--set /; s/^\([0-9]*\) ranks on [0-9]* nodes*/--ranks \1/
            s/: /=/g; s/, / --set /g' <<<"$change")
        # shellcheck disable=SC2086
        run "$yoke" plan "$@" --json $sets
        expect_status 0
        text=$(awk -v b="$(number device_bytes)" -v p="$(number pinned)" -v ms="$(number step_ms)" 'BEGIN {
            pinned = p >= 0.01 * 2^30 ? sprintf(" and %.2f pinned", p / 2^30) : ""
            printf("(%.2f GiB%s, %.4g %s,", b / 2^30, pinned, ms < 1e4 ? ms : ms / 1e3, ms < 1e4 ? "ms" : "s") }')
        [[ $change == *"$text"* ]] || fail "it takes $text and not: $change"
    done <<<"$changes"
}

for ((i = 0; i < 400; i++)); do echo "the yoke of line $i is easy"; done >text.txt
cat >tiny.yaml <<'END'
model: {preset: tiny-qwen2}
data: {train: text.txt}
train: {batch: 8, micro_batch: 4, seq_len: 32, steps: 2}
cpu: {threads: 1}
device: cpu
END
cat >large.yaml <<'END'
model: {preset: gpt2-1.5b}
data: {train: nowhere.bin}
train: {batch: 32, seq_len: 1024}
precision: {compute: bf16}
END

case_is "the memory that a run then has, and nothing written"
run "$yoke" plan tiny.yaml --json
expect_status 0
[ ! -e runs ] || fail "a run's folder was written"
bytes=$(number device_bytes)
[ "$(number micro_batches)" -eq 2 ] || fail "not two micro-batches"
run "$yoke" train tiny.yaml
expect_status 0
[ "$(sed -n '$s/.*"device_bytes": \([0-9]*\).*/\1/p' runs/tiny/metrics.jsonl)" -eq "$bytes" ] ||
    fail "the run has other memory than the planned $bytes"

case_is "no data where only a model is asked about; a run names its own"
cat >model.yaml <<'END'
model: {preset: gpt2-124m}
eval: {every: 10}
device: cpu
END
run "$yoke" plan model.yaml --device h200
expect_status 0
run "$yoke" train model.yaml
expect_refusal "data.train: no data is given"
run "$yoke" launch --dry-run -n 2 train model.yaml
expect_refusal "data.train: no data is given"

case_is "lines are told in one and in many, and without exponents"
run "$yoke" plan tiny.yaml --set train.batch=1 --set train.micro_batch=1
expect_text out "1 micro-batch of 1 sequence, 32 tokens"
run "$yoke" plan large.yaml --device 4090d --ranks 16 --set train.batch=2048 --set train.micro_batch=1 \
    --set memory.offload='[moments,grads,master]' --set memory.recompute=block
expect_status 0
expect_text out "micro-batches of 1 sequence, "
grep -Eq '^ranks .* each sends [0-9.]+ GiB a step and waits [0-9.]+ m?s for it$' <<<"$out" || fail "no GiB"
grep -Eq '^clock +[0-9.]+ s a step .*, [0-9.]+ tokens/s$' <<<"$out" || fail "no seconds"
run "$yoke" plan large.yaml --device 4090d --set train.batch=1024 --fit
expect_status 0
expect_no_text out "e+0"

case_is "a change that costs nothing is as fast, not 0.0 % faster"
refused "memory.offload: [moments] (13.57 GiB and 11.61 pinned, 7724 s, as fast)" large.yaml --device 4090d \
    --set train.batch=65536 --set train.micro_batch=4 --set memory.recompute=block --set memory.device_limit=18000MiB
expect_no_text err " 0.0 %"

case_is "the table adds up"
run "$yoke" plan tiny.yaml
expect_status 0
for name in parameters gradients "first moments" "second moments" logits; do expect_text out " $name "; done
awk '$1 == "persistent" || $1 == "activation" {sum += $NF}
     $1 == "device" {exit sum != $NF}' <<<"$out" || fail "the items are not the sum"
awk '$1 == "device" {exit $NF != '"$bytes"'}' <<<"$out" || fail "JSON says something else"

case_is "on this machine's processors no more than is available, less a part for the system"
run "$yoke" plan tiny.yaml --json
available=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
total=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
[ "$(number limit_bytes)" -le $((total / 16 * 15)) ] || fail "$(number limit_bytes) of $total in all"
[ "$(number limit_bytes)" -le $((available / 8 * 9)) ] || fail "$(number limit_bytes) of $available available"
refused "of what is available here" tiny.yaml --set model.ffn=4194304 --set model.layers=400

case_is "ranks on one machine's processors share its memory"
for where in "" "--device cpu"; do
    # shellcheck disable=SC2086
    run "$yoke" plan tiny.yaml $where --json
    alone=$(number limit_bytes)
    # shellcheck disable=SC2086
    run "$yoke" plan tiny.yaml $where --ranks 2 --json
    is_about $((alone / 2)) || fail "two may use $(number limit_bytes) each, one $alone"
    # shellcheck disable=SC2086
    run "$yoke" plan tiny.yaml $where --ranks 2 --node-size 1 --json
    is_about "$alone" || fail "a machine each, and $(number limit_bytes) of $alone"
done

case_is "a large model on a card that is not here, data and all"
run "$yoke" plan large.yaml --device h200 --json
expect_status 0
[ "$(number device_bytes)" -gt 25000000000 ] || fail "less than weights, gradients and moments"
refused "nothing that was tried would fit" large.yaml --device 4090d --set memory.device_limit=1GiB

case_is "the host's memory, too, where its limit is given"
offload="--set memory.offload=moments --set memory.recompute=block --set train.micro_batch=4"
run "$yoke" plan large.yaml --device 4090d $offload --json
expect_status 0
pinned=$(number pinned)
run "$yoke" plan large.yaml --device 4090d $offload --set memory.host_limit="$pinned"
expect_status 0
refused "of them 'first moments', and " \
    large.yaml --device 4090d $offload --set memory.host_limit=$((pinned - 1))
expect_text err "can be had (memory.host_limit); raise that limit; "
check_changes large.yaml --device 4090d $offload --set memory.host_limit=$((pinned - 1))

case_is "a host limit that is too small is named, with what is needed"
offload="--set memory.offload=auto --set memory.device_limit=8GiB"
refused "1.00 GiB can be had (memory.host_limit); raise that limit; " \
    large.yaml --device 4090d $offload --set memory.host_limit=1GiB
needed=$(sed -n 's/.*takes at least \([0-9]*\)\.\([0-9]*\) GiB of it for each of 1 rank here.*/\1\2/p' <<<"$err")
[ "$needed" -gt 100 ] || fail "what is needed is not said in: $err"
refused "raise that limit" large.yaml --device 4090d $offload --set memory.host_limit=$(((needed - 1) * (1 << 30) / 100))
run "$yoke" plan large.yaml --device 4090d $offload --set memory.host_limit=$(((needed + 1) * (1 << 30) / 100))
expect_status 0

case_is "what is pinned on processors comes out of the same memory"
away="--set memory.offload=moments --set memory.recompute=block"
run "$yoke" plan tiny.yaml $away --json
expect_status 0
both=$(($(number device_bytes) + $(number pinned)))
run "$yoke" plan tiny.yaml $away --set memory.device_limit=$both
expect_status 0
refused "and " tiny.yaml $away --set memory.device_limit=$((both - 1))
expect_text err " pinned; most of it"

case_is "offload, which saves nothing there, is neither offered nor chosen"
small="large.yaml --set model.preset=gpt2-124m --set precision.compute=fp32 --device cpu --set memory.recompute=block
    --set train.batch=1 --set train.micro_batch=1"
for more in "" "--set memory.offload=auto" "--set memory.offload=auto --fit"; do
    refused "precision.moments: bf16 (" $small $more --set memory.device_limit=1700MiB
    ! grep -q memory.offload <<<"$err" || fail "offered: $err"
done
refused "memory.offload: [] (" $small --set memory.offload=[params] --set memory.device_limit=2016MiB

case_is "rows of logits that follow from the model are printed, and kept with the run"
run "$yoke" plan tiny.yaml
rows=$(sed -n 's/^chosen .*memory.head_chunk: \([0-9]*\).*/\1/p' <<<"$out")
[ "$rows" -gt 0 ] || fail "not printed: $out"
! grep -q "bits follow" <<<"$out" || fail "bits follow from no choice"
grep -Eq "^ *head_chunk: $rows$" runs/tiny/config.yaml || fail "not kept: $(grep head_chunk runs/tiny/config.yaml)"
run "$yoke" plan tiny.yaml --set memory.recompute=block
expect_text out "chosen      memory.head_chunk: $rows: it follows from the model"
run "$yoke" plan tiny.yaml --set memory.recompute=block --set memory.head_chunk=$rows
! grep -q chosen <<<"$out" || fail "it chose where there was nothing to choose"

case_is "each change that would make it fit does, in the bytes and the time that were told"
words="large.yaml --device h200 --set train.micro_batch=32 --set memory.recompute=none --set memory.device_limit=60GiB"
refused "what would fit" $words
check_changes $words

case_is "what is left open is chosen anew beside a change, in stages, too"
words="large.yaml --device 4090d --set memory.device_limit=12GiB --ranks 2"
refused "training takes at least" $words
expect_text err "memory.offload: ["
check_changes $words

case_is "more ranks are told at the rate of the network that was asked about"
words="large.yaml --device 4090d --set memory.device_limit=10GiB --set parallel.zero=1 --node-size 1 --network 1"
refused "what would fit" $words --ranks 2
expect_text err "; or 4 ranks on 4 nodes"
check_changes $words --ranks 2
words="large.yaml --device 4090d --set model.preset=qwen2.5-14b --set memory.host_limit=8GiB --network 100"
refused "what would fit: 16 ranks on 2 nodes, parallel.zero: 3 (" $words
told=$(sed 's/.*nodes, [^(]*(.*, \([0-9.]* m*s\), .*/\1/' <<<"$err")
run "$yoke" plan $words --ranks 16 --node-size 8 --set parallel.zero=3
expect_text out "clock       $told a step"

case_is "where no change does alone, two are told"
words="large.yaml --device 4090d --set train.micro_batch=32 --set memory.recompute=none --set memory.head_chunk=4096"
refused "what would fit: train.micro_batch: 4, precision.master: bf16, precision.moments: bf16 (" $words
check_changes $words

case_is "who is told to take master weights in 16 bits is told to leave them out of what is away"
words+=" --set memory.offload=[master,grads]"
refused "memory.offload: [grads], precision.master: bf16, precision.moments: bf16 (" $words
check_changes $words

case_is "a refusal under --json is an object with what the words say"
words="large.yaml --device h200 --set train.micro_batch=32 --set memory.recompute=none --set memory.device_limit=60GiB"
# shellcheck disable=SC2086
run "$yoke" plan $words
said=$err
# shellcheck disable=SC2086
run "$yoke" plan $words --json
expect_status 2
[ "$err" = "$said" ] || fail "other words"
[ "$(wc -l <"$scratch/.out")" -eq 1 ] || fail "not one line on stdout"
[[ $out == '{"fits": false, '*', "items": ['*'"name": "master weights", '*', "changes": [{"choices": "'*']}' ]] ||
    fail "another object"
[ "$(sed 's/.*"limit_bytes": \([0-9]*\),.*/\1/' <<<"$out")" -eq $((60 << 30)) ] || fail "another limit"
expect_text err "training takes at least $(sed 's/.*"device_bytes": \([0-9]*\), "library.*/\1/' <<<"$out" |
    awk '{printf("%.2f GiB", $1 / 2^30)}') ("
while read -r change; do
    expect_text out "{\"choices\": \"$change\", \"device_bytes\": "
done < <(sed 's/.*what would fit: //; s/; or /\n/g' <<<"$err" | sed 's/ (.*//')
run "$yoke" plan large.yaml --device 4090d --set memory.device_limit=1GiB --fit --json
expect_status 2
[[ $out == '{"fits": false, "is_least": true, '* ]] || fail "another object"

case_is "what is wrong under --json is an object with what is said"
for word in nothing.yaml "large.yaml --set train.stepz=1" "large.yaml --device h3" "large.yaml --device h200 --ranks x"; do
    # shellcheck disable=SC2086
    run "$yoke" plan $word --json
    expect_status 2
    [ "$(wc -l <"$scratch/.err")" -eq 1 ] || fail "not one line on stderr"
    [ "$(sed 's/\\"/"/g' <<<"$out")" = "{\"error\": \"${err#yoke: }\"}" ] || fail "another object"
done

case_is "what fits, the fastest first"
run "$yoke" plan large.yaml --device h200 --set memory.device_limit=60GiB --fit
expect_status 0
[ "$(wc -l <<<"$out")" -ge 4 ] || fail "not a ranking"
awk 'NR > 1 {if ($5 < last) exit 1; last = $5}' <<<"$out" || fail "not in order"
best=$(sed -n '2s/.*%  //p' <<<"$out" | sed 's/: /=/g; s/, / --set /g')
run "$yoke" plan large.yaml --device h200 --set memory.device_limit=60GiB --json --set $best
expect_status 0
[ "$(number device_bytes)" -ge $(((60 << 30) / 100 * 92)) ] || fail "less than 92 % of the limit"

case_is "of what is as fast the simpler is listed alone, and the first is what a plan chooses"
run "$yoke" plan large.yaml --device 4090d --ranks 1024 --node-size 8 --set train.batch=1024 --fit
expect_status 0
first=$(sed -n 2p <<<"$out")
[[ $first == *"parallel.zero: 1" ]] || fail "a simpler one is as fast as $first"
[ "$(grep -c ' +0.0 %' <<<"$out")" -eq 1 ] || fail "several are as fast in: $out"
words="large.yaml --device 4090d --set model.preset=qwen2.5-1.5b --set train.batch=512 --set memory.offload=auto"
# shellcheck disable=SC2086
run "$yoke" plan $words --fit
first=$(sed -n '2s/.*%  //p' <<<"$out")
# shellcheck disable=SC2086
run "$yoke" plan $words --set parallel.zero=0 --json
expect_text out "\"choices\": \"$first\""

case_is "a batch with many divisors is searched, in seconds"
SECONDS=0
run "$yoke" plan large.yaml --device h200 --set train.batch=720720 --set memory.head_chunk=4096
expect_status 0
[ "$SECONDS" -le "$(limit 20)" ] || fail "it took $SECONDS s"
words="large.yaml --device h200 --ranks 8 --set model.preset=qwen2.5-7b --set precision.compute=fp32 --set train.batch=720720"
SECONDS=0
# shellcheck disable=SC2086
run "$yoke" plan $words --fit
expect_status 0
[ "$SECONDS" -le "$(limit 5)" ] || fail "the list took $SECONDS s"
expect_text out "train.micro_batch: 10, "

case_is "no other micro-batch is faster than the one that is listed first"
best=$(awk 'NR == 2 {print $4}' <<<"$out")
for micro in 9 11 14; do
    # shellcheck disable=SC2086
    run "$yoke" plan $words --set train.micro_batch=$micro --set memory.recompute=auto --set memory.offload=auto \
        --set parallel.zero=auto --json
    expect_status 0
    awk -v a="$(number step_ms)" -v b="$best" 'BEGIN {exit !(a >= b)}' || fail "$micro is"
done

case_is "micro_batch auto takes what fits"
run "$yoke" plan large.yaml --device h200 --json --set memory.device_limit=60GiB
expect_status 0
[ "$(number device_bytes)" -le $((60 << 30)) ] || fail "more than the limit"
[ "$(number micro_batch)" -gt 1 ] || fail "the smallest micro-batch"
expect_text out "memory.head_chunk: "
expect_text out "bits follow train.micro_batch and memory.head_chunk"

case_is "a head chunk alone may be left to it, and is printed"
closed="--set train.micro_batch=4 --set memory.recompute=block"
run "$yoke" plan large.yaml --device h200 $closed
expect_status 0
expect_text out "chosen      memory.head_chunk: 4096"
run "$yoke" plan large.yaml --device h200 $closed --set memory.head_chunk=1000
expect_status 0
! grep -q chosen <<<"$out" || fail "it chose where there was nothing to choose"

case_is "a tiny head chunk is planned in seconds, and one that cuts up a micro-batch refused"
SECONDS=0
run "$yoke" plan large.yaml --device 4090d --fit --set model.preset=gpt2-124m --set train.batch=1024 \
    --set memory.head_chunk=1
expect_status 0
expect_text out "train.micro_batch: 4,"
[ "$SECONDS" -le "$(limit 20)" ] || fail "it took $SECONDS s"
refused "memory.head_chunk: 1 cuts a micro-batch of 8192 tokens into 8192 chunks" large.yaml --device 4090d \
    --set train.micro_batch=8 --set memory.head_chunk=1
expect_text err "set it to 2 or more, or to auto"
run "$yoke" plan large.yaml --device h200 --set model.preset=gpt2-124m --set train.batch=2048 \
    --set train.micro_batch=2048 --set memory.head_chunk=256 --set memory.offload='[inputs]' --set memory.recompute=block
expect_no_text err "cuts a micro-batch" # which auto may have chosen

[ "$(run "$yoke" plan large.yaml --device h200 --set memory.device_limit=60GiB --fit --json;
    grep -o '"choices"' <<<"$out" | wc -l)" -ge 3 ] || fail "no ranking as JSON"

case_is "the timeline of a step on eight ranks"
run "$yoke" plan large.yaml --device h200 --ranks 8 --node-size 4 --set parallel.zero=3 --trace t.json --json
expect_status 0
for name in linear_forward all_gather reduce_scatter adamw '"gather"' '"reduce"'; do
    grep -q "$name" t.json || fail "no $name in the trace"
done
[ "$(tail -n 1 t.json)" = "]}" ] || fail "the file does not end"
awk -v ms="$(number step_ms)" -v waits="$(number exposed_ms)" 'BEGIN {exit !(waits > 0 && waits < ms)}' ||
    fail "it waits $(number exposed_ms) of $(number step_ms) ms"

# What is gathered during a unit's forward or backward pass is the next one's: it goes on beside the pass.
case_is "streams of a timeline have their whole names"
run "$yoke" plan large.yaml --device h200 --set memory.offload=[inputs] --trace t.json --json \
    --set train.micro_batch=4 --set memory.recompute=none --set memory.head_chunk=4096
expect_status 0
grep -q '"inputs to device"' t.json || fail "no such stream in $(grep -o '"inputs[^"]*"' t.json | sort -u)"

case_is "in stage 3 parameters are gathered one unit ahead"
run "$yoke" plan large.yaml --device h200 --ranks 8 --set parallel.zero=3 --set memory.kept_blocks=0 \
    --set train.micro_batch=2 --trace t.json --json
expect_status 0
sed -n 's/.*"name": "\([a-z_0-9]*\)".*"ts": \([0-9.]*\), "dur": \([0-9.]*\),.*"part": "\(forward\|backward\) \([0-9]*\)".*/\1 \2 \3 \4 \5/p' t.json |
    sort -n -k 2 | awk '
        { of = $4 $5 }
        $1 == "all_gather" { n++; if (of != pass) end[of] = $2 + $3; next }
        $1 != "reduce_scatter" && of != pass { pass = of; if (of in end && end[of] <= $2) late++; delete end[of] }
        END { exit !(n > 80 && !late) }' || fail "a unit is gathered only when it is needed"

case_is "a thousand ranks"
run "$yoke" plan large.yaml --device 4090d --ranks 1024 --node-size 8 --set train.batch=1024 \
    --set parallel.zero=3 --json
expect_status 0
[ "$(number ranks)" -eq 1024 ] || fail "not 1024 ranks"

case_is "the network between nodes is an option's, else the configuration's, else as this machine's devices tell"
words="tiny.yaml --ranks 4 --node-size 2 --set train.batch=16 --set parallel.zero=1"
# shellcheck disable=SC2086
run "$yoke" plan $words --set comm.network=25
expect_text out "and a network of 25 Gbit/s between nodes (comm.network), as assumed"
# shellcheck disable=SC2086
run "$yoke" plan $words --device cpu --set comm.network=25
expect_text out "and a network of 25 Gbit/s between nodes (comm.network), as assumed"
# shellcheck disable=SC2086
run "$yoke" plan $words --set comm.network=25 --network 50
expect_text out "and a network of 50 Gbit/s between nodes (--network), as assumed"
# shellcheck disable=SC2086
run "$yoke" plan $words --device cpu
expect_text out "and a network of 10 Gbit/s between nodes, as assumed"
# shellcheck disable=SC2086
run env NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=none "$yoke" plan $words # there is no such interface
expect_text out "and a network of 10 Gbit/s between nodes, as assumed"

case_is "links are told, and others may be asked about"
words="large.yaml --device 4090d --ranks 16 --node-size 8 --set train.batch=16 --set train.micro_batch=1
    --set parallel.zero=3"
# shellcheck disable=SC2086
run "$yoke" plan $words
expect_text out "links       hostmem+nccl over 25 GB/s each way to the host, without peer-to-peer and a network of 10 Gbit/s"
expect_text out "machine     pinned by its 8 "
expect_text out "may pin     as much as it takes: memory.host_limit is not set"
# shellcheck disable=SC2086
run "$yoke" plan $words --json
expect_text out '"backend": "hostmem+nccl", "peer_to_peer": false, "link_bytes_per_s": 2.5e+10, "network_gbit_per_s": 10,'
expect_text out '"zero": 3, "shard": "world",'
slow=$(number step_ms)
[ "$(number pinned_per_machine)" -eq $((8 * $(number pinned))) ] || fail "not eight times what a rank pins"
# shellcheck disable=SC2086
run "$yoke" plan $words --network 200 --json
awk -v slow="$slow" -v ms="$(number step_ms)" 'BEGIN {exit !(ms < slow / 2)}' || fail "$(number step_ms) ms beside $slow"
expect_text out '"network_gbit_per_s": 200, "network_source": "--network"'
for card in "h200 450" "h100 450" "a100 300"; do
    run "$yoke" plan large.yaml --device "${card% *}" --ranks 8
    expect_text out "links       nccl over ${card#* } GB/s each way between GPUs of a node"
done
run "$yoke" plan large.yaml --device h200 --ranks 8 --peer-to-peer off
expect_text out "links       hostmem over 49 GB/s each way to the host, without peer-to-peer"

case_is "where links are open, the faster carries"
words="large.yaml --device 4090d --ranks 4 --set train.micro_batch=1 --set parallel.zero=3 --json"
for backend in auto nccl hostmem; do
    # shellcheck disable=SC2086
    run "$yoke" plan $words --set comm.backend=$backend
    eval "$backend=$(number step_ms)"
done
# shellcheck disable=SC2154
awk -v a="$auto" -v n="$nccl" -v h="$hostmem" 'BEGIN {exit !(n > 1.05 * h && a == h)}' ||
    fail "auto takes $auto ms, nccl $nccl and hostmem $hostmem"

case_is "where nodes are several, auto and the list share out inside them where that is faster"
words="large.yaml --device 4090d --ranks 16 --node-size 8 --set model.preset=qwen2.5-1.5b --set train.batch=512
    --set train.micro_batch=32 --set memory.recompute=block --set memory.head_chunk=4096"
for shard in world node auto; do
    # shellcheck disable=SC2086
    run "$yoke" plan $words --set parallel.shard=$shard --json
    eval "$shard=$(number step_ms)"
done
expect_text out '"shard": "node"'
expect_text out "parallel.shard: node: the fastest by the clock"
# shellcheck disable=SC2154
awk -v w="$world" -v n="$node" -v a="$auto" 'BEGIN {exit !(n < w && a == n)}' ||
    fail "auto takes $auto ms, world $world and node $node"
# shellcheck disable=SC2086
run "$yoke" plan $words --fit
[[ $(sed -n 2p <<<"$out") == *"parallel.shard: node"* ]] || fail "the list is: $out"
refused "what would fit: parallel.shard: node, memory.offload: [" large.yaml --device 4090d --ranks 16 --node-size 8 \
    --set model.preset=qwen2.5-7b --set model.layers=6 --set memory.device_limit=9GiB --set train.batch=512
run "$yoke" plan tiny.yaml --set parallel.shard=auto --set parallel.zero=auto
expect_text out "parallel.shard: world"

case_is "a model that no plan can hold"
refused "take a smaller model" tiny.yaml --device h200 --set model.layers=4096 --set model.width=1048576 \
    --set model.heads=65536 --set model.vocab=16777216 --set model.ffn=4194304

case_is "wrong input"
refused "CONFIG is missing"
refused "absent.yaml: cannot open" absent.yaml
refused "4090d" tiny.yaml --device 4091
refused "the nearest is train.steps" tiny.yaml --set train.stepz=1
refused "--trace: its value is empty" tiny.yaml --trace ''
refused "--device: its value is empty" tiny.yaml --device=
refused "--peer-to-peer: maybe is neither on nor off" large.yaml --device h200 --ranks 2 --peer-to-peer maybe
refused "it shows one step, and --fit lists many" large.yaml --device h200 --fit --trace t.json

case_is "no plan is printed that fits where its trace cannot be written"
run "$yoke" plan tiny.yaml --json --trace absent/t.json
expect_text out '"error": "absent/t.json'
[[ $out != *'"fits"'* ]] || fail "both are printed: $out"

case_is "a failure is told under --json where ends of children are ignored, too"
run env --ignore-signal=CHLD "$yoke" plan absent.yaml --json
expect_status 2
expect_text out '"error": "absent.yaml: cannot open'

case_is "an answer under --json needs no room for files"
run bash -c '(ulimit -f 0; "$0" plan tiny.yaml --json; "$0" plan absent.yaml --json) 2>&1 | cat' "$yoke"
expect_text out '"fits": true'
expect_text out '"error": "absent.yaml: cannot open'

case_is "a device may stand in for the file's, and not contradict another option"
refused "--device: 4090d contradicts --set device=cpu" large.yaml --device 4090d --set device=cpu
refused "--device: cpu contradicts --set device=cuda" tiny.yaml --set device=cuda --device cpu
for words in "tiny.yaml --device h200" "large.yaml --device h200 --set device=cuda" "tiny.yaml --device cpu --set device=cpu"; do
    # shellcheck disable=SC2086
    run "$yoke" plan $words --json
    expect_status 0
done

passed
