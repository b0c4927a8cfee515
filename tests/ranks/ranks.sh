# tests/ranks/ranks.sh - starting several ranks on this machine; sourced after tests/expect.sh.
#
#   on_ranks N NODE_SIZE COMMAND...   like `run`, on N ranks with NODE_SIZE of them to a node
#
# Ranks are not bound and have one thread each, since there may be more of them than cores.

command -v mpirun >/dev/null || { echo "mpirun is not installed" && exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
# Open MPI's shared memory goes with the test, even where its ranks were killed.
export OMPI_MCA_btl_vader_backing_directory=$scratch
# What a sanitizer finds is said even while stderr is held back. Leaks are not looked for: MPI unloads
# its parts at the end, and what they keep cannot be told from ours then.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}abort_on_error=1:detect_leaks=0"

on_ranks() {
    local n=$1 node_size=$2
    shift 2
    run env YK_NODE_SIZE="$node_size" timeout -k 5 "${time_limit:-$(limit 50)}" \
        mpirun -q --oversubscribe --bind-to none -n "$n" "$@"
    # What mpirun's event loop says when a rank's pipe closes while it looks there is not about the ranks.
    sed -i '/^\[warn\] Epoll /d' "$scratch/.err"
    err=$(tr -d '\0' <"$scratch/.err")
}
