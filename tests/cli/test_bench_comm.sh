#!/usr/bin/env bash
# tests/cli/test_bench_comm.sh - `yoke bench comm` times every collective of every backend on the ranks that
# were started.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
yoke=$YK_BUILD/yoke

case_is "each row has its backend, collective, size and chunk, and no share of a link that is not there"
on_ranks 2 2 "$yoke" bench comm --device cpu --max 1
expect_status 0
expect_text out "bf16; 2 ranks on 1 node"
for backend in mpi hostmem; do
    [ $backend = mpi ] && chunk=- || chunk='[0-9.]+'
    for collective in all-gather reduce-scatter all-reduce broadcast; do
        n=$(grep -cE "^$backend *$collective +[0-9.]+ +$chunk .* -$" <<<"$out")
        [ "$n" -eq 3 ] || fail "$n rows of $collective over $backend, not 3"
    done
done
expect_no_text out "%"

case_is "JSON has the same rows, on one line"
on_ranks 2 2 "$yoke" bench comm --device cpu --max 1 --backend hostmem --json
expect_status 0
[ "$(grep -c . <<<"$out")" -eq 1 ] || fail "not one line"
if command -v python3 >/dev/null; then
    python3 -c '
import json, sys
b = json.load(sys.stdin)
assert b["ranks"] == 2 and "link_rate" not in b
assert len(b["rows"]) == 12 and all(r["backend"] == "hostmem" for r in b["rows"])
for r in b["rows"]:
    factor = {"all-gather": 0.5, "reduce-scatter": 0.5, "all-reduce": 1, "broadcast": 1}[r["collective"]]
    assert r["seconds"] > 0 and abs(r["bus_rate"] - factor * r["bytes"] / r["seconds"]) < 1e-4 * r["bus_rate"]
    assert 0 < r["chunk_bytes"] <= r["bytes"]
    assert "link_share" not in r and "product_loss" not in r
' <<<"$out" || fail "the rates do not fit the times"
fi

case_is "products run beside collectives, and what they lose is told"
on_ranks 2 2 "$yoke" bench comm --device cpu --min 1 --max 1 --beside --backend hostmem --json
expect_status 0
if command -v python3 >/dev/null; then
    python3 -c '
import json, sys
b = json.load(sys.stdin)
assert b["product_rate"] > 0 and len(b["rows"]) == 4
assert all(r["bytes"] == 1 << 20 and r["product_loss"] < 1 for r in b["rows"])
' <<<"$out" || fail "a row is missing, or what products lose"
fi

case_is "a smallest buffer over the largest is refused"
on_ranks 2 2 "$yoke" bench comm --device cpu --min 2 --max 1
expect_status 2
expect_text err "--min: 2 MiB is over --max"

case_is "ranks on several nodes have no memory in common, and no row of it, unless others are on theirs"
on_ranks 2 1 "$yoke" bench comm --device cpu --max 1
expect_status 0
expect_no_text out "hostmem"
on_ranks 4 2 "$yoke" bench comm --device cpu --min 1 --max 1
expect_status 0
[ "$(grep -c '^hostmem+mpi ' <<<"$out")" -eq 4 ] || fail "not four rows of two levels"

case_is "one rank is told to bring another"
run "$yoke" bench comm --device cpu
expect_status 2
expect_text err "start several: mpirun -n 2 yoke bench comm"

case_is "a backend for another device is refused"
on_ranks 2 2 "$yoke" bench comm --device cpu --backend nccl
expect_status 2
[ "$(grep -c "nccl is for GPUs" <<<"$err")" -eq 1 ] || fail "not said once"

passed
