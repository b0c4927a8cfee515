/* runtime/device/cuda/attention_cudnn.c - cuDNN's plans, one a shape, and running them. */
#include "runtime/device/cuda/attention_cudnn.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cuda/attention_cudnn_graph.h"
#include "runtime/device/cuda/sizes.h"

#define MAX_PLANS   32 /* a run has some four shapes; those beyond take our own kernels */
#define MAX_TENSORS 14
#define ALIGNMENT   16 /* of every tensor, as described */

typedef struct plan {
    yk_cudnn_attention_shape shape;
    bool offered;
    bool has_run;
    yk_cudnn_graph graph;
} plan;

struct yk_cudnn_attention {
    yk_cudnn cudnn;
    pthread_mutex_t lock;
    bool deterministic;
    int n_plans;
    plan *plans[MAX_PLANS]; /* owned */
};

yk_status yk_cudnn_attention_open(yk_cudnn_attention **attention_out, char *why, size_t why_bytes)
{
    yk_cudnn_attention *c = calloc(1, sizeof *c);
    if (!c) return yk_fail(YK_ENOMEM, "attention", "no memory for cuDNN's plans");
    if (!yk_cudnn_open(&c->cudnn, why, why_bytes)) {
        free(c);
        return YK_EUNSUPPORTED;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->deterministic = true;
    *attention_out = c;
    return YK_OK;
}

void yk_cudnn_attention_close(yk_cudnn_attention *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_plans; i++) {
        yk_cudnn_graph_fini(&c->plans[i]->graph);
        free(c->plans[i]);
    }
    yk_cudnn_close(&c->cudnn);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void yk_cudnn_attention_set_deterministic(yk_cudnn_attention *c, bool on)
{
    pthread_mutex_lock(&c->lock);
    c->deterministic = on;
    pthread_mutex_unlock(&c->lock);
}

int64_t yk_cudnn_attention_version(const yk_cudnn_attention *c)
{
    return (int64_t)c->cudnn.get_version();
}

/* ---- plans -------------------------------------------------------------------------------- */

static bool is_same(const yk_cudnn_attention_shape *a, const yk_cudnn_attention_shape *b)
{
    return a->batch == b->batch && a->seq_len == b->seq_len && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_size == b->head_size && a->dtype == b->dtype &&
           a->backward == b->backward && a->deterministic == b->deterministic;
}

static void tell(const plan *p, const yk_cudnn *cudnn, cudnnStatus_t status, const char *at)
{
    const yk_cudnn_attention_shape *n = &p->shape;
    yk_warn("attention",
            "cuDNN does not serve %s of %lld sequences of %lld, %lld and %lld heads of %lld in %s "
            "(%s at %s; %lld bytes of workspace asked for); our own kernels are used",
            n->backward ? "the gradient" : "the forward pass", (long long)n->batch,
            (long long)n->seq_len, (long long)n->heads, (long long)n->kv_heads,
            (long long)n->head_size, yk_dtype_name(n->dtype), cudnn->get_error_string(status), at,
            (long long)p->graph.workspace_bytes);
}

/* The plan of `shape`, built at its first use; NULL where there is no room for more. */
static plan *find_plan(yk_cudnn_attention *c, const yk_cudnn_attention_shape *shape, int64_t limit)
{
    for (int i = 0; i < c->n_plans; i++)
        if (is_same(&c->plans[i]->shape, shape)) return c->plans[i];
    plan *p = c->n_plans < MAX_PLANS ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->shape = *shape;
    yk_cudnn_graph_init(&p->graph, &c->cudnn);
    yk_cudnn_attention_describe(&p->graph, shape);
    p->offered = yk_cudnn_graph_plan(&p->graph, limit);
    if (!p->offered) tell(p, &c->cudnn, p->graph.status, p->graph.failed_at);
    c->plans[c->n_plans++] = p;
    return p;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The tensors of one run. */
typedef struct arguments {
    int n;
    int64_t ids[MAX_TENSORS];
    void *pointers[MAX_TENSORS];
} arguments;

static void give(arguments *a, int64_t id, const void *pointer)
{
    YK_CHECK(a->n < MAX_TENSORS);
    a->ids[a->n] = id;
    a->pointers[a->n++] = (void *)(uintptr_t)pointer;
}

static bool is_aligned(const arguments *a)
{
    for (int i = 0; i < a->n; i++) {
        bool scalar = a->ids[i] == YK_CUDNN_SCALE || a->ids[i] == YK_CUDNN_ONE ||
                      a->ids[i] == YK_CUDNN_MINUS_INFINITY;
        if (!scalar && (uintptr_t)a->pointers[i] % ALIGNMENT != 0) return false;
    }
    return true;
}

/* Run `p`. A plan that is refused the first time is given up; one that has run before must run. */
static yk_status run(yk_cudnn_attention *c, plan *p, cudaStream_t stream, const arguments *a,
                     void *ws, bool *offered_out)
{
    cudnnStatus_t status;
    *offered_out = false;
    if (!p || !p->offered) return YK_OK;
    if (yk_cudnn_graph_run(&p->graph, stream, a->n, a->ids, a->pointers, ws, &status)) {
        p->has_run = true;
        *offered_out = true;
        return YK_OK;
    }
    if (p->has_run)
        return yk_fail(YK_EDEVICE, "attention", "cuDNN: %s", c->cudnn.get_error_string(status));
    p->offered = false;
    tell(p, &c->cudnn, status, "its first run");
    return YK_OK;
}

static const float minus_infinity = -INFINITY, one = 1;

static const void *at(const void *base, int64_t bytes)
{
    return (const char *)base + bytes;
}

/* q, k and v within a matrix of all three, or their gradients. */
static void give_qkv(arguments *a, int64_t q_id, int64_t k_id, int64_t v_id, const void *qkv,
                     const yk_cudnn_attention_shape *n)
{
    int64_t k = n->heads * n->head_size * 2, v = k + n->kv_heads * n->head_size * 2;
    give(a, q_id, qkv);
    give(a, k_id, at(qkv, k));
    give(a, v_id, at(qkv, v));
}

/* Whether it is worth asking cuDNN at all. */
static bool is_asked(yk_dtype dtype, int64_t head_size, const int32_t *doc_start)
{
    return dtype != YK_F32 && !doc_start && head_size % 8 == 0 && head_size >= 32 &&
           head_size <= 256;
}

yk_status yk_cudnn_attention_forward(yk_cudnn_attention *c, cudaStream_t stream,
                                     const yk_attention_forward_args *a, void *ws,
                                     bool *offered_out)
{
    *offered_out = false;
    if (!is_asked(a->dtype, a->head_size, a->doc_start)) return YK_OK;
    const yk_cudnn_attention_shape shape = {.batch = a->batch,
                                            .seq_len = a->seq_len,
                                            .heads = a->heads,
                                            .kv_heads = a->kv_heads,
                                            .head_size = a->head_size,
                                            .dtype = a->dtype};
    arguments given = {.n = 0};
    give_qkv(&given, YK_CUDNN_Q, YK_CUDNN_K, YK_CUDNN_V, a->qkv, &shape);
    give(&given, YK_CUDNN_Y, a->y);
    give(&given, YK_CUDNN_LSE, a->lse);
    give(&given, YK_CUDNN_SCALE, &a->scale);
    give(&given, YK_CUDNN_MINUS_INFINITY, &minus_infinity);
    if (!is_aligned(&given)) return YK_OK;
    pthread_mutex_lock(&c->lock);
    plan *p = find_plan(c, &shape, yk_cuda_cudnn_forward_bytes(a->batch, a->seq_len, a->heads));
    yk_status status = run(c, p, stream, &given, ws, offered_out);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* The tensors of the entries of the batch from `first` on. */
static arguments part_of(const yk_attention_backward_args *a, const yk_cudnn_attention_shape *n,
                         const yk_cuda_cudnn_layout *l, void *ws, int64_t first)
{
    int64_t rows = first * n->seq_len, width = n->heads * n->head_size * 2;
    int64_t qkv_width = (n->heads + 2 * n->kv_heads) * n->head_size * 2;
    arguments given = {.n = 0};
    give_qkv(&given, YK_CUDNN_Q, YK_CUDNN_K, YK_CUDNN_V, at(a->qkv, rows * qkv_width), n);
    give(&given, YK_CUDNN_Y, at(a->y, rows * width));
    give(&given, YK_CUDNN_LSE, a->lse + rows * n->heads);
    give(&given, YK_CUDNN_SCALE, &a->scale);
    give(&given, YK_CUDNN_MINUS_INFINITY, &minus_infinity);
    give(&given, YK_CUDNN_DY, at(a->dy, rows * width));
    give_qkv(&given, YK_CUDNN_DQ, YK_CUDNN_DK, YK_CUDNN_DV, at(a->dqkv, rows * qkv_width), n);
    give(&given, YK_CUDNN_ROW_SUM, at(ws, l->row_sum));
    give(&given, YK_CUDNN_ONE, &one);
    if (!n->deterministic) give(&given, YK_CUDNN_DQ_SUM, at(ws, l->dq));
    return given;
}

/* As many entries at a time as the workspace holds. All go to cuDNN or none: the first call finds
 * out, and the last may have a plan of its own, for fewer entries. */
static yk_status run_parts(yk_cudnn_attention *c, cudaStream_t stream,
                           const yk_attention_backward_args *a, yk_cudnn_attention_shape shape,
                           const yk_cuda_cudnn_layout *l, void *ws, bool *offered_out)
{
    int64_t rest = a->batch % l->at_once;
    for (int64_t first = 0; first < a->batch; first += l->at_once) {
        shape.batch = yk_min(l->at_once, a->batch - first);
        arguments given = part_of(a, &shape, l, ws, first);
        *offered_out = false;
        if (!is_aligned(&given)) return YK_OK;
        plan *p = find_plan(c, &shape, l->workspace_bytes);
        if (rest && first == 0) {
            yk_cudnn_attention_shape last = shape;
            last.batch = rest;
            const plan *q = find_plan(c, &last, l->workspace_bytes);
            if (!q || !q->offered) return YK_OK;
        }
        void *own = (char *)ws + l->workspace;
        YK_TRY(run(c, p, stream, &given, own, offered_out));
        if (!*offered_out) return YK_OK;
    }
    return YK_OK;
}

yk_status yk_cudnn_attention_backward(yk_cudnn_attention *c, cudaStream_t stream,
                                      const yk_attention_backward_args *a, int64_t room, void *ws,
                                      bool *offered_out)
{
    *offered_out = false;
    if (!is_asked(a->dtype, a->head_size, a->doc_start)) return YK_OK;
    pthread_mutex_lock(&c->lock);
    const yk_cudnn_attention_shape shape = {.seq_len = a->seq_len,
                                            .heads = a->heads,
                                            .kv_heads = a->kv_heads,
                                            .head_size = a->head_size,
                                            .dtype = a->dtype,
                                            .backward = true,
                                            .deterministic = c->deterministic};
    const yk_cuda_cudnn_layout l = yk_cuda_cudnn_plan(a->batch, a->seq_len, a->heads, a->kv_heads,
                                                      a->head_size, c->deterministic, room);
    yk_status status = YK_OK;
    if (l.at_once > 0) status = run_parts(c, stream, a, shape, &l, ws, offered_out);
    pthread_mutex_unlock(&c->lock);
    return status;
}
