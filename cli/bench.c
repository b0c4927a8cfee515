/* cli/bench.c - `yoke bench ops`: the time of every operation and how far from the limit it is.
 *
 * The limits are measured first, on this device: a large copy and a large matrix product. A row's
 * limit is the larger of its operations at the product's rate and its bytes at the copy's.
 */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "engine/device_choice.h"
#include "runtime/base/words.h"
#include "runtime/device/tune.h"

/* What is asked for. */
typedef struct request {
    const char *device, *preset, *dtype, *attention;
    bool json, loose, tune;
} request;

/* ---- printing ----------------------------------------------------------------------------- */

static double limit_s(const yk_bench *b, const yk_cost *cost)
{
    double by_flops = cost->flops / b->matmul_rate, by_bytes = cost->bytes / b->memory_rate;
    return by_flops > by_bytes ? by_flops : by_bytes;
}

/* What the plan's clock says. */
static double planned_s(const yk_bench *b, const yk_cost *cost)
{
    return yk_cost_seconds(cost, &b->planned) + b->planned.launch_s;
}

static void print_table(const yk_bench *b)
{
    printf("%s, %s; measured: memory %.0f GB/s, products %.1f TFLOP/s\n",
           yk_device_get_spec(b->device)->name, yk_dtype_name(b->dtype), b->memory_rate * 1e-9,
           b->matmul_rate * 1e-12);
    printf("%-26s %-34s %10s %10s %10s %10s %9s %9s %6s\n", "operation", "size", "us", "low",
           "high", "planned", "GB/s", "TFLOP/s", "limit");
    for (int i = 0; i < b->n_rows; i++) {
        const yk_bench_row *r = &b->rows[i];
        char share[16] = "";
        if (!r->no_limit)
            snprintf(share, sizeof share, "%.0f%%", 100 * limit_s(b, &r->cost) / r->seconds);
        printf("%-26s %-34s %10.1f %10.1f %10.1f %10.1f %9.0f %9.1f %6s\n", r->name, r->size,
               r->seconds * 1e6, r->low * 1e6, r->high * 1e6, planned_s(b, &r->cost) * 1e6,
               r->cost.bytes / r->seconds * 1e-9, r->cost.flops / r->seconds * 1e-12, share);
    }
}

static void print_json(const yk_bench *b)
{
    printf("{\"device\": \"%s\", \"dtype\": \"%s\", \"memory_rate\": %.6g, "
           "\"matmul_rate\": %.6g, "
           "\"ops\": [",
           yk_device_get_spec(b->device)->name, yk_dtype_name(b->dtype), b->memory_rate,
           b->matmul_rate);
    for (int i = 0; i < b->n_rows; i++) {
        const yk_bench_row *r = &b->rows[i];
        char share[16] = "null";
        if (!r->no_limit) snprintf(share, sizeof share, "%.4f", limit_s(b, &r->cost) / r->seconds);
        printf(
            "%s\n {\"op\": \"%s\", \"size\": \"%s\", \"seconds\": %.6g, "
            "\"low\": %.6g, "
            "\"high\": %.6g, \"planned\": %.6g, \"bytes\": %.6g, \"flops\": %.6g, \"limit_share\": "
            "%s}",
            i ? "," : "", r->name, r->size, r->seconds, r->low, r->high, planned_s(b, &r->cost),
            r->cost.bytes, r->cost.flops, share);
    }
    printf("]}\n");
}

/* ---- the command -------------------------------------------------------------------------- */

static yk_status find_shape(const char *preset, yk_model_shape *shape_out)
{
    yk_config config;
    char assignment[80];
    snprintf(assignment, sizeof assignment, "model.preset=%.60s", preset);
    YK_TRY(yk_config_init(&config));
    yk_status status = yk_config_set(&config, assignment);
    if (status == YK_OK) status = yk_model_shape_from_config(&config, shape_out);
    yk_config_fini(&config);
    return status;
}

static yk_status open_device(const char *name, yk_device **device_out)
{
    bool gpu;
    YK_TRY(yk_bench_find_device(name, &gpu));
    return gpu ? yk_device_open_cuda(0, device_out) : yk_device_open_cpu(0, device_out);
}

/* The default of training, which falls back to our own, unless one is asked for. */
static yk_status choose_attention(yk_device *device, const char *name, bool loose)
{
    static const struct {
        const char *name;
        yk_attention_provider provider;
    } known[] = {
        {"auto", YK_ATTENTION_AUTO}, {"cudnn", YK_ATTENTION_CUDNN}, {"own", YK_ATTENTION_OWN}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            return yk_device_set_attention(device, known[i].provider, !loose);
    return yk_fail(YK_EINVAL, "--attention", "\"%s\" is none of auto, cudnn, own", name);
}

static yk_status time_ops(yk_bench *b, bool json)
{
    YK_TRY(yk_device_describe(b->device, &b->planned));
    yk_status status = yk_bench_open(b);
    if (status == YK_OK) status = yk_bench_ops(b);
    if (json)
        print_json(b);
    else
        print_table(b);
    yk_bench_close(b);
    return status;
}

static yk_status bench_ops(yk_bench *b, const request *r)
{
    YK_TRY(yk_bench_find_dtype(r->dtype, &b->dtype));
    YK_TRY(find_shape(r->preset, &b->shape));
    YK_TRY(open_device(r->device, &b->device));
    yk_status status = yk_bench_check_only(b);
    if (status == YK_OK) status = choose_attention(b->device, r->attention, r->loose);
    if (status == YK_OK)
        status = yk_device_tune(b->device, r->tune ? YK_TUNE_FULL : YK_TUNE_OFF, "");
    if (status == YK_OK) status = time_ops(b, r->json);
    yk_device_close(b->device);
    return status;
}

yk_status yk_cli_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "step") == 0) return yk_bench_step(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "comm") == 0) return yk_bench_comm(argc - 1, argv + 1);
    request r = {.device = "auto", .preset = "gpt2-124m", .dtype = "bf16", .attention = "auto"};
    const char *what;
    char shown[YK_SHOWN_MAX];
    bool done;
    int n;
    yk_bench b = {.batch = 64, .seq_len = 1024, .stretch_ms = 5, .only = ""};
    const yk_cli_option options[] = {
        yk_bench_option_model(&r.preset),
        yk_bench_option_micro_batch(&b.batch, "sequences (64)"),
        yk_bench_option_seq(&b.seq_len),
        yk_bench_option_dtype(&r.dtype, "fp32, bf16 or fp16 (bf16)"),
        yk_bench_option_device(&r.device),
        {.name = "attention",
         .type = YK_CLI_TEXT,
         .out = &r.attention,
         .value = "WHOSE",
         .text = "kernels: auto, cudnn or own (auto)"},
        {.name = "loose",
         .type = YK_CLI_SWITCH,
         .out = &r.loose,
         .text = "as with numerics.deterministic: false"},
        {.name = "tune",
         .type = YK_CLI_SWITCH,
         .out = &r.tune,
         .text = "let the library's algorithms race, and time the fastest"},
        {.name = "stretch",
         .type = YK_CLI_INT,
         .out = &b.stretch_ms,
         .value = "MS",
         .text = "length of one timing; the median of 11 is shown (5)",
         .min = 1,
         .max = 10000},
        {.name = "only",
         .type = YK_CLI_TEXT,
         .out = &b.only,
         .value = "NAME",
         .text = "only operations whose name has this in it; several with commas between them"},
        yk_bench_option_json(&r.json),
    };
    const yk_cli_command command = {
        .name = "bench",
        .operands = "ops|step|comm",
        .min_operands = 1,
        .max_operands = 1,
        .text = "Time every operation of a training step at the sizes of a "
                "model, and print its\n"
                "bytes, its operations and its share of what this device can do. `yoke bench step "
                "--help`\nsays how to time whole steps, `yoke bench comm --help` collectives.",
        .example = "yoke bench ops --model gpt2-124m --micro-batch 64 --seq 1024",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_check_one_process("bench ops"));
    YK_TRY(yk_cli_parse(&command, argc, argv, &what, &n, &done));
    if (done) return YK_OK;
    if (strcmp(what, "ops") != 0)
        return yk_fail(YK_EINVAL, "bench", "there is no %s; choose among ops, step, comm",
                       yk_word_show(what, shown));
    return bench_ops(&b, &r);
}
