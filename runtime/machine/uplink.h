/* runtime/machine/uplink.h - how fast this machine reaches others, as the kernel tells.
 *
 * Of InfiniBand and RoCE the active ports with the highest rate, together, for libraries use all of
 * them: as many as ranks here could. Where there is none, or NCCL_IB_DISABLE forbids it, the network
 * interface that NCCL_SOCKET_IFNAME names (of several whose names begin so the fastest), else, and
 * where that tells no rate, the one of the default route. Rates are nominal, and virtual machines
 * often tell none.
 */
#ifndef YK_RUNTIME_MACHINE_UPLINK_H
#define YK_RUNTIME_MACHINE_UPLINK_H

typedef struct yk_uplink {
    double gbit;   /* Gbit/s each way; 0: nothing tells */
    char name[64]; /* "mlx5_0 and 3 more", "eth0"; "" */
} yk_uplink;

/* Look. What is not there or not understood is left out.                                 [local]
 *
 * root     what stands in for "/" in the paths that are read; "" but in tests
 * n_ranks  of this machine
 */
yk_uplink yk_uplink_read(const char *root, int n_ranks);

#endif
