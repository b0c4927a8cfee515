/* engine/plan_print.c - a plan as a table and as JSON. */
#include <inttypes.h>

#include "engine/plan.h"

static void print_bytes(FILE *out, int64_t bytes)
{
    if (bytes >= (int64_t)1 << 30)
        fprintf(out, "%9.2f GiB", (double)bytes / 0x1p30);
    else if (bytes >= 1 << 20)
        fprintf(out, "%9.2f MiB", (double)bytes / 0x1p20);
    else
        fprintf(out, "%9.2f KiB", (double)bytes / 0x1p10);
}

static void print_total(FILE *out, const char *name, int64_t bytes)
{
    fprintf(out, "%-11s %-24s", name, "");
    print_bytes(out, bytes);
    fprintf(out, "  %" PRId64 "\n", bytes);
}

void yk_plan_print(const yk_plan *plan, FILE *out)
{
    fprintf(out, "%-11s %-24s %13s  %s\n", "memory", "item", "", "bytes");
    for (int i = 0; i < plan->n_items; i++) {
        const yk_plan_item *item = &plan->items[i];
        fprintf(out, "%-11s %-24s", item->arena, item->name);
        print_bytes(out, item->bytes);
        fprintf(out, "  %" PRId64 "\n", item->bytes);
    }
    print_total(out, "device", yk_plan_device_bytes(plan));
    print_total(out, "pinned", plan->sizes.pinned + plan->sizes.shared);
    print_total(out, "limit", plan->limit);
    fprintf(out,
            "step        %" PRId64 " micro-batch%s of %" PRId64 " sequences, %" PRId64
            " tokens, %.3g operations\n",
            plan->n_micro, plan->n_micro == 1 ? "" : "es", plan->micro_batch, plan->tokens,
            plan->flops);
    if (plan->ranks > 1)
        fprintf(out, "ranks       %d, %d a node; each sends %.4g MiB a step\n", plan->ranks,
                plan->node_size, (double)plan->bytes_sent / 0x1p20);
    fprintf(out, "clock       %.4g ms a step on %s as described, %.4g tokens/s\n",
            1e3 * plan->step_s, plan->spec.name, (double)plan->tokens / plan->step_s);
}

static void print_sizes_json(const yk_plan *plan, FILE *out)
{
    const yk_arena_sizes *s = &plan->sizes;
    fprintf(out,
            "\"arenas\": {\"persistent\": %" PRId64 ", \"activation\": %" PRId64
            ", \"workspace\": %" PRId64 ", \"pinned\": %" PRId64 "}",
            s->persistent, s->activation, s->workspace, s->pinned + s->shared);
}

void yk_plan_print_json(const yk_plan *plan, FILE *out)
{
    fprintf(out,
            "{\"device\": \"%s\", \"limit_bytes\": %" PRId64 ", \"device_bytes\": %" PRId64 ", ",
            plan->spec.name, plan->limit, yk_plan_device_bytes(plan));
    print_sizes_json(plan, out);
    fprintf(out, ", \"items\": [");
    for (int i = 0; i < plan->n_items; i++) {
        const yk_plan_item *item = &plan->items[i];
        fprintf(out,
                "%s{\"arena\": \"%s\", \"name\": \"%s\", \"bytes\": %" PRId64
                ", \"pieces\": %" PRId64 "}",
                i ? ", " : "", item->arena, item->name, item->bytes, item->n_pieces);
    }
    fprintf(out,
            "], \"ranks\": %d, \"node_size\": %d, \"bytes_sent\": %" PRId64
            ", \"micro_batch\": %" PRId64 ", \"micro_batches\": %" PRId64 ", \"tokens\": %" PRId64
            ", \"flops\": %.17g, \"bytes\": %.17g, \"step_ms\": %.9g, \"tokens_per_s\": %.9g}\n",
            plan->ranks, plan->node_size, plan->bytes_sent, plan->micro_batch, plan->n_micro,
            plan->tokens, plan->flops, plan->bytes, 1e3 * plan->step_s,
            (double)plan->tokens / plan->step_s);
}
