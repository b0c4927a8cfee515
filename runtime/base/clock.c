/* runtime/base/clock.c - see clock.h. */
#include "runtime/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* When this process began, in ticks since the machine was booted: field 22 of proc(5)'s stat, the
 * 20th behind the name, which stands in brackets. */
static long long begin_ticks(void)
{
    char text[1024];
    long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%lld", &ticks) != 1) return 0;
    return ticks;
}

double yk_clock_age_s(void)
{
    struct timespec t;
    long long ticks = begin_ticks();
    if (ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &t) != 0) return 0;
    double now_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    double age_s = now_s - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return age_s > 0 ? age_s : 0;
}
