/* runtime/machine/binding.h - the cores and the memory that a rank keeps to.
 *
 * Model.    Each rank of a node says what it was given and where its GPU lies (a wish); from all of a
 *           node's wishes in order of local rank, every rank computes the same bindings and applies its
 *           own. That is exact whatever started the ranks: those that were given the same processors
 *           share them out, those that were given their own keep them.
 *
 *               yk_binding_wish_for(machine, gpu, &mine);
 *               ... gather the wishes of this node's ranks ...
 *               YK_TRY(yk_binding_plan(machine, wishes, n, bindings));
 *               yk_binding_apply(machine, &bindings[local_rank]);
 *
 * When.     After MPI has told who is who; before CUDA starts, before any arena exists, and before the
 *           threads that compute: threads and memory come to lie where their maker was bound.
 * Failure.  Binding never makes a run fail. What is not as it should be is one line in the binding's
 *           note, for the caller to say once.
 */
#ifndef YK_RUNTIME_MACHINE_BINDING_H
#define YK_RUNTIME_MACHINE_BINDING_H

#include "runtime/machine/machine.h"

/* What one rank brings; plain bytes, to be sent as they are. */
typedef struct yk_binding_wish {
    yk_cpus given;  /* processors that it may use */
    yk_cpus near;   /* processors next to its GPU; empty: no GPU, or nobody knows */
    int has_gpu;    /* 1: it has one */
    int is_started; /* 1: by mpirun or srun, which may have bound it to less than it could have */
    char bus_id[YK_BUS_ID_BYTES];
} yk_binding_wish;

#define YK_BINDING_NOTE 512

/* What one rank gets. */
typedef struct yk_binding {
    yk_cpus cpus;   /* to run on; never empty */
    int node;       /* the NUMA node whose memory it prefers, the system's number; -1: as the system
                      likes, which is near the processor that touches it first */
    int n_cores;    /* cores for threads that compute, >= 1: what cpu.threads 0 means */
    bool is_shared; /* there are more ranks than processors, and others run there too */
    char note[YK_BINDING_NOTE]; /* what is not as it should be and what to do; "" */
} yk_binding;

/* This process' wish.
 *
 * gpu  the one that it will use, or NULL
 */
void yk_binding_wish_for(const yk_machine *machine, const yk_gpu *gpu, yk_binding_wish *wish_out);

/* Share out a node's cores among its ranks.                                              [local]
 *
 * A rank wants the processors that it was given and that are near its GPU; all it was given, where its
 * GPU is far from them or lies nobody knows where, or there is none. Cores wanted by several ranks are
 * divided evenly, whole cores in order of NUMA node; single processors of a core only where there are
 * fewer cores than ranks; and where there are fewer processors than ranks, those share them all.
 *
 * wishes        (n) of the ranks on this node, by local rank
 * bindings_out  (n)
 *
 * YK_ENOMEM  there is no memory for the calculation
 */
yk_status yk_binding_plan(const yk_machine *machine, const yk_binding_wish *wishes, int n,
                          yk_binding *bindings_out);

/* Keep this process to the binding: all its threads to the processors, and memory that this thread and
 * those it makes will touch to the node. Where the system refuses, the note says so and n_cores stays.
 *                                                                                        [local] */
void yk_binding_apply(const yk_machine *machine, yk_binding *binding);

#endif
