/* cli/bench_options.c - the options that the parts of `yoke bench` have in common: one row each, so
 * that they mean the same everywhere.
 */
#include <string.h>

#include "cli/bench.h"
#include "cli/precision.h"

yk_cli_option yk_bench_option_model(const char **out)
{
    return (yk_cli_option){.name = "model",
                           .type = YK_CLI_TEXT,
                           .out = out,
                           .value = "PRESET",
                           .text = "whose sizes to take (gpt2-124m)"};
}

yk_cli_option yk_bench_option_micro_batch(int64_t *out, const char *text)
{
    return (yk_cli_option){.name = "micro-batch",
                           .type = YK_CLI_INT,
                           .out = out,
                           .value = "B",
                           .text = text,
                           .min = 1,
                           .max = 1000000};
}

yk_cli_option yk_bench_option_seq(int64_t *out)
{
    return (yk_cli_option){.name = "seq",
                           .type = YK_CLI_INT,
                           .out = out,
                           .value = "T",
                           .text = "tokens of a sequence (1024)",
                           .min = 1,
                           .max = 1 << 24};
}

yk_cli_option yk_bench_option_dtype(const char **out, const char *text)
{
    return (yk_cli_option){
        .name = "dtype", .type = YK_CLI_TEXT, .out = out, .value = "TYPE", .text = text};
}

yk_cli_option yk_bench_option_device(const char **out)
{
    return (yk_cli_option){.name = "device",
                           .type = YK_CLI_TEXT,
                           .out = out,
                           .value = "DEVICE",
                           .text = "auto, cpu or cuda (auto)"};
}

yk_cli_option yk_bench_option_json(bool *out)
{
    return (yk_cli_option){
        .name = "json", .type = YK_CLI_SWITCH, .out = out, .text = "print one JSON object"};
}

yk_status yk_bench_find_dtype(const char *name, yk_dtype *dtype_out)
{
    return yk_cli_find_dtype("--dtype", name, dtype_out);
}

yk_status yk_bench_find_device(const char *name, bool *gpu_out)
{
    bool is_auto = strcmp(name, "auto") == 0, is_gpu = strcmp(name, "cuda") == 0;
    if (!is_auto && !is_gpu && strcmp(name, "cpu") != 0)
        return yk_fail(YK_EINVAL, "--device", "\"%s\" is none of auto, cpu, cuda", name);
    *gpu_out = is_gpu || (is_auto && yk_device_count_cuda() > 0);
    return YK_OK;
}
