/* engine/signals.c - looking for signals that are blocked. */
#include "engine/signals.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

/* They come once more by themselves: a terminal that closes sends SIGHUP by its shell and by the kernel,
 * and each line that nobody reads is a SIGPIPE. Neither may end a run that is saving. */
static const int repeating[] = {SIGHUP, SIGPIPE};
#define N_REPEATING (sizeof repeating / sizeof repeating[0])

static sigset_t urgent_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    return set;
}

/* nohup asks for it. A signal that is ignored and blocked would be seen all the same. */
static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_IGN;
}

static sigset_t stop_signals(void)
{
    sigset_t set = urgent_signals();
    for (size_t i = 0; i < N_REPEATING; i++)
        if (!is_ignored(repeating[i])) sigaddset(&set, repeating[i]);
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
    sigset_t set = stop_signals(), urgent = urgent_signals();
    const struct timespec at_once = {0, 0};
    bool asked = false;
    /* Those that wait together are one request: the end of a session is SIGTERM and SIGHUP. */
    while (sigtimedwait(&set, NULL, &at_once) > 0) asked = true;
    if (asked) pthread_sigmask(SIG_UNBLOCK, &urgent, NULL);
    return asked;
}
