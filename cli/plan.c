/* cli/plan.c - `yoke plan`: memory and time of a step, nothing allocated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/run_config.h"
#include "engine/carrier.h"
#include "engine/device_choice.h"
#include "engine/plan.h"
#include "engine/ranks.h"
#include "engine/trainer.h"

/* What is asked for. */
typedef struct request {
    const char *device;                /* "" : this machine's */
    const char *trace;                 /* "" : none is written */
    const char *peers;                 /* "", "on", "off": do GPUs reach each other */
    int64_t ranks, node_size, network; /* the last two may be 0: not given */
    bool fit, json;
} request;

/* Keys of the file that take a preset's place are easily overlooked. */
static void print_preset(const yk_config *config, const yk_model_shape *shape)
{
    char text[256];
    if (yk_model_shape_tell_preset(shape, config, text, sizeof text))
        printf("%-11s %s\n", "preset", text);
}

static yk_status print(const yk_config *config, const request *r, const yk_model_shape *shape,
                       const yk_device_spec *spec, const yk_topology *topology)
{
    yk_plan plan;
    if (r->fit) return yk_plan_print_fits(config, shape, spec, topology, r->json, stdout);
    YK_TRY(yk_plan_make_or_print(config, shape, spec, topology, r->json ? stdout : NULL, &plan));
    yk_status status = YK_OK;
    if (r->trace[0]) status = yk_plan_trace(&plan, shape, topology, r->trace);
    if (status == YK_OK && r->json) {
        yk_plan_print_json(&plan, stdout);
    } else if (status == YK_OK) {
        print_preset(config, shape);
        yk_plan_print(&plan, stdout);
    }
    yk_plan_fini(&plan);
    return status;
}

/* This machine's device and host memory. */
static yk_status describe_here(const yk_config *config, yk_device_spec *spec_out)
{
    yk_device_spec spec;
    YK_TRY(yk_device_describe_chosen(config, &spec));
    spec.host_bytes = yk_host_room_read("").bytes;
    *spec_out = spec;
    return YK_OK;
}

/* --device stands for the machine that the file is about, and so may differ from the file's
 * `device`; but two options that contradict each other are a mistake. */
static yk_status check_device(const yk_config *config, const char *name, yk_device_kind kind,
                              const yk_cli_list *sets)
{
    bool is_set = false, is_cpu = kind == YK_DEVICE_CPU;
    for (int i = 0; i < sets->n_items; i++) is_set |= strncmp(sets->items[i], "device=", 7) == 0;
    if (!is_set || config->device == YK_DEVICE_CHOICE_AUTO ||
        is_cpu == (config->device == YK_DEVICE_CHOICE_CPU))
        return YK_OK;
    return yk_fail(YK_EINVAL, "--device", "%s contradicts --set device=%s; give one of them", name,
                   is_cpu ? "cuda" : "cpu");
}

static yk_status set_peers(const char *peers, yk_device_spec *spec)
{
    if (!peers[0]) return YK_OK;
    bool on = strcmp(peers, "on") == 0;
    if (!on && strcmp(peers, "off") != 0)
        return yk_fail(YK_EINVAL, "--peer-to-peer", "%s is neither on nor off", peers);
    if (!on)
        spec->peer_rate = 0;
    else if (spec->peer_rate == 0) /* by the same links as the host */
        spec->peer_rate = spec->host_link_rate;
    return YK_OK;
}

/* As --network gives it; else as a run has it, but for a described machine, whose devices are not here. */
static yk_status find_network(const yk_config *config, const request *r, yk_topology *topology)
{
    bool here = !r->device[0];
    if (r->network > 0)
        yk_ranks_set_network(topology, (double)r->network, "--network");
    else if (here || config->comm.network != YK_AUTO)
        return yk_ranks_find_network(config, NULL, topology);
    return YK_OK;
}

static yk_status plan(const yk_config *config, const request *r, const yk_cli_list *sets)
{
    yk_model_shape shape;
    yk_device_spec spec;
    int64_t node_size = r->node_size > 0 ? r->node_size : r->ranks;
    if (r->fit && r->trace[0])
        return yk_fail(YK_EINVAL, "--trace",
                       "it shows one step, and --fit lists many; give one of them");
    YK_TRY(yk_cli_find_shape(config, &shape));
    if (r->device[0]) {
        YK_TRY(yk_device_find_chosen(config, r->device, &spec));
        YK_TRY(check_device(config, r->device, spec.kind, sets));
    } else {
        YK_TRY(describe_here(config, &spec));
    }
    if (r->ranks % node_size != 0)
        return yk_fail(YK_EINVAL, "--node-size",
                       "%" PRId64 " ranks do not fill nodes of %" PRId64 " evenly", r->ranks,
                       node_size);
    yk_device_spec_share(config, node_size, &spec);
    YK_TRY(set_peers(r->peers, &spec));
    yk_topology topology = yk_ranks_topology(&spec, (int)r->ranks, (int)node_size);
    YK_TRY(find_network(config, r, &topology));
    yk_config chosen = *config;
    YK_TRY(yk_carrier_plan(config, &shape, &spec, &topology, &chosen));
    return print(&chosen, r, &shape, &spec, &topology);
}

static yk_status plan_file(const char *path, const request *r, const yk_cli_list *sets)
{
    yk_config config;
    if (strcmp(r->device, "auto") == 0 || strcmp(r->device, "cuda") == 0)
        return yk_fail(YK_EINVAL, "--device",
                       "it names a machine to plan for; leave it out for this one's own device, or "
                       "give --set device=%s",
                       r->device);
    YK_TRY(yk_cli_read_config(path, sets, &config));
    yk_status status = plan(&config, r, sets);
    yk_config_fini(&config);
    return status;
}

static yk_status run(int argc, char **argv)
{
    yk_cli_list sets = {.n_items = 0};
    request r = {.device = "", .trace = "", .peers = "", .ranks = 1};
    const char *path;
    bool done;
    int n;
    const yk_cli_option options[] = {
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = &sets,
         .value = "KEY=VALUE",
         .text = "set a key over the file's; may be repeated"},
        {.name = "device",
         .type = YK_CLI_TEXT,
         .out = &r.device,
         .value = "NAME",
         .text = "plan for a known device (4090d, h200, cpu, ...) instead of this machine's"},
        {.name = "ranks",
         .letter = 'n',
         .type = YK_CLI_INT,
         .out = &r.ranks,
         .value = "N",
         .text = "ranks that train together (default 1)",
         .min = 1,
         .max = 1 << 20},
        {.name = "node-size",
         .type = YK_CLI_INT,
         .out = &r.node_size,
         .value = "N",
         .text = "ranks of a node (default: all)",
         .min = 1,
         .max = 1 << 20},
        {.name = "network",
         .type = YK_CLI_INT,
         .out = &r.network,
         .value = "GBIT",
         .text = "Gbit/s of a node to others, each way (default: comm.network)",
         .min = 1,
         .max = 100000},
        {.name = "peer-to-peer",
         .type = YK_CLI_TEXT,
         .out = &r.peers,
         .value = "on|off",
         .text =
             "whether a node's GPUs reach each other past the host (default: as the device does)"},
        {.name = "fit",
         .type = YK_CLI_SWITCH,
         .out = &r.fit,
         .text = "list what fits, the fastest first, whatever the file chooses"},
        {.name = "trace",
         .type = YK_CLI_TEXT,
         .out = &r.trace,
         .value = "FILE",
         .text = "write the step's timeline, for Perfetto or chrome://tracing"},
        {.name = "json", .type = YK_CLI_SWITCH, .out = &r.json, .text = "print one JSON object"},
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
    return done ? YK_OK : plan_file(path, &r, &sets);
}

yk_status yk_cli_plan(int argc, char **argv)
{
    bool json = false;
    for (int i = 1; i < argc; i++) json = json || strcmp(argv[i], "--json") == 0;
    return json ? yk_cli_answer_json(run, argc, argv) : run(argc, argv);
}
