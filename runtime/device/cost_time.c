/* runtime/device/cost_time.c - the time of an operation on a described device.
 *
 * Product.   The result is cut into tiles, which are dealt out to the multiprocessors; what counts is
 *            the number of rounds, the last of which may be nearly empty (wave quantisation). Large
 *            tiles run at the full rate, small ones fill the last round better. Where tiles are few,
 *            sums are split over their depth and added up afterwards by way of memory. Each tile
 *            starts with a few steps that no product hides, which is what makes a small depth slow.
 *            The best of a few ways counts, as a library's heuristics find it. Half of the time
 *            of writing the result, and of reading what is added to it, comes on top: a kernel's
 *            epilogue is hidden behind other tiles' products alone.
 * Attention. Its products, and beside them the softmax, whose time goes by pairs of positions and
 *            not by the head's size: small heads are slow.
 * The rest.  Bytes over the memory's rate.
 *
 * Devices without multiprocessors, as the CPU is described, have one rate for all shapes.
 */
#include "runtime/base/arith.h"
#include "runtime/device/ops.h"

/* Ways to cut a product, and the share of the full rate that their inner loops reach. */
typedef struct tile {
    int64_t m, n;
    double share;
} tile;

static const tile tiles[] = {
    {256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92},
    {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.5},
};
#define N_TILES (sizeof tiles / sizeof tiles[0])

/* Steps of depth that a tile's start costs. */
#define START_DEPTH 32

/* What epilogues cost beside the products, of the time that their bytes take. */
#define TAIL_SHARE 0.5

/* Sums are split into at most so many parts, none of them shorter than this. */
#define SPLITS_MAX      16
#define SPLIT_DEPTH_MIN 512

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The inner loops of a product cut into tiles of one kind and its depth into `splits` parts. */
static double rounds_seconds(const yk_cost *c, const yk_device_spec *spec, const tile *t,
                             int splits)
{
    int64_t n_tiles = yk_div_up(c->m, t->m) * yk_div_up(c->n, t->n) * splits;
    double rounds = (double)yk_div_up(n_tiles, spec->n_multiprocessors);
    double depth = (double)c->k / splits + START_DEPTH;
    double rate = t->share * spec->matmul_flops[c->dtype] / spec->n_multiprocessors;
    double seconds = rounds * 2 * (double)(t->m * t->n) * depth / rate;
    if (splits > 1) seconds += splits * 8.0 * (double)(c->m * c->n) / spec->memory_rate;
    return seconds;
}

static double matmul_seconds(const yk_cost *c, const yk_device_spec *spec)
{
    double least = c->flops / spec->matmul_flops[c->dtype], best = 0;
    double memory = c->bytes / spec->memory_rate;
    if (spec->n_multiprocessors == 0 || c->m == 0) return larger(least, memory);
    for (size_t i = 0; i < N_TILES; i++)
        for (int splits = 1; splits <= SPLITS_MAX; splits++) {
            if (splits > 1 && c->k / splits < SPLIT_DEPTH_MIN) break;
            double seconds = rounds_seconds(c, spec, &tiles[i], splits);
            if (best == 0 || seconds < best) best = seconds;
        }
    return larger(best + TAIL_SHARE * c->tail / spec->memory_rate, memory);
}

static double attention_seconds(const yk_cost *c, const yk_device_spec *spec)
{
    double rate = spec->attention_flops[c->dtype], softmax_s = spec->softmax_s[c->backward];
    double spread = 0;
    if (c->backward && spec->attention_backward > 0) rate *= spec->attention_backward;
    if (spec->cudnn && c->cudnn && spec->cudnn_flops[c->backward] > 0) {
        rate = spec->cudnn_flops[c->backward];
        softmax_s = spec->cudnn_softmax_s[c->backward];
        spread = c->spread / spec->memory_rate;
    }
    return larger(c->flops / rate + c->pairs * softmax_s + spread, c->bytes / spec->memory_rate);
}

double yk_cost_seconds(const yk_cost *c, const yk_device_spec *spec)
{
    double work = 0;
    switch (c->kind) {
    case YK_COST_MATMUL:
        work = matmul_seconds(c, spec);
        break;
    case YK_COST_ATTENTION:
        work = attention_seconds(c, spec);
        break;
    case YK_COST_MEMORY:
        work = c->bytes / spec->memory_rate;
        break;
    case YK_COST_HOST_LINK:
        work = c->bytes / spec->host_link_rate;
        break;
    }
    return work + c->again / spec->memory_rate;
}
