/* runtime/base/side_thread.h - a thread beside the one that the program began with. */
#ifndef YK_RUNTIME_BASE_SIDE_THREAD_H
#define YK_RUNTIME_BASE_SIDE_THREAD_H

#include <pthread.h>

/* Start a thread that takes no signals: they are the caller's. Returns 0, and the thread is to be
 * joined; else an error number.                                                          [local] */
int yk_side_thread_start(pthread_t *thread_out, void *(*run)(void *), void *context);

#endif
