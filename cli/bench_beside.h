/* cli/bench_beside.h - what matrix products lose of their rate while something else goes on beside
 * them, on all ranks at once.
 */
#ifndef YK_CLI_BENCH_BESIDE_H
#define YK_CLI_BENCH_BESIDE_H

#include "comm/world.h"
#include "runtime/device/device.h"

typedef struct yk_beside yk_beside;

/* Something else: `issue` one of it, `wait` for all that was issued. Called on a thread of its own,
 * since a stream that is full holds who calls. */
typedef struct yk_beside_work {
    yk_status (*issue)(const void *context);
    yk_status (*wait)(const void *context);
    const void *context;
    double seconds; /* that one takes, the same on all ranks */
} yk_beside_work;

/* Make products of `dtype` and time them alone.                                     [collective]
 *
 * world, device  borrowed until it is destroyed
 *
 * YK_ENOMEM  there is not enough memory
 */
yk_status yk_beside_create(yk_world *world, yk_device *device, yk_dtype dtype,
                           yk_beside **beside_out);

/* NULL does nothing. */
void yk_beside_destroy(yk_beside *beside);

/* Operations/s of products alone, on the slowest rank. */
double yk_beside_rate(const yk_beside *beside);

/* The share of their rate that products lose, on the slowest rank.                  [collective] */
yk_status yk_beside_measure(yk_beside *beside, const yk_beside_work *work, double *loss_out);

#endif
