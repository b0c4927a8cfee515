/* runtime/device/cuda/loss_sum.cu - the sum of a step's losses, in double.
 *
 * Bytes per row: 8 read. One block, so that the order depends on the number of rows alone; 65,536 losses are
 * half a megabyte.
 */
#include "runtime/device/cuda/kernels.cuh"

#define LOSS_BLOCK 1024

/* Thread i adds elements i, i + LOSS_BLOCK, ... */
static __global__ void __launch_bounds__(LOSS_BLOCK)
    sum_losses(yk_step_values *values, const float *losses, const int32_t *targets, int64_t rows)
{
    __shared__ double sums[2][1][32];
    double loss[1] = {0}, count[1] = {0};
#pragma unroll 8
    for (int64_t r = threadIdx.x; r < rows; r += LOSS_BLOCK) {
        bool counts = targets[r] >= 0;
        loss[0] += counts ? (double)losses[r] : 0.0;
        count[0] += counts ? 1.0 : 0.0;
    }
    block_sum<double, 1>(loss, sums[0]);
    block_sum<double, 1>(count, sums[1]);
    if (threadIdx.x != 0) return;
    values->loss_sum += loss[0];
    values->n_tokens += (int64_t)count[0];
}

cudaError_t yk_cuda_loss_sum(const yk_loss_sum_args *a, cudaStream_t s)
{
    sum_losses<<<1, LOSS_BLOCK, 0, s>>>(a->values, a->losses, a->targets, a->rows);
    return cudaGetLastError();
}
