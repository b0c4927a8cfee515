/* engine/plan.h - a training step's memory and time, before anything is allocated.
 *
 * Model.    The plan is the real engine's step, run on a dry device that only counts. Nothing here
 *           knows a formula of a model: what the arenas measured and what the virtual clock shows
 *           is the plan, and a run allocates from it. In the real run the arenas' high-water marks
 *           equal it to the byte.
 * Time.     Of a step among others: one goes before it, whose last sums and gathers it may wait
 *           for. Of many micro-batches a few are run, and the others take as long as the last.
 */
#ifndef YK_ENGINE_PLAN_H
#define YK_ENGINE_PLAN_H

#include <stdio.h>

#include "engine/engine.h"
#include "runtime/memory/host_room.h"

/* A line of the ledger: pieces of one name in one arena, taken together. */
typedef struct yk_plan_item {
    const char *arena; /* "persistent", "activation", "pinned", "libraries" */
    char name[32];
    int64_t bytes;
    int64_t n_pieces;
} yk_plan_item;

typedef struct yk_plan {
    yk_device_spec spec;
    yk_config config; /* as planned, nothing left to choose; its strings are borrowed from the
                       * configuration that was planned, and it is not to be released */
    char why[560];    /* what was chosen, and why; "" where nothing was left to choose */
    yk_arena_sizes sizes;
    int64_t library_bytes; /* of device memory, what CUDA and libraries take: an estimate */
    int64_t held_bytes;    /* what they hold, as measured; 0: it was not */
    int ranks, node_size;
    yk_topology topology; /* of several ranks: the links that the clock takes */
    char carrier[48];     /* of several ranks: what carries collectives, "nccl" */
    int64_t micro_batch, n_micro;
    int64_t bytes_sent;  /* by one rank to others, in a step */
    int64_t limit;       /* bytes of device memory that may be used */
    double step_s;       /* virtual time of one step among others */
    double exposed_s;    /* of it, what the computation waits for other ranks */
    double flops, bytes; /* what one step computes and moves */
    int64_t tokens;      /* of one step */
    yk_plan_item *items; /* (n_items) owned */
    int n_items;
} yk_plan;

/* Plan training as `config` says on the device that `spec` describes.                    [local]
 *
 * What is `auto` (train.micro_batch, memory.recompute, memory.offload, parallel.zero, on a GPU
 * memory.head_chunk) becomes the combination that is the fastest by the clock of those that fit the limit, which is
 * memory.device_limit or what the device has, and the host's, which is the lesser of memory.host_limit
 * and spec->host_bytes. train.batch never changes. On processors memory.head_chunk follows from the
 * model, and what is pinned counts for the device's limit, since it is of the same memory: offload is
 * not chosen there.
 *
 * config    borrowed until the plan is done with: its strings
 * topology  the ranks that train together; NULL: one
 * red_zone  bytes of pattern behind each piece of memory; 0 in a normal run
 *
 * YK_ENOFIT  it does not fit; the message says what would
 */
yk_status yk_plan_make(const yk_config *config, const yk_model_shape *shape,
                       const yk_device_spec *spec, const yk_topology *topology, int64_t red_zone,
                       yk_plan *plan_out);

/* The same; where it does not fit, `refusal` gets what the message says as a JSON object: "fits" is false, then
 * what it takes, of what, and "changes". NULL: the message alone. */
yk_status yk_plan_make_or_print(const yk_config *config, const yk_model_shape *shape,
                                const yk_device_spec *spec, const yk_topology *topology,
                                FILE *refusal, yk_plan *plan_out);

/* Print what fits when micro-batch, recomputation, offload and ZeRO stage may be chosen, the fastest
 * first: a few lines, or a JSON object of as many rows.
 *
 * YK_ENOFIT  nothing does; in JSON as yk_plan_make_or_print() has it
 */
yk_status yk_plan_print_fits(const yk_config *config, const yk_model_shape *shape,
                             const yk_device_spec *spec, const yk_topology *topology, bool json,
                             FILE *out);

/* Write the timeline of a planned step to `path`, as runtime/observe/trace.h says. */
yk_status yk_plan_trace(const yk_plan *plan, const yk_model_shape *shape,
                        const yk_topology *topology, const char *path);

/* Plan evaluation and generation alone: parameters, and a pass over `seq_len` positions. */
yk_status yk_plan_make_inference(const yk_config *config, const yk_model_shape *shape,
                                 const yk_device_spec *spec, yk_plan *plan_out);

/* Bytes that cuDNN's gradient of attention may take where a GPU's `limit` bytes may be used. */
int64_t yk_plan_attention_room(int64_t limit);

void yk_plan_fini(yk_plan *plan);

/* Device memory in all, libraries included. */
int64_t yk_plan_device_bytes(const yk_plan *plan);

/* Count so many bytes more for libraries. */
void yk_plan_count_libraries(yk_plan *plan, int64_t more);

/* Does the host memory of `ranks_here` ranks, on the machine that is asked, fit into what can be
 * had there, and into memory.host_limit?                                                                             [local]
 *
 * YK_ENOFIT  it does not; the message says what sets the limit, what takes most, and what would help
 */
yk_status yk_plan_check_host(const yk_plan *plan, int ranks_here, const yk_host_room *room);

/* Print the ledger and the clock for people. */
void yk_plan_print(const yk_plan *plan, FILE *out);

/* Print it as one JSON object. */
void yk_plan_print_json(const yk_plan *plan, FILE *out);

#endif
