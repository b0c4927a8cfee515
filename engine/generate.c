/* engine/generate.c - prefill in pieces, then token by token over a key-value cache. */
#include "engine/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "runtime/base/arith.h"

/* What a generation holds beside the engine; all on the activation arena but `history`. */
typedef struct generation {
    yk_engine *e;
    yk_kv_cache cache;
    int32_t *tokens, *positions; /* (piece) device memory */
    int32_t *host;               /* (piece) staging */
    void *logits;                /* (1,V) compute dtype, device memory */
    void *host_logits;           /* (1,V) compute dtype */
    float *scores;               /* (V) fp32 */
    int64_t piece;               /* positions run through at a time */
    int32_t *history;            /* (capacity) tokens whose keys are in the cache, and the next */
    int64_t n_history;
} generation;

static yk_status push_cache(generation *g)
{
    const yk_model_shape *s = yk_model_get_shape(g->e->model);
    int64_t row = s->kv_heads * s->head_size * yk_dtype_bytes(g->e->compute_dtype);
    for (int64_t l = 0; l < s->layers; l++) {
        YK_TRY(
            yk_arena_push(g->e->activation, "key cache", g->cache.capacity * row, &g->cache.k[l]));
        YK_TRY(yk_arena_push(g->e->activation, "value cache", g->cache.capacity * row,
                             &g->cache.v[l]));
    }
    return YK_OK;
}

static yk_status push_buffers(generation *g)
{
    const yk_model_shape *s = yk_model_get_shape(g->e->model);
    yk_arena *arena = g->e->activation;
    void *tokens, *positions;
    YK_TRY(yk_arena_push(arena, "generated tokens", g->piece * 4, &tokens));
    YK_TRY(yk_arena_push(arena, "generated positions", g->piece * 4, &positions));
    YK_TRY(yk_arena_push(arena, "generated logits",
                         s->vocab_rows * yk_dtype_bytes(g->e->compute_dtype), &g->logits));
    g->tokens = tokens;
    g->positions = positions;
    return push_cache(g);
}

static void fini(generation *g)
{
    free(g->cache.k);
    free(g->cache.v);
    free(g->host);
    free(g->host_logits);
    free(g->scores);
    free(g->history);
}

static yk_status init(generation *g, yk_engine *e)
{
    const yk_model_shape *s = yk_model_get_shape(e->model);
    int64_t context = e->seq_len;
    *g = (generation){.e = e, .piece = yk_min(context, 64), .cache = {.capacity = context}};
    g->cache.k = calloc((size_t)s->layers, sizeof *g->cache.k);
    g->cache.v = calloc((size_t)s->layers, sizeof *g->cache.v);
    g->host = calloc((size_t)g->piece, sizeof *g->host);
    g->host_logits = calloc((size_t)s->vocab_rows, sizeof(float));
    g->scores = calloc((size_t)s->vocab_rows, sizeof *g->scores);
    g->history = calloc((size_t)context + 1, sizeof *g->history);
    if (!g->cache.k || !g->cache.v || !g->host || !g->host_logits || !g->scores || !g->history)
        return yk_fail(YK_ENOMEM, "generate", "no memory for a context of %" PRId64, context);
    return push_buffers(g);
}

/* Copy `n` numbers to the device by way of the staging buffer. */
static yk_status upload(generation *g, int32_t *to, int64_t n)
{
    YK_TRY(yk_copy(g->e->compute, to, g->host, n * 4, YK_COPY_HOST_TO_DEVICE));
    return yk_stream_synchronize(g->e->compute);
}

/* Run the `n` tokens of the history from cache.past on through the model. */
static yk_status run_piece(generation *g, int64_t n)
{
    yk_engine *e = g->e;
    int64_t past = g->cache.past;
    memcpy(g->host, g->history + past, (size_t)n * sizeof *g->host);
    YK_TRY(upload(g, g->tokens, n));
    for (int64_t i = 0; i < n; i++) g->host[i] = (int32_t)(past + i);
    YK_TRY(upload(g, g->positions, n));

    yk_batch batch = {.tokens = g->tokens, .positions = g->positions, .batch = 1, .seq_len = n};
    YK_TRY(yk_pass_begin(e->pass, YK_PASS_GENERATE, &batch, 0.0f, &g->cache, g->logits));
    YK_TRY(yk_forward_all(e));
    yk_pass_end(e->pass);
    g->cache.past += n;
    return YK_OK;
}

/* Run what the cache has not seen yet; logits are those of the last token. */
static yk_status catch_up(generation *g)
{
    while (g->cache.past < g->n_history)
        YK_TRY(run_piece(g, yk_min(g->piece, g->n_history - g->cache.past)));
    return YK_OK;
}

static void append(generation *g, int32_t token)
{
    if (g->n_history == g->cache.capacity) { /* keep the newer half and see it again */
        int64_t keep = yk_max(g->cache.capacity / 2, 1);
        memmove(g->history, g->history + g->n_history - keep, (size_t)keep * sizeof *g->history);
        g->n_history = keep;
        g->cache.past = 0;
    }
    if (g->n_history == g->cache.capacity) g->n_history = g->cache.past = 0; /* a context of one */
    g->history[g->n_history++] = token;
}

static yk_status choose(generation *g, const yk_sample_options *sample, int64_t index,
                        int32_t *token_out)
{
    const yk_model_shape *s = yk_model_get_shape(g->e->model);
    yk_dtype dtype = g->e->compute_dtype;
    YK_TRY(yk_copy(g->e->compute, g->host_logits, g->logits, s->vocab_rows * yk_dtype_bytes(dtype),
                   YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_stream_synchronize(g->e->compute));
    for (int64_t i = 0; i < s->vocab; i++) g->scores[i] = yk_load_f32(g->host_logits, i, dtype);
    return yk_sample_token(g->scores, s->vocab, sample, (uint64_t)index, token_out);
}

yk_status yk_generate_check(const yk_engine *e, const yk_generate_options *o)
{
    int64_t vocab = yk_model_get_shape(e->model)->vocab;
    if (o->n_prompt < 1)
        return yk_fail(YK_EINVAL, "prompt", "it is empty; give at least one token");
    for (int64_t i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || o->prompt[i] >= vocab)
            return yk_fail(YK_EINVAL, "prompt",
                           "token %" PRId64 " is id %" PRId32
                           ", outside the vocabulary of %" PRId64,
                           i, o->prompt[i], vocab);
    return YK_OK;
}

static yk_status generate(generation *g, const yk_generate_options *o, yk_token_sink sink,
                          void *context)
{
    for (int64_t i = 0; i < o->n_prompt; i++) append(g, o->prompt[i]);
    for (int64_t i = 0; i < o->max_tokens; i++) {
        int32_t token;
        YK_TRY(catch_up(g));
        YK_TRY(choose(g, &o->sample, i, &token));
        if (token == o->stop_token) break;
        YK_TRY(sink(context, token));
        append(g, token);
    }
    return YK_OK;
}

yk_status yk_generate(yk_engine *e, const yk_generate_options *options, yk_token_sink sink,
                      void *context)
{
    YK_TRY(yk_generate_check(e, options));
    generation g;
    int mark = yk_arena_mark(e->activation);
    yk_status status = init(&g, e);
    if (status == YK_OK) status = generate(&g, options, sink, context);
    yk_arena_pop(e->activation, mark);
    fini(&g);
    return status;
}

yk_status yk_generate_rehearse(yk_engine *e)
{
    generation g;
    int mark = yk_arena_mark(e->activation);
    yk_status status = init(&g, e);
    if (status == YK_OK) {
        g.cache.past = g.cache.capacity - g.piece; /* attention over the whole cache */
        status = run_piece(&g, g.piece);
    }
    yk_arena_pop(e->activation, mark);
    fini(&g);
    return status;
}
