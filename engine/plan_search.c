/* engine/plan_search.c - what a configuration leaves open, tried out.
 *
 * Every candidate is planned: nothing here estimates. What makes it quick is order. More
 * recomputation takes less memory and more time, block by block, so that the least that fits is
 * found by halving; and once smaller micro-batches, or head chunks, have become slower twice, still
 * smaller ones are not looked at.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

bool yk_plan_has_choices(const yk_plan_target *target, const yk_config *c)
{
    return c->train.micro_batch == YK_AUTO || c->memory.recompute == YK_RECOMPUTE_AUTO ||
           c->parallel.zero == YK_AUTO || c->parallel.shard == YK_SHARD_AUTO ||
           c->memory.offload == YK_OFFLOAD_AUTO || yk_plan_head_is_open(target, c);
}

/* ---- recomputation ------------------------------------------------------------------------ */

int64_t yk_plan_strengths(const yk_model_shape *shape)
{
    return shape->layers * YK_RECOMPUTE_BLOCK;
}

void yk_plan_set_strength(yk_config *config, const yk_model_shape *shape, int64_t strength)
{
    int64_t layers = shape->layers;
    config->memory.recompute = (yk_recompute)yk_div_up(strength, layers);
    int64_t blocks = strength - (yk_div_up(strength, layers) - 1) * layers;
    config->memory.recompute_blocks = strength == 0 || blocks == layers ? YK_AUTO : blocks;
}

static int64_t strength_of(const yk_config *config, const yk_model_shape *shape)
{
    int64_t policy = config->memory.recompute, blocks = config->memory.recompute_blocks;
    if (policy == YK_RECOMPUTE_NONE || blocks == YK_AUTO) return policy * shape->layers;
    return (policy - 1) * shape->layers + blocks;
}

/* Plan with a strength; *fits_out tells, and only a plan that fits is kept, in place of *best. */
static yk_status try_strength(const yk_plan_target *target, const yk_config *config,
                              int64_t strength, bool *fits_out, yk_plan *best)
{
    yk_config c = *config;
    yk_plan plan;
    yk_plan_set_strength(&c, target->shape, strength);
    YK_TRY(yk_plan_try(target, &c, &plan));
    *fits_out = yk_plan_fits(&plan);
    if (*fits_out) {
        yk_plan_fini(best);
        *best = plan;
    } else {
        yk_plan_fini(&plan);
    }
    return YK_OK;
}

yk_status yk_plan_find_strength(const yk_plan_target *target, const yk_config *config,
                                int64_t least, bool *fits_out, yk_plan *plan_out)
{
    yk_plan best = {0};
    int64_t low = least, high = yk_plan_strengths(target->shape);
    bool fits;
    yk_status status = try_strength(target, config, low, &fits, &best);
    if (status == YK_OK && !fits && high > low) {
        status = try_strength(target, config, high, &fits, &best);
        *fits_out = fits;
        while (status == YK_OK && *fits_out && high - low > 1) { /* high fits, low does not */
            int64_t middle = low + (high - low) / 2;
            status = try_strength(target, config, middle, &fits, &best);
            if (fits)
                high = middle;
            else
                low = middle;
        }
    } else {
        *fits_out = fits;
    }
    if (status == YK_OK && *fits_out)
        *plan_out = best;
    else
        yk_plan_fini(&best);
    return status;
}

/* The least strength that fits, where `known` is expected to fit and not much less. */
static yk_status find_near_strength(const yk_plan_target *target, const yk_config *config,
                                    int64_t known, bool *fits_out, yk_plan *plan_out)
{
    yk_plan best = {0};
    int64_t low = -1, high = known, reach = 1;
    bool fits;
    yk_status status = try_strength(target, config, high, &fits, &best);
    *fits_out = status == YK_OK && fits;
    while (status == YK_OK && *fits_out && high - low > 1) { /* high fits, low does not */
        int64_t middle = yk_max(high - reach, low + (high - low) / 2);
        status = try_strength(target, config, middle, &fits, &best);
        if (fits) {
            high = middle;
            reach *= 2;
        } else {
            low = middle;
            reach = known;
        }
    }
    if (status == YK_OK && *fits_out)
        *plan_out = best;
    else
        yk_plan_fini(&best);
    return status;
}

/* ---- candidates --------------------------------------------------------------------------- */

typedef struct search {
    const yk_plan_target *target;
    const yk_config *given;
    yk_plan_row *rows; /* (max_rows) the fastest first */
    int max_rows, n_rows;
    bool unlike;      /* of rows that let the same go to the host the fastest alone */
    double fastest_s; /* of what fitted since it was set to 0 */
} search;

/* What an offloaded kind must gain at the least: below it the clock knows no difference. */
#define LEAST_GAIN 0.001

static double rank(const yk_plan_row *row)
{
    int n = __builtin_popcount((unsigned)row->config.memory.offload);
    return row->step_s * (1 + n * LEAST_GAIN);
}

static void remove_row(search *s, int at)
{
    s->n_rows--;
    memmove(&s->rows[at], &s->rows[at + 1], (size_t)(s->n_rows - at) * sizeof *s->rows);
}

/* False where there is a better one of its kind already. */
static bool make_way(search *s, const yk_plan_row *row)
{
    for (int i = 0; i < s->n_rows && s->unlike; i++) {
        if (s->rows[i].config.memory.offload != row->config.memory.offload) continue;
        if (rank(&s->rows[i]) <= rank(row)) return false;
        remove_row(s, i);
        return true;
    }
    return true;
}

static void keep(search *s, const yk_plan *plan)
{
    yk_plan_row row = {
        .config = plan->config,
        .bytes = yk_plan_taken_bytes(plan),
        .pinned_bytes = plan->sizes.pinned + plan->sizes.shared,
        .step_s = plan->step_s,
    };
    if (!make_way(s, &row)) return;
    int at = s->n_rows;
    while (at > 0 && rank(&s->rows[at - 1]) > rank(&row)) at--;
    if (at == s->max_rows) return;
    int moved = (int)yk_min(s->n_rows, s->max_rows - 1) - at;
    memmove(&s->rows[at + 1], &s->rows[at], (size_t)yk_max(moved, 0) * sizeof *s->rows);
    s->rows[at] = row;
    s->n_rows = (int)yk_min(s->n_rows + 1, s->max_rows);
}

/* Plan a candidate whose recomputation alone may be open. `like` is a plan of it with more rows of logits,
 * or NULL. */
static yk_status plan_one(search *s, const yk_config *config, const yk_plan *like, bool *fits_out,
                          yk_plan *plan_out)
{
    yk_plan plan = {0};
    bool fits;
    if (config->memory.recompute != YK_RECOMPUTE_AUTO) {
        YK_TRY(yk_plan_try(s->target, config, &plan));
        fits = yk_plan_fits(&plan);
    } else if (like) {
        int64_t known = strength_of(&like->config, s->target->shape);
        YK_TRY(find_near_strength(s->target, config, known, &fits, &plan));
    } else {
        YK_TRY(yk_plan_find_strength(s->target, config, 0, &fits, &plan));
    }
    yk_status status = fits ? yk_plan_keep(s->target, &plan) : YK_OK;
    if (status != YK_OK || !fits) yk_plan_fini(&plan);
    YK_TRY(status);
    if (fits) *plan_out = plan;
    *fits_out = fits;
    return YK_OK;
}

/* Does `config` with everything made again, and the fewest rows of logits, where these are open, fit? */
static yk_status least_fits(search *s, const yk_config *config, bool *fits_out)
{
    yk_config least = *config;
    yk_plan plan;
    yk_plan_take_least_head(s->target, &least);
    if (config->memory.recompute == YK_RECOMPUTE_AUTO)
        yk_plan_set_strength(&least, s->target->shape, yk_plan_strengths(s->target->shape));
    YK_TRY(yk_plan_try(s->target, &least, &plan));
    *fits_out = yk_plan_fits(&plan);
    yk_plan_fini(&plan);
    return YK_OK;
}

/* Plan a candidate whose rows of logits are open, too: of what fits, the fastest. */
static yk_status plan_best_head(search *s, const yk_config *config, bool *fits_out,
                                yk_plan *plan_out)
{
    int64_t chunks[YK_PLAN_HEAD_CHUNKS];
    int n = yk_plan_head_chunks(s->target, config, chunks), slower = 0;
    yk_config c = *config;
    yk_plan best = {0}, plan;
    yk_status status = least_fits(s, config, fits_out);
    bool found = false, fits;
    for (int i = 0; i < n && status == YK_OK && *fits_out && slower < 2; i++) {
        c.memory.head_chunk = chunks[i];
        status = plan_one(s, &c, found ? &best : NULL, &fits, &plan);
        if (status != YK_OK || !fits) continue;
        bool faster = !found || plan.step_s + yk_plan_head_price(s->target, &plan.config) <
                                    best.step_s + yk_plan_head_price(s->target, &best.config);
        slower = faster ? 0 : slower + 1;
        yk_plan_fini(faster ? &best : &plan);
        if (faster) best = plan;
        found = true;
    }
    if (status != YK_OK) yk_plan_fini(&best);
    YK_TRY(status);
    if (found) *plan_out = best;
    *fits_out = found;
    return YK_OK;
}

/* Plan a candidate, of which recomputation and rows of logits may be open; *seconds_out is 0 where none
 * fits. */
static yk_status consider(search *s, const yk_config *config, double *seconds_out)
{
    yk_plan plan;
    bool fits;
    *seconds_out = 0;
    if (yk_plan_head_is_open(s->target, config))
        YK_TRY(plan_best_head(s, config, &fits, &plan));
    else
        YK_TRY(plan_one(s, config, NULL, &fits, &plan));
    if (!fits) return YK_OK;
    keep(s, &plan);
    *seconds_out = plan.step_s;
    if (s->fastest_s == 0 || plan.step_s < s->fastest_s) s->fastest_s = plan.step_s;
    yk_plan_fini(&plan);
    return YK_OK;
}

/* Room for what divides the sequences of a rank: train.batch is at most a million, and 720720 has the
 * most, 240. */
#define MAX_DIVISORS 256

/* What divides n, the least first; returns how many. */
static int list_divisors(int64_t n, int64_t divisors_out[MAX_DIVISORS])
{
    int found = 0;
    for (int64_t i = 1; i * i <= n && found < MAX_DIVISORS / 2; i++)
        if (n % i == 0) divisors_out[found++] = i;
    int small = found;
    for (int i = small - 1; i >= 0; i--)
        if (n / divisors_out[i] != divisors_out[small - 1] || i < small - 1)
            divisors_out[found++] = n / divisors_out[i];
    return found;
}

/* How many of the micro-batches `sizes`, ascending, can fit at all. */
static yk_status count_fitting(search *s, const yk_config *config, const int64_t *sizes, int n,
                               int *count_out)
{
    yk_config c = *config;
    int low = 0, high = n + 1, reach = 1; /* `low` of them fit, `high` do not */
    while (high - low > 1) {
        int middle = high > n ? (int)yk_min(low + reach, n) : low + (high - low) / 2;
        bool fits = false;
        c.train.micro_batch = sizes[middle - 1];
        if (!yk_plan_head_is_cut_up(&c)) YK_TRY(least_fits(s, &c, &fits));
        if (fits)
            low = middle;
        else
            high = middle;
        if (low == n) break;
        reach *= 2;
    }
    *count_out = low;
    return YK_OK;
}

/* Micro-batches from the largest that can fit on, until two that are half as large as the best, or a
 * quarter, have become slower. */
static yk_status consider_micro_batches(search *s, yk_config *config)
{
    int64_t sizes[MAX_DIVISORS], below = INT64_MAX;
    double best_s = 0, seconds;
    int slower = 0, n_sizes, n;
    if (s->given->train.micro_batch != YK_AUTO) return consider(s, config, &seconds);
    n_sizes =
        list_divisors(yk_max(config->train.batch / yk_plan_target_ranks(s->target), 1), sizes);
    YK_TRY(count_fitting(s, config, sizes, n_sizes, &n));
    for (int i = n - 1; i >= 0 && slower < 2; i--) {
        config->train.micro_batch = sizes[i];
        YK_TRY(consider(s, config, &seconds));
        if (seconds == 0) continue;
        bool faster = best_s == 0 || seconds < best_s;
        if (!faster && sizes[i] > below) continue;
        below = sizes[i] / 2;
        slower = faster ? 0 : slower + 1;
        if (faster) best_s = seconds;
    }
    return YK_OK;
}

/* What may go to the host together, in the order in which it is tried: what moves once a step comes
 * first. */
#define ONCE (YK_OFFLOAD_MOMENTS | YK_OFFLOAD_MASTER)
static const int offload_levels[] = {
    0,
    YK_OFFLOAD_MOMENTS,
    ONCE,
    YK_OFFLOAD_INPUTS,
    YK_OFFLOAD_MOMENTS | YK_OFFLOAD_INPUTS,
    ONCE | YK_OFFLOAD_INPUTS,
    ONCE | YK_OFFLOAD_GRADS,
    ONCE | YK_OFFLOAD_GRADS | YK_OFFLOAD_INPUTS,
    ONCE | YK_OFFLOAD_PARAMS,
    ONCE | YK_OFFLOAD_PARAMS | YK_OFFLOAD_INPUTS,
    ONCE | YK_OFFLOAD_GRADS | YK_OFFLOAD_PARAMS,
    ONCE | YK_OFFLOAD_GRADS | YK_OFFLOAD_PARAMS | YK_OFFLOAD_INPUTS,
};

int yk_plan_n_offloads(const yk_plan_target *target)
{
    if (target->spec->kind == YK_DEVICE_CPU) return 1;
    return (int)(sizeof offload_levels / sizeof offload_levels[0]);
}

int yk_plan_offload(const yk_config *config, int level)
{
    bool own_master = config->precision.compute != config->precision.master;
    return offload_levels[level] & ~(own_master ? 0 : YK_OFFLOAD_MASTER);
}

/* Levels of offload until, once something has fitted, so many that fit brought nothing faster. */
#define PATIENCE 4

static yk_status consider_offloads(search *s, yk_config *config)
{
    double best_s = 0;
    int slower = 0;
    if (s->given->memory.offload != YK_OFFLOAD_AUTO) return consider_micro_batches(s, config);
    for (int level = 0; level < yk_plan_n_offloads(s->target) && slower < PATIENCE; level++) {
        int offload = yk_plan_offload(config, level);
        if (level > 0 && offload == config->memory.offload) continue; /* no master of its own */
        config->memory.offload = offload;
        s->fastest_s = 0;
        YK_TRY(consider_micro_batches(s, config));
        if (s->fastest_s == 0) continue;
        slower = best_s > 0 && s->fastest_s >= best_s ? slower + 1 : 0;
        best_s = best_s > 0 ? yk_min(best_s, s->fastest_s) : s->fastest_s;
    }
    return YK_OK;
}

bool yk_plan_has_nodes(const yk_plan_target *target)
{
    const yk_topology *t = target->topology;
    return t && t->node_size > 1 && t->node_size < t->ranks;
}

/* Over all ranks, and inside nodes where there are several and something is shared out. */
static yk_status consider_shards(search *s, yk_config *config)
{
    if (s->given->parallel.shard != YK_SHARD_AUTO) return consider_offloads(s, config);
    config->parallel.shard = YK_SHARD_WORLD;
    YK_TRY(consider_offloads(s, config));
    if (!yk_plan_has_nodes(s->target) || config->parallel.zero == 0) return YK_OK;
    config->parallel.shard = YK_SHARD_NODE;
    return consider_offloads(s, config);
}

yk_status yk_plan_search(const yk_plan_target *target, const yk_config *config, bool unlike,
                         yk_plan_row *rows_out, int max_rows, int *n_out)
{
    search s = {.target = target,
                .given = config,
                .rows = rows_out,
                .max_rows = max_rows,
                .unlike = unlike};
    yk_config c = *config;
    YK_TRY(yk_plan_check_head(config));
    if (config->parallel.zero != YK_AUTO) {
        YK_TRY(consider_shards(&s, &c));
    } else {
        int last = yk_plan_target_ranks(target) > 1 ? 3 : 0; /* alone, stages are the same */
        for (c.parallel.zero = 0; c.parallel.zero <= last; c.parallel.zero++)
            YK_TRY(consider_shards(&s, &c));
    }
    *n_out = s.n_rows;
    return YK_OK;
}

/* ---- in words ----------------------------------------------------------------------------- */

static void append(char *text, size_t room, const char *piece)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s", used ? ", " : "", piece);
}

static void write_offload(int offload, char *text, size_t room)
{
    static const char *const names[] = {"master", "moments", "grads", "params", "inputs"};
    snprintf(text, room, "memory.offload: [");
    const char *before = "";
    for (int i = 0; i < 5; i++) {
        if (!(offload & (1 << i))) continue;
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s%s", before, names[i]);
        before = ",";
    }
    strncat(text, "]", room - strlen(text) - 1);
}

const char *const yk_plan_recompute_names[] = {"none", "cheap", "ffn", "qkv", "block"};

void yk_plan_write_choices(const yk_config *config, const yk_config *given, char *text, size_t room)
{
    char piece[96];
    text[0] = 0;
    if (!given || given->train.micro_batch == YK_AUTO) {
        snprintf(piece, sizeof piece, "train.micro_batch: %" PRId64, config->train.micro_batch);
        append(text, room, piece);
    }
    if (!given || given->memory.recompute == YK_RECOMPUTE_AUTO) {
        snprintf(piece, sizeof piece, "memory.recompute: %s",
                 yk_plan_recompute_names[config->memory.recompute]);
        append(text, room, piece);
        if (config->memory.recompute_blocks != YK_AUTO) {
            snprintf(piece, sizeof piece, "memory.recompute_blocks: %" PRId64,
                     config->memory.recompute_blocks);
            append(text, room, piece);
        }
    }
    bool head = !given || given->memory.head_chunk == YK_AUTO;
    if (head && config->memory.head_chunk != YK_AUTO) {
        snprintf(piece, sizeof piece, "memory.head_chunk: %" PRId64, config->memory.head_chunk);
        append(text, room, piece);
    }
    if (!given || given->parallel.zero == YK_AUTO) {
        snprintf(piece, sizeof piece, "parallel.zero: %" PRId64, config->parallel.zero);
        append(text, room, piece);
    }
    bool shard =
        given ? given->parallel.shard == YK_SHARD_AUTO : config->parallel.shard != YK_SHARD_WORLD;
    if (shard)
        append(text, room,
               config->parallel.shard == YK_SHARD_NODE ? "parallel.shard: node"
                                                       : "parallel.shard: world");
    bool offload = given ? given->memory.offload == YK_OFFLOAD_AUTO : config->memory.offload != 0;
    if (offload) {
        write_offload(config->memory.offload, piece, sizeof piece);
        append(text, room, piece);
    }
}
