/* engine/plan_advice.c - what would fit where a configuration does not.
 *
 * Each change is tried alone, by planning the configuration with it; those that fit are told, the
 * cheapest in time first. Where none does alone, all of them are searched together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

/* Changes that are told. */
#define MAX_TOLD 3

typedef struct change {
    char text[240]; /* "memory.recompute: cheap" */
    int64_t bytes;
    double step_s;
} change;

typedef struct advice {
    const yk_plan_target *target;
    const yk_config *config;
    const yk_plan *plan; /* that does not fit */
    change changes[16];
    int n_changes;
} advice;

static void add(advice *a, const yk_plan *plan, const char *text)
{
    YK_CHECK(a->n_changes < (int)(sizeof a->changes / sizeof a->changes[0]));
    change *c = &a->changes[a->n_changes++];
    *c = (change){.bytes = yk_plan_taken_bytes(plan), .step_s = plan->step_s};
    snprintf(c->text, sizeof c->text, "%s", text);
}

/* Try a changed configuration; *fits_out tells. */
static yk_status attempt(advice *a, const yk_config *changed, const char *text, bool *fits_out)
{
    yk_plan plan;
    YK_TRY(yk_plan_try(a->target, changed, &plan));
    *fits_out = yk_plan_fits(&plan);
    if (*fits_out) add(a, &plan, text);
    yk_plan_fini(&plan);
    return YK_OK;
}

/* The largest micro-batch that fits. */
static yk_status try_micro_batch(advice *a)
{
    yk_config c = *a->config;
    int64_t each = c.train.batch / yk_plan_target_ranks(a->target);
    bool fits = false;
    char text[64];
    for (int64_t n = c.train.micro_batch - 1; n >= 1 && !fits; n--) {
        if (each % n != 0) continue;
        c.train.micro_batch = n;
        snprintf(text, sizeof text, "train.micro_batch: %" PRId64, n);
        YK_TRY(attempt(a, &c, text, &fits));
    }
    return YK_OK;
}

/* The least recomputation that fits. */
static yk_status try_recompute(advice *a)
{
    yk_config c = *a->config, open = {.parallel.zero = 0};
    int64_t layers = a->target->shape->layers;
    int64_t least = (int64_t)c.memory.recompute * layers;
    yk_plan plan;
    bool fits;
    if (least >= yk_plan_strengths(a->target->shape)) return YK_OK;
    YK_TRY(yk_plan_find_strength(a->target, &c, least, &fits, &plan));
    if (!fits) return YK_OK;
    char text[128];
    open.memory.recompute = YK_RECOMPUTE_AUTO;
    yk_plan_write_choices(&plan.config, &open, text, sizeof text);
    add(a, &plan, text);
    yk_plan_fini(&plan);
    return YK_OK;
}

/* The lowest stage that fits. */
static yk_status try_zero(advice *a)
{
    yk_config c = *a->config;
    bool fits = yk_plan_target_ranks(a->target) == 1;
    char text[64];
    for (c.parallel.zero++; c.parallel.zero <= 3 && !fits; c.parallel.zero++) {
        snprintf(text, sizeof text, "parallel.zero: %" PRId64, c.parallel.zero);
        YK_TRY(attempt(a, &c, text, &fits));
    }
    return YK_OK;
}

/* Fewer logits at a time. */
static yk_status try_head_chunk(advice *a)
{
    yk_config c = *a->config;
    bool fits = false;
    char text[64];
    int64_t rows = c.train.micro_batch * c.train.seq_len;
    if (c.memory.head_chunk != YK_AUTO) rows = yk_min(rows, c.memory.head_chunk);
    for (int64_t chunk = 8192; chunk >= 256 && !fits; chunk /= 2) {
        if (chunk >= rows) continue;
        c.memory.head_chunk = chunk;
        if (yk_plan_head_is_cut_up(&c)) break;
        snprintf(text, sizeof text, "memory.head_chunk: %" PRId64, chunk);
        YK_TRY(attempt(a, &c, text, &fits));
    }
    return YK_OK;
}

/* 16-bit gradients, where they are wider. */
static yk_status try_grads(advice *a)
{
    yk_config c = *a->config;
    bool fits;
    if (c.precision.grads != YK_F32 || c.precision.compute == YK_F32) return YK_OK;
    c.precision.grads = YK_AUTO;
    return attempt(a, &c, "precision.grads: auto", &fits);
}

/* States of 16 bits, rounded by chance. */
static yk_status try_states(advice *a)
{
    yk_config c = *a->config;
    bool fits = false;
    if (c.precision.moments == YK_F32) {
        c.precision.moments = YK_BF16;
        YK_TRY(attempt(a, &c, "precision.moments: bf16", &fits));
    }
    if (fits || c.precision.master != YK_F32 || c.precision.compute != YK_BF16) return YK_OK;
    c.precision.master = YK_BF16;
    return attempt(a, &c, "precision.master: bf16, precision.moments: bf16", &fits);
}

/* The first set to go to the host that fits. */
static yk_status try_offload(advice *a)
{
    yk_config c = *a->config, open = {.memory.offload = YK_OFFLOAD_AUTO};
    bool fits = false;
    char text[128];
    if (c.memory.offload != 0 && a->target->spec->kind == YK_DEVICE_CPU) { /* it saves nothing */
        c.memory.offload = 0;
        YK_TRY(attempt(a, &c, "memory.offload: []", &fits));
    }
    for (int level = 1; level < yk_plan_n_offloads(a->target) && !fits; level++) {
        c.memory.offload = a->config->memory.offload | yk_plan_offload(&c, level);
        if (c.memory.offload == a->config->memory.offload) continue;
        yk_plan_write_choices(&c, &open, text, sizeof text);
        YK_TRY(attempt(a, &c, text, &fits));
    }
    return YK_OK;
}

/* Everything at once. */
static yk_status try_together(advice *a)
{
    yk_config c = *a->config;
    yk_plan_row row;
    yk_plan plan;
    int n;
    char text[240];
    c.train.micro_batch = YK_AUTO;
    c.memory.head_chunk = YK_AUTO;
    c.memory.recompute = YK_RECOMPUTE_AUTO;
    c.parallel.zero = YK_AUTO;
    c.memory.offload = YK_OFFLOAD_AUTO;
    YK_TRY(yk_plan_search(a->target, &c, &row, 1, &n));
    if (n == 0) return YK_OK;
    YK_TRY(yk_plan_try(a->target, &row.config, &plan));
    yk_plan_write_choices(&row.config, NULL, text, sizeof text);
    add(a, &plan, text);
    yk_plan_fini(&plan);
    return YK_OK;
}

static yk_status find_changes(advice *a)
{
    YK_TRY(try_micro_batch(a));
    YK_TRY(try_recompute(a));
    YK_TRY(try_zero(a));
    YK_TRY(try_head_chunk(a));
    YK_TRY(try_grads(a));
    YK_TRY(try_offload(a));
    YK_TRY(try_states(a));
    return a->n_changes == 0 ? try_together(a) : YK_OK;
}

static void sort(advice *a)
{
    for (int i = 1; i < a->n_changes; i++)
        for (int j = i; j > 0 && a->changes[j].step_s < a->changes[j - 1].step_s; j--) {
            change swapped = a->changes[j];
            a->changes[j] = a->changes[j - 1];
            a->changes[j - 1] = swapped;
        }
}

/* "A (20.1 GiB, 3 % slower) or B (...)", in a unit that suits the limit. */
static void write_changes(const advice *a, double unit, const char *unit_name, char *text,
                          size_t room)
{
    int n = (int)yk_min(a->n_changes, MAX_TOLD);
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        const change *c = &a->changes[i];
        double slower = 100 * (c->step_s / a->plan->step_s - 1);
        size_t used = strlen(text);
        char speed[32] = "as fast";
        if (slower >= 0.05 || slower <= -0.05)
            snprintf(speed, sizeof speed, "%.1f %% %s", slower < 0 ? -slower : slower,
                     slower < 0 ? "faster" : "slower");
        snprintf(text + used, room - used, "%s%s (%.2f %s, %s)", i ? "; or " : "", c->text,
                 (double)c->bytes / unit, unit_name, speed);
    }
}

/* Does item `i` take less of the device than item `j`? Of equal ones the first takes more. */
static bool takes_less(const yk_plan *plan, int i, int j)
{
    int64_t a = plan->items[i].bytes, b = plan->items[j].bytes;
    return a < b || (a == b && i > j);
}

/* Is an item of the run's own, out of the memory that is limited? */
static bool is_limited(const yk_plan *plan, const yk_plan_item *item)
{
    if (strcmp(item->arena, "libraries") == 0) return false; /* nothing that a key would change */
    return plan->spec.kind == YK_DEVICE_CPU || strcmp(item->arena, "pinned") != 0;
}

/* The three items that take most of the device. */
static void write_largest(const yk_plan *plan, double unit, char *text, size_t room)
{
    size_t used = 0;
    int last = -1;
    text[0] = 0;
    for (int n = 0; n < 3 && used < room; n++) {
        int best = -1;
        for (int i = 0; i < plan->n_items; i++) {
            if (!is_limited(plan, &plan->items[i])) continue;
            if (last >= 0 && !takes_less(plan, i, last)) continue;
            if (best < 0 || takes_less(plan, best, i)) best = i;
        }
        if (best < 0) return;
        used += (size_t)snprintf(text + used, room - used, "%s'%s' %.2f", n ? ", " : "",
                                 plan->items[best].name, (double)plan->items[best].bytes / unit);
        last = best;
    }
}

yk_status yk_plan_refuse(const yk_plan_target *target, const yk_config *config, const yk_plan *plan)
{
    advice a = {.target = target, .config = config, .plan = plan};
    char told[600], largest[160];
    int64_t bytes = yk_plan_taken_bytes(plan);
    bool cpu = plan->spec.kind == YK_DEVICE_CPU;
    int64_t rest = bytes - plan->sizes.persistent - plan->sizes.activation - plan->sizes.workspace;
    bool large = bytes >= (int64_t)1 << 30;
    double unit = large ? 0x1p30 : 0x1p20;
    const char *name = large ? "GiB" : "MiB";
    YK_TRY(find_changes(&a));
    sort(&a);
    write_changes(&a, unit, name, told, sizeof told);
    write_largest(plan, unit, largest, sizeof largest);
    return yk_fail(
        YK_ENOFIT, "memory",
        "training takes %.2f %s (%.2f persistent, %.2f activations, %.2f workspace, %.2f "
        "%s; most of it %s) and %.2f %s may be used; %s%s",
        (double)bytes / unit, name, (double)plan->sizes.persistent / unit,
        (double)plan->sizes.activation / unit, (double)plan->sizes.workspace / unit,
        (double)rest / unit, cpu ? "pinned" : "libraries", largest, (double)plan->limit / unit,
        name,
        a.n_changes ? "what would fit: "
                    : "nothing that was tried would fit; take a smaller model or a "
                      "shorter train.seq_len, or more ranks with parallel.zero: 3",
        told);
}
