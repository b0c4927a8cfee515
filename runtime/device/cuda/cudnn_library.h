/* runtime/device/cuda/cudnn_library.h - cuDNN's backend API, loaded when it is asked for.
 *
 * cuDNN is a quarter of a gigabyte and not on every machine, so the program is not linked with it:
 * a library that is missing, or too old, is a reason in words and no failure. Only its headers are
 * needed to build.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_CUDNN_LIBRARY_H
#define YK_RUNTIME_DEVICE_CUDA_CUDNN_LIBRARY_H

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stddef.h>

/* The functions in use; a member has the type of the function in cuDNN's header. */
typedef struct yk_cudnn {
    void *library;
    cudnnHandle_t handle; /* of the device that was current when it was opened */
    __typeof__(cudnnGetVersion) *get_version;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnGetErrorString) *get_error_string;
    __typeof__(cudnnBackendCreateDescriptor) *create_descriptor;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy_descriptor;
    __typeof__(cudnnBackendSetAttribute) *set_attribute;
    __typeof__(cudnnBackendGetAttribute) *get_attribute;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
} yk_cudnn;

/* Load cuDNN and make a handle on the current device.                                   [local]
 *
 * why  (why_bytes) filled with the reason when it is false: what is missing and what to do
 */
bool yk_cudnn_open(yk_cudnn *cudnn_out, char *why, size_t why_bytes);

/* Release the handle. The library stays loaded, as it is not made to be unloaded. */
void yk_cudnn_close(yk_cudnn *cudnn);

#endif
