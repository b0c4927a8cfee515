/* runtime/base/side_thread.c - starting a thread with every signal blocked. */
#include "runtime/base/side_thread.h"

#include <signal.h>

int yk_side_thread_start(pthread_t *thread_out, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread_out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
