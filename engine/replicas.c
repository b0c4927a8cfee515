/* engine/replicas.c - hashes of every unit from every rank, and who is in the minority. */
#include "engine/replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* All ranks' hashes: (n_ranks, n_units). */
typedef struct table {
    const yk_store_replica *all;
    int n_ranks, n_units;
} table;

static const yk_store_replica *at(const table *t, int rank, int unit)
{
    return &t->all[rank * t->n_units + unit];
}

static bool has_same_weights(const yk_store_replica *a, const yk_store_replica *b)
{
    return a->begin != b->begin || a->hash == b->hash;
}

static bool has_same_master(const yk_store_replica *a, const yk_store_replica *b)
{
    return a->master_begin != b->master_begin || a->master_hash == b->master_hash;
}

/* Ranks that keep something else than this one in the place of the same. */
static int n_against(const table *t, int rank, int unit)
{
    int n = 0;
    const yk_store_replica *mine = at(t, rank, unit);
    for (int r = 0; r < t->n_ranks; r++)
        n += !has_same_weights(mine, at(t, r, unit)) || !has_same_master(mine, at(t, r, unit));
    return n;
}

/* The first unit in which any ranks differ, or -1. */
static int find_unit(const table *t)
{
    for (int u = 0; u < t->n_units; u++)
        for (int r = 0; r < t->n_ranks; r++)
            if (n_against(t, r, u) > 0) return u;
    return -1;
}

/* Those that most others are against; all that differ, where none is in the minority. */
static void name_ranks(const table *t, const yk_world *world, int unit, int64_t step)
{
    char names[512] = "";
    int most = 0, used = 0;
    for (int r = 0; r < t->n_ranks; r++) {
        int n = n_against(t, r, unit);
        if (n > most) most = n;
    }
    for (int r = 0; r < t->n_ranks && used < (int)sizeof names - 80; r++)
        if (n_against(t, r, unit) == most)
            used += snprintf(names + used, sizeof names - (size_t)used, "%srank %d on %s",
                             used ? ", " : "", r, yk_world_host(world, r));
    yk_fail(YK_EDIVERGED, "debug.check_replicas",
            "after step %" PRId64
            " weights differ from the other ranks' on %s, first in unit %d; a "
            "memory, a processor or a GPU there errs: test it, or leave the host out",
            step, names, unit);
}

static yk_status compare(yk_engine *e, yk_world *world, int64_t step, yk_store_replica *mine,
                         yk_store_replica *all)
{
    table t = {all, yk_world_size(world), yk_model_n_units(e->model)};
    YK_TRY(yk_store_hash(e->store, e->compute, mine));
    YK_TRY(yk_world_gather(world, mine, t.n_units * (int64_t)sizeof *mine, all));
    int unit = find_unit(&t);
    if (unit < 0) return YK_OK;
    if (yk_world_rank(world) == 0) name_ranks(&t, world, unit, step);
    return YK_EDIVERGED;
}

yk_status yk_replicas_check(yk_engine *e, yk_world *world, int64_t step)
{
    size_t n = (size_t)yk_model_n_units(e->model);
    yk_store_replica *mine = calloc(n, sizeof *mine);
    yk_store_replica *all = calloc(n * (size_t)yk_world_size(world), sizeof *all);
    yk_status status = YK_ENOMEM;
    if (mine && all)
        status = compare(e, world, step, mine, all);
    else
        yk_fail(status, "debug.check_replicas", "no memory for hashes");
    free(mine);
    free(all);
    return status;
}
