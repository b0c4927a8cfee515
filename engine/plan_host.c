/* engine/plan_host.c - does what a plan keeps in host memory fit there? */
#include <inttypes.h>
#include <string.h>

#include "engine/plan_parts.h"

/* The word of memory.offload for an item of the pinned arena, or NULL. */
static const char *offload_word(const char *item)
{
    static const char *const words[][2] = {
        {"master weights", "master"}, {"first moments", "moments"}, {"second moments", "moments"},
        {"gradients", "grads"},       {"parameters", "params"},     {"block inputs", "inputs"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(item, words[i][0]) == 0) return words[i][1];
    return NULL;
}

const yk_plan_item *yk_plan_largest_pinned(const yk_plan *plan)
{
    static const yk_plan_item none = {.arena = "pinned", .name = "nothing"};
    const yk_plan_item *largest = &none;
    for (int i = 0; i < plan->n_items; i++)
        if (strcmp(plan->items[i].arena, "pinned") == 0 && plan->items[i].bytes > largest->bytes)
            largest = &plan->items[i];
    return largest;
}

yk_status yk_plan_check_host(const yk_plan *plan, int ranks_here, const yk_host_room *room)
{
    int64_t each = plan->sizes.pinned + plan->sizes.shared, limit = plan->config.memory.host_limit;
    yk_host_room limited = {.bytes = limit, .source = "memory.host_limit"};
    if (limit > 0 && limit < room->bytes) room = &limited;
    if (each <= room->bytes / ranks_here) return YK_OK;
    const yk_plan_item *largest = yk_plan_largest_pinned(plan);
    const char *word = offload_word(largest->name);
    return yk_fail(
        YK_ENOFIT, "host memory",
        "%.2f GiB must stay in it for each of %d rank%s here, %.2f of them '%s', and %.2f "
        "GiB can be had (%s); raise that limit%s%s%s%s",
        (double)each / 0x1p30, ranks_here, ranks_here == 1 ? "" : "s",
        (double)largest->bytes / 0x1p30, largest->name, (double)room->bytes / 0x1p30, room->source,
        room == &limited ? "" : " or end what else runs", word ? ", or leave " : "",
        word ? word : "", word ? " out of memory.offload" : "");
}
