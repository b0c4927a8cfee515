#!/usr/bin/env bash
# tests/ranks/launch/test_bind.sh - how many threads ranks compute with, on the processors they were given.
# ctest: TIMEOUT 120
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1
unset OMP_NUM_THREADS
program=$YK_BUILD/tests/ranks/launch/rank_bind

# One processor of each of two cores.
mapfile -t cpus < <(for cpu in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g' |
    awk '{ for (i = 1; i <= NF; i++) { n = split($i, r, "-"); for (c = r[1]; c <= r[n]; c++) print c } }'); do
    echo "$cpu $(cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null)"
done | awk '!seen[$2]++ { print $1 }' | head -n 2)
[ ${#cpus[@]} -eq 2 ] || { echo "one core is not enough" && exit 77; }
both=${cpus[0]},${cpus[1]}

case_is "a rank alone computes on all cores that it was given"
on_ranks 1 1 taskset -c "$both" "$program"
expect_status 0
expect_text out "rank 0 computes with 2"

case_is "ranks that were given the same cores share them out"
on_ranks 2 2 taskset -c "$both" "$program"
for rank in 0 1; do expect_text out "rank $rank computes with 1"; done

case_is "ranks that share processors have one thread each, and it is said once"
on_ranks 3 3 taskset -c "$both" "$program"
for rank in 0 1 2; do expect_text out "rank $rank computes with 1"; done
[ "$(grep -c '3 ranks share 2 processors' <<<"$err")" -eq 1 ] || fail "not said once"

# The second rank alone is bound to one of the two: what it has to say is not the first one's.
case_is "a rank that is not the first says what is wrong with its place"
on_ranks 2 2 bash -c 'cpus=$1; [ "$OMPI_COMM_WORLD_RANK" = 0 ] || cpus=${1%,*}
    exec taskset -c "$cpus" "$0"' "$program" "$both"
expect_status 0
expect_text out "rank 1 computes with 1"

passed
