/* engine/tuning.c - see tuning.h. */
#include "engine/tuning.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/device/tune.h"

#define FOLDER_BYTES 1024

void yk_tuning_folder(char *folder, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    folder[0] = '\0';
    if (cache && cache[0] == '/')
        snprintf(folder, bytes, "%s/yoke", cache);
    else if (home && home[0] == '/')
        snprintf(folder, bytes, "%s/.cache/yoke", home);
}

static yk_status open_tuner(const yk_config *config, yk_device *device, yk_tune how)
{
    char folder[FOLDER_BYTES];
    yk_tuning_folder(folder, sizeof folder);
    return yk_device_tune(device, config->tune == YK_TUNE_CHOICE_OFF ? YK_TUNE_OFF : how, folder);
}

yk_status yk_tuning_begin(const yk_config *config, yk_device *device)
{
    return open_tuner(config, device, YK_TUNE_KNOWN);
}

static yk_status share(yk_world *world, yk_device *device)
{
    char *text = NULL;
    int64_t bytes = -1; /* rank 0 has failed */
    yk_status mine = YK_OK;
    if (yk_world_rank(world) == 0) mine = yk_device_tune_export(device, &text, &bytes);
    yk_status status = yk_world_broadcast(world, &bytes, sizeof bytes, 0);
    if (status == YK_OK && bytes < 0) status = mine == YK_OK ? YK_EPEER : mine;
    if (status == YK_OK && !text) {
        text = malloc((size_t)bytes + 1);
        YK_CHECK(text);
    }
    if (status == YK_OK && bytes > 0) status = yk_world_broadcast(world, text, bytes, 0);
    if (status == YK_OK && bytes > 0) status = yk_device_tune_import(device, text, bytes);
    free(text);
    return status;
}

yk_status yk_tuning_settle(const yk_config *config, yk_world *world, yk_device *device)
{
    if (world) return share(world, device);
    return open_tuner(config, device,
                      config->tune == YK_TUNE_CHOICE_FULL ? YK_TUNE_FULL : YK_TUNE_CACHED);
}
