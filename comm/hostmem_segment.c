/* comm/hostmem_segment.c - the memory that the ranks of a group share.
 *
 * A file without a name, which is gone with its last process: a crash leaves nothing. The group's first
 * rank makes it and the others open it by way of /proc. Each rank reserves and touches its own part, so
 * that it lies on its own NUMA node, and all pin the whole. A step that fails on one rank fails on all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/hostmem.h"
#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"

/* Where the segment is: a descriptor of the first rank's process. */
typedef struct card {
    int64_t key; /* lies in the segment too, until all have found it */
    int32_t pid, fd;
} card;

static yk_status make_communicator(const yk_comm *c, MPI_Comm *mpi_out)
{
    MPI_Group all, group;
    MPI_Comm_group(c->o.world->comm, &all);
    MPI_Group_incl(all, c->size, c->ranks, &group);
    yk_status status =
        yk_mpi_check(MPI_Comm_create_group(c->o.world->comm, group, 1, mpi_out), "group");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return status;
}

/* YK_OK when all ranks of the group bring it. */
static yk_status agree(yk_comm *c, const hostmem_group *g, yk_status mine)
{
    int worst = (int)mine, all = 0;
    MPI_Request request;
    YK_TRY(
        yk_mpi_check(MPI_Iallreduce(&worst, &all, 1, MPI_INT, MPI_MAX, g->mpi, &request), "group"));
    YK_TRY(yk_mpi_wait(&request, 1, NULL, c->o.world->timeout_s, "group"));
    return mine != YK_OK ? mine : (yk_status)all;
}

static yk_status fail_for_room(int64_t bytes, int error)
{
    return yk_fail(
        YK_ENOMEM, "memory shared by ranks",
        "a rank needs %lld MiB of it: %s; give the node or the container more memory, or "
        "take comm.backend: mpi or nccl",
        (long long)(bytes >> 20) + 1, strerror(error));
}

/* ---- the first rank ----------------------------------------------------------------------- */

static yk_status make_file(const hostmem_segment *s, int *fd_out)
{
    int fd = memfd_create("yoke ranks", MFD_CLOEXEC);
    if (fd < 0)
        return yk_fail(YK_EUNSUPPORTED, "memory shared by ranks", "memfd_create: %s",
                       strerror(errno));
    if (ftruncate(fd, (off_t)s->bytes) != 0) {
        int error = errno;
        close(fd);
        return fail_for_room(s->bytes, error);
    }
    *fd_out = fd;
    return YK_OK;
}

static int64_t make_key(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_nsec << 32 ^ t.tv_sec ^ (int64_t)getpid() << 20;
}

/* ---- every rank --------------------------------------------------------------------------- */

static yk_status open_file(const card *k, int *fd_out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)k->pid, (int)k->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return yk_fail(YK_EUNSUPPORTED, "memory shared by ranks",
                       "the first rank's cannot be opened (%s: %s); run all ranks of a node as one "
                       "user in one container, or take comm.backend: mpi or nccl",
                       path, strerror(errno));
    *fd_out = fd;
    return YK_OK;
}

/* Reserve what this rank touches first, or learn that there is not so much. */
static yk_status reserve(const hostmem_segment *s, int fd, int index)
{
    int64_t begin = index == 0 ? 0 : s->control_bytes + index * s->rank_bytes;
    int64_t end = s->control_bytes + (index + 1) * s->rank_bytes;
    int error = 0;
    while (fallocate(fd, 0, (off_t)begin, (off_t)(end - begin)) != 0 && (error = errno) == EINTR)
        error = 0;
    return error ? fail_for_room(end - begin, error) : YK_OK;
}

static yk_status map_file(hostmem_segment *s, int fd)
{
    void *memory = mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return fail_for_room(s->bytes, errno);
    s->memory = memory;
    return YK_OK;
}

static yk_status check_key(const hostmem_segment *s, const card *k)
{
    int64_t key;
    memcpy(&key, s->memory, sizeof key);
    if (key == k->key) return YK_OK;
    return yk_fail(YK_EUNSUPPORTED, "memory shared by ranks",
                   "what lies at the first rank's is not it; run all ranks of a node in one "
                   "container, or take comm.backend: mpi or nccl");
}

static yk_status pin(yk_comm *c, hostmem_segment *s)
{
    YK_TRY(yk_device_share(c->o.device, s->memory, s->bytes));
    s->is_pinned = true;
    return YK_OK;
}

/* Open, reserve, map, pin: each when all ranks have come so far. */
static yk_status take_part(yk_comm *c, hostmem_segment *s, const card *k, int *fd)
{
    const hostmem_group *g = yk_hostmem_of(c);
    YK_TRY(agree(c, g, c->index == 0 ? YK_OK : open_file(k, fd)));
    YK_TRY(agree(c, g, reserve(s, *fd, c->index)));
    YK_TRY(agree(c, g, map_file(s, *fd)));
    if (c->index == 0) memcpy(s->memory, &k->key, sizeof k->key);
    YK_TRY(agree(c, g, YK_OK));
    YK_TRY(agree(c, g, check_key(s, k)));
    if (c->index == 0) memset(s->memory, 0, sizeof k->key);
    return agree(c, g, pin(c, s));
}

static yk_status share_card(yk_comm *c, const hostmem_group *g, card *k)
{
    MPI_Request request;
    YK_TRY(yk_mpi_check(MPI_Ibcast(k, sizeof *k, MPI_BYTE, 0, g->mpi, &request), "group"));
    return yk_mpi_wait(&request, 1, NULL, c->o.world->timeout_s, "group");
}

yk_status yk_hostmem_map(yk_comm *c, hostmem_segment *s, yk_status mine)
{
    hostmem_group *g = yk_hostmem_of(c);
    int fd = -1;
    if (g->mpi == MPI_COMM_NULL) YK_TRY(make_communicator(c, &g->mpi));
    if (mine == YK_OK && c->index == 0) mine = make_file(s, &fd);
    yk_status status = agree(c, g, mine);
    card k = {make_key(), getpid(), fd};
    if (status == YK_OK) status = share_card(c, g, &k);
    if (status == YK_OK) status = take_part(c, s, &k, &fd);
    if (fd >= 0) close(fd);
    return status;
}

void yk_hostmem_unmap(yk_comm *c, hostmem_segment *s)
{
    if (s->is_pinned) yk_device_unshare(c->o.device, s->memory, s->bytes);
    if (s->memory) munmap(s->memory, (size_t)s->bytes);
    *s = (hostmem_segment){0};
}
