/* cmake/probe/kernel.cu - the least that needs compiler, assembler, host compiler and runtime. */
#include <cuda_runtime.h>

__global__ void add_one(float *x)
{
    x[threadIdx.x] += 1.0f;
}

int main(void)
{
    add_one<<<1, 1>>>(nullptr);
    return cudaGetLastError() != cudaSuccess;
}
