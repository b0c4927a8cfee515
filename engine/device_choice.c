/* engine/device_choice.c - from a configuration to a device. */
#include "engine/device_choice.h"

#include "engine/bind.h"
#include "engine/tuning.h"
#include "runtime/base/arith.h"

bool yk_config_wants_gpu(const yk_config *config)
{
    if (config->device == YK_DEVICE_CHOICE_AUTO) return yk_device_count_cuda() > 0;
    return config->device == YK_DEVICE_CHOICE_CUDA;
}

static yk_status choose_attention(const yk_config *config, yk_device *device)
{
    static const yk_attention_provider providers[] = {
        [YK_ATTENTION_CHOICE_AUTO] = YK_ATTENTION_AUTO,
        [YK_ATTENTION_CHOICE_CUDNN] = YK_ATTENTION_CUDNN,
        [YK_ATTENTION_CHOICE_OWN] = YK_ATTENTION_OWN,
    };
    return yk_device_set_attention(device, providers[config->attention.provider],
                                   config->numerics.deterministic);
}

/* The second hardware thread of a core has nothing to compute with that the first does not use. */
static int choose_threads(const yk_config *config, int n_cores)
{
    if (config->cpu.threads > 0) return (int)config->cpu.threads;
    return n_cores > 0 ? n_cores : yk_bind_count_cores();
}

yk_status yk_device_open_chosen(const yk_config *config, int gpu, int n_cores,
                                yk_device **device_out)
{
    yk_device *device;
    if (!yk_config_wants_gpu(config)) {
        YK_TRY(yk_device_open_cpu(choose_threads(config, n_cores), &device));
        yk_device_set_amx(device, config->cpu.amx);
        *device_out = device;
        return YK_OK;
    }
    YK_TRY(yk_device_open_cuda(gpu, &device));
    yk_device_set_tf32(device, config->precision.tf32);
    yk_status status = choose_attention(config, device);
    if (status == YK_OK) status = yk_tuning_begin(config, device);
    if (status != YK_OK) {
        yk_device_close(device);
        return status;
    }
    *device_out = device;
    return YK_OK;
}

/* Of what a GPU's clocks and widths promise, the shares that kernels reach; as in dry/specs.c. */
#define PRODUCTS_SHARE 0.85
#define MEMORY_SHARE   0.85

/* CUDA's context and the libraries' kernels. */
#define CONTEXT_BYTES ((int64_t)768 << 20)

/* Take over the rates of a device that is known. */
static void take_rates(yk_device_spec *spec, const yk_device_spec *known)
{
    spec->context_bytes = known->context_bytes;
    spec->n_multiprocessors = known->n_multiprocessors;
    spec->tf32_flops = known->tf32_flops;
    spec->attention_backward = known->attention_backward;
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
        spec->matmul_flops[t] = known->matmul_flops[t];
        spec->attention_flops[t] = known->attention_flops[t];
    }
    for (int i = 0; i < 2; i++) {
        spec->softmax_s[i] = known->softmax_s[i];
        spec->cudnn_flops[i] = known->cudnn_flops[i];
        spec->cudnn_softmax_s[i] = known->cudnn_softmax_s[i];
    }
    spec->memory_rate = known->memory_rate;
    spec->host_link_rate = known->host_link_rate;
    spec->launch_s = known->launch_s;
}

yk_status yk_device_find_chosen(const yk_config *config, const char *name, yk_device_spec *spec_out)
{
    yk_device_spec spec;
    YK_TRY(yk_device_spec_find(name, &spec));
    if (config->attention.provider == YK_ATTENTION_CHOICE_OWN) spec.cudnn = false;
    if (config->attention.provider == YK_ATTENTION_CHOICE_CUDNN)
        spec.cudnn = spec.kind == YK_DEVICE_CUDA;
    *spec_out = spec;
    return YK_OK;
}

/* By NVLink where the card is known to have it, else over PCIe; nothing says what else there may be. */
static double peer_rate(const yk_device *device, const yk_device_spec *known)
{
    if (!yk_device_reaches_peers(device)) return 0;
    return known->peer_rate > 0 ? known->peer_rate : known->host_link_rate;
}

/* Processors compute in the host's memory: no more of it counts than the kernel will give. */
static void take_host_room(yk_device_spec *spec)
{
    yk_host_room room = yk_host_room_read("");
    if (spec->kind == YK_DEVICE_CPU)
        spec->memory_bytes = yk_min(spec->memory_bytes, yk_host_room_for_arenas(&room));
}

yk_status yk_device_describe(const yk_device *device, yk_device_spec *spec_out)
{
    yk_device_spec spec = *yk_device_get_spec(device), known;
    take_host_room(&spec);
    if (spec.kind == YK_DEVICE_CUDA && yk_device_spec_recognize(spec.name, &known)) {
        take_rates(&spec, &known);
        spec.peer_rate = peer_rate(device, &known);
    } else if (spec.kind == YK_DEVICE_CUDA) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) spec.matmul_flops[t] *= PRODUCTS_SHARE;
        spec.memory_rate *= MEMORY_SHARE;
        spec.context_bytes = CONTEXT_BYTES;
        spec.peer_rate = peer_rate(device, &spec);
    }
    *spec_out = spec;
    return YK_OK;
}

void yk_device_spec_share(const yk_config *config, int64_t ranks_here, yk_device_spec *spec)
{
    bool cpu = spec->kind == YK_DEVICE_CPU;
    spec->memory_bytes /= cpu ? ranks_here : config->launch.ranks_per_gpu;
    spec->host_bytes /= ranks_here;
}

yk_status yk_device_describe_part(const yk_config *config, yk_world *world, const yk_device *device,
                                  yk_device_spec *spec_out, yk_host_room *room_out)
{
    yk_device_spec spec;
    yk_host_room room = yk_host_room_read("");
    YK_TRY(yk_device_describe(device, &spec));
    spec.host_bytes = room.bytes;
    yk_device_spec_share(config, world ? yk_world_local_size(world) : 1, &spec);
    if (world) {
        YK_TRY(yk_world_min(world, spec.memory_bytes, &spec.memory_bytes));
        YK_TRY(yk_world_min(world, spec.host_bytes, &spec.host_bytes));
    }
    *spec_out = spec;
    *room_out = room;
    return YK_OK;
}

yk_status yk_device_describe_chosen(const yk_config *config, yk_device_spec *spec_out)
{
    yk_device *device;
    YK_TRY(yk_device_open_chosen(config, 0, 0, &device));
    yk_status status = yk_device_describe(device, spec_out);
    yk_device_close(device);
    return status;
}
