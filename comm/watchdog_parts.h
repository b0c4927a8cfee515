/* comm/watchdog_parts.h - the inside of a watchdog; included by comm/watchdog*.c alone. */
#ifndef YK_COMM_WATCHDOG_PARTS_H
#define YK_COMM_WATCHDOG_PARTS_H

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "comm/heartbeats.h"
#include "comm/watchdog.h"
#include "comm/world_mpi.h"

#define YK_WATCHDOG_LAST_WORD_S 0.2 /* for other nodes to hear of it */
#define YK_WATCHDOG_HEARD_S                                                                        \
    1.0 /* a first rank that is silent for longer brings no news of other cells */
/* Without a look: this process stood still, and for a while knows less than others. */
#define YK_WATCHDOG_STILL_S 1.0

/* A place in one word. */
#define YK_PLACE_NO_UNIT   0xffff
#define YK_PLACE(s, p, u)  ((int64_t)(s) << 24 | (int64_t)(p) << 16 | (int64_t)(u))
#define YK_PLACE_STEP(at)  ((at) >> 24)
#define YK_PLACE_PHASE(at) ((int)((at) >> 16 & 0xff))
#define YK_PLACE_UNIT(at)  ((int)((at)&0xffff))

/* What may be wrong with a rank, the worst first. */
typedef enum yk_fault {
    YK_FAULT_NONE,
    YK_FAULT_FAILED, /* it says so itself */
    YK_FAULT_GONE,
    YK_FAULT_SILENT, /* its process stands still */
    YK_FAULT_LATE,   /* its work does */
} yk_fault;

/* What this process has seen of a rank. */
typedef struct yk_seen {
    int64_t ticks, notes;
    double silent_s; /* since a tick */
    double behind_s; /* since a note, while others were further */
    int pidfd;       /* of a process of this cell; -1: none */
    int n_slow;      /* steps in a row */
    int64_t lost_us; /* in those */
    bool is_named;
} yk_seen;

struct yk_watchdog {
    yk_world *world;
    yk_beats *beats;
    yk_beat *own;
    double timeout_s, start_timeout_s;
    int64_t step;          /* of the thread that takes notes */
    yk_seen *seen;         /* (size) */
    struct pollfd *polled; /* (size + 1): wake, then those of `seen` that have one */
    int64_t *times;        /* (2 * size) of a step */
    int64_t judged;        /* steps below are judged for slowness */
    double looked_s, quiet_until_s, ending_until_s;
    int wake;
    atomic_bool stops, suspects;
    pthread_t thread;
};

static inline void yk_watchdog_sleep(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(fmod(s, 1) * 1e9)}, NULL);
}

/* Sleep until it is time to look, something is asked for, or a process of this cell ends. */
void yk_watchdog_wait(yk_watchdog *w, int timeout_ms);

/* Let what does not move grow older. */
void yk_watchdog_age(yk_watchdog *w, double dt);

/* Has mpirun begun to end the run, as it does when a rank has died? */
bool yk_watchdog_was_asked(yk_watchdog *w);

/* How long a rank may stay where it is while others wait. */
double yk_watchdog_limit_s(const yk_watchdog *w, const yk_beat *row);

/* The worst fault there is, and whose; of ranks that are late the one that is furthest behind. */
yk_fault yk_watchdog_find_fault(yk_watchdog *w, int *rank_out);

/* Judge steps that are over on all ranks. The first one is left out. */
void yk_watchdog_find_slow(yk_watchdog *w);

/* Say once what is wrong with rank r, let the other nodes hear of it, and leave. */
_Noreturn void yk_watchdog_leave(yk_watchdog *w, int r, yk_fault f);

#endif
