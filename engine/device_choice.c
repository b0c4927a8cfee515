/* engine/device_choice.c - from a configuration to a device. */
#include "engine/device_choice.h"

#include <stdio.h>

bool yk_config_wants_gpu(const yk_config *config)
{
    if (config->device == YK_DEVICE_CHOICE_AUTO) return yk_device_count_cuda() > 0;
    return config->device == YK_DEVICE_CHOICE_CUDA;
}

yk_status yk_device_open_chosen(const yk_config *config, int gpu, yk_device **device_out)
{
    if (!yk_config_wants_gpu(config))
        return yk_device_open_cpu((int)config->cpu.threads, device_out);
    yk_device *device;
    YK_TRY(yk_device_open_cuda(gpu, &device));
    yk_device_set_tf32(device, config->precision.tf32);
    *device_out = device;
    return YK_OK;
}

yk_status yk_device_describe(const yk_device *device, yk_device_spec *spec_out)
{
    yk_device_spec spec, known;
    spec = *yk_device_get_spec(device);
    YK_TRY(yk_device_spec_find(spec.kind == YK_DEVICE_CPU ? "cpu" : "4090d", &known));
    if (spec.memory_rate > 0) {
        *spec_out = spec;
        return YK_OK;
    }
    known.memory_bytes = spec.memory_bytes;
    snprintf(known.name, sizeof known.name, "%s", spec.name);
    *spec_out = known;
    return YK_OK;
}

yk_status yk_device_describe_chosen(const yk_config *config, yk_device_spec *spec_out)
{
    yk_device *device;
    YK_TRY(yk_device_open_chosen(config, 0, &device));
    yk_status status = yk_device_describe(device, spec_out);
    yk_device_close(device);
    return status;
}
