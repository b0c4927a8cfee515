/* comm/nccl_layout.h - what a group over nccl takes of staging memory; included by comm/ alone. */
#ifndef YK_COMM_NCCL_LAYOUT_H
#define YK_COMM_NCCL_LAYOUT_H

#include "comm/backend.h"

/* Offsets in bytes; slots come first. */
typedef struct nccl_layout {
    int64_t greatest;  /* float: the greatest gradient of all ranks */
    int64_t meeting;   /* float: what a barrier sums */
    int64_t n_flushed; /* int64 */
    int64_t values;    /* (size) yk_step_values */
    int64_t bytes;
} nccl_layout;

/* NCCL's communicators of a group: it carries one thing at a time in each. */
#define YK_COMM_NCCL_LANES 2

/* Device memory that NCCL takes once it is used, and for a group whose ranks reach each other's memory, or
 * do not: estimates. */
#define YK_COMM_NCCL_BYTES ((int64_t)436 << 20)
int64_t yk_comm_nccl_group_bytes(bool peers);

/* Elements that a slot holds; 0: no slots. */
int64_t yk_comm_nccl_chunk(const yk_comm *comm);

/* comm->chunk need not be set. */
nccl_layout yk_comm_nccl_lay_out(const yk_comm *comm);

#endif
