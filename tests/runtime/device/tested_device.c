/* tests/runtime/device/tested_device.c - see tested_device.h. */
#include "tests/runtime/device/tested_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tested_on_cuda(void)
{
    const char *name = getenv("YK_TEST_DEVICE");
    return name && strcmp(name, "cuda") == 0;
}

yk_status tested_device_open(int threads, yk_device **device_out)
{
    return tested_on_cuda() ? yk_device_open_cuda(0, device_out)
                            : yk_device_open_cpu(threads, device_out);
}

bool tested_skip(const char *why)
{
    printf("skipped: %s\n", why);
    return true;
}

/* The driver makes it where it has found a GPU. */
static bool has_gpu(void)
{
    const char *path = getenv("YK_TEST_GPU_FILE");
    return access(path ? path : "/dev/nvidiactl", F_OK) == 0;
}

bool tested_device_missing(void)
{
    yk_device *device;
    if (tested_on_cuda() && !has_gpu())
        return tested_skip("there is no GPU: NVIDIA's driver has made no /dev/nvidiactl");
    if (tested_device_open(1, &device) != YK_OK) exit(1);
    yk_device_close(device);
    return false;
}
