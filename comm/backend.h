/* comm/backend.h - what a backend of comm.h provides, and the group that all of them share; included
 * by comm/ alone.
 *
 * The dispatcher in comm.c has checked arguments, dealt with groups of one rank and with counts of
 * zero, and chosen the wire format. A backend enqueues, and counts when the stream passes.
 */
#ifndef YK_COMM_BACKEND_H
#define YK_COMM_BACKEND_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "runtime/device/ops_wire.h"

/* One sum over all ranks. */
typedef struct yk_reduction {
    void *full;  /* (size * count) of `dtype` */
    void *shard; /* (count) of `dtype`; NULL: all ranks get all of the sum, in `full` */
    int64_t count;
    yk_dtype dtype, wire; /* the wire is no wider */
    bool accumulate;
    /* Of a sum in two levels. The outer one's full is packed already: `dtype` is the wire, numbers have
     * their scale, and none is agreed on. */
    bool packed;
    /* The inner one's shard, on hostmem, stays as it travels: of `wire`, to its place's front. */
    bool travels;
} yk_reduction;

/* Are the elements not yet what travels? */
static inline bool yk_reduction_packs(const yk_reduction *r)
{
    return !r->packed && (r->dtype != r->wire || r->wire == YK_F16);
}

/* An item of a shelf: a part of each rank, in pieces that are announced one by one. */
typedef struct yk_shelf_item {
    int64_t at, bytes, piece; /* in a rank's memory; of its part; of a piece */
    int first_piece;          /* number of its first among all pieces */
    uint32_t n_puts;          /* how often every rank has put it there, as issued */
} yk_shelf_item;

typedef struct yk_shelf {
    int n_items, n_pieces;
    yk_shelf_item *items;              /* (n_items) */
    int64_t control_bytes, rank_bytes; /* of words; of a rank's memory */
    char *mine;                        /* (rank_bytes) of this rank */
} yk_shelf;

static inline int yk_shelf_n_pieces(const yk_shelf_item *item)
{
    return (int)((item->bytes + item->piece - 1) / item->piece);
}

/* Words from a rank to a rank, whole lines of a cache. */
static inline int64_t yk_shelf_row(const yk_shelf *shelf)
{
    return (shelf->n_pieces + 15) / 16 * 16;
}

void yk_shelf_free(yk_shelf *shelf);

typedef struct yk_comm_backend {
    const char *name;
    size_t state_bytes; /* of `state`: zeros, to begin with */
    /* Fill `state`, when the head is filled. Where that fails, destroy undoes what there is. */
    yk_status (*create)(yk_comm *comm);
    void (*destroy)(yk_comm *comm); /* all but the memory of `state` itself */
    yk_status (*all_gather)(yk_comm *comm, void *full, const void *shard, int64_t bytes,
                            yk_stream *stream); /* bytes of a shard */
    yk_status (*reduce)(yk_comm *comm, const yk_reduction *reduction, yk_stream *stream);
    /* *value, in device memory, becomes the greatest of all ranks'; in the lane of reductions. */
    yk_status (*greatest)(yk_comm *comm, float *value, yk_stream *stream);
    yk_status (*all_reduce_values)(yk_comm *comm, yk_step_values *values, yk_stream *stream);
    yk_status (*broadcast)(yk_comm *comm, void *buffer, int64_t bytes, int root, yk_stream *stream);
    yk_status (*barrier)(yk_comm *comm, yk_stream *stream);
    /* Take the memory that comm->shelf has laid out, and set shelf->mine; NULL: no shelves. */
    yk_status (*shelve)(yk_comm *comm);
    yk_status (*put)(yk_comm *comm, int item, const void *data, yk_stream *stream);
    yk_status (*take)(yk_comm *comm, int item, void *full, const void *own, yk_stream *stream);
    /* Flushed, and count what streams have passed; NULL: n_flushed and the others are up to date. */
    int64_t (*flushed)(const yk_comm *comm);
} yk_comm_backend;

struct yk_comm {
    const yk_comm_backend *backend;
    const yk_comm_backend *stands_for; /* `backend`, but on a dry device what that would be */
    yk_comm_options o;                 /* topology: that of the described ranks, or zeros */
    yk_topology topology;
    int index, size;
    int n_local, n_nodes; /* size = n_local * n_nodes: the levels of the group */
    int node_ranks;       /* ranks of a node in the world: those that share its link */
    int *ranks;           /* (size) in the world */
    char *staging;
    int64_t chunk;      /* elements that a slot of the staging memory holds */
    double link_free_s; /* of a dry group: when the link has carried what was issued */
    float *greatest;    /* device memory, of the backend: the last that was agreed on, where streams
                         * pass */
    yk_shelf *shelf;    /* owned; NULL: none */
    void *state;

    /* Written where streams pass, read anywhere. */
    atomic_int failed; /* a yk_status */
    atomic_int_fast64_t bytes_sent, n_collectives, n_flushed, busy_ns;
};

/* Make and release what a group's backend keeps of it. */
yk_status yk_comm_create_state(yk_comm *comm);
void yk_comm_destroy_state(yk_comm *comm);

/* Slots of staging memory, each of `chunk` elements of the widest wire: for two steps at a time, a
 * part from each rank of the node; and where there are several nodes, for two chunks at a time, a sum
 * from each node and one to each. */
static inline int64_t yk_comm_n_slots(const yk_comm *comm)
{
    return 2 * (comm->n_local + (comm->n_nodes > 1 ? 2 * (int64_t)comm->n_nodes : 0));
}

static inline int yk_comm_local(const yk_comm *comm)
{
    return comm->index / comm->n_nodes;
}

static inline int yk_comm_node(const yk_comm *comm)
{
    return comm->index % comm->n_nodes;
}

extern const yk_comm_backend yk_comm_self;
extern const yk_comm_backend yk_comm_mpi;
extern const yk_comm_backend yk_comm_nccl;
extern const yk_comm_backend yk_comm_hostmem;
extern const yk_comm_backend yk_comm_levels;
extern const yk_comm_backend yk_comm_split;
extern const yk_comm_backend yk_comm_dry;

/* The scale that a reduction of a group travels with, agreed on by all of the group, or of the whole that
 * the group is a part of: once for both of the two groups that reduce one after the other. Enqueued. */
yk_status yk_comm_agree_scale(yk_comm *comm, const yk_reduction *reduction, yk_stream *stream,
                              yk_wire_scale *scale_out);

/* comm_levels.c: what a group of two levels takes of staging memory beside what its levels take; what
 * they bring to what the node shares. */
int64_t yk_comm_levels_staging_bytes(const yk_comm *comm);
int64_t yk_comm_levels_shared_bytes(const yk_comm *comm);
void yk_comm_levels_parts(const yk_comm *comm, const yk_comm *parts_out[2]);

/* comm_split.c: what such a group calls itself; what its two groups bring to what the node shares. */
const char *yk_comm_split_name(const yk_comm *comm);
bool yk_comm_split_has_shelf(const yk_comm *comm);
int64_t yk_comm_split_shared_bytes(const yk_comm *comm);
void yk_comm_split_parts(const yk_comm *comm, const yk_comm *parts_out[2]);

/* A group that is composed of two has failed when one of them has: YK_OK when none has. */
static inline yk_status yk_comm_inherit_failure(yk_comm *comm, const yk_comm *a, const yk_comm *b)
{
    int failed = atomic_load(&a->failed);
    if (failed == YK_OK) failed = atomic_load(&b->failed);
    if (failed != YK_OK) atomic_store(&comm->failed, failed);
    return (yk_status)failed;
}

/* shelf.c: what a rank brings to the memory of its shelf. */
int64_t yk_comm_shelf_bytes(const yk_comm *comm);

/* hostmem_layout.c: what a group over hostmem takes of staging memory, brings to what the node shares,
 * and sends at once; pure, also for a dry group. */
int64_t yk_comm_hostmem_staging_bytes(const yk_comm *comm);
int64_t yk_comm_hostmem_shared_bytes(const yk_comm *comm);
/* Elements, of `wire`, of a sum's part of `count` that travel at once; bytes of a shard of `bytes`. */
int64_t yk_comm_hostmem_chunk(const yk_comm *comm, int64_t count, yk_dtype wire);
int64_t yk_comm_hostmem_gather_chunk(const yk_comm *comm, int64_t bytes);

#endif
