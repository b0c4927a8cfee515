/* runtime/device/cuda/product_cuda.c - choosing, keeping and running cuBLASLt's
 * algorithms.
 *
 * What a choice depends on is the key: sizes, types, epilogue and the alignment
 * of every pointer. The table is open-addressed and never grows: a training
 * step has a few dozen shapes. When generation with ever new lengths fills it,
 * further shapes are chosen anew each time.
 */
#include "runtime/device/cuda/product_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cuda/sizes.h"

#define SLOTS      1024
#define MAX_FILLED (SLOTS / 2)

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

/* ---- keys
 * ---------------------------------------------------------------------------------
 */

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

/* The slot that holds `k`, or the empty one where it goes. The table is never
 * full. */
static choice *find_slot(yk_cuda_products *products, const key *k)
{
    uint64_t at = hash_of(k) % SLOTS;
    while (products->slots[at].filled && memcmp(&products->slots[at].key, k, sizeof *k) != 0)
        at = (at + 1) % SLOTS;
    return &products->slots[at];
}

/* ---- choosing
 * -----------------------------------------------------------------------------
 */

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

/* GELU must give the same bits whether its input is kept or not, so both take
 * the algorithm that is chosen for keeping it. `c` is that choice; make it one
 * for not keeping. */
static yk_status drop_aux(cublasLtHandle_t lt, const yk_cuda_product *p, bool tf32, choice *c)
{
    cublasLtMatmulHeuristicResult_t result;
    YK_TRY(describe_operation(&c->operation, p, tf32));
    c->offered =
        c->offered && cublasLtMatmulAlgoCheck(lt, &c->operation, &c->a, &c->b, &c->c, &c->c,
                                              &c->algorithm, &result) == CUBLAS_STATUS_SUCCESS;
    return YK_OK;
}

static yk_status choose(cublasLtHandle_t lt, const yk_cuda_product *p, const key *k, choice *c)
{
    if (p->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) {
        yk_cuda_product keeping = *p;
        keeping.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        keeping.aux = p->d;
        YK_TRY(choose(lt, &keeping, k, c));
        return drop_aux(lt, p, k->tf32, c);
    }
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    YK_TRY(describe_operation(&c->operation, p, k->tf32));
    YK_TRY(describe_matrix(&c->a, p->dtype, p->transpose_a ? p->k : p->m,
                           p->transpose_a ? p->m : p->k));
    YK_TRY(describe_matrix(&c->b, p->dtype, p->transpose_b ? p->n : p->k,
                           p->transpose_b ? p->k : p->n));
    YK_TRY(describe_matrix(&c->c, p->out_dtype, p->m, p->n));
    YK_TRY(set_preference(&preference, k));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt, &c->operation, &c->a, &c->b, &c->c,
                                                           &c->c, &preference, 1, &found, &n_found);
    c->key = *k;
    c->offered = status == CUBLAS_STATUS_SUCCESS && n_found > 0;
    if (c->offered) c->algorithm = found.algo;
    return YK_OK;
}

/* The choice for `p`, copied: pointers are set in the copy, so that threads do
 * not meet. */
static yk_status look_up(yk_cuda_state *state, const yk_cuda_product *p, choice *choice_out)
{
    yk_cuda_products *products = state->products;
    key k = key_of(p, state->tf32);
    yk_status status = YK_OK;
    pthread_mutex_lock(&products->lock);
    choice *slot = find_slot(products, &k);
    if (slot->filled) {
        *choice_out = *slot;
    } else {
        status = choose(state->lt, p, &k, choice_out);
        if (status == YK_OK && products->n_filled < MAX_FILLED) {
            *slot = *choice_out;
            slot->filled = true;
            products->n_filled++;
        }
    }
    pthread_mutex_unlock(&products->lock);
    return status;
}

/* ---- running
 * ------------------------------------------------------------------------------
 */

yk_status yk_cuda_product_run(yk_stream *s, const yk_cuda_product *p, void *ws, bool *offered_out)
{
    yk_cuda_state *state = yk_cuda_state_of(s);
    choice c;
    YK_TRY(yk_cuda_enter(s->device));
    YK_TRY(look_up(state, p, &c));
    if (!c.offered) {
        *offered_out = false;
        return YK_OK;
    }
    YK_TRY(check(set_pointers(&c.operation, p), "product's epilogue"));
    const float one = 1.0f, add = p->add ? 1.0f : 0.0f;
    const void *from = p->add ? p->c : p->d;
    YK_TRY(check(cublasLtMatmul(state->lt, &c.operation, &one, p->a, &c.a, p->b, &c.b, &add, from,
                                &c.c, p->d, &c.c, &c.algorithm, ws, YK_CUDA_PRODUCT_BYTES,
                                yk_cuda_stream_of(s)),
                 "product"));
    *offered_out = true;
    return YK_OK;
}
