/* engine/plan_advice.c - what is said where a configuration does not fit: what it takes, and what would.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/number.h"

/* ---- what it takes ------------------------------------------------------------------------ */

/* What a plan is told in. */
typedef struct measure {
    double bytes;
    const char *name;
} measure;

static measure measure_for(int64_t bytes)
{
    if (bytes < (int64_t)1 << 20) return (measure){1, "bytes"};
    return bytes >= (int64_t)1 << 30 ? (measure){0x1p30, "GiB"} : (measure){0x1p20, "MiB"};
}

/* Does item `i` take less of the device than item `j`? Of equal ones the first takes more. */
static bool takes_less(const yk_plan *plan, int i, int j)
{
    int64_t a = plan->items[i].bytes, b = plan->items[j].bytes;
    return a < b || (a == b && i > j);
}

/* Is the limit the key's, and not what there is? */
static bool is_set(const yk_plan *plan)
{
    return plan->limit == plan->config.memory.device_limit;
}

/* "2.00 GiB may be used (memory.device_limit)": so much, and what says so. */
static void write_limit(const yk_plan *plan, char *text, size_t room)
{
    measure u = measure_for(plan->limit);
    bool here = plan->spec.kind == YK_DEVICE_CPU && plan->spec.host_bytes > 0;
    snprintf(text, room, "%.*f %s may be used%s", u.bytes > 1 ? 2 : 0,
             (double)plan->limit / u.bytes, u.name,
             is_set(plan) ? " (memory.device_limit)"
             : here       ? " (of what is available here)"
                          : "");
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

static void write_device(const yk_plan *plan, bool open, char *text, size_t room)
{
    int64_t bytes = yk_plan_taken_bytes(plan);
    const yk_arena_sizes *s = &plan->sizes;
    measure u = measure_for(bytes);
    char largest[160], limit[80];
    write_largest(plan, u.bytes, largest, sizeof largest);
    write_limit(plan, limit, sizeof limit);
    snprintf(text, room,
             "training takes %s%.2f %s (%.2f persistent, %.2f activations, %.2f %s; "
             "most of it %s) and %s",
             open ? "at least " : "", (double)bytes / u.bytes, u.name,
             (double)s->persistent / u.bytes, (double)s->activation / u.bytes,
             (double)(bytes - s->persistent - s->activation) / u.bytes,
             plan->spec.kind == YK_DEVICE_CPU ? "pinned" : "libraries", largest, limit);
}

/* What fits the device takes too much of the host. */
static void write_host(const yk_plan *plan, bool open, char *text, size_t room)
{
    int64_t had = plan->spec.host_bytes * plan->node_size, limit = plan->config.memory.host_limit;
    bool limited = limit > 0 && limit / plan->node_size == plan->spec.host_bytes;
    const yk_plan_item *largest = yk_plan_largest_pinned(plan);
    snprintf(text, room,
             "what fits the device takes %s%.2f GiB of it for each of %d rank%s here, %.2f of them "
             "'%s', and %.2f GiB can be had (%s); %s",
             open ? "at least " : "", (double)yk_plan_pinned_bytes(plan) / 0x1p30, plan->node_size,
             plan->node_size == 1 ? "" : "s", (double)largest->bytes / 0x1p30, largest->name,
             (double)(limited ? limit : had) / 0x1p30,
             limited ? "memory.host_limit" : "what is available",
             limited ? "raise that limit" : "end what else runs here");
}

/* ---- what would fit ----------------------------------------------------------------------- */

/* "3.2 % slower", "as fast" */
static void write_speed(double step_s, double than_s, char *text, size_t room)
{
    double slower = 100 * (step_s / than_s - 1);
    if (slower >= 0.05 || slower <= -0.05)
        snprintf(text, room, "%.1f %% %s", slower < 0 ? -slower : slower,
                 slower < 0 ? "faster" : "slower");
    else
        snprintf(text, room, "as fast");
}

/* "A (20.1 GiB and 3.00 pinned, 3.0 s, 3.0 % slower); or B (...)" */
static void write_changes(const yk_plan *plan, const yk_plan_change *changes, int n, double roomy_s,
                          char *text, size_t room)
{
    bool apart = plan->spec.kind != YK_DEVICE_CPU; /* else pinned memory is in the sum */
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        const yk_plan_change *c = &changes[i];
        measure u = measure_for(c->bytes);
        char speed[32], step[YK_NUMBER_MAX], pinned[40] = "";
        size_t used = strlen(text);
        write_speed(c->step_s, roomy_s, speed, sizeof speed);
        yk_number_write_time(c->step_s, step);
        if (apart && (double)c->pinned_bytes >= 0.01 * u.bytes)
            snprintf(pinned, sizeof pinned, " and %.2f pinned", (double)c->pinned_bytes / u.bytes);
        snprintf(text + used, room - used, "%s%s (%.2f %s%s, %s, %s)", i ? "; or " : "", c->text,
                 (double)c->bytes / u.bytes, u.name, pinned, step, speed);
    }
}

/* Devices in one, that would have room for all. */
#define MANY 16

yk_status yk_plan_refuse(const yk_plan_target *target, const yk_config *config, const yk_plan *plan)
{
    yk_plan_change changes[YK_PLAN_CHANGES];
    char takes[400], told[1200], step[YK_NUMBER_MAX];
    bool open = yk_plan_has_choices(target, config), host = yk_plan_fits_device(plan);
    double roomy_s = 0;
    int n;
    YK_TRY(yk_plan_find_changes(target, config, changes, &n));
    (host ? write_host : write_device)(plan, open, takes, sizeof takes);
    const char *what = host ? "host memory" : "memory";
    int64_t roomy = yk_plan_taken_bytes(plan) + MANY * plan->limit;
    if (n > 0) YK_TRY(yk_plan_roomy_step_s(target, config, roomy, &roomy_s));
    if (target->refusal) yk_plan_print_refusal(plan, open, roomy_s, changes, n, target->refusal);
    if (n == 0)
        return yk_fail(YK_ENOFIT, what,
                       "%s; nothing that was tried would fit; %stake a smaller model or a shorter "
                       "train.seq_len, or more ranks with parallel.zero: 3",
                       takes, is_set(plan) ? "raise memory.device_limit, or " : "");
    yk_number_write_time(roomy_s, step);
    write_changes(plan, changes, n, roomy_s, told, sizeof told);
    return yk_fail(YK_ENOFIT, what,
                   "%s; with room for all a step would take %s; what would fit: %s", takes, step,
                   told);
}

/* ---- of what is left open ----------------------------------------------------------------- */

/* Of the sets that may go to the host, the one that takes the least there of those that fit the
 * device; where none does, the last. */
static yk_status take_least_offload(const yk_plan_target *target, yk_config *config)
{
    int64_t least = INT64_MAX;
    yk_config c = *config;
    yk_plan plan;
    for (int level = 0; level < yk_plan_n_offloads(target); level++) {
        c.memory.offload = yk_plan_offload(&c, level);
        YK_TRY(yk_plan_try(target, &c, &plan));
        if (yk_plan_fits_device(&plan) && yk_plan_pinned_bytes(&plan) < least) {
            least = yk_plan_pinned_bytes(&plan);
            *config = c;
        }
        yk_plan_fini(&plan);
    }
    if (least == INT64_MAX) *config = c;
    return YK_OK;
}

yk_status yk_plan_refuse_all(const yk_plan_target *target, const yk_config *config)
{
    yk_config c = *config;
    yk_plan plan;
    if (c.train.micro_batch == YK_AUTO) c.train.micro_batch = 1;
    yk_plan_take_least_head(target, &c);
    if (c.parallel.zero == YK_AUTO) c.parallel.zero = 3;
    if (c.parallel.shard == YK_SHARD_AUTO) c.parallel.shard = YK_SHARD_WORLD;
    if (c.memory.recompute == YK_RECOMPUTE_AUTO)
        yk_plan_set_strength(&c, target->shape, yk_plan_strengths(target->shape));
    if (c.memory.offload == YK_OFFLOAD_AUTO) YK_TRY(take_least_offload(target, &c));
    YK_TRY(yk_plan_try(target, &c, &plan));
    yk_status status = yk_plan_refuse(target, config, &plan);
    yk_plan_fini(&plan);
    return status;
}
