/* comm/world_places.c - which rank runs where, and that all run the same program.
 *
 * Each rank tells all others once who it is. Everybody then derives the same table from the same
 * words, so that an error in it is found by all and said by rank 0.
 */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"
#include "runtime/base/arith.h"
#include "runtime/base/version.h"

/* What a rank tells all others. */
typedef struct hello {
    char version[32];
    unsigned char build[20]; /* the linker's hash of the program; zeros where it made none */
    int32_t first_rank;      /* the lowest rank that shares memory with this one */
    int32_t node_size;       /* YK_NODE_SIZE; 0 when not set, -1 when wrong */
    char host[64];
} hello;

/* ---- this rank ---------------------------------------------------------------------------- */

static int copy_build(struct dl_phdr_info *info, size_t size, void *build_out)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_NOTE) continue;
        const char *at = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        const char *end = at + info->dlpi_phdr[i].p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *name = at + sizeof *note;
            const char *data = name + yk_round_up(note->n_namesz, 4);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
                memcpy(build_out, data, (size_t)yk_min(note->n_descsz, sizeof((hello *)0)->build));
            at = data + yk_round_up(note->n_descsz, 4);
        }
    }
    return 1; /* the program itself comes first, and no other is looked at */
}

static int32_t wished_node_size(void)
{
    const char *text = getenv("YK_NODE_SIZE");
    if (!text || !*text) return 0;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && n > 0 && n <= INT_MAX ? (int32_t)n : -1;
}

static yk_status find_first_rank(const yk_world *w, int32_t *first_out)
{
    MPI_Comm node;
    YK_TRY(yk_mpi_check(
        MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &node), "node"));
    int32_t first = w->rank;
    yk_status status = yk_mpi_check(MPI_Bcast(&first, 1, MPI_INT32_T, 0, node), "node");
    MPI_Comm_free(&node);
    *first_out = first;
    return status;
}

/* ---- all ranks ---------------------------------------------------------------------------- */

static yk_status check_builds(const yk_world *w, const hello *all)
{
    for (int r = 1; r < w->size; r++) {
        bool same_version = memcmp(all[r].version, all[0].version, sizeof all[0].version) == 0;
        if (same_version && memcmp(all[r].build, all[0].build, sizeof all[0].build) == 0) continue;
        if (w->rank > 0) return YK_EINVAL;
        return yk_fail(YK_EINVAL, "yoke",
                       "rank %d on %s runs %s %s and rank 0 on %s %s; put the same program on "
                       "every host",
                       r, all[r].host, same_version ? "another build of" : "version",
                       all[r].version, all[0].host, all[0].version);
    }
    return YK_OK;
}

/* The first rank of the node of rank r. */
static int first_of(const hello *all, int r)
{
    return all[0].node_size > 0 ? r - r % all[0].node_size : all[r].first_rank;
}

static void number_places(yk_world *w, const hello *all)
{
    for (int r = 0; r < w->size; r++) {
        int first = first_of(all, r);
        w->places[r].node = first == r ? w->n_nodes++ : w->places[first].node;
        for (int q = first; q < r; q++) w->places[r].local_rank += first_of(all, q) == first;
        memcpy(w->places[r].host, all[r].host, sizeof all[r].host);
    }
    w->regular = w->size % w->n_nodes == 0;
    for (int r = 0; r < w->size; r++) {
        w->local_size += w->places[r].node == w->places[w->rank].node;
        w->regular = w->regular && w->places[r].local_rank < w->size / w->n_nodes;
    }
}

static yk_status exchange(yk_world *w, hello *all)
{
    hello mine = {.version = YK_VERSION, .node_size = wished_node_size()};
    dl_iterate_phdr(copy_build, mine.build);
    gethostname(mine.host, sizeof mine.host - 1);
    if (w->has_mpi) YK_TRY(find_first_rank(w, &mine.first_rank));
    YK_TRY(yk_world_gather(w, &mine, sizeof mine, all));
    YK_TRY(check_builds(w, all));
    if (all[0].node_size >= 0) return YK_OK;
    if (w->rank > 0) return YK_EINVAL;
    return yk_fail(YK_EINVAL, "YK_NODE_SIZE", "'%s' is not a positive number; unset it",
                   getenv("YK_NODE_SIZE"));
}

yk_status yk_world_find_places(yk_world *w)
{
    hello *all = calloc((size_t)w->size, sizeof *all);
    w->places = calloc((size_t)w->size, sizeof *w->places);
    if (!all || !w->places) {
        free(all);
        return yk_fail(YK_ENOMEM, "world", "no memory for a table of %d ranks", w->size);
    }
    yk_status status = exchange(w, all);
    if (status == YK_OK) number_places(w, all);
    free(all);
    return status;
}
