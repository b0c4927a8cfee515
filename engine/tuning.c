/* engine/tuning.c - see tuning.h. */
#include "engine/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rehearsal.h"
#include "runtime/device/tune.h"
#include "runtime/storage/hash.h"

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

/* ---- several ranks ------------------------------------------------------------------------ */

#define CARD_BYTES 256

yk_status yk_tuning_card(const yk_device *device, char *card, size_t bytes)
{
    char *text = NULL;
    int64_t n = 0;
    YK_TRY(yk_device_tune_export(device, &text, &n));
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    snprintf(card, bytes, "%.*s", end ? (int)(end - text) : 0, text ? text : "");
    free(text);
    return YK_OK;
}

/* leaders_out[r]: the first rank with the kind of card that rank r has. */
static yk_status find_leaders(yk_world *world, const yk_device *device, int *leaders_out)
{
    int n = yk_world_size(world);
    char card[CARD_BYTES];
    uint64_t mine = 0, *all = malloc((size_t)n * sizeof *all);
    if (!all) return yk_fail(YK_ENOMEM, "tune", "no memory for %d ranks", n);
    yk_status status = yk_tuning_card(device, card, sizeof card);
    if (status == YK_OK) mine = yk_hash64(card, (int64_t)strlen(card), 0);
    yk_status gathered = yk_world_gather(world, &mine, sizeof mine, all);
    if (status == YK_OK) status = gathered;
    for (int r = 0; r < n && status == YK_OK; r++) {
        leaders_out[r] = 0;
        while (all[leaders_out[r]] != all[r]) leaders_out[r]++;
    }
    free(all);
    return status;
}

/* What `leader` knows becomes what every rank of its kind knows. */
static yk_status share(yk_world *world, yk_device *device, int leader, bool is_of_kind)
{
    char *text = NULL;
    int64_t bytes = -1; /* the leader has failed */
    yk_status mine = YK_OK;
    if (yk_world_rank(world) == leader) mine = yk_device_tune_export(device, &text, &bytes);
    yk_status status = yk_world_broadcast(world, &bytes, sizeof bytes, leader);
    if (status == YK_OK && bytes < 0) status = mine == YK_OK ? YK_EPEER : mine;
    if (status == YK_OK && !text) {
        text = malloc((size_t)bytes + 1);
        YK_CHECK(text);
    }
    if (status == YK_OK && bytes > 0) status = yk_world_broadcast(world, text, bytes, leader);
    if (status == YK_OK && bytes > 0 && is_of_kind)
        status = yk_device_tune_import(device, text, bytes);
    free(text);
    return status;
}

/* Let leaders meet, and time, what they do not know. */
static yk_status learn(yk_world *world, yk_engine *e, bool leads)
{
    uint64_t work = yk_rehearsal_work(e);
    bool asks = leads && e->config->tune != YK_TUNE_CHOICE_OFF;
    int64_t mine = asks && !yk_device_tune_knows(e->device, work), any = 0;
    YK_TRY(yk_world_max(world, mine, &any));
    if (!any) return YK_OK;
    YK_TRY(yk_rehearsal_run(e));
    if (asks) yk_device_tune_learned(e->device, work);
    return YK_OK;
}

static yk_status settle_together(yk_world *world, yk_engine *e, yk_tune how, int *leaders)
{
    int rank = yk_world_rank(world);
    YK_TRY(find_leaders(world, e->device, leaders));
    bool leads = leaders[rank] == rank;
    if (leads) YK_TRY(open_tuner(e->config, e->device, how));
    YK_TRY(learn(world, e, leads));
    for (int r = 0; r < yk_world_size(world); r++)
        if (leaders[r] == r) YK_TRY(share(world, e->device, r, leaders[rank] == r));
    return YK_OK;
}

yk_status yk_tuning_settle(yk_world *world, yk_engine *e)
{
    yk_tune how = e->config->tune == YK_TUNE_CHOICE_FULL ? YK_TUNE_FULL : YK_TUNE_CACHED;
    if (!world) return open_tuner(e->config, e->device, how);
    int n = yk_world_size(world), *leaders = malloc((size_t)n * sizeof *leaders);
    if (!leaders) return yk_fail(YK_ENOMEM, "tune", "no memory for %d ranks", n);
    yk_status status = settle_together(world, e, how, leaders);
    free(leaders);
    return status;
}
