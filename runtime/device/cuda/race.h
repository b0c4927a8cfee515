/* runtime/device/cuda/race.h - which of several kernels is fastest, on the tensors at hand. */
#ifndef YK_RUNTIME_DEVICE_CUDA_RACE_H
#define YK_RUNTIME_DEVICE_CUDA_RACE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/tuner.h"

/* What a race is about. */
typedef struct yk_race {
    cudaStream_t stream;
    yk_tuner *tuner; /* says how long it may take, and is told what it came to */
    int n;           /* candidates, the first being the one that is taken without a race */
    float lead; /* the part of the first one's time that another must be ahead by to be tried */
    bool (*run)(void *context, int candidate); /* enqueue it; false: it cannot */
    void *context;
    const void *out; /* what a candidate writes, to see that it repeats its bits */
    int64_t out_bytes;
    uint64_t *digest; /* device memory for one number, which no candidate keeps anything in */
} yk_race;

/* Is the stream's work being captured, so that nothing can be timed? */
bool yk_race_is_captured(cudaStream_t stream);

/* Time the candidates and wait for them; the fastest of those that repeat their bits, the first
 * unless another is clearly faster. Not while the stream is captured.
 *
 * YK_EDEVICE  the GPU failed
 */
yk_status yk_race_run(const yk_race *race, int *winner_out);

#endif
