# tests/launch/hosts.sh - several hosts on one machine, each with its own network, name, shared memory and
# /etc/hosts; sourced after tests/expect.sh.
#
#   hosts_up [--decoy] n0 n1  make them, with eth0 on one switch; --decoy adds a docker0 that leads nowhere
#                             and has the same address on all
#   on_host n0 COMMAND...     like `run`, on that host; background_host n0 COMMAND... starts it and sets $!
#   hosts_down                done by itself when the test ends
#
# A host is a process that holds namespaces; with it everything goes. mpirun reaches hosts through
# $scratch/agent in place of ssh. Where namespaces cannot be had, the test is skipped.

hosts_pids=()

# namespace NAME SCRIPT: a process in namespaces of its own, in which SCRIPT has run; sets $holder.
namespace() {
    local i ready=$scratch/ready-$1
    rm -f "$ready"
    unshare --net --uts --ipc --mount bash -c "set -e; $2; echo >'$ready'; exec sleep 600" \
        2>"$scratch/namespace.err" </dev/null &
    holder=$!
    hosts_pids+=("$holder")
    for ((i = 0; i < 250; i++)); do
        [ -e "$ready" ] && return 0
        kill -0 $holder 2>/dev/null || break
        sleep 0.02
    done
    echo "skipped: namespaces cannot be had here: $(cat "$scratch/namespace.err")"
    exit 77
}

hosts_up() {
    local name i=10 switch tool decoy=
    if [ "$1" = --decoy ]; then
        decoy="ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up"
        shift
    fi
    for tool in unshare nsenter ip; do
        command -v $tool >/dev/null || { echo "skipped: there is no $tool" && exit 77; }
    done
    [ "$(id -u)" -eq 0 ] || { echo "skipped: namespaces need root" && exit 77; }
    trap 'hosts_down; end_test' EXIT
    echo "127.0.0.1 localhost" >"$scratch/hosts"
    for name in "$@"; do
        echo "10.77.0.$i $name" >>"$scratch/hosts"
        i=$((i + 1))
    done
    namespace switch "ip link add name bridge type bridge && ip link set bridge up"
    switch=$holder
    i=10
    for name in "$@"; do
        namespace "$name" "hostname $name; mount -t tmpfs tmpfs /dev/shm; ip link set lo up
            mount --bind '$scratch/hosts' /etc/hosts; ${decoy:-true}"
        echo "$holder" >"$scratch/host-$name"
        nsenter -t "$switch" --net ip link add "to-$name" type veth peer name eth0 netns "$holder"
        nsenter -t "$switch" --net ip link set "to-$name" master bridge up
        nsenter -t "$holder" --net ip addr add "10.77.0.$i/24" dev eth0
        nsenter -t "$holder" --net ip link set eth0 up
        i=$((i + 1))
    done
    cat >"$scratch/agent" <<EOF
#!/bin/bash
# agent HOST COMMAND...: run a command on a host, as ssh would
host=\$1
shift
[ -s "$scratch/host-\$host" ] || { echo "no such host: \$host" >&2; exit 255; }
exec nsenter -t "\$(cat "$scratch/host-\$host")" --net --uts --ipc --mount bash -c "\$*"
EOF
    chmod +x "$scratch/agent"
    export OMPI_MCA_plm_rsh_agent=$scratch/agent
}

# The words that put a command on a host, in this folder, into $entered.
enter_host() {
    entered=(nsenter -t "$(cat "$scratch/host-$1")" --net --uts --ipc --mount
        bash -c 'cd "$0" && exec "$@"' "$PWD")
}

on_host() {
    enter_host "$1"
    shift
    run "${entered[@]}" "$@"
}

background_host() {
    enter_host "$1"
    shift
    "${entered[@]}" "$@" &
}

hosts_down() {
    local pid
    for pid in "${hosts_pids[@]}"; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
    hosts_pids=()
}
