#!/usr/bin/env bash
# tests/launch/test_gpus.sh - placement on machines with GPUs, which this one need not be: hwloc is given
# a described machine, and the driver is a fake.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/launch/fakes.sh" || exit 1
unset "${!SLURM_@}" CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
topologies=$YK_SOURCE/tests/runtime/machine/topologies

# on MACHINE WORDS...: yoke launch there, dry, on GPUs.
on() {
    local machine=$1
    shift
    run env HWLOC_XMLFILE="$topologies/$machine.xml" LD_LIBRARY_PATH="$scratch/driver" \
        "$yoke" launch --dry-run "$@" train "$config" --set device=cuda
    out=$(tr -s ' ' <<<"$out") # the table's columns fit its host
}

case_is "there is a rank for each GPU, on cores near it"
fake_gpus 01 25 41 61 81 a1 c1 e1
on two-sockets-8x4090
expect_status 0
[ -z "$err" ] || fail "a warning"
expect_text out " 0 $(hostname) 0 0000:01:00.0 0 8 0-7,64-71"
expect_text out " 7 $(hostname) 7 0000:e1:00.0 1 8 56-63,120-127"
expect_text out "mpirun -q -n 8 "
expect_text out " -x CUDA_DEVICE_ORDER "

case_is "CUDA_VISIBLE_DEVICES chooses by number and by UUID"
CUDA_VISIBLE_DEVICES=7,GPU-0025 on two-sockets-8x4090
expect_text out " 0 $(hostname) 0 0000:e1:00.0 1 32 32-63,96-127"
expect_text out " 1 $(hostname) 1 0000:25:00.0 0 32 0-31,64-95"
expect_text out "mpirun -q -n 2 "
expect_text out " -x CUDA_VISIBLE_DEVICES "

case_is "cards on PCI that the driver does not offer are not used"
fake_gpus 41
on two-sockets-8x4090
expect_text out "mpirun -q -n 1 "
expect_text out "0000:41:00.0"

case_is "more ranks than GPUs is refused with the number that fits"
fake_gpus 01 21 41 61
on one-socket-4x4090 -n 5
expect_status 2
expect_text err "5 ranks are to run there and it has 4 GPUs, so that two ranks would share one; give it 4 slots"

case_is "ranks share GPUs where they may, and no further"
shared() {
    run env HWLOC_XMLFILE="$topologies/one-socket-4x4090.xml" LD_LIBRARY_PATH="$scratch/driver" \
        "$yoke" launch --dry-run -n "$1" train "$config" --set device=cuda --set launch.ranks_per_gpu=2
    out=$(tr -s ' ' <<<"$out")
}
shared 8
expect_status 0
expect_text out " 5 $(hostname) 1 0000:21:00.0 0 "
shared 9
expect_status 2
expect_text err "9 ranks are to run there and it has 4 GPUs, so that too many ranks would share one; give it 8 slots"

case_is "a GPU that hwloc knows nothing of has a place that is not known"
fake_gpus 99
on two-sockets-8x4090
expect_status 0
expect_text err "which of 2 NUMA nodes 0000:99:00.0 belongs to cannot be seen here"
expect_text out "0000:99:00.0"

case_is "on a machine with one node every GPU is at home"
on one-socket-4x4090
[ -z "$err" ] || fail "a warning"
expect_text out "0000:99:00.0 0 16 0-31"

case_is "a driver that refuses is told in its words"
driver_fault=18 fake_gpus 01
on one-socket-4x4090
expect_status 2
expect_text err "yoke: warning: GPUs: the driver does not answer: Driver/library version mismatch"
expect_text err "there is no GPU for 1 ranks"

case_is "without a driver there are no GPUs, and on processors no word about it"
rm -r "$scratch/driver"
if ! ldconfig -p | grep -q libnvidia-ml; then
    on one-socket-4x4090
    expect_status 2
    expect_text err "there is no GPU for 1 ranks"
fi
run "$yoke" launch --dry-run train "$config" --set device=cpu
expect_status 0
[ -z "$err" ] || fail "a warning"

passed
