/* engine/signals.c - looking for signals that are blocked. */
#include "engine/signals.h"

#include <signal.h>
#include <time.h>

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    return set;
}

void yk_signals_block(void)
{
    sigset_t set = stop_signals();
    /* It wakes a stopped process all the same, and the watchdog looks for it. */
    sigaddset(&set, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool yk_signals_stop_was_asked(void)
{
    sigset_t set = stop_signals();
    const struct timespec at_once = {0, 0};
    if (sigtimedwait(&set, NULL, &at_once) < 0) return false;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return true;
}
