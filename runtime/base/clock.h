/* runtime/base/clock.h - a clock that only goes forward, for durations. */
#ifndef YK_RUNTIME_BASE_CLOCK_H
#define YK_RUNTIME_BASE_CLOCK_H

#include <stdint.h>

/* Time since some moment before the process began, which is the same for all processes of a machine
 * until it boots again.                                                                  [local] */
double yk_clock_s(void);
int64_t yk_clock_ns(void);

/* Seconds since this process began, to a hundredth; 0 where the system does not say.       [local] */
double yk_clock_age_s(void);

#endif
