/* engine/links.c - a race, and the file that keeps its outcome.
 *
 * A file's first line says what it is of, and the others what each backend took: its name, a collective,
 * elements and their type; seconds, in as many digits as give the same number again; and for hostmem the
 * doublings of its chunks.
 */
#include "engine/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/tuning.h"
#include "runtime/base/version.h"
#include "runtime/storage/file.h"
#include "runtime/storage/hash.h"

#define HEADER     "yoke links 3: "
#define WHAT_BYTES 256
#define PATH_BYTES 1200
#define TEXT_BYTES 2048

#define DOUBLINGS_MAX 2 /* a file that says more is damaged */

/* ---- what it is of ------------------------------------------------------------------------ */

static uint64_t hash_text(uint64_t h, const char *text)
{
    return yk_hash64(text, (int64_t)strlen(text) + 1, h);
}

/* NCCL's settings, in whatever order they stand there. */
static uint64_t hash_settings(void)
{
    uint64_t sum = 0;
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "NCCL_", 5) == 0 && strncmp(*e, "NCCL_DEBUG", 10) != 0)
            sum += hash_text(0, *e);
    return sum;
}

/* What can change the outcome on this rank. */
static yk_status mark_rank(yk_world *world, yk_device *device, uint64_t *mark_out)
{
    char card[WHAT_BYTES];
    int32_t facts[3] = {yk_world_node(world), yk_device_reaches_peers(device),
                        yk_comm_nccl_version()};
    YK_TRY(yk_tuning_card(device, card, sizeof card));
    uint64_t settings = hash_settings(), h = hash_text(0, card);
    h = hash_text(h, yk_device_get_spec(device)->bus_id);
    h = yk_hash64(facts, sizeof facts, h);
    *mark_out = yk_hash64(&settings, sizeof settings, h);
    return YK_OK;
}

/* What is to be measured. */
static uint64_t hash_rows(const yk_race *r)
{
    int32_t groups[] = {(int32_t)r->axis, (int32_t)r->reduce, (int32_t)r->wire,
                        r->n_rows,        r->shares_gpu,      r->n_backends};
    uint64_t h = yk_hash64(groups, sizeof groups, 0);
    h = yk_hash64(r->backends, r->n_backends * (int64_t)sizeof r->backends[0], h);
    for (int i = 0; i < r->n_rows; i++) {
        const yk_race_row *row = &r->rows[i];
        int64_t numbers[] = {(int64_t)row->kind, (int64_t)row->dtype, row->count};
        h = yk_hash64(numbers, sizeof numbers, h);
    }
    return h;
}

/* A line that is the same on all ranks. */
static yk_status describe(yk_world *world, yk_device *device, const yk_race *race, char *what)
{
    int n = yk_world_size(world);
    uint64_t mine = 0, *all = malloc((size_t)n * sizeof *all);
    if (!all) return yk_fail(YK_ENOMEM, "links", "no memory for %d ranks", n);
    yk_status status = mark_rank(world, device, &mine);
    yk_status told = yk_world_gather(world, &mine, sizeof mine, all);
    if (status == YK_OK) status = told;
    uint64_t rows = hash_rows(race), h = yk_hash64(&rows, sizeof rows, hash_text(0, YK_VERSION));
    for (int i = 0; i < n && status == YK_OK; i++) h = yk_hash64(&all[i], sizeof all[i], h);
    snprintf(what, WHAT_BYTES, "%.63s, %d ranks on %d nodes, NCCL %d, %lld bytes, %s, %016llx",
             yk_device_get_spec(device)->name, n, yk_world_n_nodes(world), yk_comm_nccl_version(),
             (long long)yk_race_max_bytes(race), yk_dtype_name(race->wire), (unsigned long long)h);
    free(all);
    return status;
}

/* ---- the file ----------------------------------------------------------------------------- */

/* False where nothing is to be kept. */
static bool find_path(const yk_config *config, const char *what, char *folder, char *path)
{
    yk_tuning_folder(folder, PATH_BYTES);
    if (config->tune == YK_TUNE_CHOICE_OFF || !folder[0] || strlen(folder) > PATH_BYTES - 64)
        return false;
    snprintf(path, PATH_BYTES, "%.*s/links-%016llx.txt", PATH_BYTES - 64, folder,
             (unsigned long long)hash_text(0, what));
    return true;
}

static bool has_chunks(const yk_race *race, int backend)
{
    return race->backends[backend] == YK_COMM_HOSTMEM;
}

static bool is_time(double s)
{
    return isfinite(s) && s > 0;
}

/* A line without what it measures. */
static void name_line(const yk_race *race, int backend, int row, char *text)
{
    const yk_race_row *r = &race->rows[row];
    snprintf(text, WHAT_BYTES, "%s %s %lld %s ", yk_race_name(race, backend),
             yk_race_kind_name(r->kind), (long long)r->count, yk_dtype_name(r->dtype));
}

/* What follows a line's name; the characters that it took, 0 where it is no such thing. */
static int take_line(const char *text, bool has_chunks, double *seconds, int *doublings)
{
    int used = 0;
    long n = 0;
    bool read = has_chunks ? sscanf(text, "%lf %ld%n", seconds, &n, &used) == 2
                           : sscanf(text, "%lf%n", seconds, &used) == 1;
    bool good = read && text[used] == '\n' && is_time(*seconds);
    if (!good || n < -DOUBLINGS_MAX || n > DOUBLINGS_MAX) return 0;
    if (has_chunks) *doublings = (int)n;
    return used + 1;
}

/* Lines of the backends of `race`, each with its rows, in its order; nothing else. */
static bool take_times(const char *text, yk_race *race)
{
    char name[WHAT_BYTES];
    for (int i = 0; i < race->n_backends; i++)
        for (int k = 0; k < race->n_rows; k++) {
            yk_race_row *row = &race->rows[k];
            name_line(race, i, k, name);
            if (strncmp(text, name, strlen(name)) != 0) return false;
            text += strlen(name);
            int used = take_line(text, has_chunks(race, i), &row->seconds[i], &row->doublings);
            if (used == 0) return false;
            text += used;
        }
    return *text == '\0';
}

/* What an earlier run has kept; false where there is nothing, or nothing good. */
static bool load(const char *path, const char *what, yk_race *race)
{
    char *text, header[WHAT_BYTES + 32];
    int64_t bytes;
    int n = snprintf(header, sizeof header, HEADER "%s\n", what);
    if (!yk_file_exists(path) || yk_file_read_all(path, &text, &bytes) != YK_OK) return false;
    bool ours = bytes >= n && memcmp(text, header, (size_t)n) == 0, good = false;
    if (ours && bytes < TEXT_BYTES) {
        char rest[TEXT_BYTES];
        snprintf(rest, sizeof rest, "%.*s", (int)(bytes - n), text + n);
        good = strlen(rest) == (size_t)(bytes - n) && take_times(rest, race);
    }
    if (!good)
        yk_warn(path, ours ? "it is damaged; links are measured again"
                           : "it is not of these ranks; links are measured again");
    free(text);
    return good;
}

/* A file that cannot be written is said, and no more. */
static void save(const char *folder, const char *path, const char *what, const yk_race *r)
{
    char text[TEXT_BYTES], name[WHAT_BYTES];
    int n = snprintf(text, sizeof text, HEADER "%s\n", what);
    for (int i = 0; i < r->n_backends; i++)
        for (int k = 0; k < r->n_rows; k++) {
            name_line(r, i, k, name);
            n +=
                snprintf(text + n, sizeof text - (size_t)n, "%s%.17g", name, r->rows[k].seconds[i]);
            if (has_chunks(r, i))
                n += snprintf(text + n, sizeof text - (size_t)n, " %d", r->rows[k].doublings);
            n += snprintf(text + n, sizeof text - (size_t)n, "\n");
        }
    if (yk_dir_create(folder) == YK_OK) (void)yk_file_replace(path, text, n);
}

/* ---- the race ----------------------------------------------------------------------------- */

/* What rank 0 knows, on all. */
static yk_status recall(yk_world *world, const yk_config *config, const char *path,
                        const char *what, yk_race *race)
{
    yk_race known = *race;
    if (yk_world_rank(world) == 0 && config->tune == YK_TUNE_CHOICE_CACHED)
        known.remembered = load(path, what, &known);
    YK_TRY(yk_world_broadcast(world, &known, sizeof known, 0));
    if (!known.remembered) return YK_OK;
    yk_race_judge(&known);
    *race = known;
    return YK_OK;
}

yk_status yk_links_race(const yk_config *config, yk_world *world, yk_device *device, yk_race *race)
{
    char what[WHAT_BYTES], folder[PATH_BYTES], path[PATH_BYTES] = "";
    YK_TRY(describe(world, device, race, what));
    bool keeps = find_path(config, what, folder, path);
    if (config->tune == YK_TUNE_CHOICE_CACHED) YK_TRY(recall(world, config, path, what, race));
    if (race->remembered) return YK_OK;
    YK_TRY(yk_comm_race(world, device, race));
    if (keeps && yk_world_rank(world) == 0) save(folder, path, what, race);
    return YK_OK;
}
