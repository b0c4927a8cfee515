/* runtime/device/cpu/flag_cpu.c - flags between processes, on processors.
 *
 * A GPU may write a flag as well as a process, and neither wakes a sleeper: who waits looks again and
 * again. At first it only steps aside for who else wants the core; then it sleeps between looks, a
 * sixteenth of the time waited so far, which costs a transfer little and a long wait nothing.
 */
#include <sched.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/device/cpu/cpu.h"

/* How long to look without sleeping, and how long to sleep. */
#define EAGER_S     10e-6
#define PAUSE_MIN_S 10e-6
#define PAUSE_MAX_S 1e-3

typedef struct flag_task {
    yk_device *device;
    uint32_t *flag;
    uint32_t value;
} flag_task;

static yk_status run_write(void *context)
{
    const flag_task *t = context;
    __atomic_store_n(t->flag, t->value, __ATOMIC_RELEASE);
    return YK_OK;
}

yk_status yk_cpu_stream_write_flag(yk_stream *s, uint32_t *flag, uint32_t value)
{
    flag_task t = {s->device, flag, value};
    return yk_cpu_stream_run(s, run_write, &t, sizeof t);
}

static bool has_come(const flag_task *t)
{
    return (int32_t)(__atomic_load_n(t->flag, __ATOMIC_ACQUIRE) - t->value) >= 0;
}

static void pause_for(double waited_s)
{
    if (waited_s < EAGER_S) {
        sched_yield();
        return;
    }
    double s = waited_s / 16;
    if (s < PAUSE_MIN_S) s = PAUSE_MIN_S;
    if (s > PAUSE_MAX_S) s = PAUSE_MAX_S;
    nanosleep(&(struct timespec){0, (long)(s * 1e9)}, NULL);
}

static yk_status run_await(void *context)
{
    const flag_task *t = context;
    double begin = 0;
    while (!has_come(t)) {
        yk_status failure = yk_cpu_failure(t->device);
        if (failure != YK_OK) return failure;
        if (begin == 0) begin = yk_clock_s();
        pause_for(yk_clock_s() - begin);
    }
    return yk_cpu_failure(t->device);
}

yk_status yk_cpu_stream_await_flag(yk_stream *s, const uint32_t *flag, uint32_t value)
{
    flag_task t = {s->device, (uint32_t *)(uintptr_t)flag, value};
    return yk_cpu_stream_run(s, run_await, &t, sizeof t);
}
