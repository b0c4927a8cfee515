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
#define ASKED       10   /* looks in a row with a request to stop, before it ends the start */
#define MAX_LOCAL   1024 /* ranks of a host; of more nobody is missed */
#define N_ANCESTORS 32
#define STILL_S     60.0 /* that a rank may be stopped, where the environment does not say */

/* What a look shows. */
typedef struct look {
    int missing; /* the first local rank that is; -1: none, or not to be known */
    int stopped; /* likewise, the first that is there and stopped */
    pid_t stopped_pid;
    int n_below; /* local ranks below this one that are there and run */
} look;

typedef struct watcher {
    int n_ranks, own_rank;
    pid_t launcher;
    double still_s;           /* that a rank may be stopped */
    look before;              /* what the last look showed */
    int n_missing, n_stopped; /* looks in a row that showed the same rank */
    int n_asked;              /* and that found a request to stop */
} watcher;

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
    static const look unknown = {.missing = -1, .stopped = -1};
    pid_t children[2 * MAX_LOCAL];
    pid_t stopped[MAX_LOCAL] = {0};
    bool is_here[MAX_LOCAL] = {false};
    look found = unknown;
    int n = launcher ? yk_process_children(launcher, children, 2 * MAX_LOCAL) : 0;
    for (int i = 0; i < n; i++) {
        int rank = local_rank_of(children[i]);
        char state = yk_process_state(children[i]);
        if (rank >= 0 && rank < n_ranks && state != YK_PROCESS_ENDED) is_here[rank] = true;
        if (rank >= 0 && rank < n_ranks && state == YK_PROCESS_STOPPED) stopped[rank] = children[i];
        if (rank < 0 && yk_process_runs_same(children[i], launcher)) return unknown;
    }
    if (!is_here[own_rank]) return unknown;
    for (int r = n_ranks - 1; r >= 0; r--) {
        if (!is_here[r]) found.missing = r;
        if (stopped[r]) found.stopped = r;
    }
    if (found.stopped >= 0) found.stopped_pid = stopped[found.stopped];
    for (int r = 0; r < own_rank; r++) found.n_below += is_here[r] && !stopped[r];
    return found;
}

/* How messages call a local rank, and the host. */
typedef struct names {
    char rank[32], host[64];
} names;

static names name_rank(int local_rank, int n_ranks)
{
    names n = {.host = "this host"};
    bool is_whole_run = own_number("OMPI_COMM_WORLD_SIZE") == n_ranks;
    gethostname(n.host, sizeof n.host - 1);
    snprintf(n.rank, sizeof n.rank, "%srank %d", is_whole_run ? "" : "local ", local_rank);
    return n;
}

static _Noreturn void leave_missing(int missing, int n_ranks)
{
    names n = name_rank(missing, n_ranks);
    yk_fail(
        YK_EPEER, n.rank,
        "its process on %s ended, with exit status 0, before it had met the other ranks, and they "
        "cannot begin without it; see what is started there in the place of yoke, such as a "
        "script that ends early",
        n.host);
    _exit(yk_status_exit_code(YK_EPEER));
}

static _Noreturn void leave_stopped(const watcher *w, const look *now)
{
    names n = name_rank(now->stopped, w->n_ranks);
    yk_fail(YK_EPEER, n.rank,
            "its process %d on %s has been stopped for more than %.3g s before it had met the "
            "other ranks, and the run ends; start it again, with a greater comm.timeout if that "
            "is usual",
            (int)now->stopped_pid, n.host, w->still_s);
    _exit(yk_status_exit_code(YK_EPEER));
}

static _Noreturn void leave_asked(void)
{
    yk_fail(YK_ESTOPPED, "start",
            "asked to stop, and the ranks had not all met seconds later: nothing was begun");
    _exit(yk_status_exit_code(YK_ESTOPPED));
}

static bool is_pending(int signal)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal) == 1;
}

/* mpirun ends the run because a rank has failed, which has said why. */
static bool is_ending(void)
{
    return is_pending(SIGTERM);
}

/* yoke launch passes comm.timeout on; the configuration is read when all have met. */
static double find_still_limit(void)
{
    const char *text = getenv("YK_TIMEOUT");
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : STILL_S;
}

/* Ranks speak in their order, for the first may be one that does not look; when one has spoken and
 * left it is missing. Time is counted in looks: this process may have been stopped, too. */
static void judge(watcher *w, const look *now)
{
    int turns = TURN * now->n_below;
    bool same_missing = now->missing >= 0 && now->missing == w->before.missing;
    bool same_stopped =
        now->missing < 0 && now->stopped >= 0 && now->stopped_pid == w->before.stopped_pid;
    w->n_missing = same_missing ? w->n_missing + 1 : 0;
    w->n_stopped = same_stopped ? w->n_stopped + 1 : 0;
    w->n_asked = now->missing < 0 && is_pending(SIGUSR1) ? w->n_asked + 1 : 0;
    w->before = *now;
    if (is_ending()) return;
    if (w->n_asked >= ASKED + turns) leave_asked();
    if (w->n_missing >= PATIENCE + turns) leave_missing(now->missing, w->n_ranks);
    if ((w->n_stopped - turns) * (LOOK_MS / 1000.0) > w->still_s) leave_stopped(w, now);
}

static void *watch(void *context)
{
    yk_arrivals *a = context;
    watcher w = {.n_ranks = own_number("OMPI_COMM_WORLD_LOCAL_SIZE"),
                 .own_rank = own_number("OMPI_COMM_WORLD_LOCAL_RANK"),
                 .launcher = find_launcher(),
                 .still_s = find_still_limit(),
                 .before = {.missing = -1, .stopped = -1}};
    struct pollfd wake = {a->wake, POLLIN, 0};
    while (poll(&wake, 1, LOOK_MS) == 0) {
        look now = look_around(w.launcher, w.own_rank, w.n_ranks);
        judge(&w, &now);
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
