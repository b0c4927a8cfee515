/* launch/placement.c - the places of ranks, as a table for people and as rows between hosts.
 *
 * A row is one line of tab-separated fields:
 *     yoke-row <version> <host> <GPUs there> <local rank> <GPU> <bus id> <nodes> <processors> <cores>
 * Remote shells print greetings of their own, so rows are known by their beginning.
 */
#include "launch/placement.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/version.h"

#define ROW "yoke-row"

/* ---- this machine's ranks ----------------------------------------------------------------- */

static void describe(const yk_machine *machine, const yk_binding *binding, int gpu, yk_place *place)
{
    place->gpu = gpu;
    if (gpu >= 0) memcpy(place->bus_id, yk_machine_gpu(machine, gpu)->bus_id, sizeof place->bus_id);
    yk_machine_write_nodes(machine, &binding->cpus, place->nodes);
    yk_cpus_write(&binding->cpus, place->cpus);
    place->n_cores = binding->n_cores;
}

/* The first thing that a binding has to say: one for all ranks. */
static void take_note(const yk_binding *bindings, int n, char *note)
{
    for (int i = 0; i < n && !note[0]; i++) memcpy(note, bindings[i].note, YK_BINDING_NOTE);
}

/* Places of n ranks on this machine; a note is added to one that is empty. */
static yk_status place_here(const yk_machine *machine, int n, bool is_on_gpus, yk_place *places,
                            char *note)
{
    int n_gpus = is_on_gpus ? yk_machine_n_gpus(machine) : 0;
    yk_binding_wish *wishes = calloc((size_t)n, sizeof *wishes);
    yk_binding *bindings = calloc((size_t)n, sizeof *bindings);
    yk_status status = YK_ENOMEM;
    if (!wishes || !bindings) {
        yk_fail(status, "launch", "no memory for the places of %d ranks", n);
        goto done;
    }
    for (int i = 0; i < n; i++)
        yk_binding_wish_for(machine, n_gpus ? yk_machine_gpu(machine, i % n_gpus) : NULL,
                            &wishes[i]);
    status = yk_binding_plan(machine, wishes, n, bindings);
    if (status != YK_OK) goto done;
    for (int i = 0; i < n; i++)
        describe(machine, &bindings[i], n_gpus ? i % n_gpus : -1, &places[i]);
    take_note(bindings, n, note);
done:
    free(bindings);
    free(wishes);
    return status;
}

/* ---- all ranks ---------------------------------------------------------------------------- */

/* Ranks refuse to start where more of them would open a GPU than may. */
static yk_status check_gpus(const yk_host *host, int n_gpus, int ranks_per_gpu)
{
    int room = ranks_per_gpu * n_gpus;
    if (n_gpus == 0)
        return yk_fail(YK_EINVAL, host->name,
                       "there is no GPU for %d ranks; see what nvidia-smi says there, or train on "
                       "the processors with --set device=cpu",
                       host->n_ranks);
    if (host->n_ranks > room)
        return yk_fail(
            YK_EINVAL, host->name,
            "%d ranks are to run there and it has %d GPUs, so that %s ranks would share one; give "
            "it %d slots (--hosts %s:%d,...), start fewer ranks (-n), or let more of them share "
            "with launch.ranks_per_gpu",
            host->n_ranks, n_gpus, ranks_per_gpu > 1 ? "too many" : "two", room, host->name, room);
    return YK_OK;
}

yk_status yk_placement_make(const yk_machine *machine, const yk_hosts *hosts, int n_ranks,
                            int ranks_per_gpu, yk_placement *placement_out)
{
    bool is_on_gpus = ranks_per_gpu > 0;
    yk_placement p = {.hosts = hosts, .n_ranks = n_ranks, .ranks_per_gpu = ranks_per_gpu};
    p.places = calloc((size_t)n_ranks, sizeof *p.places);
    if (!p.places) return yk_fail(YK_ENOMEM, "launch", "no memory for %d ranks", n_ranks);
    yk_place *place = p.places;
    for (int i = 0; i < hosts->n_items; i++) {
        const yk_host *host = &hosts->items[i];
        for (int j = 0; j < host->n_ranks; j++)
            place[j] = (yk_place){.host = i, .gpu = is_on_gpus ? j : -1};
        if (host->is_local && host->n_ranks > 0) {
            yk_status status =
                is_on_gpus ? check_gpus(host, yk_machine_n_gpus(machine), ranks_per_gpu) : YK_OK;
            if (status == YK_OK)
                status = place_here(machine, host->n_ranks, is_on_gpus, place, p.note);
            if (status != YK_OK) {
                free(p.places);
                return status;
            }
        }
        place += host->n_ranks;
    }
    *placement_out = p;
    return YK_OK;
}

void yk_placement_fini(yk_placement *placement)
{
    free(placement->places);
    *placement = (yk_placement){.places = NULL};
}

void yk_placement_print(const yk_placement *placement, FILE *out)
{
    int width = 4;
    for (int i = 0; i < placement->hosts->n_items; i++) {
        int n = (int)strlen(placement->hosts->items[i].name);
        if (placement->hosts->items[i].n_ranks > 0 && n > width) width = n;
    }
    fprintf(out, "%4s  %-*s  %3s  %-12s  %4s  %5s  %s\n", "rank", width, "host", "GPU", "bus id",
            "NUMA", "cores", "processors");
    for (int i = 0; i < placement->n_ranks; i++) {
        const yk_place *p = &placement->places[i];
        char gpu[16] = "-", cores[16] = "?";
        if (p->gpu >= 0) snprintf(gpu, sizeof gpu, "%d", p->gpu);
        if (p->n_cores > 0) snprintf(cores, sizeof cores, "%d", p->n_cores);
        const char *bus_id = p->bus_id[0] ? p->bus_id : p->gpu >= 0 ? "?" : "-";
        fprintf(out, "%4d  %-*s  %3s  %-12s  %4s  %5s  %s\n", i, width,
                placement->hosts->items[p->host].name, gpu, bus_id, p->nodes[0] ? p->nodes : "?",
                cores, p->cpus[0] ? p->cpus : "?");
    }
}

/* ---- rows between hosts ------------------------------------------------------------------- */

static const char *or_dash(const char *text)
{
    return text[0] ? text : "-";
}

yk_status yk_placement_print_rows(const yk_machine *machine, int host, int n_ranks, bool is_on_gpus,
                                  FILE *out)
{
    yk_place *places = calloc((size_t)n_ranks, sizeof *places);
    if (!places) return yk_fail(YK_ENOMEM, "launch", "no memory for %d ranks", n_ranks);
    char note[YK_BINDING_NOTE] = ""; /* the ranks will say it */
    yk_status status = place_here(machine, n_ranks, is_on_gpus, places, note);
    for (int i = 0; status == YK_OK && i < n_ranks; i++) {
        const yk_place *p = &places[i];
        fprintf(out, ROW "\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\n", YK_VERSION, host,
                yk_machine_n_gpus(machine), i, p->gpu, or_dash(p->bus_id), or_dash(p->nodes),
                or_dash(p->cpus), p->n_cores);
    }
    free(places);
    return status;
}

/* A row as it was read; the sizes of its texts are in its format. */
typedef struct row {
    char version[32], bus_id[YK_BUS_ID_BYTES], nodes[YK_CPUS_TEXT], cpus[YK_CPUS_TEXT];
    int host, n_gpus, local_rank, gpu, n_cores;
} row;

static bool read_row(const char *line, row *row_out)
{
    return sscanf(line, ROW "\t%31[^\t]\t%d\t%d\t%d\t%d\t%23[^\t]\t%127[^\t]\t%127[^\t]\t%d",
                  row_out->version, &row_out->host, &row_out->n_gpus, &row_out->local_rank,
                  &row_out->gpu, row_out->bus_id, row_out->nodes, row_out->cpus,
                  &row_out->n_cores) == 9;
}

static yk_status check_row(const yk_placement *placement, const yk_host *host, const row *r)
{
    if (strcmp(r->version, YK_VERSION) != 0)
        return yk_fail(YK_EINVAL, host->name,
                       "yoke is version %s there and %s here; install the same on all hosts",
                       r->version, YK_VERSION);
    if (placement->ranks_per_gpu == 0) return YK_OK;
    return check_gpus(host, r->n_gpus, placement->ranks_per_gpu);
}

static yk_status take_row(yk_placement *placement, const row *r)
{
    const yk_hosts *hosts = placement->hosts;
    int first = 0;
    if (r->host < 0 || r->host >= hosts->n_items || r->local_rank < 0 ||
        r->local_rank >= hosts->items[r->host].n_ranks)
        return YK_OK;
    YK_TRY(check_row(placement, &hosts->items[r->host], r));
    for (int i = 0; i < r->host; i++) first += hosts->items[i].n_ranks;
    yk_place *place = &placement->places[first + r->local_rank];
    *place = (yk_place){.host = r->host, .gpu = r->gpu, .n_cores = r->n_cores};
    if (strcmp(r->bus_id, "-") != 0) memcpy(place->bus_id, r->bus_id, sizeof place->bus_id);
    memcpy(place->nodes, r->nodes, sizeof place->nodes);
    memcpy(place->cpus, r->cpus, sizeof place->cpus);
    return YK_OK;
}

yk_status yk_placement_read_rows(yk_placement *placement, const char *text)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        row r;
        line += *line == '\n';
        if (read_row(line, &r)) YK_TRY(take_row(placement, &r));
    }
    for (int i = 0; i < placement->n_ranks; i++) {
        if (placement->places[i].n_cores > 0) continue;
        return yk_fail(YK_EINVAL, placement->hosts->items[placement->places[i].host].name,
                       "yoke on that host did not say where its ranks would run; try there: yoke "
                       "--version");
    }
    return YK_OK;
}
