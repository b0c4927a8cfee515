/* engine/plan_search.c - what a configuration leaves open, tried out.
 *
 * Every candidate is planned: nothing here estimates. What makes it quick is order: of micro-batches first
 * the largest that fits without making anything again, for smaller ones only spend more time on their
 * beginnings and ends, and larger ones make more and more again. What was found by then says how much
 * they may at the most (plan_trial.c).
 */
#include <inttypes.h>
#include <math.h>
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

/* ---- candidates --------------------------------------------------------------------------- */

typedef struct search {
    const yk_plan_target *target;
    const yk_config *given;
    yk_plan_row *rows; /* (max_rows) the fastest first */
    int max_rows, n_rows;
    bool unlike;      /* of rows that let the same go to the host the fastest alone */
    double fastest_s; /* of what was found since it was set to 0 */
    int n_fitting;    /* micro-batches that fitted with what was tried last, */
    int n_bare;       /* and with nothing made again */
    int best_size;    /* that was the fastest with what was tried last; -1: nothing was */
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

static yk_plan_row row_of(const yk_plan *plan)
{
    return (yk_plan_row){
        .config = plan->config,
        .bytes = yk_plan_taken_bytes(plan),
        .pinned_bytes = yk_plan_pinned_bytes(plan),
        .step_s = plan->step_s,
    };
}

/* At its place; the slowest leaves where there is no room. */
static void insert(search *s, const yk_plan_row *row)
{
    int at = s->n_rows;
    while (at > 0 && rank(&s->rows[at - 1]) > rank(row)) at--;
    if (at == s->max_rows) return;
    int moved = (int)yk_min(s->n_rows, s->max_rows - 1) - at;
    memmove(&s->rows[at + 1], &s->rows[at], (size_t)yk_max(moved, 0) * sizeof *s->rows);
    s->rows[at] = *row;
    s->n_rows = (int)yk_min(s->n_rows + 1, s->max_rows);
}

static void keep(search *s, const yk_plan *plan)
{
    yk_plan_row row = row_of(plan);
    if (make_way(s, &row)) insert(s, &row);
}

/* Steps of `config` that take so long are of no use: they could enter no row, or are notably slower than
 * `best_s`, what was found with another micro-batch; 0: nothing was. */
#define NEAR 0.02

static double find_bar(const search *s, const yk_config *config, double best_s)
{
    double least = INFINITY;
    if (s->n_rows == s->max_rows) least = rank(&s->rows[s->n_rows - 1]);
    for (int i = 0; i < s->n_rows && s->unlike; i++)
        if (s->rows[i].config.memory.offload == config->memory.offload)
            least = fmin(least, rank(&s->rows[i]));
    int n = __builtin_popcount((unsigned)config->memory.offload);
    double bar_s = least / (1 + n * LEAST_GAIN);
    return best_s > 0 ? fmin(bar_s, best_s * (1 + NEAR)) : bar_s;
}

/* Plan a candidate; *seconds_out is 0 where nothing fits and is of use. */
static yk_status consider(search *s, const yk_config *config, yk_plan_trial *trial,
                          double *seconds_out)
{
    yk_plan plan;
    bool fits;
    *seconds_out = 0;
    YK_TRY(yk_plan_try_out(s->target, config, trial, &fits, &plan));
    if (!fits) return YK_OK;
    if (plan.step_s < trial->bar_s) keep(s, &plan);
    *seconds_out = plan.step_s;
    if (s->fastest_s == 0 || plan.step_s < s->fastest_s) s->fastest_s = plan.step_s;
    yk_plan_fini(&plan);
    return YK_OK;
}

/* The micro-batch is given. */
static yk_status consider_it(search *s, const yk_config *config)
{
    yk_plan_trial trial = {.bar_s = find_bar(s, config, 0)};
    double seconds;
    bool fits;
    YK_TRY(yk_plan_least_fits(s->target, config, false, &fits));
    return fits ? consider(s, config, &trial, &seconds) : YK_OK;
}

/* ---- micro-batches ------------------------------------------------------------------------ */

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

/* How many of the micro-batches `sizes`, ascending, can fit at all, or `bare`, with nothing made again. */
static yk_status count_fitting(search *s, const yk_config *config, const int64_t *sizes, int n,
                               bool bare, int *count_out)
{
    yk_config c = *config;
    yk_plan_hunt hunt; /* for the first that does not */
    yk_plan_hunt_begin(&hunt, -1, n, *count_out);
    while (!yk_plan_hunt_ends(&hunt)) {
        bool fits = false;
        c.train.micro_batch = sizes[hunt.at];
        if (!yk_plan_head_is_cut_up(&c)) YK_TRY(yk_plan_least_fits(s->target, &c, bare, &fits));
        yk_plan_hunt_answer(&hunt, !fits);
    }
    *count_out = (int)hunt.high;
    return YK_OK;
}

/* On the way through the micro-batches of a configuration. */
typedef struct walk {
    int64_t sizes[MAX_DIVISORS]; /* ascending */
    int first;                   /* of them, which is tried before the others; -1: none */
    double best_s;               /* 0: nothing was found yet */
    yk_plan_trial trial;
} walk;

static yk_status step_to(search *s, yk_config *config, walk *w, int i, double *seconds_out)
{
    double seconds;
    config->train.micro_batch = w->sizes[i];
    w->trial.bar_s = find_bar(s, config, w->best_s);
    YK_TRY(consider(s, config, &w->trial, &seconds));
    *seconds_out = seconds;
    if (seconds == 0 || (w->best_s > 0 && seconds >= w->best_s)) return YK_OK;
    w->best_s = seconds;
    s->best_size = i;
    return YK_OK;
}

/* From sizes[from] on to smaller ones, until two that are half as large as the best, or a quarter, have
 * become slower. */
static yk_status go_down(search *s, yk_config *config, walk *w, int from)
{
    int64_t below = INT64_MAX;
    double seconds;
    int slower = 0;
    for (int i = from; i >= 0 && slower < 2; i--) {
        if (i == w->first) continue;
        double best_s = w->best_s;
        YK_TRY(step_to(s, config, w, i, &seconds));
        if (seconds == 0) continue;
        bool faster = best_s == 0 || seconds < best_s;
        if (!faster && w->sizes[i] > below) continue;
        below = w->sizes[i] / 2;
        slower = faster ? 0 : slower + 1;
    }
    return YK_OK;
}

/* From sizes[from] on to larger ones, until one makes so much again that still larger ones, which make
 * again no less, are of no use even if they are as fast otherwise as the largest. */
static yk_status go_up(search *s, yk_config *config, walk *w, int from, int n)
{
    double seconds;
    w->trial.ends = false;
    w->trial.strength = 0;
    for (int i = from; i < n && !w->trial.ends; i++)
        if (i != w->first) YK_TRY(step_to(s, config, w, i, &seconds));
    return YK_OK;
}

/* Of `n` micro-batches that can fit, what is fastest with recomputation chosen for each. */
static yk_status consider_open(search *s, yk_config *config, walk *w, int n)
{
    double least_s, seconds;
    config->train.micro_batch = w->sizes[n - 1];
    YK_TRY(yk_plan_bare_step_s(s->target, config, &least_s));
    if (least_s >= find_bar(s, config, 0) * (1 + NEAR)) return YK_OK;
    YK_TRY(count_fitting(s, config, w->sizes, n, true, &s->n_bare));
    int from = s->n_bare > 0 ? s->n_bare : 1;
    w->first = s->best_size < n ? s->best_size : n - 1;
    if (w->first >= 0) YK_TRY(step_to(s, config, w, w->first, &seconds));
    YK_TRY(go_down(s, config, w, from - 1));
    w->trial.least_s = least_s;
    return go_up(s, config, w, from, n);
}

static yk_status consider_micro_batches(search *s, yk_config *config)
{
    walk w = {.first = -1};
    if (s->given->train.micro_batch != YK_AUTO) return consider_it(s, config);
    int64_t sequences = yk_max(config->train.batch / yk_plan_target_ranks(s->target), 1);
    int n = list_divisors(sequences, w.sizes);
    YK_TRY(count_fitting(s, config, w.sizes, n, false, &s->n_fitting));
    n = s->n_fitting;
    if (n == 0) return YK_OK;
    if (config->memory.recompute != YK_RECOMPUTE_AUTO) return go_down(s, config, &w, n - 1);
    return consider_open(s, config, &w, n);
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

/* Strengths of recomputation that are looked at without finding what is faster, and what that may gain at
 * the most. */
#define TRADES     12
#define TRADE_GAIN 0.03

/* Room for gathered parameters may be worth more than what is made again for it. */
static yk_status trade_for_kept(const search *s, yk_plan_row *row)
{
    int64_t best = yk_plan_strength_of(&row->config, s->target->shape);
    int64_t most = yk_plan_strengths(s->target->shape);
    for (int64_t i = best + 1; i <= most && i <= best + TRADES; i++) {
        yk_plan plan;
        yk_config c = row->config;
        yk_plan_set_strength(&c, s->target->shape, i);
        c.memory.kept_blocks = YK_AUTO;
        YK_TRY(yk_plan_try(s->target, &c, &plan));
        yk_status status = yk_plan_keep(s->target, &plan);
        if (status == YK_OK && yk_plan_fits(&plan) && plan.step_s < row->step_s) {
            *row = row_of(&plan);
            best = i;
        }
        yk_plan_fini(&plan);
        YK_TRY(status);
    }
    return YK_OK;
}

static yk_status trade_all(search *s)
{
    const yk_config *given = s->given;
    if (given->memory.recompute != YK_RECOMPUTE_AUTO || given->memory.kept_blocks != YK_AUTO)
        return YK_OK;
    for (int i = 0; i < s->n_rows; i++) {
        yk_plan_row row = s->rows[i];
        if (row.step_s > s->rows[0].step_s * (1 + TRADE_GAIN)) break;
        if (!yk_plan_may_keep_more(s->target, &row.config)) continue;
        YK_TRY(trade_for_kept(s, &row));
        if (row.step_s >= s->rows[i].step_s) continue;
        remove_row(s, i);
        insert(s, &row); /* no later than it was */
    }
    return YK_OK;
}

yk_status yk_plan_search(const yk_plan_target *target, const yk_config *config, bool unlike,
                         yk_plan_row *rows_out, int max_rows, int *n_out)
{
    search s = {.target = target,
                .given = config,
                .rows = rows_out,
                .max_rows = max_rows,
                .best_size = -1,
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
    YK_TRY(trade_all(&s));
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
