/* runtime/device/cuda/cudnn_library.c - finding cuDNN and its functions.
 *
 * Its name alone first, so that LD_LIBRARY_PATH and the system's cache decide; then the file that
 * the build found.
 */
#include "runtime/device/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define OLDEST 90100 /* 9.1.0: attention's backward pass on sm_89 and sm_90 */

typedef struct symbol {
    const char *name;
    size_t offset; /* of the pointer in yk_cudnn */
} symbol;

static const symbol symbols[] = {
    {"cudnnGetVersion", offsetof(yk_cudnn, get_version)},
    {"cudnnCreate", offsetof(yk_cudnn, create)},
    {"cudnnDestroy", offsetof(yk_cudnn, destroy)},
    {"cudnnSetStream", offsetof(yk_cudnn, set_stream)},
    {"cudnnGetErrorString", offsetof(yk_cudnn, get_error_string)},
    {"cudnnBackendCreateDescriptor", offsetof(yk_cudnn, create_descriptor)},
    {"cudnnBackendDestroyDescriptor", offsetof(yk_cudnn, destroy_descriptor)},
    {"cudnnBackendSetAttribute", offsetof(yk_cudnn, set_attribute)},
    {"cudnnBackendGetAttribute", offsetof(yk_cudnn, get_attribute)},
    {"cudnnBackendFinalize", offsetof(yk_cudnn, finalize)},
    {"cudnnBackendExecute", offsetof(yk_cudnn, execute)},
};

static void *load(void)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return library ? library : dlopen(YK_CUDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static bool find_symbols(yk_cudnn *c, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        /* POSIX wants a pointer to an object and one to a function to be of one size. */
        void *address = dlsym(c->library, symbols[i].name);
        if (!address) {
            snprintf(why, why_bytes, "libcudnn.so.9 has no %s; install cuDNN 9.1 or newer",
                     symbols[i].name);
            return false;
        }
        memcpy((char *)c + symbols[i].offset, &address, sizeof address);
    }
    return true;
}

bool yk_cudnn_open(yk_cudnn *cudnn_out, char *why, size_t why_bytes)
{
    yk_cudnn c = {.library = load()};
    if (!c.library) {
        snprintf(why, why_bytes, "libcudnn.so.9 is not found; install cuDNN 9.1 or newer");
        return false;
    }
    if (!find_symbols(&c, why, why_bytes)) return false;
    if (c.get_version() < OLDEST) {
        snprintf(why, why_bytes, "cuDNN is %zu; install 9.1 or newer", c.get_version());
        return false;
    }
    cudnnStatus_t status = c.create(&c.handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(why, why_bytes, "cuDNN does not start: %s", c.get_error_string(status));
        return false;
    }
    *cudnn_out = c;
    return true;
}

void yk_cudnn_close(yk_cudnn *cudnn)
{
    if (cudnn->handle) (void)cudnn->destroy(cudnn->handle);
    cudnn->handle = NULL;
}
