/* cli/bench_beside.c - stretches of products, alone and beside something else by turns, so that a clock that
 * drifts does not show; the median of each counts.
 */
#include "cli/bench_beside.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/speed.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"

/* Seconds of a stretch, and how many times as long the other work is, since products take longer then. */
#define STRETCH_S 0.06
#define OUTLAST   2
#define STRETCHES 3

struct yk_beside {
    yk_world *world;
    yk_product *product;
    int n;            /* products of a stretch, the same on all ranks */
    double product_s; /* one of them alone, on the slowest rank */
};

typedef struct other {
    const yk_beside_work *work;
    int n;
    yk_status status;
} other;

static void *do_other(void *context)
{
    other *o = context;
    for (int i = 0; i < o->n && o->status == YK_OK; i++)
        o->status = o->work->issue(o->work->context);
    if (o->status == YK_OK) o->status = o->work->wait(o->work->context);
    return NULL;
}

/* Seconds of a stretch on the slowest rank, while `beside` goes on; NULL: nothing does. */
static yk_status time_products(const yk_beside *b, other *beside, double *seconds_out)
{
    pthread_t thread;
    int64_t slowest;
    YK_TRY(yk_world_barrier(b->world));
    if (beside && pthread_create(&thread, NULL, do_other, beside) != 0)
        return yk_fail(YK_ENOMEM, "products", "no thread for what goes on beside them");
    int64_t begin = yk_clock_ns();
    yk_status status = yk_product_enqueue(b->product, b->n);
    if (status == YK_OK) status = yk_product_wait(b->product);
    int64_t ns = yk_clock_ns() - begin;
    if (beside) pthread_join(thread, NULL);
    if (beside && status == YK_OK) status = beside->status;
    YK_TRY(status);
    YK_TRY(yk_world_max(b->world, ns, &slowest));
    *seconds_out = 1e-9 * (double)slowest;
    return YK_OK;
}

/* How many products make a stretch. */
static yk_status begin(yk_beside *b)
{
    double seconds;
    b->n = 1;
    for (int i = 0; i < 3; i++) YK_TRY(time_products(b, NULL, &seconds)); /* code is loaded */
    b->n = (int)yk_max(1, (int64_t)(STRETCH_S / seconds));
    YK_TRY(time_products(b, NULL, &seconds));
    b->product_s = seconds / b->n;
    return YK_OK;
}

yk_status yk_beside_create(yk_world *world, yk_device *device, yk_dtype dtype,
                           yk_beside **beside_out)
{
    yk_beside *b = calloc(1, sizeof *b);
    if (!b) return yk_fail(YK_ENOMEM, "products", "no memory for them");
    b->world = world;
    yk_status status = yk_product_create(device, dtype, &b->product);
    int64_t worst = (int64_t)status;
    yk_status told = yk_world_max(world, worst, &worst);
    if (status == YK_OK) status = told == YK_OK ? (yk_status)worst : told;
    if (status == YK_OK) status = begin(b);
    if (status != YK_OK) {
        yk_beside_destroy(b);
        return status;
    }
    *beside_out = b;
    return YK_OK;
}

void yk_beside_destroy(yk_beside *b)
{
    if (!b) return;
    yk_product_destroy(b->product);
    free(b);
}

double yk_beside_rate(const yk_beside *b)
{
    return yk_product_flops(b->product) / b->product_s;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

yk_status yk_beside_measure(yk_beside *b, const yk_beside_work *work, double *loss_out)
{
    double alone[STRETCHES], beside[STRETCHES];
    int n = 1 + (int)(OUTLAST * b->n * b->product_s / work->seconds);
    for (int i = 0; i < STRETCHES; i++) {
        other o = {work, n, YK_OK};
        YK_TRY(time_products(b, NULL, &alone[i]));
        YK_TRY(time_products(b, &o, &beside[i]));
    }
    qsort(alone, STRETCHES, sizeof *alone, compare_doubles);
    qsort(beside, STRETCHES, sizeof *beside, compare_doubles);
    *loss_out = 1 - alone[STRETCHES / 2] / beside[STRETCHES / 2];
    return YK_OK;
}
