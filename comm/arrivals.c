/* comm/arrivals.c - looking through the processes that mpirun has started here. */
#include "comm/arrivals.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/side_thread.h"
#include "runtime/base/status.h"
#include "runtime/machine/process.h"

#define LOOK_MS     500
#define PATIENCE    6    /* looks in a row: after a failure mpirun has killed all by then */
#define TURN        4    /* more, for each rank that has the word before this one */
#define MAX_LOCAL   1024 /* ranks of a host; of more nobody is missed */
#define N_ANCESTORS 32

/* What a look shows. */
typedef struct look {
    int missing; /* the first local rank that is; -1: none, or not to be known */
    int n_below; /* local ranks below this one that are there */
} look;

static int own_number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* The local rank that a process was started as; -1: none. */
static int local_rank_of(pid_t pid)
{
    char text[16];
    return yk_process_variable(pid, "OMPI_COMM_WORLD_LOCAL_RANK", text, sizeof text) ? atoi(text)
                                                                                     : -1;
}

/* Is it mpirun or its daemon, by one of their names? Ranks in containers of their own see another. */
static bool is_launcher(pid_t pid)
{
    static const char *const names[] = {"orte", "prte", "mpirun", "mpiexec"};
    char path[YK_PROCESS_PATH];
    yk_process_program(pid, path);
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof names / sizeof names[0]; i++)
        if (strncmp(slash + 1, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* The first ancestor that is no rank; 0: it is not mpirun. */
static pid_t find_launcher(void)
{
    pid_t pid = getppid();
    for (int i = 0; i < N_ANCESTORS && pid > 1 && local_rank_of(pid) >= 0; i++)
        pid = yk_process_parent(pid);
    return is_launcher(pid) ? pid : 0;
}

static look look_around(pid_t launcher, int own_rank, int n_ranks)
{
    static const look unknown = {.missing = -1};
    pid_t children[2 * MAX_LOCAL];
    bool is_here[MAX_LOCAL] = {false};
    look found = unknown;
    int n = launcher ? yk_process_children(launcher, children, 2 * MAX_LOCAL) : 0;
    for (int i = 0; i < n; i++) {
        int rank = local_rank_of(children[i]);
        if (rank >= 0 && rank < n_ranks && yk_process_state(children[i]) != YK_PROCESS_ENDED)
            is_here[rank] = true;
        if (rank < 0 && yk_process_runs_same(children[i], launcher)) return unknown;
    }
    if (!is_here[own_rank]) return unknown;
    for (int r = n_ranks - 1; r >= 0; r--)
        if (!is_here[r]) found.missing = r;
    for (int r = 0; r < own_rank; r++) found.n_below += is_here[r];
    return found;
}

static _Noreturn void leave(int missing, int n_ranks)
{
    char what[32], host[64] = "this host";
    bool is_whole_run = own_number("OMPI_COMM_WORLD_SIZE") == n_ranks;
    gethostname(host, sizeof host - 1);
    snprintf(what, sizeof what, "%srank %d", is_whole_run ? "" : "local ", missing);
    yk_fail(
        YK_EPEER, what,
        "its process on %s ended, with exit status 0, before it had met the other ranks, and they "
        "cannot begin without it; see what is started there in the place of yoke, such as a "
        "script that ends early",
        host);
    _exit(yk_status_exit_code(YK_EPEER));
}

/* mpirun ends the run because a rank has failed, which has said why. */
static bool is_ending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1;
}

/* Ranks speak in their order, for the first may be one that does not look. */
static void *watch(void *context)
{
    yk_arrivals *a = context;
    int n_ranks = own_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    int own_rank = own_number("OMPI_COMM_WORLD_LOCAL_RANK");
    pid_t launcher = find_launcher();
    look before = {.missing = -1};
    struct pollfd wake = {a->wake, POLLIN, 0};
    for (int n_equal = 0; poll(&wake, 1, LOOK_MS) == 0;) {
        look now = look_around(launcher, own_rank, n_ranks);
        n_equal = now.missing >= 0 && now.missing == before.missing ? n_equal + 1 : 0;
        if (n_equal >= PATIENCE + TURN * now.n_below && !is_ending()) leave(now.missing, n_ranks);
        before = now;
    }
    return NULL;
}

void yk_arrivals_begin(yk_arrivals *a)
{
    int n_ranks = own_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    int own_rank = own_number("OMPI_COMM_WORLD_LOCAL_RANK");
    a->wake = -1;
    if (n_ranks < 2 || n_ranks > MAX_LOCAL || own_rank < 0 || own_rank >= n_ranks) return;
    a->wake = eventfd(0, EFD_CLOEXEC);
    if (a->wake < 0) return;
    if (yk_side_thread_start(&a->thread, watch, a) == 0) return;
    close(a->wake);
    a->wake = -1;
}

void yk_arrivals_end(yk_arrivals *a)
{
    if (a->wake < 0) return;
    if (write(a->wake, &(uint64_t){1}, sizeof(uint64_t)) > 0) pthread_join(a->thread, NULL);
    close(a->wake);
}
