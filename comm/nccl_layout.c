/* comm/nccl_layout.c - the staging memory of a group over nccl: pure, and compiled in every build, so
 * that a dry group takes what the one that it stands for takes.
 *
 * A message should be so long that its start does not show: eight slots of 8 MiB for two ranks. What NCCL
 * takes for itself is an estimate, measured on H200s with two ranks: 436 MiB stay when all communicators
 * have gone. Two of them take 60 more where ranks meet in host memory, and 1,360 over NVLink, of which the
 * most is taken by the first collectives. With more ranks it may be more.
 */
#include "comm/nccl_layout.h"

#include "runtime/base/arith.h"

#define STAGING_BYTES      ((int64_t)64 << 20)
#define CHUNK_MIN_ELEMENTS 65536
#define SMALL              256 /* bytes that each of the small things has */

#define COMMUNICATOR_BYTES ((int64_t)30 << 20)
#define PEERS_BYTES        ((int64_t)680 << 20)

int64_t yk_comm_nccl_group_bytes(bool peers)
{
    return YK_COMM_NCCL_LANES * (peers ? PEERS_BYTES : COMMUNICATOR_BYTES);
}

int64_t yk_comm_nccl_chunk(const yk_comm *c)
{
    if (c->o.max_count == 0 || c->o.reduce == YK_REDUCE_RING) return 0;
    int64_t slots = yk_comm_n_slots(c), element = yk_dtype_bytes(c->o.wire);
    int64_t fitting = yk_max(STAGING_BYTES / (slots * element), CHUNK_MIN_ELEMENTS);
    return yk_round_up(yk_min(yk_div_up(c->o.max_count, c->size), fitting), 128);
}

nccl_layout yk_comm_nccl_lay_out(const yk_comm *c)
{
    nccl_layout l = {0};
    int64_t slots = yk_comm_nccl_chunk(c) * yk_comm_n_slots(c) * yk_dtype_bytes(c->o.wire);
    l.greatest = slots;
    l.meeting = l.greatest + SMALL;
    l.n_flushed = l.meeting + SMALL;
    l.values = l.n_flushed + SMALL;
    l.bytes = l.values + yk_round_up(c->size * (int64_t)sizeof(yk_step_values), SMALL);
    return l;
}
