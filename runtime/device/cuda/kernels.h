/* runtime/device/cuda/kernels.h - the launchers of our own kernels, for host C.
 *
 * Each enqueues on `s` and returns what the launch said; none allocates or waits, so that all can
 * be captured into a graph. Arguments are those of ops.h, checked by the dispatcher; `ws` is
 * workspace of the size that sizes.h states. Tensors are in device memory.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_KERNELS_H
#define YK_RUNTIME_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "runtime/device/ops_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Let the kernels that need it have up to `shared_bytes_max` of shared memory a block, which their
 * launchers are then told: when the device is opened, and when that changes. */
cudaError_t yk_cuda_kernels_prepare(int shared_bytes_max);

/* embed.cu, embed_sort.cu */
cudaError_t yk_cuda_embed_forward(const yk_embed_forward_args *a, cudaStream_t s);
cudaError_t yk_cuda_embed_backward(const yk_embed_backward_args *a, void *ws, cudaStream_t s);

/* Rows 0 .. n-1 with equal keys are to come together, in order of row; the order of keys is any,
 * but the same in every run. */
typedef struct yk_cuda_sort {
    const int32_t *keys;    /* (n) less than n_keys */
    int32_t *sorted, *rows; /* (n) results: keys, and the rows that they came from */
    void *list;             /* (2,n) pairs of int32, for its own use */
    unsigned *counters;     /* (n_counters) become 0 */
    void *zero; /* (n_keys) of row_bytes become zero, at least where no key names them; or NULL */
    int64_t n_counters, n_keys, row_bytes;
} yk_cuda_sort;

/* What is read after a sort: of each of its n rows `width` bytes, `stride` apart. */
typedef struct yk_cuda_ahead {
    const void *from;
    int64_t stride, width;
} yk_cuda_ahead;

/* One or two sorts of n rows each. In the meantime what is `ahead`, if it is not NULL, comes into the
 * cache. */
cudaError_t yk_cuda_sort_rows(const yk_cuda_sort *sorts, int n_sorts, int64_t n,
                              const yk_cuda_ahead *ahead, cudaStream_t s);

/* norm_forward.cu, norm_backward.cu */
cudaError_t yk_cuda_norm_forward(const yk_norm_forward_args *a, int shared_bytes_max,
                                 cudaStream_t s);
cudaError_t yk_cuda_norm_backward(const yk_norm_backward_args *a, void *ws, cudaStream_t s);
cudaError_t yk_cuda_norm_forward_prepare(int shared_bytes_max);
cudaError_t yk_cuda_norm_backward_prepare(void);

/* rope.cu */
cudaError_t yk_cuda_rope(const yk_rope_args *a, void *ws, cudaStream_t s);

/* activation.cu */
cudaError_t yk_cuda_swiglu_forward(const yk_swiglu_forward_args *a, cudaStream_t s);
cudaError_t yk_cuda_swiglu_backward(const yk_swiglu_backward_args *a, cudaStream_t s);

/* y = GELU(z), n elements, y may be z; dx *= GELU'(z): for products whose epilogue could not. */
cudaError_t yk_cuda_gelu_forward(void *y, const void *z, int64_t n, yk_dtype dtype, cudaStream_t s);
cudaError_t yk_cuda_gelu_backward(void *dx, const void *z, int64_t n, yk_dtype dtype,
                                  cudaStream_t s);

/* linear_plain.cu: any size, one rounding. */
cudaError_t yk_cuda_linear_plain_forward(const yk_linear_forward_args *a, cudaStream_t s);
cudaError_t yk_cuda_linear_plain_backward(const yk_linear_backward_input_args *a, cudaStream_t s);

/* column_sum.cu */

/* out[n] (+)= sum over m of x[m][n], in an order that depends on m and n alone.
 * ws: yk_cuda_column_sum_bytes(m, n). */
cudaError_t yk_cuda_column_sum(void *out, const void *x, int64_t m, int64_t n, bool accumulate,
                               yk_dtype dtype, yk_dtype out_dtype, void *ws, cudaStream_t s);

/* out[i] (+)= the sum of parts[p * stride + i] over p in order. */
cudaError_t yk_cuda_sum_parts(void *out, const float *parts, int64_t n_parts, int64_t stride,
                              int64_t n, bool accumulate, yk_dtype out_dtype, cudaStream_t s);

/* cross_entropy.cu */
cudaError_t yk_cuda_cross_entropy(const yk_cross_entropy_args *a, int shared_bytes_max,
                                  cudaStream_t s);
cudaError_t yk_cuda_cross_entropy_prepare(int shared_bytes_max);

/* loss_sum.cu */
cudaError_t yk_cuda_loss_sum(const yk_loss_sum_args *a, cudaStream_t s);

/* step.cu */
cudaError_t yk_cuda_step_begin(const yk_step_begin_args *a, cudaStream_t s);
cudaError_t yk_cuda_sum_squares(const yk_sum_squares_args *a, void *ws, cudaStream_t s);
cudaError_t yk_cuda_step_finish(const yk_step_finish_args *a, cudaStream_t s);

/* adamw.cu */
cudaError_t yk_cuda_adamw(const yk_adamw_args *a, cudaStream_t s);

/* digest.cu: a number of `bytes` of x, the same for the same bits; whole 16-bit words count. */
cudaError_t yk_cuda_digest(uint64_t *digest, const void *x, int64_t bytes, cudaStream_t s);

/* normal.cu */
cudaError_t yk_cuda_draw_normal(const yk_draw_normal_args *a, cudaStream_t s);

/* cast.cu */
cudaError_t yk_cuda_cast(const yk_cast_args *a, cudaStream_t s);

/* wire.cu */
cudaError_t yk_cuda_greatest(const yk_greatest_args *a, cudaStream_t s);
cudaError_t yk_cuda_wire_pack(const yk_pack_args *a, cudaStream_t s);
cudaError_t yk_cuda_wire_sum(const yk_sum_parts_args *a, cudaStream_t s);
cudaError_t yk_cuda_sum_values(const yk_sum_values_args *a, cudaStream_t s);

/* attention_forward.cu, attention_backward.cu: matrix instructions, 16-bit
 * storage, head sizes that are multiples of 8 up to 256. */
cudaError_t yk_cuda_flash_forward(const yk_attention_forward_args *a, cudaStream_t s);
cudaError_t yk_cuda_flash_backward(const yk_attention_backward_args *a, int shared_bytes_max,
                                   void *ws, cudaStream_t s);
cudaError_t yk_cuda_flash_forward_prepare(int shared_bytes_max);
cudaError_t yk_cuda_flash_backward_prepare(int shared_bytes_max);

/* attention_plain.cu: any storage, any head size up to 256. */
cudaError_t yk_cuda_plain_prepare(void);
cudaError_t yk_cuda_plain_forward(const yk_attention_forward_args *a, cudaStream_t s);
cudaError_t yk_cuda_plain_backward(const yk_attention_backward_args *a, void *ws, cudaStream_t s);

/* attention_cached.cu */
cudaError_t yk_cuda_attention_cached(const yk_attention_cached_args *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
