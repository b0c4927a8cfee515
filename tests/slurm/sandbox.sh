# tests/slurm/sandbox.sh - a private Slurm of two nodes on one machine; sourced after tests/expect.sh.
#
#   slurm_up                  make it, on hosts n0 and n1 (tests/launch/hosts.sh); 4 processors and two
#                             GPUs that are none on each
#   slurm COMMAND...          like `run`, with Slurm's commands at hand; on n0, where the controller is
#   slurm_down                done by itself when the test ends
#
# Nothing of the machine's own Slurm or munge is touched: configuration, key, sockets and spool are in
# $scratch. Where the packages are missing or namespaces cannot be had, the test is skipped.
. "$YK_SOURCE/tests/launch/hosts.sh" || exit 1
. "$YK_SOURCE/tests/launch/waiting.sh" || exit 1

slurm_pids=()

slurm_need() {
    local program
    PATH=$PATH:/usr/sbin:/sbin
    for program in slurmctld slurmd srun sbatch munged; do
        command -v $program >/dev/null && continue
        echo "skipped: there is no $program; tools/setup slurm installs it"
        exit 77
    done
}

slurm_configure() {
    local node i
    mkdir -p "$scratch"/slurm/{state,log,{spool,tmp}-{n0,n1}}
    for node in n0 n1; do
        for i in 0 1; do mknod "$scratch/slurm/$node-gpu$i" c 1 3; done
        echo "NodeName=$node Name=gpu File=$scratch/slurm/$node-gpu[0-1]"
    done >"$scratch/slurm/gres.conf"
    cat >"$scratch/slurm/slurm.conf" <<EOF
ClusterName=yoke-test
SlurmctldHost=n0(10.77.0.10)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge/socket
CredType=cred/munge
MpiDefault=none
GresTypes=gpu
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=1
ReturnToService=2
KillWait=5
StateSaveLocation=$scratch/slurm/state
SlurmdSpoolDir=$scratch/slurm/spool-%n
TmpFS=$scratch/slurm/tmp-%n
SlurmctldPidFile=$scratch/slurm/slurmctld.pid
SlurmdPidFile=$scratch/slurm/slurmd-%n.pid
NodeName=n0 NodeAddr=10.77.0.10 CPUs=4 RealMemory=2000 Gres=gpu:2 State=UNKNOWN
NodeName=n1 NodeAddr=10.77.0.11 CPUs=4 RealMemory=2000 Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP
EOF
    export SLURM_CONF=$scratch/slurm/slurm.conf
}

# daemon HOST NAME COMMAND...: start a daemon that stays in the foreground there.
daemon() {
    local host=$1 name=$2
    shift 2
    background_host "$host" "$@" >"$scratch/slurm/log/$name" 2>&1 </dev/null
    slurm_pids+=("$!")
}

slurm_munge() {
    chmod 755 "$scratch"
    mkdir -m 755 "$scratch/munge"
    (umask 077 && head -c 1024 /dev/urandom >"$scratch/munge/key")
    munged --foreground --force --key-file="$scratch/munge/key" --socket="$scratch/munge/socket" \
        --pid-file="$scratch/munge/pid" --log-file="$scratch/munge/log" \
        --seed-file="$scratch/munge/seed" >"$scratch/munge/out" 2>&1 </dev/null &
    slurm_pids+=("$!")
    until_true test -S "$scratch/munge/socket"
}

slurm_nodes_are_idle() {
    enter_host n0
    [ "$("${entered[@]}" sinfo -h -N -t idle 2>/dev/null | wc -l)" -eq 2 ]
}

slurm_up() {
    slurm_need
    hosts_up n0 n1
    trap 'slurm_down; hosts_down; end_test' EXIT
    slurm_configure
    slurm_munge
    daemon n0 slurmctld slurmctld -D -c
    daemon n0 slurmd-n0 slurmd -D -N n0
    daemon n1 slurmd-n1 slurmd -D -N n1
    until_true slurm_nodes_are_idle
}

slurm() {
    on_host n0 "$@"
}

slurm_down() {
    local pid
    if [ -n "${SLURM_CONF-}" ] && [ -e "$scratch/host-n0" ]; then
        enter_host n0
        timeout 5 "${entered[@]}" scancel -u root 2>/dev/null
        sleep 0.5
    fi
    for pid in "${slurm_pids[@]}"; do kill "$pid" 2>/dev/null; done
    slurm_pids=()
}
