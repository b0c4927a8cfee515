/* optim/store/store.h - where parameters, gradients, master weights and moments live.
 *
 * Model.    The store stands between a model, which computes one unit at a time from pointers, and
 * the memory that holds its state. A step is, for each unit and use of it, acquire -> the model
 * computes -> release                              forward acquire -> grad -> the model computes ->
 * grad_ready, release          backward then yk_store_sum_squares(), the decision on the device,
 * and yk_store_update(). A model sees views (pointer, dtype) indexed by parameter and never a flat
 * offset. Layout.   The parameters of a unit lie in one flat buffer, those that decay first, each
 * tensor at a multiple of 128 elements, so that it starts at a multiple of 256 bytes in every
 * dtype; padding is zero and stays so. The buffers of gradients, master weights and moments have
 *           the same layout. A tensor has one owner and may be used by one more unit; its gradient
 * is complete after its last use in the backward pass. Precision. Master weights and moments are
 * fp32. Where the model computes in fp32 the master weights are what it reads. Threads.  One thread
 * at a time.
 */
#ifndef YK_OPTIM_STORE_STORE_H
#define YK_OPTIM_STORE_STORE_H

#include "runtime/base/param.h"
#include "runtime/device/ops.h"
#include "runtime/memory/arena.h"

typedef struct yk_store yk_store;

typedef struct yk_store_options {
    const yk_param *params; /* (n_params) borrowed until the store is destroyed */
    int n_params, n_units;
    yk_dtype compute; /* what a model reads */
    yk_dtype grads;   /* what it writes gradients in */
    bool train;       /* false: no gradients, no master weights, no moments */
} yk_store_options;

/* The constants of AdamW. */
typedef struct yk_adamw_options {
    float beta1, beta2, eps, weight_decay;
} yk_adamw_options;

/* Lay out the units and take their memory from `persistent`. Gradients and moments are zeroed on
 * `stream`; weights are undefined until written.
 *
 * YK_ENOMEM  the arena is too small
 */
yk_status yk_store_create(const yk_store_options *options, yk_arena *persistent, yk_stream *stream,
                          yk_store **store_out);
void yk_store_destroy(yk_store *store);

/* Begin a step: the next gradient of each parameter overwrites, later ones add. */
void yk_store_begin(yk_store *store);

/* Make the parameters that `unit` uses readable for work that follows on `stream`. The views hold
 * until the unit is released. */
yk_status yk_store_acquire(yk_store *store, int unit, yk_stream *stream,
                           const yk_param_view **views_out);
yk_status yk_store_release(yk_store *store, int unit, yk_stream *stream);

/* Where the gradients of the parameters that `unit` uses go. */
yk_status yk_store_grad(yk_store *store, int unit, const yk_grad_view **views_out);

/* The gradients of `unit` from this micro-batch have been enqueued on `stream`. */
yk_status yk_store_grad_ready(yk_store *store, int unit, yk_stream *stream);

/* Add every gradient's square to values->sum_squares, unit by unit. */
yk_status yk_store_sum_squares(yk_store *store, yk_stream *stream, yk_step_values *values);

/* Update every unit, in forward order, as `values` has decided. */
yk_status yk_store_update(yk_store *store, yk_stream *stream, const yk_adamw_options *adamw,
                          const yk_step_values *values);

/* What can be read and written from outside, element for element in fp32. */
typedef enum yk_store_state {
    YK_STORE_WEIGHT,  /* the master weight; what the model reads where there is none */
    YK_STORE_MOMENT1, /* Adam's m */
    YK_STORE_MOMENT2, /* Adam's v */
    YK_STORE_GRAD,    /* the gradient as stored, loss scale included */
} yk_store_state;

/* Copy elements begin .. begin+n-1 of a parameter's state to host memory. Blocks.
 *
 * YK_EINVAL  the store was made without what is asked for
 */
yk_status yk_store_read(yk_store *store, yk_store_state state, int param, int64_t begin, int64_t n,
                        float *values_out, yk_stream *stream);

/* Overwrite elements begin .. begin+n-1 from host memory; a weight reaches the model rounded.
 * Blocks.
 *
 * YK_EINVAL  the store was made without what is to be written
 */
yk_status yk_store_write(yk_store *store, yk_store_state state, int param, int64_t begin, int64_t n,
                         const float *values, yk_stream *stream);

#endif
