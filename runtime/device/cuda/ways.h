/* runtime/device/cuda/ways.h - several ways to one result, of which the fastest is taken.
 *
 * Which way is fastest depends on the shape and on the card, so the ways race where the tuner lets them,
 * once a shape, and the choice is kept. Until then, and where nothing may be timed, way 0 is taken.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_WAYS_H
#define YK_RUNTIME_DEVICE_CUDA_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/device.h"

#define YK_CUDA_WAYS_KEY 7

typedef struct yk_cuda_ways {
    yk_stream *s;
    int n;
    int64_t key[YK_CUDA_WAYS_KEY];       /* what the choice depends on */
    bool may_race;                       /* running a way twice leaves what once leaves */
    bool (*run)(void *context, int way); /* false: it failed or is not offered */
    void *context;
    const void *out; /* what shows that a way repeats its bits */
    int64_t out_bytes;
    void *digest; /* device memory for one number, which no way keeps anything in */
} yk_cuda_ways;

/* The way to take; after a race the result is still to be made.
 *
 * YK_EDEVICE  the GPU failed
 */
yk_status yk_cuda_ways_choose(const yk_cuda_ways *ways, int *way_out);

#endif
