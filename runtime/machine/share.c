/* runtime/machine/share.c - even shares, in two passes.
 *
 * First how many: units are dealt out one by one, those that few ranks want before those that many
 * want, each to the wanting rank that has fewest so far. Then which: ranks with fewer choices take
 * first, each its number of free units from the front of those it wants. For wants that contain
 * each other or have nothing in common, as those of GPUs on nodes are, every rank finds its number.
 * Ranks whose wants overlap otherwise may find fewer; what nobody took is dealt out at the end.
 */
#include "runtime/machine/share.h"

#include <stdlib.h>
#include <string.h>

typedef struct sharing {
    const yk_cpus *units;
    const yk_cpus *wants;
    int n_units, n;
    int *n_wanting; /* (n_units) ranks that want some of a unit */
    int *owner;     /* (n_units) rank that has it, or -1 */
    int *n_wanted;  /* (n) units that a rank wants */
    int *quota;     /* (n) units that it is to get */
} sharing;

static bool wants_unit(const sharing *s, int rank, int unit)
{
    yk_cpus part = yk_cpus_and(&s->units[unit], &s->wants[rank]);
    return !yk_cpus_is_empty(&part);
}

static void count_wants(sharing *s)
{
    for (int u = 0; u < s->n_units; u++) {
        s->owner[u] = -1;
        for (int r = 0; r < s->n; r++) {
            if (!wants_unit(s, r, u)) continue;
            s->n_wanting[u]++;
            s->n_wanted[r]++;
        }
    }
}

/* The rank that wants the unit and has the smallest count; -1 when nobody wants it. */
static int neediest(const sharing *s, int unit, const int *count)
{
    int found = -1;
    for (int r = 0; r < s->n; r++)
        if (wants_unit(s, r, unit) && (found < 0 || count[r] < count[found])) found = r;
    return found;
}

static void deal_numbers(sharing *s)
{
    for (int wanting = 1; wanting <= s->n; wanting++)
        for (int u = 0; u < s->n_units; u++) {
            if (s->n_wanting[u] != wanting) continue;
            s->quota[neediest(s, u, s->quota)]++;
        }
}

static void take(sharing *s, int rank)
{
    int left = s->quota[rank];
    for (int u = 0; u < s->n_units && left > 0; u++) {
        if (s->owner[u] >= 0 || !wants_unit(s, rank, u)) continue;
        s->owner[u] = rank;
        left--;
    }
    s->quota[rank] -= left; /* what it has now */
}

static void take_in_order(sharing *s)
{
    for (int wanted = 0; wanted <= s->n_units; wanted++)
        for (int r = 0; r < s->n; r++)
            if (s->n_wanted[r] == wanted) take(s, r);
}

static void deal_rest(sharing *s)
{
    for (int u = 0; u < s->n_units; u++) {
        if (s->owner[u] >= 0) continue;
        int rank = neediest(s, u, s->quota);
        if (rank < 0) continue;
        s->owner[u] = rank;
        s->quota[rank]++;
    }
}

bool yk_share_units(const yk_cpus *units, int n_units, const yk_cpus *wants, int n, yk_cpus *shares)
{
    int *counts = calloc(2 * ((size_t)n_units + (size_t)n), sizeof *counts);
    if (!counts) return false;
    sharing s = {.units = units, .wants = wants, .n_units = n_units, .n = n};
    s.n_wanting = counts;
    s.owner = s.n_wanting + n_units;
    s.n_wanted = s.owner + n_units;
    s.quota = s.n_wanted + n;
    count_wants(&s);
    deal_numbers(&s);
    take_in_order(&s);
    deal_rest(&s);
    for (int r = 0; r < n; r++) {
        shares[r] = (yk_cpus){{0}};
        for (int u = 0; u < n_units; u++) {
            if (s.owner[u] != r) continue;
            yk_cpus part = yk_cpus_and(&units[u], &wants[r]);
            shares[r] = yk_cpus_or(&shares[r], &part);
        }
    }
    free(counts);
    return true;
}
