/* runtime/device/cuda/product_cuda.c - choosing, keeping and running cuBLASLt's algorithms.
 *
 * What a choice depends on is the key: sizes, types, epilogue and the alignment of every pointer.
 * It is what the tuner knows of that key; else cuBLASLt's first candidate, or the fastest of the
 * first ones where the tuner lets them race. The table is open-addressed and never grows: a
 * training step has a few dozen shapes. When generation with ever new lengths fills it, further
 * shapes are chosen anew each time.
 */
#include "runtime/device/cuda/product_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cuda/race.h"
#include "runtime/device/cuda/sizes.h"

#define SLOTS      1024
#define MAX_FILLED (SLOTS / 2)
#define CANDIDATES 16 /* of a race */

typedef struct key {
    int64_t m, n, k;
    uint32_t epilogue;
    uint8_t transpose_a, transpose_b, add, dtype, out_dtype, tf32;
    uint8_t align_a, align_b, align_c, align_d, align_bias, align_aux; /* log2 of bytes, up to 8 */
} key;

typedef struct choice {
    key key;
    bool filled, offered;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} choice;

struct yk_cuda_products {
    pthread_mutex_t lock;
    int edition; /* of the tuner that the choices are by */
    int n_filled;
    choice slots[SLOTS];
};

yk_status yk_cuda_products_create(yk_cuda_products **products_out)
{
    yk_cuda_products *p = calloc(1, sizeof *p);
    if (!p) return yk_fail(YK_ENOMEM, "cuBLASLt", "no memory for the table of products");
    pthread_mutex_init(&p->lock, NULL);
    *products_out = p;
    return YK_OK;
}

void yk_cuda_products_destroy(yk_cuda_products *products)
{
    if (!products) return;
    pthread_mutex_destroy(&products->lock);
    free(products);
}

static yk_status check(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return YK_OK;
    return yk_fail(YK_EDEVICE, what, "cuBLASLt: %s", cublasLtGetStatusString(status));
}

/* ---- keys ---------------------------------------------------------------------------------- */

static uint8_t alignment_of(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 256;
    return (uint8_t)__builtin_ctzll(bits);
}

static key key_of(const yk_cuda_product *p, bool tf32)
{
    key k;
    memset(&k, 0, sizeof k); /* padding too: keys are compared as bytes */
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.epilogue = (uint32_t)p->epilogue;
    k.transpose_a = p->transpose_a, k.transpose_b = p->transpose_b, k.add = p->add;
    k.dtype = (uint8_t)p->dtype, k.out_dtype = (uint8_t)p->out_dtype;
    k.tf32 = tf32 && p->dtype == YK_F32;
    k.align_a = alignment_of(p->a), k.align_b = alignment_of(p->b);
    k.align_c = alignment_of(p->add ? p->c : p->d), k.align_d = alignment_of(p->d);
    k.align_bias = alignment_of(p->bias), k.align_aux = alignment_of(p->aux);
    return k;
}

/* FNV-1a over the bytes. */
static uint64_t hash_of(const key *k)
{
    const unsigned char *bytes = (const unsigned char *)k;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof *k; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* The slot that holds `k`, or the empty one where it goes. The table is never full. */
static choice *find_slot(yk_cuda_products *products, const key *k)
{
    uint64_t at = hash_of(k) % SLOTS;
    while (products->slots[at].filled && memcmp(&products->slots[at].key, k, sizeof *k) != 0)
        at = (at + 1) % SLOTS;
    return &products->slots[at];
}

/* ---- choosing ------------------------------------------------------------------------------ */

static cudaDataType_t cuda_type(yk_dtype t)
{
    return t == YK_F32 ? CUDA_R_32F : t == YK_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static cublasStatus_t set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(operation, name, value, bytes);
}

/* Point the epilogue at this call's bias and GELU input. */
static cublasStatus_t set_pointers(cublasLtMatmulDesc_t operation, const yk_cuda_product *p)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (p->bias)
        status = set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
    if (status == CUBLAS_STATUS_SUCCESS && p->aux)
        status = set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux);
    return status;
}

static yk_status describe_operation(cublasLtMatmulDesc_t operation, const yk_cuda_product *p,
                                    bool tf32)
{
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    YK_TRY(check(cublasLtMatmulDescInit(operation, compute, CUDA_R_32F), "product"));
    YK_TRY(check(set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a), "product"));
    YK_TRY(check(set(operation, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b), "product"));
    YK_TRY(check(set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue),
                 "product's epilogue"));
    if (p->aux) {
        int64_t stride = p->m;
        YK_TRY(check(set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &stride, sizeof stride),
                     "product's epilogue"));
    }
    return check(set_pointers(operation, p), "product's epilogue");
}

static yk_status describe_matrix(cublasLtMatrixLayout_t layout, yk_dtype dtype, int64_t rows,
                                 int64_t cols)
{
    return check(
        cublasLtMatrixLayoutInit(layout, cuda_type(dtype), (uint64_t)rows, (uint64_t)cols, rows),
        "product's matrix");
}

static yk_status set_preference(cublasLtMatmulPreference_t preference, const key *k)
{
    const uint64_t bytes = YK_CUDA_PRODUCT_BYTES;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint8_t align;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k->align_d},
    };
    YK_TRY(check(cublasLtMatmulPreferenceInit(preference), "product"));
    YK_TRY(check(cublasLtMatmulPreferenceSetAttribute(
                     preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
                 "product"));
    YK_TRY(check(cublasLtMatmulPreferenceSetAttribute(preference,
                                                      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction),
                 "product"));
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        uint32_t unit = 1u << alignments[i].align;
        YK_TRY(check(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i].name, &unit,
                                                          sizeof unit),
                     "product"));
    }
    return YK_OK;
}

/* GELU must give the same bits whether its input is kept or not, so both take the algorithm that is
 * chosen for keeping it. `c` is that choice; make it one for not keeping. */
static yk_status drop_aux(cublasLtHandle_t lt, const yk_cuda_product *p, bool tf32, choice *c)
{
    cublasLtMatmulHeuristicResult_t result;
    YK_TRY(describe_operation(&c->operation, p, tf32));
    c->offered =
        c->offered && cublasLtMatmulAlgoCheck(lt, &c->operation, &c->a, &c->b, &c->c, &c->c,
                                              &c->algorithm, &result) == CUBLAS_STATUS_SUCCESS;
    return YK_OK;
}

/* cuBLASLt's candidates, best first by its own reckoning; none is no failure. */
static yk_status find_candidates(cublasLtHandle_t lt, choice *c, const key *k, int wanted,
                                 cublasLtMatmulHeuristicResult_t *found, int *n_out)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    YK_TRY(set_preference(&preference, k));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt, &c->operation, &c->a, &c->b, &c->c, &c->c, &preference, wanted, found, n_out);
    if (status != CUBLAS_STATUS_SUCCESS) *n_out = 0;
    return YK_OK;
}

/* ---- racing -------------------------------------------------------------------------------- */

typedef struct heat {
    cublasLtHandle_t lt;
    choice *c;
    const yk_cuda_product *p;
    const cublasLtMatmulHeuristicResult_t *candidates;
    void *d, *ws;
    cudaStream_t stream;
} heat;

static cublasStatus_t launch(cublasLtHandle_t lt, choice *c, const yk_cuda_product *p,
                             const cublasLtMatmulAlgo_t *algorithm, void *d, void *ws,
                             cudaStream_t stream)
{
    const float one = 1.0f, add = p->add ? 1.0f : 0.0f;
    return cublasLtMatmul(lt, &c->operation, &one, p->a, &c->a, p->b, &c->b, &add,
                          p->add ? p->c : d, &c->c, d, &c->c, algorithm, ws, YK_CUDA_PRODUCT_BYTES,
                          stream);
}

static bool run_candidate(void *context, int candidate)
{
    const heat *h = context;
    return launch(h->lt, h->c, h->p, &h->candidates[candidate].algo, h->d, h->ws, h->stream) ==
           CUBLAS_STATUS_SUCCESS;
}

/* How far another kernel than the library's first must be ahead to be tried. Where a product reads
 * activations, in a forward pass and in gradients of weights, kernels of 4 to 9 % fewer cycles draw
 * more power and made whole steps slower, whatever blocks of themselves said; in gradients of inputs
 * such ones keep what they gain (docs/performance.md). */
static float lead_of(const yk_cuda_product *p)
{
    return p->transpose_b ? 0.12f : p->transpose_a ? 0.07f : 0.0f;
}

/* The fastest of the candidates into c. What the product reads must stay, so a product in place is
 * timed on memory of its own, and so is one that would write GELU's input where its output goes; where
 * there is none, it is not timed. */
static yk_status race(yk_stream *s, const yk_cuda_product *p, void *ws,
                      const cublasLtMatmulHeuristicResult_t *candidates, int n, choice *c,
                      bool *raced_out)
{
    int64_t bytes = p->m * p->n * yk_dtype_bytes(p->out_dtype);
    void *apart = NULL;
    bool in_place = (p->add && p->c == p->d) || p->aux == p->d;
    int winner = 0;
    *raced_out = false;
    if (yk_race_is_captured(yk_cuda_stream_of(s))) return YK_OK;
    if (in_place && cudaMalloc(&apart, (size_t)bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return YK_OK;
    }
    heat h = {.lt = yk_cuda_state_of(s)->lt,
              .c = c,
              .p = p,
              .candidates = candidates,
              .d = in_place ? apart : p->d,
              .ws = ws,
              .stream = yk_cuda_stream_of(s)};
    yk_status status = yk_race_run(&(yk_race){.stream = h.stream,
                                              .tuner = s->device->tuner,
                                              .n = n,
                                              .lead = lead_of(p),
                                              .run = run_candidate,
                                              .context = &h,
                                              .out = h.d,
                                              .out_bytes = bytes,
                                              .digest = ws},
                                   &winner);
    if (apart) (void)cudaFree(apart);
    if (status == YK_OK) c->algorithm = candidates[winner].algo;
    *raced_out = status == YK_OK;
    return status;
}

/* ---- choosing, all together ---------------------------------------------------------------- */

/* An algorithm that was chosen before, if it still does. */
static bool recall(yk_stream *s, const key *k, choice *c)
{
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    if (!yk_tuner_find(s->device->tuner, k, sizeof *k, &algorithm, sizeof algorithm)) return false;
    if (cublasLtMatmulAlgoCheck(yk_cuda_state_of(s)->lt, &c->operation, &c->a, &c->b, &c->c, &c->c,
                                &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > YK_CUDA_PRODUCT_BYTES)
        return false;
    c->algorithm = algorithm;
    return true;
}

static yk_status choose(yk_stream *s, const yk_cuda_product *p, const key *k, void *ws, choice *c)
{
    cublasLtHandle_t lt = yk_cuda_state_of(s)->lt;
    if (p->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) {
        yk_cuda_product keeping = *p;
        keeping.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        keeping.aux = p->d;
        const key kept = key_of(&keeping, k->tf32);
        YK_TRY(choose(s, &keeping, &kept, ws, c));
        c->key = *k;
        return drop_aux(lt, p, k->tf32, c);
    }
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    bool races = yk_tuner_races(s->device->tuner), raced = false;
    int n = 0;
    YK_TRY(describe_operation(&c->operation, p, k->tf32));
    YK_TRY(describe_matrix(&c->a, p->dtype, p->transpose_a ? p->k : p->m,
                           p->transpose_a ? p->m : p->k));
    YK_TRY(describe_matrix(&c->b, p->dtype, p->transpose_b ? p->n : p->k,
                           p->transpose_b ? p->k : p->n));
    YK_TRY(describe_matrix(&c->c, p->out_dtype, p->m, p->n));
    c->key = *k;
    c->offered = recall(s, k, c);
    if (c->offered) return YK_OK;
    YK_TRY(find_candidates(lt, c, k, races ? CANDIDATES : 1, found, &n));
    c->offered = n > 0;
    if (!c->offered) return YK_OK;
    c->algorithm = found[0].algo;
    if (races && n > 1) YK_TRY(race(s, p, ws, found, n, c, &raced));
    if (raced) yk_tuner_add(s->device->tuner, k, sizeof *k, &c->algorithm, sizeof c->algorithm);
    return YK_OK;
}

/* Forget choices by what the tuner knew before. */
static void keep_up(yk_cuda_products *products, const yk_tuner *tuner)
{
    if (products->edition == yk_tuner_edition(tuner)) return;
    for (int i = 0; i < SLOTS; i++) products->slots[i].filled = false;
    products->n_filled = 0;
    products->edition = yk_tuner_edition(tuner);
}

/* The choice for `p`, copied: pointers are set in the copy, so that threads do not meet. */
static yk_status look_up(yk_stream *s, const yk_cuda_product *p, void *ws, choice *choice_out)
{
    yk_cuda_state *state = yk_cuda_state_of(s);
    yk_cuda_products *products = state->products;
    key k = key_of(p, state->tf32);
    yk_status status = YK_OK;
    pthread_mutex_lock(&products->lock);
    keep_up(products, s->device->tuner);
    choice *slot = find_slot(products, &k);
    if (slot->filled) {
        *choice_out = *slot;
    } else {
        status = choose(s, p, &k, ws, choice_out);
        if (status == YK_OK && products->n_filled < MAX_FILLED) {
            *slot = *choice_out;
            slot->filled = true;
            products->n_filled++;
        }
    }
    pthread_mutex_unlock(&products->lock);
    return status;
}

/* ---- running ------------------------------------------------------------------------------- */

yk_status yk_cuda_product_run(yk_stream *s, const yk_cuda_product *p, void *ws, bool *offered_out)
{
    yk_cuda_state *state = yk_cuda_state_of(s);
    choice c;
    YK_TRY(yk_cuda_enter(s->device));
    YK_TRY(look_up(s, p, ws, &c));
    if (!c.offered) {
        *offered_out = false;
        return YK_OK;
    }
    YK_TRY(check(set_pointers(&c.operation, p), "product's epilogue"));
    YK_TRY(
        check(launch(state->lt, &c, p, &c.algorithm, p->d, ws, yk_cuda_stream_of(s)), "product"));
    *offered_out = true;
    return YK_OK;
}
