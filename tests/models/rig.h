/* tests/models/rig.h - a model on a device with all it runs on, without a parameter store.
 *
 * Parameters and gradients lie in buffers of the rig's own, one a parameter; a test puts numbers in,
 * runs passes and takes numbers out, in double. Calls that fail end the program: what is tested is
 * what comes out.
 *
 * Device.   YK_TEST_DEVICE=cpu|cuda; cpu unless set.
 */
#ifndef YK_TESTS_MODELS_RIG_H
#define YK_TESTS_MODELS_RIG_H

#include "models/model.h"

/* All zeros is fp32, keeping every activation, logits in one chunk, every processor. */
typedef struct rig_options {
    yk_dtype dtype;      /* of parameters and activations */
    yk_dtype grad_dtype; /* of gradients */
    yk_recompute recompute;
    int64_t n_lighter;  /* last blocks under the next weaker policy */
    int64_t head_chunk; /* 0: all rows at once */
    int threads;        /* 0: all there are */
    float loss_scale;   /* 0: 1 */
} rig_options;

typedef struct rig {
    rig_options o;
    yk_device *device;
    yk_stream *stream;
    void *workspace;
    yk_arena *memory, *activation;
    yk_model *model;
    yk_pass *pass;
    yk_param_view *p;       /* (n_params) */
    yk_grad_view *g;        /* (n_params) */
    yk_step_values *values; /* device memory */
    yk_batch batch;         /* device memory */
    int batch_mark;         /* of `memory`, below the batch */
    yk_kv_cache cache;
    void *logits; /* (1,V) */
} rig;

/* 0, or 77 when the device is not there (tested_device.h). */
int rig_missing(void);

void rig_open(rig *r, const yk_model_shape *shape, const rig_options *o);

/* Also checks that passes have left the activation arena as it was. */
void rig_close(rig *r);

/* Put (n_params) arrays into the parameters, rounded to their type. */
void rig_set_params(rig *r, double *const *values);

/* Copy a batch from host memory. */
void rig_set_batch(rig *r, const yk_batch *batch);

/* The next gradients overwrite. */
void rig_clear_gradients(rig *r);

/* Run the batch forward and backward; gradients are of loss_weight * the sum of losses, and add to
 * those of earlier passes since rig_clear_gradients(). `losses` (B,T) may be NULL. */
void rig_train(rig *r, float loss_weight, double *losses);

/* Run the batch forward to its losses (B,T). */
void rig_evaluate(rig *r, double *losses);

/* Sum of losses and count of unmasked targets since the rig was opened or this was called. */
void rig_take_sums(rig *r, double *loss_sum_out, int64_t *n_tokens_out);

/* Forget the keys and values of all positions. */
void rig_restart(rig *r);

/* Run the next `n` tokens in one piece; `logits` (vocab_rows) are those of the last. */
void rig_generate(rig *r, const int32_t *tokens, int64_t n, double *logits);

/* A parameter's gradient as stored. */
void rig_get_gradient(rig *r, int param, double *values);

#endif
