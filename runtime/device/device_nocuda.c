/* runtime/device/device_nocuda.c - what stands in for cuda/ in a build without CUDA. */
#include "runtime/device/device.h"

int yk_device_count_cuda(void)
{
    return 0;
}

yk_status yk_device_open_cuda(int index, yk_device **device_out)
{
    (void)device_out;
    return yk_fail(
        YK_EUNSUPPORTED, "device cuda",
        "GPU %d was asked for and this yoke was built without CUDA; install the CUDA "
        "toolkit (12.4 or newer) and run make CMAKE_ARGS=\"-DYK_CUDA=ON\", or set device "
        "to cpu",
        index);
}
