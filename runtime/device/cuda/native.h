/* runtime/device/cuda/native.h - CUDA's own handle of a stream, for libraries that take one. */
#ifndef YK_RUNTIME_DEVICE_CUDA_NATIVE_H
#define YK_RUNTIME_DEVICE_CUDA_NATIVE_H

#include <cuda_runtime_api.h>

#include "runtime/device/device.h"

/* The handle of a stream of a GPU, which becomes the calling thread's. Borrowed until the stream is
 * destroyed.                                                                             [local]
 *
 * YK_EDEVICE, or what else the device failed with before
 */
yk_status yk_cuda_native(yk_stream *stream, cudaStream_t *handle_out);

#endif
