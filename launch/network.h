/* launch/network.h - the network interface that leads to all hosts of a run.
 *
 * A host often has several: a container bridge, a management network, the fast one. Left alone, MPI
 * and NCCL each try some of them, and pick one that exists on every host with the same address and
 * leads nowhere. The kernel's routes know which interface leads to a named host.
 */
#ifndef YK_LAUNCH_NETWORK_H
#define YK_LAUNCH_NETWORK_H

#include <stdbool.h>

#include "launch/hosts.h"

typedef struct yk_network {
    char
        interface[32]; /* of this machine, such as "eth0"; "" : not needed, or there is no single one */
    char subnet[64]; /* "10.0.0.0/24", where every host is on it; else "" */
    char note[256];  /* why there is no single one; "" */
} yk_network;

/* Find the interface by which this machine reaches every other host.                     [local]
 *
 * must_resolve  false: a host's name without an address leaves the network open, with a note
 *
 * YK_EINVAL  a host's name has no IPv4 address; two names have the same, or both are this machine's:
 *            mpirun fails then without saying why
 */
yk_status yk_network_find(const yk_hosts *hosts, bool must_resolve, yk_network *network_out);

#endif
