/* cli/plan.c - `yoke plan`: memory and time of a step, nothing allocated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/run_config.h"
#include "engine/device_choice.h"
#include "engine/plan.h"
#include "engine/trainer.h"

static yk_status plan(const yk_config *config, const char *device, int64_t ranks, int64_t node_size,
                      bool json)
{
    yk_model_shape shape;
    yk_device_spec spec;
    yk_plan plan;
    YK_TRY(yk_cli_find_shape(config, &shape));
    if (device[0])
        YK_TRY(yk_device_find_chosen(config, device, &spec));
    else
        YK_TRY(yk_device_describe_chosen(config, &spec));
    if (ranks % node_size != 0)
        return yk_fail(YK_EINVAL, "--node-size",
                       "%" PRId64 " ranks do not fill nodes of %" PRId64 " evenly", ranks,
                       node_size);
    yk_topology topology = yk_ranks_topology(&spec, (int)ranks, (int)node_size);
    YK_TRY(yk_plan_make(config, &shape, &spec, ranks > 1 ? &topology : NULL, 0, &plan));
    if (json)
        yk_plan_print_json(&plan, stdout);
    else
        yk_plan_print(&plan, stdout);
    yk_plan_fini(&plan);
    return YK_OK;
}

yk_status yk_cli_plan(int argc, char **argv)
{
    yk_cli_list sets = {.n_items = 0};
    const char *device = "", *path;
    bool json = false, done;
    int64_t ranks = 1, node_size = 0;
    int n;
    const yk_cli_option options[] = {
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = &sets,
         .value = "KEY=VALUE",
         .text = "set a key over the file's; may be repeated"},
        {.name = "device",
         .type = YK_CLI_TEXT,
         .out = &device,
         .value = "NAME",
         .text = "plan for a known device (4090d, h200, cpu, ...) instead of this machine's"},
        {.name = "ranks",
         .letter = 'n',
         .type = YK_CLI_INT,
         .out = &ranks,
         .value = "N",
         .text = "ranks that train together (default 1)",
         .min = 1,
         .max = 1 << 20},
        {.name = "node-size",
         .type = YK_CLI_INT,
         .out = &node_size,
         .value = "N",
         .text = "ranks of a node (default: all)",
         .min = 1,
         .max = 1 << 20},
        {.name = "json", .type = YK_CLI_SWITCH, .out = &json, .text = "print one JSON object"},
    };
    const yk_cli_command command = {
        .name = "plan",
        .operands = "CONFIG",
        .min_operands = 1,
        .max_operands = 1,
        .text = "Print what a training step takes: every item of memory in bytes, and its time on\n"
                "the device as described. Nothing is allocated.",
        .example = "yoke plan configs/demo.yaml --device 4090d",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &path, &n, &done));
    if (done) return YK_OK;
    yk_config config;
    YK_TRY(yk_cli_read_config(path, &sets, &config));
    yk_status status = plan(&config, device, ranks, node_size > 0 ? node_size : ranks, json);
    yk_config_fini(&config);
    return status;
}
