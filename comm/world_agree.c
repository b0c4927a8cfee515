/* comm/world_agree.c - one verdict for all ranks, and one voice.
 *
 * Ranks of a run do the same things at the start and would say the same things about them N times.
 * Here they learn of each other's verdict and of each other's words, and each keeps to itself what
 * a lower rank says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/world_mpi.h"

/* A rank with so many words or more says them all. */
#define COMPARED_BYTES 16384

typedef struct verdict {
    int32_t status;
    int32_t n_bytes; /* of held text, up to COMPARED_BYTES */
} verdict;

void yk_world_hold(yk_world *w)
{
    if (w->size > 1) yk_held_begin(&w->held);
}

/* The line at `text`, its end included. */
static size_t line_bytes(const char *text, size_t n)
{
    const char *end = memchr(text, '\n', n);
    return end ? (size_t)(end - text) + 1 : n;
}

static bool has_line(const char *text, size_t n, const char *line, size_t line_n)
{
    for (size_t at = 0; at < n; at += line_bytes(text + at, n - at))
        if (line_bytes(text + at, n - at) == line_n && !memcmp(text + at, line, line_n))
            return true;
    return false;
}

static bool is_said_below(const verdict *all, const char *texts, size_t stride, int rank,
                          const char *line, size_t n)
{
    for (int r = 0; r < rank; r++)
        if (has_line(texts + (size_t)r * stride, (size_t)all[r].n_bytes, line, n)) return true;
    return false;
}

/* Say the lines of this rank that no lower one has. */
static void say_own_lines(yk_world *w, const verdict *all, const char *texts, size_t stride)
{
    const char *mine = texts + (size_t)w->rank * stride;
    size_t n = (size_t)all[w->rank].n_bytes, line_n;
    yk_held_end(&w->held, n < COMPARED_BYTES ? YK_HELD_DROP : 0);
    if (n == COMPARED_BYTES) return;
    for (size_t at = 0; at < n; at += line_n) {
        line_n = line_bytes(mine + at, n - at);
        if (is_said_below(all, texts, stride, w->rank, mine + at, line_n)) continue;
        if (write(STDERR_FILENO, mine + at, line_n) < 0) return; /* nobody listens */
    }
}

static yk_status let_go(yk_world *w, const verdict *all)
{
    size_t stride = 0;
    for (int r = 0; r < w->size; r++)
        if ((size_t)all[r].n_bytes > stride) stride = (size_t)all[r].n_bytes;
    if (stride == 0) {
        yk_held_end(&w->held, 0);
        return YK_OK;
    }
    yk_status status = YK_OK;
    char *texts = calloc((size_t)w->size + 1, stride); /* those of all, then mine */
    char *mine = texts ? texts + (size_t)w->size * stride : NULL;
    if (!texts) return yk_fail(YK_ENOMEM, "world", "no memory for the words of %d ranks", w->size);
    yk_held_read(&w->held, mine, stride);
    status = yk_world_gather(w, mine, (int64_t)stride, texts);
    if (status == YK_OK) say_own_lines(w, all, texts, stride);
    free(texts);
    return status;
}

/* The lowest rank that failed speaks for all. */
static yk_status share_failure(yk_world *w, const verdict *all, int lowest)
{
    int n_failed = 0;
    for (int r = 0; r < w->size; r++) n_failed += all[r].status != YK_OK;
    yk_held_end(&w->held, w->rank == lowest ? 0 : YK_HELD_DROP);
    yk_status status = (yk_status)all[lowest].status;
    if (w->rank == lowest && n_failed < w->size) {
        char what[32];
        snprintf(what, sizeof what, "rank %d", w->rank);
        yk_fail(status, what, "it failed on %s, as said above; the other ranks stop with it",
                w->places[w->rank].host);
    }
    return status;
}

static yk_status compare(yk_world *w, yk_status mine, verdict *all)
{
    char text[COMPARED_BYTES];
    verdict own = {(int32_t)mine, (int32_t)yk_held_read(&w->held, text, sizeof text)};
    YK_TRY(yk_world_gather(w, &own, sizeof own, all));
    for (int r = 0; r < w->size; r++)
        if (all[r].status != YK_OK) return share_failure(w, all, r);
    return let_go(w, all);
}

yk_status yk_world_agree(yk_world *w, yk_status mine)
{
    if (w->size == 1) return mine;
    verdict *all = calloc((size_t)w->size, sizeof *all);
    yk_status status = all ? compare(w, mine, all)
                           : yk_fail(YK_ENOMEM, "world", "no memory for %d verdicts", w->size);
    free(all);
    yk_held_end(&w->held, 0); /* where the others could not be asked */
    return status;
}
