/* runtime/base/threads.h - how many threads a parallel region outside of devices takes.
 *
 * OpenMP counts the processors when the program starts. A rank binds itself later, to its share of
 * them, and with threads for all of them each region would end with some waiting for a processor
 * that others of the rank keep busy by waiting for them.
 */
#ifndef YK_RUNTIME_BASE_THREADS_H
#define YK_RUNTIME_BASE_THREADS_H

#include <omp.h>

/* As many as OpenMP would take, but no more than processors that this thread may use now. */
static inline int yk_threads(void)
{
    int wanted = omp_get_max_threads(), there = omp_get_num_procs();
    return wanted < there ? wanted : there;
}

#endif
