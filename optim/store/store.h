/* optim/store/store.h - where parameters, gradients, master weights and moments live.
 *
 * Model.    The store stands between a model, which computes one unit at a time from pointers, and
 *           the memory that holds its state, cut up over ranks as the ZeRO stage says. A step is,
 *           for each micro-batch and unit,
 *               acquire -> the model computes -> release                              forward
 *               acquire -> grad -> the model computes -> grad_ready, release          backward
 *           then yk_store_sum_squares(), the decision on the device, and yk_store_update(). A model
 *           sees views (pointer, dtype) indexed by parameter and never a flat offset or a rank.
 * Stages.   0 replicates; 1 shards master weights and moments; 2 also gradients; 3 also parameters
 *           (Rajbhandari et al. 2020). What is sharded is gathered before it is read, one unit or
 *           more ahead, and summed over ranks as soon as a unit's gradient is complete, both on streams
 *           of their own beside the computation.
 * Layout.   The parameters of a unit lie in one flat buffer, those that decay first, each tensor
 *           at a multiple of 128 elements, so that it starts at a multiple of 256 bytes in every
 *           dtype; the whole is padded to world * 128. Padding is zero and stays so. Gradients,
 *           master weights and moments have the same layout, or a shard's contiguous range of it.
 *           A tensor has one owner and may be used by one more unit; its gradient is complete
 *           after its last use in the backward pass.
 * Precision. Master weights and moments are fp32 or bf16, which is rounded stochastically from bits
 *           that follow from (seed, Adam's count, tensor, index). Where the model computes in the
 *           master weights' type, these are what it reads.
 * Offload.  Each kind of state may lie in pinned host memory instead. The model still reads and
 *           writes device memory: parameters are fetched one unit ahead, gradients leave when a unit
 *           is done, and an update takes its states through the device piece by piece, on streams of
 *           their own. It changes no bit. Parameters that are offloaded are kept as in stage 3 from
 *           stage 1 on: each rank its shard; with a shelf that is where ranks gather them.
 * Threads.  One thread at a time.
 */
#ifndef YK_OPTIM_STORE_STORE_H
#define YK_OPTIM_STORE_STORE_H

#include "comm/comm.h"
#include "runtime/base/config.h"
#include "runtime/base/param.h"
#include "runtime/device/ops.h"
#include "runtime/memory/host_side.h"

typedef struct yk_store yk_store;

/* The groups and streams of a run with several ranks; all borrowed. */
typedef struct yk_store_groups {
    yk_comm *all;       /* every rank */
    yk_comm *shard;     /* the ranks that share one copy of the state; may be `all` */
    yk_comm *replicate; /* the ranks that hold the same shard; NULL when `shard` is `all` */
    yk_comm *alone;     /* this rank: adds what comes to what is there */
    yk_world *world;    /* for reading state from outside; NULL on a dry device */
    yk_stream *gather;  /* parameters travel here */
    yk_stream *reduce;  /* gradients travel here */
    yk_stream *put;     /* parameters go to the shelf here */
} yk_store_groups;

typedef struct yk_store_options {
    const yk_param *params; /* (n_params) borrowed until the store is destroyed */
    int n_params, n_units;
    yk_dtype compute;         /* what a model reads */
    yk_dtype grads;           /* what it writes gradients in */
    yk_dtype master, moments; /* fp32 or bf16 */
    int64_t seed;             /* of the bits that rounding to bf16 draws */
    bool train;               /* false: no gradients, no master weights, no moments */
    int zero;                 /* stage 0 .. 3 */
    bool reduce_each_micro;   /* sum gradients over ranks at each micro-batch, not once a step */
    const yk_store_groups *groups; /* NULL: one rank */
    int offload;                   /* yk_offload: what of the store's lies in host memory */
    const yk_host_side *host;      /* NULL where nothing does */
    int kept; /* blocks whose parameters, fetched for the forward pass, stay for the backward pass, beside
               * the two that are always there; as many more are fetched ahead */
    /* Gathered parameters lie in host memory that a node's ranks share, where the backend has shelves: put
     * there once an update, and taken from there by all. */
    bool shelf;
    int64_t
        piece; /* elements that are squared, or pass through the device, at a time; a multiple of
                    * 128; 0: what suits the device. Sums of squares depend on it */
} yk_store_options;

/* The constants of AdamW. */
typedef struct yk_adamw_options {
    float beta1, beta2, eps, weight_decay;
} yk_adamw_options;

/* Elements of the largest unit, as laid out for a world of `world` ranks: the most that a group
 * reduces or gathers at once. */
int64_t yk_store_largest_unit(const yk_store_options *options, int world);

/* Lay out the units and take their memory from `persistent`. Gradients and moments are zeroed on
 * `stream`; weights are undefined until written.
 *
 * YK_ENOMEM  the arena is too small
 */
yk_status yk_store_create(const yk_store_options *options, yk_arena *persistent, yk_stream *stream,
                          yk_store **store_out);
void yk_store_destroy(yk_store *store);

/* Begin a step of `n_micro` micro-batches: the next gradient of each parameter overwrites, later
 * ones add. What yk_store_sum_squares() adds to `values` may be added as the backward pass goes; they
 * are borrowed until then. */
void yk_store_begin(yk_store *store, int64_t n_micro, yk_step_values *values);

/* Make the parameters that `unit` uses readable for work that follows on `stream`. The views hold
 * until the unit is released.
 *
 * last  units from this one to that, up or down, will be acquired in turn: those next to it are fetched
 *       meanwhile, as many as there is room for; -1: none
 */
yk_status yk_store_acquire(yk_store *store, int unit, int last, yk_stream *stream,
                           const yk_param_view **views_out);
yk_status yk_store_release(yk_store *store, int unit, yk_stream *stream);

/* Where the gradients of the parameters that `unit` uses go, for work that follows on `stream`. */
yk_status yk_store_grad(yk_store *store, int unit, yk_stream *stream,
                        const yk_grad_view **views_out);

/* Let parameters that `unit` reads, or gradients that it will add to, come from host memory, at least `share`
 * of them by now. To be called when nothing else needs their place on the device: the two ends of a model
 * have one. */
yk_status yk_store_acquire_ahead(yk_store *store, int unit, double share);
yk_status yk_store_grad_ahead(yk_store *store, int unit, double share);

/* The gradients of `unit` from this micro-batch have been enqueued on `stream`. Their sum over
 * ranks starts when nothing more will be added to them. */
yk_status yk_store_grad_ready(yk_store *store, int unit, yk_stream *stream);

/* Add the square of every gradient to values->sum_squares, then let all ranks have the sums of
 * `values`: each rank squares its own part, in the same order in every stage.      [collective] */
yk_status yk_store_sum_squares(yk_store *store, yk_stream *stream, yk_step_values *values);

/* Update every unit, in forward order, as `values` has decided. Updated shards travel to where they
 * are read; only the next acquire of a unit waits for that. */
yk_status yk_store_update(yk_store *store, yk_stream *stream, const yk_adamw_options *adamw,
                          const yk_step_values *values);

/* Seconds that the compute stream was held back by what comes from other ranks since the store was
 * made, as far as it has got: what communication costs beside the computation. */
double yk_store_waited_s(const yk_store *store);

/* What a rank keeps of a unit's weights, as hashes. Ranks whose `begin` is equal keep the same elements,
 * and should keep the same bits. */
typedef struct yk_store_replica {
    int64_t begin, master_begin; /* in the unit's layout */
    uint64_t hash;               /* of what the model reads */
    uint64_t master_hash;        /* of the master weights; 0 where the model reads those */
} yk_store_replica;

/* Hash what this rank keeps of each unit. Blocks.                                        [local]
 *
 * units_out  (n_units)
 *
 * YK_ENOMEM  no memory for a copy of a piece
 */
yk_status yk_store_hash(yk_store *store, yk_stream *stream, yk_store_replica *units_out);

/* What can be read and written from outside, element for element in fp32. */
typedef enum yk_store_state {
    YK_STORE_WEIGHT,  /* the master weight; what the model reads where there is none */
    YK_STORE_MOMENT1, /* Adam's m */
    YK_STORE_MOMENT2, /* Adam's v */
    YK_STORE_GRAD,    /* the gradient as stored, loss scale included */
} yk_store_state;

/* Copy elements begin .. begin+n-1 of a parameter's state to host memory, on every rank. Blocks.
 *                                                                                   [collective]
 *
 * YK_EINVAL  the store was made without what is asked for
 */
yk_status yk_store_read(yk_store *store, yk_store_state state, int param, int64_t begin, int64_t n,
                        float *values_out, yk_stream *stream);

/* Overwrite elements begin .. begin+n-1 from host memory, as far as this rank keeps them; a weight
 * reaches the model rounded. Every rank is to write the same. Blocks.                    [local]
 *
 * YK_EINVAL  the store was made without what is to be written
 */
yk_status yk_store_write(yk_store *store, yk_store_state state, int param, int64_t begin, int64_t n,
                         const float *values, yk_stream *stream);

/* Overwrite elements begin .. begin+n-1 of a parameter's weights, as far as this rank keeps them: element
 * i by number i of `normal`. Each rank makes its own part where it lies, device memory on `stream`;
 * what the model reads and the master weights are both rounded from the same numbers in fp32.
 *                                                                                        [local] */
yk_status yk_store_draw(yk_store *store, int param, int64_t begin, int64_t n,
                        const yk_normal *normal, yk_stream *stream);

#endif
