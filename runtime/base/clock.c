/* runtime/base/clock.c - see clock.h. */
#include "runtime/base/clock.h"

#include <time.h>

int64_t yk_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double yk_clock_s(void)
{
    return 1e-9 * (double)yk_clock_ns();
}
