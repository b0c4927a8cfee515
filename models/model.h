/* models/model.h - a transformer as a sequence of units.
 *
 * Model.    A yk_model is a description: its shape, its parameter table and how to run its units.
 *           Unit 0 is the embedding, 1 .. L are the blocks, L + 1 is the head, which owns the loss.
 *           A unit computes from parameters handed to it and writes gradients where it is told; it
 *           knows neither ranks nor shards nor where memory comes from.
 * Pass.     A yk_pass takes one micro-batch through the units: forward 0 .. L + 1, and in training
 *           backward L + 1 .. 0. Activations are pushed on the activation arena by forward and
 *           popped by backward; when the pass ends the arena is as it was.
 * Head.     Logits are made for `head_chunk` rows at a time and are never whole in memory. In
 *           training their loss and gradient are made together, in the head's backward.
 * Threads.  A model may be shared once created; a pass serves one thread.
 */
#ifndef YK_MODELS_MODEL_H
#define YK_MODELS_MODEL_H

#include "runtime/base/config.h"
#include "runtime/base/param.h"
#include "runtime/data/batch.h"
#include "runtime/device/ops.h"
#include "runtime/memory/host_side.h"

typedef enum yk_family {
    YK_FAMILY_GPT2,  /* LayerNorm, learned positions, GELU, biases */
    YK_FAMILY_LLAMA, /* RMSNorm, RoPE, SwiGLU, no biases */
    YK_FAMILY_QWEN2, /* Llama with biases on q, k and v */
} yk_family;

typedef enum yk_rope_scaling {
    YK_ROPE_PLAIN,
    YK_ROPE_LINEAR, /* angles divided by factor: Chen et al. 2023 */
    YK_ROPE_LLAMA3, /* low frequencies divided by factor, smooth in between: Llama 3.1 */
} yk_rope_scaling;

typedef struct yk_model_shape {
    yk_family family;
    int64_t layers;
    int64_t width;      /* C */
    int64_t heads;      /* H */
    int64_t kv_heads;   /* G: H is a multiple of it */
    int64_t head_size;  /* D */
    int64_t ffn;        /* F */
    int64_t vocab;      /* V: ids 0 .. V-1 exist */
    int64_t vocab_rows; /* V rounded up to 64: rows of the embedding and columns of the logits */
    int64_t max_seq_len;
    double norm_eps;
    bool tied; /* the head's matrix is the token embedding */
    double rope_theta;
    yk_rope_scaling rope_scaling;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_seq_len;
} yk_model_shape;

/* The shape that a configuration asks for: a preset, or a family, with single keys on top.
 *
 * YK_EINVAL  no such preset or family, a family beside a preset of another one, a required size is
 *            missing, heads do not divide: the message names the key
 */
yk_status yk_model_shape_from_config(const yk_config *config, yk_model_shape *shape_out);

/* Does a model that is there have the shape that a configuration gives, as far as it gives one?
 *
 * YK_EINVAL  no such preset or family; it has another: the message names the key and both values
 */
yk_status yk_model_shape_agrees(const yk_model_shape *shape, const yk_config *config);

bool yk_model_is_preset(const char *name);

/* "gpt2-124m with layers 4, width 128": the preset, and the sizes in which a shape that was
 * asked for is not the preset's. False: no preset is given, or it is as the preset has it. */
bool yk_model_shape_tell_preset(const yk_model_shape *shape, const yk_config *config,
                                char *text_out, size_t room);

/* Check a shape from wherever it came and fill in what follows from the rest (vocab_rows).
 *
 * source  what is named in messages: a file or "model"
 */
yk_status yk_model_shape_check(yk_model_shape *shape, const char *source);

/* Parameters in all, padding rows left out; the embedding counts once when tied. */
int64_t yk_model_shape_count(const yk_model_shape *shape);

typedef struct yk_model yk_model;

/* Make the description of a model of `shape` (copied). */
yk_status yk_model_create(const yk_model_shape *shape, yk_model **model_out);
void yk_model_destroy(yk_model *model);

const yk_model_shape *yk_model_get_shape(const yk_model *model);
int yk_model_n_units(const yk_model *model);
int yk_model_n_params(const yk_model *model);

/* The parameter table; borrowed until the model is destroyed. */
const yk_param *yk_model_params(const yk_model *model);

/* Index of the parameter called `name`, or -1. */
int yk_model_find_param(const yk_model *model, const char *name);

/* Does a unit's backward pass read parameters? The embedding's only adds up gradients. */
bool yk_model_backward_reads(const yk_model *model, int unit);

/* What a parameter begins as: element i, row-major, is number i of what is returned, so a function
 * of (seed, name, index) alone; from the `n_used_out`-th on are rows that fill up a vocabulary,
 * which begin as 0. Matrices are normal with deviation 0.02, those that write to the residual with
 * 0.02 / sqrt(2 L) (Radford et al. 2019, section 2.3); norm weights are 1; the rest is 0. */
yk_normal yk_model_first_values(const yk_model *model, int param, int64_t seed,
                                int64_t *n_used_out);

/* ---- a pass ------------------------------------------------------------------------------- */

typedef enum yk_pass_mode {
    YK_PASS_TRAIN,    /* forward and backward */
    YK_PASS_EVALUATE, /* forward to the loss; keeps nothing */
    YK_PASS_GENERATE, /* forward to the logits of the last position, with a key-value cache */
} yk_pass_mode;

/* Keys and values of the positions seen so far, for generation. Owned by the caller. */
typedef struct yk_kv_cache {
    void **k, **v;          /* per layer (B,S,G*D) */
    int64_t capacity, past; /* S, and the positions that are filled */
} yk_kv_cache;

typedef struct yk_pass yk_pass;

/* What a pass runs on and with; everything is borrowed for the pass's life. */
typedef struct yk_pass_options {
    yk_stream *stream;
    yk_arena *activation;
    const float *rope_cos, *rope_sin; /* (n_positions,D/2) device memory; NULL without RoPE */
    int64_t n_positions;              /* positions that the batches may use */
    yk_step_values *values;           /* device memory */
    yk_dtype dtype;                   /* of activations and parameters */
    yk_recompute recompute;           /* of every block but the last `n_lighter` */
    int64_t n_lighter;                /* blocks under the next weaker policy */
    int64_t head_chunk;               /* rows of logits at a time */
    const yk_host_side
        *inputs; /* where blocks' inputs wait for the backward pass; NULL: on the device */
} yk_pass_options;

yk_status yk_pass_create(const yk_model *model, const yk_pass_options *options, yk_pass **pass_out);
void yk_pass_destroy(yk_pass *pass);

/* Begin with a micro-batch. In training, gradients are those of the losses' sum times `loss_weight`
 * times the loss scale. `cache` and `logits` (B,vocab_rows) are for generation, NULL otherwise. */
yk_status yk_pass_begin(yk_pass *pass, yk_pass_mode mode, const yk_batch *batch, float loss_weight,
                        yk_kv_cache *cache, void *logits);

/* Run unit `unit`, the next in order, from the parameters in `p`. The last unit adds to
 * values->loss_sum and values->n_tokens when evaluating. */
yk_status yk_pass_forward(yk_pass *pass, int unit, const yk_param_view *p);

/* Run unit `unit` backward, the next in reverse order, writing gradients of its parameters to `g`.
 * The last unit adds to values->loss_sum and values->n_tokens. */
yk_status yk_pass_backward(yk_pass *pass, int unit, const yk_param_view *p, const yk_grad_view *g);

/* In training, where blocks' inputs wait in host memory: let them travel. To be called before unit
 * `unit` is run forward or backward, and after it; elsewhere the calls do nothing. */
yk_status yk_pass_enter(yk_pass *pass, int unit, bool backward);
yk_status yk_pass_leave(yk_pass *pass, int unit, bool backward);

/* Leave the activation arena as it was before yk_pass_begin(). */
void yk_pass_end(yk_pass *pass);

/* Cosines and sines of the rotary angles of positions 0 .. n_positions-1, (n_positions,D/2) each,
 * host memory: the position times theta^(-2i/D), scaled as the shape says. */
void yk_rope_table(const yk_model_shape *shape, int64_t n_positions, float *cos_out,
                   float *sin_out);

#endif
