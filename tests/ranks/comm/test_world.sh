#!/usr/bin/env bash
# tests/ranks/comm/test_world.sh - processes find each other and their nodes, agree, and say once what all
# of them have to say.
. "$(dirname "$0")/../../expect.sh" || exit 1
. "$YK_SOURCE/tests/ranks/ranks.sh" || exit 1

program=$YK_BUILD/tests/ranks/comm/rank_world

# The lines of stderr, in order of their text.
sorted() { sort <<<"$err"; }
# expect_lines LINE...: stderr is these lines and no others, in any order.
expect_lines() {
    [ "$(sorted)" = "$(printf '%s\n' "$@" | sort)" ] || fail "not the lines that were expected"
}

# ---- starting

case_is "without a launcher a process is alone and starts no MPI"
run env -u YK_NODE_SIZE LD_DEBUG=files "$program" join
expect_status 0
expect_text out "joined 1"
run env YK_NODE_SIZE=3 "$program" places small_calls
expect_status 0

case_is "settings of Open MPI in the environment are no launcher"
run env OMPI_MCA_btl=self OMPI_ALLOW_RUN_AS_ROOT=1 PMIX_MCA_gds=hash "$program" join
expect_status 0
expect_text out "joined 1"

case_is "ranks find each other"
on_ranks 3 1 "$program" join
expect_status 0
expect_text out "joined 3"
on_ranks 1 1 "$program" join
expect_status 0
expect_text out "joined 1"

case_is "a rank that ends before it has met the others is named, and they do not wait for it"
# The others begin later: mpirun itself ends a run, with words that -q hides, where one leaves once others have begun.
time_limit=$(limit 20) on_ranks 3 3 bash -c '[ "$OMPI_COMM_WORLD_RANK" -ne "$1" ] || exit 0; sleep 1; exec "$0" join' "$program" 1
expect_status 1
expect_lines "yoke: rank 1: its process on $(hostname) ended, with exit status 0, before it had met the other ranks, \
and they cannot begin without it; see what is started there in the place of yoke, such as a script that ends early"
[ -z "$out" ] || fail "a rank began"

case_is "a rank that fails before it has met the others is not taken for one that ends"
on_ranks 3 3 bash -c '[ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || exit 7; trap "" TERM; exec "$0" join' "$program"
expect_status 7
[ -z "$err" ] || fail "something was said"

case_is "a rank that is stopped before it has met the others is named after YK_TIMEOUT, and the run ends"
YK_TIMEOUT=1 time_limit=$(limit 30) on_ranks 3 3 bash -c '[ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || kill -STOP $$; exec "$0" join' "$program"
expect_status 1
[[ $err =~ ^"yoke: rank 1: its process "[0-9]+" on $(hostname) has been stopped for more than 1 s before it had met the other ranks, "[^$'\n']*$ ]] ||
    fail "other words"
[ -z "$out" ] || fail "a rank began"

case_is "a rank that is stopped as it leaves keeps nobody, and what was printed is there"
time_limit=$(limit 30) on_ranks 3 3 "$program" join 1
expect_status 1
expect_lines "yoke: MPI: rank 0 has done its work and waits for the others to leave, for more than 1 s; one of them was \
stopped or hangs; see which processes are still there"
expect_text out "joined 3"

case_is "ranks that are slow to start are waited for"
on_ranks 2 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" -ne 1 ] || sleep 3; "$0" join' "$program"
expect_status 0
expect_text out "joined 2"

case_is "several tasks of srun without PMIx are told how to meet"
run env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2 "$program" join
expect_status 2
expect_text err "4 processes were started and each is alone"
expect_text err "srun --mpi=pmix"

case_is "one task of srun is no trouble"
run env SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 SLURM_PROCID=0 "$program" join
expect_status 0

case_is "ranks of another MPI's launcher are told so"
run env PMI_SIZE=2 PMI_RANK=0 "$program" join
expect_status 2
expect_text err "it belongs to another MPI"

case_is "different builds of the program are refused, once"
run env timeout "$(limit 50)" mpirun -q --oversubscribe --bind-to none -n 2 "$program" join : \
    -n 1 "$YK_BUILD/tests/ranks/comm/rank_collectives"
expect_text err "rank 2 on $(hostname) runs another build of"
expect_text err "put the same program on every host"
[ "$(grep -c '^yoke:' <<<"$err")" -eq 1 ] || fail "said more than once"

case_is "a node size that is no number is refused, once"
on_ranks 2 none "$program" join
expect_status 2
expect_lines "yoke: YK_NODE_SIZE: 'none' is not a positive number; unset it"

# ---- places and agreement

case_is "nodes, local ranks and indices are numbered in order of rank"
on_ranks 4 2 "$program" places indices small_calls
expect_status 0
on_ranks 6 3 "$program" places indices
expect_status 0
on_ranks 3 8 "$program" places indices
expect_status 0
on_ranks 5 2 "$program" places
expect_status 0

case_is "groups across nodes with different numbers of ranks are refused"
on_ranks 3 2 "$program" irregular
expect_status 0
expect_text err "3 ranks on 2 nodes are not the same number on each; start as many on every node"

# ---- what is said

case_is "what all ranks complain of is said once"
on_ranks 4 4 "$program" all_fail
expect_status 2
expect_lines "yoke: config.yaml: line 3 is wrong"

case_is "of ranks that fail the lowest one speaks, and says who it is"
on_ranks 4 4 "$program" some_fail
expect_status 1
expect_lines "yoke: data.bin: no such file" \
    "yoke: rank 1: it failed on $(hostname), as said above; the other ranks stop with it"

case_is "a failure that was not held back is said once, too"
on_ranks 3 3 "$program" one_fails_unheld
expect_status 1
expect_lines "yoke: memory: there is too little" \
    "yoke: rank 1: it failed on $(hostname), as said above; the other ranks stop with it"

case_is "a warning is said once by the lowest rank that has it"
on_ranks 3 3 "$program" warnings
expect_status 0
expect_lines "yoke: warning: all: the same everywhere" "yoke: warning: first: on rank 1 alone" \
    "yoke: warning: both: not on rank 0" "yoke: warning: after: not held any more"

# mpirun mixes what comes from two ranks at once; the bytes are all there.
case_is "more than is compared is said whole, by every rank"
on_ranks 2 2 "$program" many_words
expect_status 0
one_rank=$(seq -f 'yoke: warning: line: %g of a thousand' 0 999 | wc -c)
n_bytes=$(wc -c <<<"$err")
[ "$n_bytes" -eq $((2 * one_rank)) ] || { err= && fail "$n_bytes bytes, not twice $one_rank"; }

case_is "nothing is lost where a rank leaves, aborts or crashes"
on_ranks 2 2 "$program" leave_holding
expect_status 0
expect_lines "yoke: warning: leaving: with words unsaid"
on_ranks 2 2 "$program" abort_holding
expect_status 5
expect_text err "yoke: warning: aborting: with words unsaid"
on_ranks 2 2 "$program" crash_holding
[ "$status" -ne 0 ] || fail "passed"
expect_text err "broken invariant"

case_is "a world of one holds nothing back"
run "$program" all_fail
expect_status 2
expect_lines "yoke: config.yaml: line 3 is wrong"

passed
