/* runtime/device/tune.c - tuning a device that has something to choose. */
#include "runtime/device/tune.h"

#include <stdlib.h>

#include "runtime/device/backend.h"
#include "runtime/device/tuner.h"

yk_status yk_device_tune(yk_device *device, yk_tune how, const char *folder)
{
    return device->tuner ? yk_tuner_open(device->tuner, how, folder) : YK_OK;
}

yk_tune_sum yk_device_tune_sum(const yk_device *device)
{
    return device->tuner ? yk_tuner_sum(device->tuner) : (yk_tune_sum){.n = 0};
}

typedef struct work_key {
    int64_t kind;
    uint64_t work;
} work_key;

bool yk_device_tune_knows(const yk_device *device, uint64_t work)
{
    const work_key key = {YK_TUNER_WORK, work};
    unsigned char known;
    return !device->tuner || yk_tuner_find(device->tuner, &key, sizeof key, &known, sizeof known);
}

void yk_device_tune_learned(yk_device *device, uint64_t work)
{
    const work_key key = {YK_TUNER_WORK, work};
    const unsigned char known = 1;
    if (device->tuner) yk_tuner_add(device->tuner, &key, sizeof key, &known, sizeof known);
}

yk_status yk_device_tune_export(const yk_device *device, char **text_out, int64_t *bytes_out)
{
    if (device->tuner) return yk_tuner_export(device->tuner, text_out, bytes_out);
    char *text = calloc(1, 1);
    if (!text) return yk_fail(YK_ENOMEM, "tuner", "no memory for its choices");
    *text_out = text;
    *bytes_out = 0;
    return YK_OK;
}

yk_status yk_device_tune_import(yk_device *device, const char *text, int64_t bytes)
{
    return device->tuner ? yk_tuner_import(device->tuner, text, bytes) : YK_OK;
}
