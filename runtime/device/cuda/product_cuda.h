/* runtime/device/cuda/product_cuda.h - one matrix product through cuBLASLt.
 *
 * Model.    A yk_cuda_product describes D = A B + C by columns, as cuBLASLt
 * sees it: a row-major matrix is the transpose of a column-major one. The first
 * product of a shape chooses its algorithm and keeps it with its descriptors in
 * the device's state; later ones look it up. Bits.     Only algorithms that add
 * parts of a sum in one order are allowed (none, or through the workspace in
 * fp32), so a shape gives the same bits each time. Threads.  Any number; the
 * table has a lock.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_PRODUCT_CUDA_H
#define YK_RUNTIME_DEVICE_CUDA_PRODUCT_CUDA_H

#include "runtime/device/cuda/cuda_device.h"

typedef struct yk_cuda_product {
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* A is stored (K,M) by columns, not (M,K); B
                                    (N,K), not (K,N) */
    bool add;                      /* D = A B + C, else C is not read */
    yk_dtype dtype, out_dtype;     /* of A and B; of C, D and the bias */
    cublasLtEpilogue_t epilogue;
    const void *a, *b, *c;
    void *d;
    const void *bias; /* (m) added, or for BGRADB (n) written; NULL where the
                       epilogue has none */
    const void *aux;  /* (m,n) by columns, GELU's input: written or read; NULL likewise */
} yk_cuda_product;

/* Enqueue the product, with YK_CUDA_PRODUCT_BYTES of workspace.
 *
 * offered_out  false when cuBLASLt has no algorithm for it, and nothing was
 * enqueued: the caller takes the epilogue apart
 */
yk_status yk_cuda_product_run(yk_stream *s, const yk_cuda_product *p, void *ws, bool *offered_out);

#endif
