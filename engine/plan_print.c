/* engine/plan_print.c - a plan as a table and as JSON. */
#include <inttypes.h>

#include "engine/plan_parts.h"
#include "runtime/base/number.h"

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

/* What the clock takes for the links between ranks. */
static void print_links(const yk_plan *plan, FILE *out)
{
    char rate[YK_NUMBER_MAX], network[YK_NUMBER_MAX];
    const char *source = plan->topology.network;
    bool gpu = plan->spec.kind == YK_DEVICE_CUDA;
    yk_number_write_plain(1e-9 * yk_plan_link_rate(plan), rate);
    yk_number_write_plain(yk_ranks_network_gbit(&plan->topology), network);
    fprintf(out, "links       %s", plan->carrier);
    if (plan->node_size > 1)
        fprintf(out, " over %s GB/s each way %s", rate,
                !gpu                       ? "between processes"
                : plan->spec.peer_rate > 0 ? "between GPUs of a node"
                                           : "to the host, without peer-to-peer");
    if (plan->node_size < plan->ranks)
        fprintf(out, "%s a network of %s Gbit/s between nodes%s%s%s",
                plan->node_size > 1 ? " and" : " over", network, source[0] ? " (" : "", source,
                source[0] ? ")" : "");
    fprintf(out, ", as assumed\n");
}

static void print_host(const yk_plan *plan, FILE *out)
{
    int64_t all = plan->node_size * yk_plan_pinned_bytes(plan);
    if (plan->node_size > 1) {
        fprintf(out, "%-11s pinned by its %-10d", "machine", plan->node_size);
        print_bytes(out, all);
        fprintf(out, "  %" PRId64 "\n", all);
    }
    if (plan->spec.kind == YK_DEVICE_CPU) return; /* its memory is the host's */
    if (plan->spec.host_bytes > 0)
        print_total(out, "may pin", plan->spec.host_bytes);
    else
        fprintf(out, "%-11s as much as it takes: memory.host_limit is not set\n", "may pin");
}

static void print_clock(const yk_plan *plan, FILE *out)
{
    char step[YK_NUMBER_MAX], wait[YK_NUMBER_MAX], sent[YK_NUMBER_MAX], rate[YK_NUMBER_MAX];
    bool in_gib = plan->bytes_sent >= (int64_t)1 << 30;
    yk_number_write_time(plan->step_s, step);
    yk_number_write_time(plan->exposed_s, wait);
    yk_number_write_plain((double)plan->bytes_sent / (in_gib ? 0x1p30 : 0x1p20), sent);
    yk_number_write_plain((double)plan->tokens / plan->step_s, rate);
    if (plan->ranks > 1)
        fprintf(out, "ranks       %d, %d a node; each sends %s %s a step and waits %s for it\n",
                plan->ranks, plan->node_size, sent, in_gib ? "GiB" : "MiB", wait);
    if (plan->ranks > 1) print_links(plan, out);
    fprintf(out, "clock       %s a step on %s as described, %s tokens/s\n", step, plan->spec.name,
            rate);
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
    print_total(out, "limit", plan->limit);
    print_total(out, "pinned", yk_plan_pinned_bytes(plan));
    print_host(plan, out);
    fprintf(out,
            "step        %" PRId64 " micro-batch%s of %" PRId64 " sequence%s, %" PRId64
            " tokens, %.3g operations\n",
            plan->n_micro, plan->n_micro == 1 ? "" : "es", plan->micro_batch,
            plan->micro_batch == 1 ? "" : "s", plan->tokens, plan->flops);
    print_clock(plan, out);
    if (plan->why[0]) fprintf(out, "chosen      %s\n", plan->why);
}

/* Rows that are printed. */
#define MAX_FITS   8
#define MAX_SIFTED 96 /* of so many */

static void print_fit(const yk_plan_row *row, int64_t limit, double fastest_s, FILE *out)
{
    char choices[240], step[YK_NUMBER_MAX], rate[YK_NUMBER_MAX];
    const yk_config *c = &row->config;
    yk_plan_write_choices(&row->config, NULL, choices, sizeof choices);
    yk_number_write_plain(1e3 * row->step_s, step);
    yk_number_write_plain((double)(c->train.batch * c->train.seq_len) / row->step_s, rate);
    print_bytes(out, row->bytes);
    fprintf(out, " %5.1f %% %12s %12s %+7.1f %%  %s\n", 100 * (double)row->bytes / (double)limit,
            step, rate, 100 * (row->step_s / fastest_s - 1), choices);
}

static void print_fits(const yk_plan_row *rows, int n, int64_t limit, FILE *out)
{
    fprintf(out, "%13s %7s %12s %12s %9s  %s\n", "memory", "of it", "ms a step", "tokens/s",
            "slower", "choices");
    for (int i = 0; i < n; i++) print_fit(&rows[i], limit, rows[0].step_s, out);
}

static void print_fits_json(const yk_plan_row *rows, int n, int64_t limit, FILE *out)
{
    char choices[240];
    fprintf(out, "{\"limit_bytes\": %" PRId64 ", \"fits\": [", limit);
    for (int i = 0; i < n; i++) {
        const yk_config *c = &rows[i].config;
        yk_plan_write_choices(c, NULL, choices, sizeof choices);
        fprintf(out,
                "%s{\"device_bytes\": %" PRId64
                ", \"step_ms\": %.9g, \"tokens_per_s\": %.9g, \"choices\": \"%s\"}",
                i ? ", " : "", rows[i].bytes, 1e3 * rows[i].step_s,
                (double)(c->train.batch * c->train.seq_len) / rows[i].step_s, choices);
    }
    fprintf(out, "]}\n");
}

/* Rows that differ by less are as fast by the clock. */
#define NO_FASTER 0.0005

/* Does `row` do no more than `other` does, or as much in a lower stage? */
static bool is_simpler(const yk_plan_row *row, const yk_plan_row *other)
{
    const yk_config *a = &row->config, *b = &other->config;
    bool as_much = a->memory.offload == b->memory.offload;
    bool less = (a->memory.offload & ~b->memory.offload) == 0 && !as_much;
    if (!as_much) return less;
    if (a->parallel.zero != b->parallel.zero) return a->parallel.zero < b->parallel.zero;
    return a->parallel.shard < b->parallel.shard;
}

/* Is there reason to list `row` beside those before it, which the search prefers? */
static bool is_worth(const yk_plan_row *rows, int n, const yk_plan_row *row)
{
    for (int i = 0; i < n; i++) {
        if (row->step_s < rows[i].step_s) return false; /* by less than what it takes to the host */
        bool as_fast = row->step_s < rows[i].step_s * (1 + NO_FASTER);
        if (as_fast && is_simpler(&rows[i], row)) return false;
    }
    return true;
}

/* Leave what is worth listing, by time: the first is what a plan chooses, and nothing that does more is told
 * to be as fast. Returns how many. */
static int sift(yk_plan_row *rows, int n)
{
    int kept = 0;
    for (int i = 0; i < n && kept < MAX_FITS; i++)
        if (is_worth(rows, kept, &rows[i])) rows[kept++] = rows[i];
    return kept;
}

yk_status yk_plan_print_fits(const yk_config *config, const yk_model_shape *shape,
                             const yk_device_spec *spec, const yk_topology *topology, bool json,
                             FILE *out)
{
    yk_plan_target target = {shape, spec, topology, 0, NULL};
    yk_plan_row rows[MAX_SIFTED];
    yk_config open = *config;
    yk_plan plan;
    int n;
    open.train.micro_batch = YK_AUTO;
    open.memory.recompute = YK_RECOMPUTE_AUTO;
    open.parallel.zero = YK_AUTO;
    open.parallel.shard = YK_SHARD_AUTO;
    open.memory.offload = YK_OFFLOAD_AUTO;
    YK_TRY(yk_plan_search(&target, &open, false, rows, MAX_SIFTED, &n));
    if (n == 0) /* says why */
        return yk_plan_make_or_print(&open, shape, spec, topology, json ? out : NULL, &plan);
    n = sift(rows, n);
    (json ? print_fits_json : print_fits)(rows, n, yk_plan_limit(config, spec), out);
    return YK_OK;
}

static void print_sizes_json(const yk_plan *plan, FILE *out)
{
    const yk_arena_sizes *s = &plan->sizes;
    fprintf(out,
            "\"arenas\": {\"persistent\": %" PRId64 ", \"activation\": %" PRId64
            ", \"pinned\": %" PRId64 "}",
            s->persistent, s->activation, yk_plan_pinned_bytes(plan));
}

static void print_links_json(const yk_plan *plan, FILE *out)
{
    if (plan->ranks == 1) return;
    fprintf(out,
            "\"backend\": \"%s\", \"peer_to_peer\": %s, \"link_bytes_per_s\": %.9g, "
            "\"network_gbit_per_s\": %.9g, \"network_source\": \"%s\", ",
            plan->carrier, plan->spec.peer_rate > 0 ? "true" : "false", yk_plan_link_rate(plan),
            yk_ranks_network_gbit(&plan->topology), plan->topology.network);
}

static void print_choices_json(const yk_config *c, FILE *out)
{
    static const char *const offloads[] = {"master", "moments", "grads", "params", "inputs"};
    const char *before = "";
    fprintf(out,
            "\"zero\": %" PRId64 ", \"shard\": \"%s\", \"recompute\": \"%s\", "
            "\"head_chunk\": %" PRId64 ", \"offload\": [",
            c->parallel.zero, c->parallel.shard == YK_SHARD_NODE ? "node" : "world",
            yk_plan_recompute_names[c->memory.recompute], c->memory.head_chunk);
    for (int i = 0; i < 5; i++) {
        if (!(c->memory.offload & (1 << i))) continue;
        fprintf(out, "%s\"%s\"", before, offloads[i]);
        before = ", ";
    }
    fprintf(out, "], ");
}

/* Of an object that has begun: what is taken, of what. */
static void print_memory_json(const yk_plan *plan, FILE *out)
{
    fprintf(out,
            "\"device\": \"%s\", \"limit_bytes\": %" PRId64 ", \"device_bytes\": %" PRId64
            ", \"library_bytes\": %" PRId64 ", ",
            plan->spec.name, plan->limit, yk_plan_device_bytes(plan), plan->library_bytes);
    print_sizes_json(plan, out);
    fprintf(out, ", \"items\": [");
    for (int i = 0; i < plan->n_items; i++) {
        const yk_plan_item *item = &plan->items[i];
        fprintf(out,
                "%s{\"arena\": \"%s\", \"name\": \"%s\", \"bytes\": %" PRId64
                ", \"pieces\": %" PRId64 "}",
                i ? ", " : "", item->arena, item->name, item->bytes, item->n_pieces);
    }
    fprintf(out, "]");
    if (plan->spec.host_bytes > 0)
        fprintf(out, ", \"may_pin_bytes\": %" PRId64, plan->spec.host_bytes);
}

void yk_plan_print_refusal(const yk_plan *plan, bool open, double roomy_s,
                           const yk_plan_change *changes, int n_changes, FILE *out)
{
    fprintf(out, "{\"fits\": false, \"is_least\": %s, ", open ? "true" : "false");
    print_memory_json(plan, out);
    if (roomy_s > 0) fprintf(out, ", \"roomy_step_ms\": %.9g", 1e3 * roomy_s);
    fprintf(out, ", \"changes\": [");
    for (int i = 0; i < n_changes; i++)
        fprintf(out,
                "%s{\"choices\": \"%s\", \"device_bytes\": %" PRId64 ", \"pinned_bytes\": %" PRId64
                ", \"step_ms\": %.9g}",
                i ? ", " : "", changes[i].text, changes[i].bytes, changes[i].pinned_bytes,
                1e3 * changes[i].step_s);
    fprintf(out, "]}\n");
}

void yk_plan_print_json(const yk_plan *plan, FILE *out)
{
    fprintf(out, "{\"fits\": true, ");
    print_memory_json(plan, out);
    fprintf(out,
            ", \"ranks\": %d, \"node_size\": %d, \"bytes_sent\": %" PRId64
            ", \"exposed_ms\": %.9g, \"micro_batch\": %" PRId64 ", \"micro_batches\": %" PRId64
            ", \"tokens\": %" PRId64
            ", \"flops\": %.17g, \"bytes\": %.17g, \"step_ms\": %.9g, \"tokens_per_s\": %.9g, ",
            plan->ranks, plan->node_size, plan->bytes_sent, 1e3 * plan->exposed_s,
            plan->micro_batch, plan->n_micro, plan->tokens, plan->flops, plan->bytes,
            1e3 * plan->step_s, (double)plan->tokens / plan->step_s);
    fprintf(out, "\"pinned_per_machine\": %" PRId64 ", ",
            plan->node_size * yk_plan_pinned_bytes(plan));
    print_links_json(plan, out);
    print_choices_json(&plan->config, out);
    char choices[240];
    yk_plan_write_choices(&plan->config, NULL, choices, sizeof choices);
    fprintf(out, "\"choices\": \"%s\", \"chosen\": \"%s\"}\n", choices, plan->why);
}
