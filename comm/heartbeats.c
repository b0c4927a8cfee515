/* comm/heartbeats.c - the shared table, and the channel between nodes. */
#include "comm/heartbeats.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"

#define ROW_WORDS ((int)(sizeof(yk_beat) / sizeof(int64_t)))
#define TAG_ROWS  1
#define TAG_TOLD  2

/* What lies in shared memory. */
typedef struct table {
    int64_t key; /* tells it from any other file */
    atomic_int claimed;
    yk_beat rows[]; /* (size) of the world */
} table;

/* The first rank of another cell. */
typedef struct peer {
    int rank;
    int first, count; /* of its cell's ranks in `members` */
    MPI_Request sends, receives;
    int64_t *out, *in; /* a word that says whether it is the last, then rows */
    bool said_last, heard_last;
} peer;

struct yk_beats {
    yk_world *world;
    table *table;
    int *cell;    /* (size) lowest rank of each rank's cell */
    int *members; /* (size) ranks, those of a cell side by side */
    int own_first, own_count;
    MPI_Comm channel; /* all ranks */
    peer *peers;      /* (n_peers) where this is the first rank of its cell */
    int n_peers;
    int32_t told, heard;  /* a rank of which has been said what is wrong */
    MPI_Request *telling; /* (size) */
    MPI_Request hearing;
};

yk_beat *yk_beats_row(const yk_beats *b, int rank)
{
    return &b->table->rows[rank];
}

int yk_beats_cell(const yk_beats *b, int rank)
{
    return b->cell[rank];
}

bool yk_beats_claim(const yk_beats *b)
{
    int free = 0;
    return atomic_compare_exchange_strong(&b->table->claimed, &free, 1);
}

bool yk_beats_are_claimed(const yk_beats *b)
{
    return atomic_load(&b->table->claimed) != 0;
}

/* ---- shared memory ------------------------------------------------------------------------ */

/* Where the table of a cell is: a descriptor of its first rank's process. */
typedef struct card {
    int64_t key;
    int32_t pid, fd;
} card;

static size_t table_bytes(const yk_world *w)
{
    return sizeof(table) + (size_t)w->size * sizeof(yk_beat);
}

static table *map(int fd, const yk_world *w)
{
    void *memory = mmap(NULL, table_bytes(w), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static table *make_table(const yk_world *w, card *card_out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int fd = memfd_create("yoke heartbeats", MFD_CLOEXEC);
    card c = {(int64_t)t.tv_nsec << 32 ^ t.tv_sec ^ (int64_t)getpid() << 20, getpid(), fd};
    table *made = fd >= 0 && ftruncate(fd, (off_t)table_bytes(w)) == 0 ? map(fd, w) : NULL;
    if (made) made->key = c.key;
    *card_out = c;
    return made;
}

/* The first rank's file, by way of /proc; NULL where the system does not allow it. */
static table *open_table(const yk_world *w, const card *c)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)c->pid, (int)c->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    off_t bytes = lseek(fd, 0, SEEK_END);
    table *found = bytes == (off_t)table_bytes(w) ? map(fd, w) : NULL;
    close(fd);
    if (!found || found->key == c->key) return found;
    munmap(found, table_bytes(w));
    return NULL;
}

static int first_of_node(const yk_world *w, int rank)
{
    int first = rank;
    for (int r = rank - 1; r >= 0; r--)
        if (w->places[r].node == w->places[rank].node) first = r;
    return first;
}

/* One table a node; when a rank cannot have its node's, every rank has one of its own. */
static yk_status share(yk_beats *b)
{
    yk_world *w = b->world;
    card mine, *all = calloc((size_t)w->size, sizeof *all);
    table *own = make_table(w, &mine), *shared = NULL;
    int first = first_of_node(w, w->rank);
    int64_t whole;
    yk_status status = YK_OK;
    status = yk_world_min(w, all && own, &whole);
    if (status == YK_OK && !whole) status = YK_ENOMEM;
    if (status == YK_OK) status = yk_world_gather(w, &mine, sizeof mine, all);
    if (status == YK_OK) {
        shared = first == w->rank ? own : open_table(w, &all[first]);
        status = yk_world_min(w, shared != NULL, &whole);
    }
    if (status == YK_OK) {
        for (int r = 0; r < w->size; r++) b->cell[r] = whole ? first_of_node(w, r) : r;
        b->table = whole ? shared : own;
        if (shared && shared != b->table) munmap(shared, table_bytes(w));
    }
    if (own && own != b->table) munmap(own, table_bytes(w));
    if (mine.fd >= 0) close(mine.fd);
    free(all);
    if (status == YK_ENOMEM) yk_fail(status, "heartbeats", "no memory for them on some rank");
    return status;
}

/* ---- the channel -------------------------------------------------------------------------- */

static void list_members(yk_beats *b)
{
    int n = 0, size = b->world->size;
    for (int c = 0; c < size; c++) {
        if (b->cell[c] != c) continue;
        if (c == b->cell[b->world->rank]) b->own_first = n;
        for (int r = c; r < size; r++)
            if (b->cell[r] == c) b->members[n++] = r;
        if (c == b->cell[b->world->rank]) b->own_count = n - b->own_first;
    }
}

static yk_status add_peer(yk_beats *b, int rank, int first, int count)
{
    peer *p = &b->peers[b->n_peers++];
    *p = (peer){.rank = rank,
                .first = first,
                .count = count,
                .sends = MPI_REQUEST_NULL,
                .receives = MPI_REQUEST_NULL};
    p->out = calloc((size_t)(1 + b->own_count * ROW_WORDS), sizeof *p->out);
    p->in = calloc((size_t)(1 + count * ROW_WORDS), sizeof *p->in);
    return p->out && p->in ? YK_OK : yk_fail(YK_ENOMEM, "heartbeats", "no memory for messages");
}

static yk_status find_peers(yk_beats *b)
{
    int size = b->world->size;
    b->peers = calloc((size_t)size, sizeof *b->peers);
    if (!b->peers) return yk_fail(YK_ENOMEM, "heartbeats", "no memory for %d peers", size);
    for (int at = 0, end; at < size; at = end) {
        for (end = at + 1; end < size && b->cell[b->members[end]] == b->members[at];) end++;
        if (b->members[at] != b->world->rank) YK_TRY(add_peer(b, b->members[at], at, end - at));
    }
    return YK_OK;
}

static yk_status open_channel(yk_beats *b)
{
    yk_world *w = b->world;
    bool is_first = b->cell[w->rank] == w->rank;
    YK_TRY(yk_mpi_check(MPI_Comm_dup(w->comm, &b->channel), "heartbeats"));
    list_members(b);
    if (is_first) YK_TRY(find_peers(b));
    if (b->n_peers == 0) return YK_OK;
    return yk_mpi_check(
        MPI_Irecv(&b->heard, 1, MPI_INT32_T, MPI_ANY_SOURCE, TAG_TOLD, b->channel, &b->hearing),
        "heartbeats");
}

yk_status yk_beats_create(yk_world *world, yk_beats **beats_out)
{
    yk_beats *b = calloc(1, sizeof *b);
    if (b) {
        *b = (yk_beats){.world = world, .channel = MPI_COMM_NULL, .hearing = MPI_REQUEST_NULL};
        b->telling = calloc((size_t)world->size, sizeof *b->telling);
        b->cell = calloc((size_t)world->size, sizeof *b->cell);
        b->members = calloc((size_t)world->size, sizeof *b->members);
    }
    YK_CHECK(b && b->cell && b->members && b->telling);
    for (int r = 0; r < world->size; r++) b->telling[r] = MPI_REQUEST_NULL;
    yk_status status = share(b);
    if (status == YK_OK) status = open_channel(b);
    if (status != YK_OK) {
        yk_beats_destroy(b);
        return status;
    }
    *beats_out = b;
    return YK_OK;
}

void yk_beats_destroy(yk_beats *b)
{
    if (!b) return;
    bool done = yk_beats_are_done(b);
    if (b->hearing != MPI_REQUEST_NULL && done) {
        MPI_Cancel(&b->hearing);
        MPI_Wait(&b->hearing, MPI_STATUS_IGNORE);
    }
    if (b->channel != MPI_COMM_NULL && done) MPI_Comm_free(&b->channel);
    for (int i = 0; i < b->n_peers && done; i++) { /* else MPI may still write there */
        free(b->peers[i].out);
        free(b->peers[i].in);
    }
    if (b->table) munmap(b->table, table_bytes(b->world));
    free(b->peers);
    free(b->telling);
    free(b->members);
    free(b->cell);
    free(b);
}

/* Rows are read and written word by word, each whole. That a rank has failed or is gone may be known
 * here before the last rows that it sent arrive: they do not make it run again. */
static void copy_out(const yk_beats *b, int64_t *to)
{
    for (int i = 0; i < b->own_count; i++) {
        _Atomic int64_t *row = (void *)yk_beats_row(b, b->members[b->own_first + i]);
        for (int j = 0; j < ROW_WORDS; j++) *to++ = atomic_load(&row[j]);
    }
}

static void copy_in(const yk_beats *b, const peer *p, const int64_t *from)
{
    for (int i = 0; i < p->count; i++) {
        yk_beat *beat = yk_beats_row(b, b->members[p->first + i]);
        int64_t known = atomic_load(&beat->state);
        _Atomic int64_t *row = (void *)beat;
        for (int j = 0; j < ROW_WORDS; j++, from++)
            if (&row[j] != &beat->state || known == YK_BEAT_RUNS) atomic_store(&row[j], *from);
    }
}

static bool is_over(MPI_Request *request)
{
    int done = 1;
    if (*request != MPI_REQUEST_NULL) MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done;
}

static void exchange_with(yk_beats *b, peer *p, bool last)
{
    int bytes = (1 + b->own_count * ROW_WORDS) * (int)sizeof(int64_t);
    int in_bytes = (1 + p->count * ROW_WORDS) * (int)sizeof(int64_t);
    if (!p->said_last && is_over(&p->sends)) {
        p->out[0] = p->said_last = last;
        copy_out(b, p->out + 1);
        MPI_Isend(p->out, bytes, MPI_BYTE, p->rank, TAG_ROWS, b->channel, &p->sends);
    }
    while (!p->heard_last) {
        if (p->receives == MPI_REQUEST_NULL)
            MPI_Irecv(p->in, in_bytes, MPI_BYTE, p->rank, TAG_ROWS, b->channel, &p->receives);
        if (!is_over(&p->receives)) return;
        p->heard_last = p->in[0] != 0;
        copy_in(b, p, p->in + 1);
    }
}

void yk_beats_tell(yk_beats *b, int rank)
{
    int mine = b->cell[b->world->rank];
    b->told = rank;
    for (int r = 0; r < b->world->size; r++)
        if (b->cell[r] == r && r != mine)
            MPI_Isend(&b->told, 1, MPI_INT32_T, r, TAG_TOLD, b->channel, &b->telling[r]);
}

void yk_beats_exchange(yk_beats *b, bool last)
{
    for (int r = 0; r < b->world->size; r++) is_over(&b->telling[r]);
    if (b->hearing != MPI_REQUEST_NULL && is_over(&b->hearing))
        atomic_store(&yk_beats_row(b, b->heard)->state, YK_BEAT_FAILED);
    for (int i = 0; i < b->n_peers; i++) exchange_with(b, &b->peers[i], last);
}

bool yk_beats_are_done(const yk_beats *b)
{
    for (int i = 0; i < b->n_peers; i++) {
        peer *p = &b->peers[i];
        if (!p->said_last || !p->heard_last || !is_over(&p->sends)) return false;
    }
    return true;
}
