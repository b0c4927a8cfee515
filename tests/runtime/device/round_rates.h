/* tests/runtime/device/round_rates.h - a described device whose times can be worked out in the head. */
#ifndef YK_TESTS_RUNTIME_DEVICE_ROUND_RATES_H
#define YK_TESTS_RUNTIME_DEVICE_ROUND_RATES_H

#include "runtime/device/device.h"

/* 1e6 bytes/s of memory, 1e5 of the host's link, 1 ms to launch an operation. */
extern const yk_device_spec round_rates;

#endif
