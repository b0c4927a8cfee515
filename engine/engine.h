/* engine/engine.h - a model, its store, its memory and its streams, put together on a device.
 *
 * Model.    Everything is made once, in one order, from a configuration: streams, arenas, parameter
 *           store, batch buffers, the pass. The same code makes it on a real device, with the
 *           arenas that a plan says, and on a dry one, with arenas that measure: that is how the
 *           plan is made.
 * Threads.  One thread at a time.
 *
 * The struct is open: step.c, evaluate.c and generate.c are written on its parts.
 */
#ifndef YK_ENGINE_ENGINE_H
#define YK_ENGINE_ENGINE_H

#include "comm/watchdog.h"
#include "engine/graphs.h"
#include "engine/ranks.h"
#include "models/model.h"
#include "optim/store/store.h"
#include "runtime/base/config.h"

/* Bytes of each arena. */
typedef struct yk_arena_sizes {
    int64_t persistent; /* parameters, gradients, optimiser state, batch buffers, tables */
    int64_t activation; /* what a pass pushes and pops, and an operation's workspace above that */
    int64_t pinned;     /* host memory: staging of batches and results, and what is offloaded */
    int64_t shared;     /* likewise, what this rank's groups share with others: theirs, no arena */
} yk_arena_sizes;

typedef struct yk_engine_options {
    yk_device *device;           /* borrowed until the engine is destroyed */
    const yk_config *config;     /* likewise */
    const yk_model_shape *shape; /* copied */
    bool train;                  /* false: only parameters, for evaluation and generation */
    const yk_arena_sizes *sizes; /* NULL on a dry device: measure */
    int64_t micro_batch;         /* sequences at a time; what train.micro_batch resolved to */
    yk_world *world; /* the other ranks, borrowed; NULL: none. Not used on a dry device */
    const yk_topology *topology; /* the ranks that a dry device stands for; NULL: one */
    const yk_race *race;         /* borrowed likewise: what a group's options say; NULL: none */
    int64_t red_zone; /* bytes of pattern behind each piece of memory; 0 in a normal run */
} yk_engine_options;

/* Batches lie in this many slots, so that one is filled while another is computed on. */
#define YK_BATCH_SLOTS 2

/* Buffers of a loader: one held while its copy is under way, the others filled ahead. */
#define YK_LOADER_BUFFERS 3

/* Training data and validation data, as yk_split counts them. */
#define YK_N_SPLITS 2

typedef struct yk_engine {
    yk_device *device;
    const yk_config *config;
    yk_model *model;
    yk_stream *compute;
    yk_arena *persistent, *activation, *pinned;
    yk_host_side host;   /* of offloaded state */
    yk_host_side inputs; /* of blocks' inputs, which do not queue behind gradients */
    yk_ranks ranks;
    int64_t head_chunk;    /* rows of logits at a time */
    yk_watchdog *watchdog; /* is told where a step is; borrowed, NULL: nobody */
    yk_store *store;
    yk_pass *pass;
    yk_graphs *graphs;
    yk_dtype compute_dtype, grads_dtype;
    bool train;
    struct yk_bad_gradient *bad; /* is looked for (guard.h); borrowed, NULL: not now */

    int64_t micro_batch, seq_len; /* B, T of a micro-batch */
    int64_t n_micro;              /* micro-batches a step */
    int n_fields; /* tokens, targets, positions and, with data.doc_mask, doc_start */
    int32_t *slots[YK_BATCH_SLOTS]; /* (n_fields,B,T) device memory */
    int last_slot;                  /* that was handed out last, or will be first */
    yk_stream *data; /* batches are copied on it, ahead; NULL: where that brings nothing */
    int32_t *
        staging[YK_N_SPLITS]; /* (YK_LOADER_BUFFERS,n_fields,B,T) pinned, for each split's loader */

    yk_step_values *values;  /* device memory */
    yk_step_values *results; /* (2) pinned: copies of the values after even and odd steps */
    yk_event *result_ready[2];
    yk_step_values *evaluated; /* pinned: a copy of the values after an evaluation */
} yk_engine;

/* Put an engine together. Weights are undefined until yk_engine_init_weights() or
 * yk_weights_load().                                                                     [local]
 *
 * YK_EINVAL  the batch does not divide, the sequence is longer than the model allows
 * YK_ENOMEM  memory that the plan counted on could not be had
 */
yk_status yk_engine_create(const yk_engine_options *options, yk_engine **engine_out);
void yk_engine_destroy(yk_engine *engine);

/* Ranks that an engine of these options has or stands for. */
int yk_engine_n_ranks(const yk_engine_options *options);

/* Random weights, a function of (seed, parameter name, index). */
yk_status yk_engine_init_weights(yk_engine *engine, int64_t seed);

/* How high each arena has stood. */
yk_arena_sizes yk_engine_high_water(const yk_engine *engine);

/* Bytes of one micro-batch: what a slot and a loader's buffer hold. */
int64_t yk_engine_batch_bytes(const yk_engine *engine);

/* The batch that lies in a slot. */
yk_batch yk_engine_batch(const yk_engine *engine, int slot);

#endif
