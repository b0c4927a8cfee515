/* cli/bench_beside.c - products without a pause, in blocks of equal work, while something else
 * comes and goes.
 *
 * A card that rests for a moment runs faster after it, so the products go on through everything:
 * the blocks that are compared, alone and beside, follow each other, and the power that the card
 * may draw is in balance by then. The next block is enqueued before the one before it is waited
 * for. Medians count.
 */
#include "cli/bench_beside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "engine/speed.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"

#define BLOCK_S     0.025 /* seconds of a block on a GPU */
#define BLOCK_CPU_S 0.004
#define WARM        16 /* blocks before the first that counts, on a GPU; at the most */
#define WARM_CPU    4
#define CYCLES      3
#define TRIES       12
#define BLOCKS      3 /* that count, of a cycle, alone and beside */

struct yk_beside {
    yk_world *world;
    yk_product *product;
    yk_event *ends[2]; /* of blocks, by turns */
    bool gpu;
    int n;            /* products of a block, the same on all ranks */
    int64_t n_blocks; /* enqueued */
    double block_s;   /* of one alone, on the slowest rank */
};

/* ---- blocks ------------------------------------------------------------------------------- */

static yk_status enqueue_block(yk_beside *b)
{
    YK_TRY(yk_product_enqueue(b->product, b->n));
    return yk_product_mark(b->product, b->ends[b->n_blocks++ % 2]);
}

/* Wait for the block that is under way, while the next one is enqueued behind it. */
static yk_status pass_block(yk_beside *b)
{
    const int64_t under_way = b->n_blocks - 1;
    YK_TRY(enqueue_block(b));
    return yk_event_synchronize(b->ends[under_way % 2]);
}

static yk_status pass_blocks(yk_beside *b, int n, double *seconds)
{
    for (int i = 0; i < n; i++) {
        int64_t begin = yk_clock_ns();
        YK_TRY(pass_block(b));
        seconds[i] = 1e-9 * (double)(yk_clock_ns() - begin);
    }
    return YK_OK;
}

static yk_status slowest(const yk_beside *b, double mine, double *all_out)
{
    int64_t ns;
    YK_TRY(yk_world_max(b->world, (int64_t)(1e9 * mine), &ns));
    *all_out = 1e-9 * (double)ns;
    return YK_OK;
}

/* ---- beside ------------------------------------------------------------------------------- */

typedef struct other {
    const yk_beside_work *work;
    int n;
    yk_status status;
    atomic_bool is_done;
} other;

static void *do_other(void *context)
{
    other *o = context;
    for (int i = 0; i < o->n && o->status == YK_OK; i++)
        o->status = o->work->issue(o->work->context);
    if (o->status == YK_OK) o->status = o->work->wait(o->work->context);
    atomic_store(&o->is_done, true);
    return NULL;
}

/* Blocks while the other work goes on, and further ones until it is done. */
static yk_status pass_beside(yk_beside *b, other *o, double *seconds)
{
    double between;
    YK_TRY(pass_blocks(b, 1, &between));
    YK_TRY(pass_blocks(b, BLOCKS, seconds));
    bool outlasts = !atomic_load(&o->is_done);
    while (!atomic_load(&o->is_done)) YK_TRY(pass_blocks(b, 1, &between));
    if (!outlasts) o->n *= 2;
    return pass_blocks(b, 1, &between);
}

/* `n` grows when the work was done too early on a rank; then the cycle does not count. */
static yk_status run_cycle(yk_beside *b, const yk_beside_work *work, int *n, double *alone,
                           double *beside)
{
    pthread_t thread;
    other o = {.work = work, .n = *n, .status = YK_OK};
    YK_TRY(pass_blocks(b, BLOCKS, alone));
    if (pthread_create(&thread, NULL, do_other, &o) != 0)
        return yk_fail(YK_ENOMEM, "products", "no thread for what goes on beside them");
    yk_status status = pass_beside(b, &o, beside);
    pthread_join(thread, NULL);
    if (status == YK_OK) status = o.status;
    YK_TRY(status);
    int64_t next;
    YK_TRY(yk_world_max(b->world, o.n, &next));
    *n = (int)next;
    return YK_OK;
}

yk_status yk_beside_measure(yk_beside *b, const yk_beside_work *work, double *loss_out)
{
    double alone[CYCLES * BLOCKS], beside[CYCLES * BLOCKS], loss, unused[WARM];
    int n = 1 + (int)(BLOCKS * b->block_s / work->seconds);
    YK_TRY(yk_world_barrier(b->world));
    YK_TRY(enqueue_block(b));
    YK_TRY(pass_blocks(b, b->gpu ? WARM : WARM_CPU, unused));
    for (int i = 0, tries = 0; i < CYCLES; tries++) {
        int before = n;
        YK_TRY(run_cycle(b, work, &n, alone + i * BLOCKS, beside + i * BLOCKS));
        i += n == before || tries >= TRIES;
    }
    YK_TRY(yk_product_wait(b->product));
    loss = 1 - yk_bench_median(alone, CYCLES * BLOCKS) / yk_bench_median(beside, CYCLES * BLOCKS);
    YK_TRY(slowest(b, 1 + loss, &loss)); /* what is compared is positive */
    *loss_out = loss - 1;
    return YK_OK;
}

/* ---- making and releasing ----------------------------------------------------------------- */

/* How many products make a block, and how long one is. */
static yk_status begin(yk_beside *b)
{
    double seconds[WARM], product_s, block_s = b->gpu ? BLOCK_S : BLOCK_CPU_S;
    int warm = b->gpu ? WARM : WARM_CPU;
    b->n = 1;
    YK_TRY(enqueue_block(b));
    YK_TRY(pass_blocks(b, 4, seconds)); /* code is loaded */
    YK_TRY(slowest(b, seconds[3], &product_s));
    YK_TRY(yk_product_wait(b->product));
    b->n = (int)yk_max(1, (int64_t)(block_s / product_s));
    YK_TRY(enqueue_block(b));
    YK_TRY(pass_blocks(b, warm, seconds));
    YK_TRY(yk_product_wait(b->product));
    return slowest(b, yk_bench_median(seconds + warm / 2, warm / 2), &b->block_s);
}

yk_status yk_beside_create(yk_world *world, yk_device *device, yk_dtype dtype,
                           yk_beside **beside_out)
{
    yk_beside *b = calloc(1, sizeof *b);
    if (!b) return yk_fail(YK_ENOMEM, "products", "no memory for them");
    b->world = world;
    b->gpu = yk_device_get_kind(device) == YK_DEVICE_CUDA;
    yk_status status = yk_product_create(device, dtype, &b->product);
    for (int i = 0; i < 2 && status == YK_OK; i++) status = yk_event_create(device, &b->ends[i]);
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
    for (int i = 0; i < 2; i++) yk_event_destroy(b->ends[i]);
    free(b);
}

double yk_beside_rate(const yk_beside *b)
{
    return b->n * yk_product_flops(b->product) / b->block_s;
}
