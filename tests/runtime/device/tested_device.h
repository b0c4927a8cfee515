/* tests/runtime/device/tested_device.h - the device that a test program is about.
 *
 * YK_TEST_DEVICE=cpu|cuda names it; it is the cpu unless set. A program whose device this machine lacks is
 * skipped and says so; one that cannot have it for another reason, such as memory that is used up, fails.
 */
#ifndef YK_TESTS_RUNTIME_DEVICE_TESTED_DEVICE_H
#define YK_TESTS_RUNTIME_DEVICE_TESTED_DEVICE_H

#include <stdbool.h>

#include "runtime/device/device.h"

bool tested_on_cuda(void);

/* threads  of the cpu; 0: all
 *
 * As yk_device_open_cpu() and yk_device_open_cuda(). */
yk_status tested_device_open(int threads, yk_device **device_out);

/* Print `why` the program is skipped, in one line; true, and main() is to return 77. */
bool tested_skip(const char *why);

/* True where a GPU is asked for and the machine has none, which is told, so that main() is to return 77.
 * Where there is one that cannot be opened, the program ends with status 1. */
bool tested_device_missing(void);

#endif
