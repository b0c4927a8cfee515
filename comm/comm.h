/* comm/comm.h - a group of ranks and the collectives over it.
 *
 * Model.    One yk_comm per process and group. Collectives are enqueued on a stream and return at
 *           once; their result is there when the stream has passed them. Every rank issues the same
 *           sequence. A group of one rank is legal, and its collectives copy at most.
 * Index.    A rank's place in the group, 0 .. size - 1. In a group over K nodes with L ranks each it
 *           is local rank * K + node, so that a node's ranks first share a buffer out among
 *           themselves and each then shares its part with its peers on the other nodes. A buffer of
 *           (size * count) elements has `size` parts; part i belongs to index i. The K parts of the
 *           ranks with one local rank lie side by side.
 * Order.    With `exact`, a sum is formed in one order whatever the backend, the stage and the kind
 *           of collective: the values of a node's ranks, each rounded to the wire format, are added
 *           in fp32 in order of local rank and rounded to the wire format; then those sums in order
 *           of node, and rounded again. With `ring` the library adds, in the wire format, in an
 *           order of its own.
 * Wire.     What gradients travel as: yk_comm_wire_for(). fp16 carries a power-of-two scale, one a
 *           call, agreed on by all ranks, with headroom for the sum: nothing finite becomes
 *           infinite on the wire, in bf16 neither. True infinities and NaNs travel as such.
 * Streams.  Three kinds of collectives may run beside each other on streams of their own: reductions,
 *           which share staging memory; gathers and broadcasts; values and barriers. Those of one kind
 *           in one group go to one stream, or are ordered by events.
 * Threads.  One thread at a time.
 * Failure.  YK_EPEER and YK_ETIMEDOUT are sticky: only yk_comm_destroy() is useful after them. A
 *           failure inside a stream is reported once, and returned by the next call and by
 *           yk_stream_synchronize().
 */
#ifndef YK_COMM_COMM_H
#define YK_COMM_COMM_H

#include "comm/world.h"
#include "runtime/base/config.h"
#include "runtime/device/device.h"
#include "runtime/device/step_values.h"
#include "runtime/memory/arena.h"

typedef struct yk_comm yk_comm;
typedef struct yk_race yk_race; /* comm/race.h */

/* The ranks that a group joins. */
typedef enum yk_axis {
    YK_AXIS_WORLD,  /* all */
    YK_AXIS_NODE,   /* those of this rank's node */
    YK_AXIS_ACROSS, /* those with this rank's local rank, one a node */
} yk_axis;

/* Ranks as described, for a dry device; the process stands for rank 0. */
typedef struct yk_topology {
    int ranks;                        /* > 0 */
    int node_size;                    /* ranks of a node; divides `ranks` */
    double node_rate, node_latency_s; /* bytes/s that a rank sends to its node while it receives as
                                       * many, and seconds that a message costs */
    double across_rate, across_latency_s; /* likewise between nodes; the rate is that of a node's
                                           * link, which its ranks share */
    char network[64]; /* what tells that rate: a device's name, a key; "" : it is a usual one */
} yk_topology;

typedef struct yk_comm_options {
    yk_world *world; /* borrowed until the group is destroyed; NULL: one rank. Not used when dry */
    yk_device *device; /* likewise; on a dry one the group counts for the backend it would have */
    yk_comm_choice backend;      /* auto: mpi on cpu, nccl on cuda */
    yk_comm_choice gathers;      /* of gathers and broadcasts; auto: as `backend` */
    const yk_topology *topology; /* on a dry device, copied; NULL: one rank. Not used elsewhere */
    yk_axis axis;
    /* For two groups that reduce one after the other, in the node and then across, what one over all
     * ranks would: that group, borrowed likewise, so that fp16 has the scale of the whole and the sum
     * the same bits. Else NULL. */
    yk_comm *whole;
    bool shares_gpu; /* ranks of a node may share a GPU, and with it one link to the host */
    yk_reduce_choice reduce;
    yk_dtype wire;     /* what gradients travel as: YK_F32, YK_BF16, YK_F16 */
    int64_t max_count; /* elements of the largest buffer that will be reduced: size * count */
    yk_arena *staging; /* device memory for wire buffers is pushed here, once; borrowed likewise.
                        * How much is a function of the other options: a dry group pushes what the
                        * one that it stands for pushes. Nothing for one rank or max_count 0 */
    const yk_race
        *race;        /* borrowed likewise: hostmem's chunks are as long as won there, and may get
                          * other lengths between collectives, on all ranks alike. NULL: by rule */
    double timeout_s; /* a collective fails when so long nothing came from a rank it waits for;
                          * 0: the world's deadline, as it is then */
} yk_comm_options;

/* Make a group.                                                                     [collective]
 *
 * YK_EINVAL       the nodes have different numbers of ranks, and the axis crosses nodes; with
 *                 `ring`, max_count is over 2^31 - 1
 * YK_EUNSUPPORTED the device has no backend here, or not the one that is asked for
 * YK_ENOMEM       the arena is too small
 */
yk_status yk_comm_create(const yk_comm_options *options, yk_comm **comm_out);

/* Release the group, when its streams have passed its collectives. NULL does nothing. [collective] */
void yk_comm_destroy(yk_comm *comm);

/* What carries the group's collectives, or would: "self", "mpi", "nccl", "hostmem", "hostmem+nccl" where
 * host memory joins the ranks of each of several nodes, and a library these, or "nccl, gathers hostmem".
 * Borrowed until the group is destroyed. */
const char *yk_comm_backend_name(const yk_comm *comm);

/* Pinned host memory that this rank brings to what its node's ranks share. */
int64_t yk_comm_shared_bytes(const yk_comm *comm);

/* Bytes that travel at once where a rank sends `bytes` to each other one: its shard or the whole of a broadcast
 * (`gathers`), or a part of a sum in the group's wire format. 0: it is not hostmem that carries them. */
int64_t yk_comm_chunk_bytes(const yk_comm *comm, bool gathers, int64_t bytes);

/* Device memory that libraries take for the groups of a process, `n` of them, beside what is pushed to
 * arenas: an estimate. NULL among them counts for nothing.                               [local] */
int64_t yk_comm_library_bytes(const yk_comm *const *groups, int n);

/* The version of NCCL that can be had, in this build on this machine, as NCCL gives it (22809 is
 * 2.28.9); 0: none can.                                                                  [local] */
int yk_comm_nccl_version(void);

int yk_comm_index(const yk_comm *comm);
int yk_comm_size(const yk_comm *comm);

/* The rank in the world of `index`. */
int yk_comm_rank(const yk_comm *comm, int index);

/* What a reduction of `dtype` travels as: the group's wire format, or `dtype` where that is
 * narrower, since widening would bring nothing. */
yk_dtype yk_comm_wire_for(const yk_comm *comm, yk_dtype dtype);

/* Gather shards.                                                                        [stream]
 *
 * full   (size * count) elements of `dtype`; part i comes from index i
 * shard  (count) of `dtype`; may be full + index * count, else outside of full
 */
yk_status yk_comm_all_gather(yk_comm *comm, void *full, const void *shard, int64_t count,
                             yk_dtype dtype, yk_stream *stream);

/* Sum `full` over all ranks; index i keeps part i.                                      [stream]
 *
 * shard       (count) of `dtype`; may be full + index * count, else outside of full
 * full        (size * count) of `dtype`; its content is lost
 * accumulate  true: shard += sum, added in fp32; shard lies outside of full then
 */
yk_status yk_comm_reduce_scatter(yk_comm *comm, void *shard, void *full, int64_t count,
                                 yk_dtype dtype, bool accumulate, yk_stream *stream);

/* Sum `buffer` over all ranks; all get the sum: the same bits that yk_comm_reduce_scatter() gives.
 *                                                                                       [stream]
 * buffer  (size * count) of `dtype`, in place
 */
yk_status yk_comm_all_reduce(yk_comm *comm, void *buffer, int64_t count, yk_dtype dtype,
                             yk_stream *stream);

/* Sum loss_sum, sum_squares and n_tokens, and or non_finite, over all ranks, in order of index: the
 * same bits everywhere. The other members stay.                                         [stream]
 *
 * values  device memory
 */
yk_status yk_comm_all_reduce_values(yk_comm *comm, yk_step_values *values, yk_stream *stream);

/* The bytes of index `root` to all.                                                     [stream] */
yk_status yk_comm_broadcast(yk_comm *comm, void *buffer, int64_t bytes, int root,
                            yk_stream *stream);

/* Pass when every rank's stream has come here.                                          [stream] */
yk_status yk_comm_barrier(yk_comm *comm, yk_stream *stream);

/* ---- a shelf ------------------------------------------------------------------------------ */

/* A shelf is host memory in which the ranks of a node lay out parts of items for each other: what is put
 * there once is taken by all, as often as they need it, by copies to their devices alone. A group has one
 * at most, which lasts as long as the group. All ranks put an item equally often, in any order; before a
 * rank puts one again, a collective that all enter after what they have taken of it keeps it from being
 * overwritten. Are there shelves in the group's backend? */
bool yk_comm_has_shelf(const yk_comm *comm);

/* Make the group's shelf.                                                           [collective]
 *
 * bytes  (n_items) of a rank's part of each item
 *
 * YK_EUNSUPPORTED the group's backend has none
 * YK_ENOMEM       there is not so much memory, or it cannot be pinned
 */
yk_status yk_comm_shelve(yk_comm *comm, const int64_t *bytes, int n_items);

/* Where this rank's part of an item lies, in host memory. Not to be looked at on a dry device. */
void *yk_comm_shelf_part(const yk_comm *comm, int item);

/* This rank's part of `item` is new.                                                    [stream]
 *
 * data  its bytes in device memory; NULL: they are in place, written by the host or by `stream`
 */
yk_status yk_comm_put(yk_comm *comm, int item, const void *data, yk_stream *stream);

/* Gather the parts of `item` as they were put last, when all ranks have put them.       [stream]
 *
 * full  (size * bytes); part i comes from index i
 * own   this rank's part in device memory; may be its place in full; NULL: from the shelf, too
 */
yk_status yk_comm_take(yk_comm *comm, int item, void *full, const void *own, yk_stream *stream);

/* What the streams have passed since the group was made. */
typedef struct yk_comm_counts {
    int64_t bytes_sent;    /* of buffers, to other ranks; not the few bytes of scales, values and
                            * barriers */
    int64_t n_collectives; /* done */
    int64_t n_flushed; /* gradients of this rank that were not zero and became zero on the wire */
    double busy_s;     /* seconds that streams spent in them; virtual on a dry device, and sampled
                        * fifty times a second with hostmem on a GPU */
} yk_comm_counts;

yk_comm_counts yk_comm_get_counts(const yk_comm *comm);

#endif
