/* engine/plan_changes.c - changes with which a configuration would fit.
 *
 * A change opens a key, or takes 16 bits for states, and the search says what then is the fastest that
 * fits. It chooses anew what the configuration itself leaves open, so that who follows the advice gets
 * the bytes and the time that were told. Each change is tried alone; where that gives too few, pairs that
 * are faster than either half; then more ranks, other sets to go to the host, and all at once.
 */
#include <stdio.h>
#include <string.h>

#include "engine/carrier.h"
#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

/* By how much a pair must be faster than its halves: below it the clock knows no difference. */
#define LEAST_GAIN 0.002

/* ---- single changes ----------------------------------------------------------------------- */

/* Make the change; false where there is nothing to change. */
typedef bool (*change_fn)(const yk_plan_target *target, yk_config *c);

static bool change_micro_batch(const yk_plan_target *target, yk_config *c)
{
    (void)target;
    if (c->train.micro_batch <= 1) return false; /* or auto */
    c->train.micro_batch = YK_AUTO;
    return true;
}

static bool change_recompute(const yk_plan_target *target, yk_config *c)
{
    (void)target;
    if (c->memory.recompute == YK_RECOMPUTE_AUTO) return false;
    c->memory.recompute = YK_RECOMPUTE_AUTO;
    return true;
}

static bool change_head_chunk(const yk_plan_target *target, yk_config *c)
{
    if (c->memory.head_chunk == YK_AUTO || target->spec->kind == YK_DEVICE_CPU) return false;
    c->memory.head_chunk = YK_AUTO;
    return true;
}

static bool change_zero(const yk_plan_target *target, yk_config *c)
{
    if (c->parallel.zero == YK_AUTO || yk_plan_target_ranks(target) == 1) return false;
    c->parallel.zero = YK_AUTO;
    return true;
}

static bool change_shard(const yk_plan_target *target, yk_config *c)
{
    if (c->parallel.shard == YK_SHARD_AUTO || !yk_plan_has_nodes(target)) return false;
    c->parallel.shard = YK_SHARD_AUTO;
    return true;
}

/* On processors what is away takes of the same memory: there it can only come home. */
static bool change_offload(const yk_plan_target *target, yk_config *c)
{
    bool cpu = target->spec->kind == YK_DEVICE_CPU;
    if (c->memory.offload == YK_OFFLOAD_AUTO || (cpu && c->memory.offload == 0)) return false;
    c->memory.offload = YK_OFFLOAD_AUTO;
    return true;
}

static bool change_grads(const yk_plan_target *target, yk_config *c)
{
    (void)target;
    if (c->precision.grads != YK_F32 || c->precision.compute == YK_F32) return false;
    c->precision.grads = YK_AUTO;
    return true;
}

static bool change_moments(const yk_plan_target *target, yk_config *c)
{
    (void)target;
    if (c->precision.moments != YK_F32) return false;
    c->precision.moments = YK_BF16;
    return true;
}

/* The model reads the master weights then, so that there are no others to be away. */
static bool change_states(const yk_plan_target *target, yk_config *c)
{
    if (c->precision.master != YK_F32 || c->precision.compute != YK_BF16) return false;
    c->precision.master = YK_BF16;
    if (c->memory.offload != YK_OFFLOAD_AUTO) c->memory.offload &= ~YK_OFFLOAD_MASTER;
    (void)change_moments(target, c);
    return true;
}

static const change_fn changes[] = {
    change_micro_batch, change_recompute, change_head_chunk, change_zero,   change_shard,
    change_offload,     change_grads,     change_moments,    change_states,
};
#define N_CHANGES ((int)(sizeof changes / sizeof changes[0]))
#define EXACT     6 /* the first so many change no precision */

/* Places among them. */
#define OFFLOAD 5
#define MOMENTS 7
#define STATES  8 /* the moments, too */

/* ---- trying them -------------------------------------------------------------------------- */

typedef struct outcome {
    yk_plan_row row;
    unsigned which;     /* bits of `changes`; 0: more ranks */
    int ranks, n_nodes; /* 0: as there are */
} outcome;

typedef struct finder {
    const yk_plan_target *target;
    const yk_config *given;
    outcome found[N_CHANGES * N_CHANGES];
    int n_found;
    yk_plan_row away[YK_PLAN_CHANGES]; /* other sets to go to the host than the fastest */
    int n_away;
} finder;

static void add(finder *f, const yk_plan_row *row, unsigned which)
{
    YK_CHECK(f->n_found < (int)(sizeof f->found / sizeof f->found[0]));
    f->found[f->n_found++] = (outcome){.row = *row, .which = which};
}

/* Seconds of what was found with these changes; 0 where they do not fit. */
static double seconds_with(const finder *f, unsigned which)
{
    for (int i = 0; i < f->n_found; i++)
        if (f->found[i].which == which) return f->found[i].row.step_s;
    return 0;
}

/* Make all of `which`; false where one of them changes nothing. */
static bool make_changes(const finder *f, unsigned which, yk_config *c)
{
    *c = *f->given;
    for (int i = 0; i < N_CHANGES; i++)
        if ((which & 1u << i) && !changes[i](f->target, c)) return false;
    return true;
}

static yk_status try_alone(finder *f)
{
    yk_plan_row rows[1 + YK_PLAN_CHANGES];
    yk_config c;
    for (int i = 0; i < N_CHANGES; i++) {
        int n, wanted = i == OFFLOAD ? 1 + YK_PLAN_CHANGES : 1;
        if (!make_changes(f, 1u << i, &c)) continue;
        YK_TRY(yk_plan_search(f->target, &c, true, rows, wanted, &n));
        if (n > 0) add(f, &rows[0], 1u << i);
        for (int more = 1; more < n; more++) f->away[f->n_away++] = rows[more];
    }
    return YK_OK;
}

static bool is_faster(double seconds, double than)
{
    return than == 0 || seconds < than * (1 - LEAST_GAIN);
}

static yk_status try_pair(finder *f, unsigned a, unsigned b)
{
    yk_plan_row row;
    yk_config c;
    int n;
    if (!make_changes(f, a | b, &c)) return YK_OK;
    YK_TRY(yk_plan_search(f->target, &c, false, &row, 1, &n));
    if (n > 0 && is_faster(row.step_s, seconds_with(f, a)) &&
        is_faster(row.step_s, seconds_with(f, b)))
        add(f, &row, a | b);
    return YK_OK;
}

static yk_status try_pairs(finder *f)
{
    for (int a = 0; a < N_CHANGES; a++)
        for (int b = a + 1; b < N_CHANGES; b++)
            if (a != MOMENTS || b != STATES) YK_TRY(try_pair(f, 1u << a, 1u << b));
    return YK_OK;
}

/* ---- more ranks --------------------------------------------------------------------------- */

#define MOST_TIMES 64
#define NODE_RANKS 8 /* that a machine has room for, where there is one machine so far */

/* Search `config` for so many ranks; where it does not fit, in any stage. */
static yk_status search_ranks(finder *f, int ranks, int node_size, int *n_out)
{
    int before = f->target->topology ? f->target->topology->node_size : 1;
    yk_device_spec spec = *f->target->spec;
    spec.host_bytes = spec.host_bytes * before / node_size;
    yk_topology topology = yk_ranks_topology(&spec, ranks, node_size);
    if (f->target->topology)
        yk_ranks_set_network(&topology, yk_ranks_network_gbit(f->target->topology),
                             f->target->topology->network);
    yk_plan_target target = *f->target;
    target.spec = &spec;
    target.topology = &topology;
    yk_config c = *f->given;
    yk_plan_row row;
    YK_TRY(yk_carrier_plan(f->given, target.shape, &spec, &topology, &c));
    YK_TRY(yk_plan_search(&target, &c, false, &row, 1, n_out));
    c.parallel.zero = YK_AUTO;
    if (*n_out == 0) YK_TRY(yk_plan_search(&target, &c, false, &row, 1, n_out));
    if (*n_out == 0) return YK_OK;
    add(f, &row, 0);
    f->found[f->n_found - 1].ranks = ranks;
    f->found[f->n_found - 1].n_nodes = ranks / node_size;
    return YK_OK;
}

/* Twice as many, four times as many, and so on: the fewest that do. */
static yk_status try_ranks(finder *f)
{
    int have = (int)yk_plan_target_ranks(f->target), found = 0;
    int node = f->target->topology ? f->target->topology->node_size : 1;
    int64_t micro = yk_max(f->given->train.micro_batch, 1);   /* or auto */
    if (f->target->spec->kind == YK_DEVICE_CPU) return YK_OK; /* they share a machine's memory */
    for (int times = 2; times <= MOST_TIMES && found == 0; times *= 2) {
        int ranks = have * times;
        if (f->given->train.batch % (ranks * micro) != 0) return YK_OK;
        bool fill = node == ranks / 2 && node < NODE_RANKS; /* one machine first */
        if (fill) node = ranks < NODE_RANKS ? ranks : NODE_RANKS;
        if (ranks % node != 0) return YK_OK;
        YK_TRY(search_ranks(f, ranks, node, &found));
    }
    return YK_OK;
}

/* ---- several at once ---------------------------------------------------------------------- */

/* All that change no precision, and then with 16 bits for states. */
static yk_status try_together(finder *f)
{
    yk_plan_row rows[2];
    yk_config c = *f->given, narrow;
    int n;
    for (int i = 0; i < EXACT; i++) (void)changes[i](f->target, &c);
    YK_TRY(yk_plan_search(f->target, &c, true, rows, 2, &n));
    for (int i = 0; i < n; i++) add(f, &rows[i], 1u << N_CHANGES);
    narrow = c;
    for (int i = EXACT; i < N_CHANGES; i++) (void)changes[i](f->target, &narrow);
    YK_TRY(yk_plan_search(f->target, &narrow, true, rows, 1, &n));
    if (n > 0) add(f, &rows[0], 1u << N_CHANGES);
    return YK_OK;
}

/* The fastest first; more ranks, which are faster and not to be had for nothing, last. */
static bool comes_before(const outcome *a, const outcome *b)
{
    if (a->ranks != b->ranks) return a->ranks < b->ranks;
    return a->row.step_s < b->row.step_s;
}

/* From `first` on. */
static void sort(finder *f, int first)
{
    for (int i = first + 1; i < f->n_found; i++)
        for (int j = i; j > first && comes_before(&f->found[j], &f->found[j - 1]); j--) {
            outcome swapped = f->found[j];
            f->found[j] = f->found[j - 1];
            f->found[j - 1] = swapped;
        }
}

/* Leave no more than are told, of those from `first` on the best. */
static void choose(finder *f, int first)
{
    sort(f, first);
    f->n_found = (int)yk_min(f->n_found, YK_PLAN_CHANGES);
}

/* A single change comes before what needs two, and that before what needs other machines. */
static yk_status find(finder *f)
{
    YK_TRY(try_alone(f));
    choose(f, 0);
    int n_alone = f->n_found;
    if (f->n_found < YK_PLAN_CHANGES) YK_TRY(try_pairs(f));
    choose(f, n_alone);
    if (f->n_found == 0) YK_TRY(try_together(f));
    if (f->n_found < YK_PLAN_CHANGES) YK_TRY(try_ranks(f));
    for (int i = 0; i < f->n_away && f->n_found < YK_PLAN_CHANGES; i++)
        add(f, &f->away[i], 1u << OFFLOAD);
    sort(f, 0);
    return YK_OK;
}

/* ---- in words ----------------------------------------------------------------------------- */

static void append(char *text, size_t room, const char *piece)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s", used ? ", " : "", piece);
}

/* The keys whose values differ from the given ones, and that the given configuration does not leave open. */
static void write_keys(const yk_config *given, const yk_config *c, char *text, size_t room)
{
    yk_config mask = {.parallel.zero = 0};
    const yk_config *g = given;
    bool blocks = g->memory.recompute_blocks != c->memory.recompute_blocks;
    if (g->train.micro_batch != YK_AUTO && g->train.micro_batch != c->train.micro_batch)
        mask.train.micro_batch = YK_AUTO;
    if (g->memory.recompute != YK_RECOMPUTE_AUTO &&
        (g->memory.recompute != c->memory.recompute || blocks))
        mask.memory.recompute = YK_RECOMPUTE_AUTO;
    if (g->memory.head_chunk != YK_AUTO && g->memory.head_chunk != c->memory.head_chunk)
        mask.memory.head_chunk = YK_AUTO;
    if (g->parallel.zero != YK_AUTO && g->parallel.zero != c->parallel.zero)
        mask.parallel.zero = YK_AUTO;
    if (g->parallel.shard != YK_SHARD_AUTO && g->parallel.shard != c->parallel.shard)
        mask.parallel.shard = YK_SHARD_AUTO;
    if (g->memory.offload != YK_OFFLOAD_AUTO && g->memory.offload != c->memory.offload)
        mask.memory.offload = YK_OFFLOAD_AUTO;
    yk_plan_write_choices(c, &mask, text, room);
    if (mask.memory.recompute == YK_RECOMPUTE_AUTO && blocks &&
        c->memory.recompute_blocks == YK_AUTO)
        append(text, room, "memory.recompute_blocks: auto");
    if (g->precision.grads != c->precision.grads) append(text, room, "precision.grads: auto");
    if (g->precision.master != c->precision.master) append(text, room, "precision.master: bf16");
    if (g->precision.moments != c->precision.moments) append(text, room, "precision.moments: bf16");
}

static yk_plan_change tell(const finder *f, const outcome *x)
{
    yk_plan_change c = {
        .bytes = x->row.bytes, .pinned_bytes = x->row.pinned_bytes, .step_s = x->row.step_s};
    char keys[240];
    write_keys(f->given, &x->row.config, keys, sizeof keys);
    if (x->ranks > 0)
        snprintf(c.text, sizeof c.text, "%d ranks on %d node%s%s%s", x->ranks, x->n_nodes,
                 x->n_nodes == 1 ? "" : "s", keys[0] ? ", " : "", keys);
    else
        snprintf(c.text, sizeof c.text, "%s", keys);
    return c;
}

yk_status yk_plan_find_changes(const yk_plan_target *target, const yk_config *config,
                               yk_plan_change changes_out[YK_PLAN_CHANGES], int *n_out)
{
    finder f = {.target = target, .given = config};
    YK_TRY(find(&f));
    *n_out = f.n_found;
    for (int i = 0; i < *n_out; i++) changes_out[i] = tell(&f, &f.found[i]);
    return YK_OK;
}

yk_status yk_plan_roomy_step_s(const yk_plan_target *target, const yk_config *config, int64_t bytes,
                               double *seconds_out)
{
    yk_device_spec spec = *target->spec;
    yk_plan_target roomy = *target;
    yk_config c = *config;
    yk_plan_row row;
    int n;
    spec.memory_bytes = bytes;
    spec.host_bytes = 0;
    roomy.spec = &spec;
    c.memory.device_limit = 0;
    c.memory.host_limit = 0;
    YK_TRY(yk_plan_search(&roomy, &c, false, &row, 1, &n));
    *seconds_out = n > 0 ? row.step_s : 0;
    return YK_OK;
}
