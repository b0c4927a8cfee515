/* comm/nccl_library.c - loading NCCL. */
#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "comm/comm.h"

/* Functions lie where the system says; a pointer to one is as wide as any. */
static bool find(void *handle, const char *name, void *function_out)
{
    void *symbol = dlsym(handle, name);
    memcpy(function_out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *find_missing(void *handle, nccl_library *l)
{
    const struct {
        const char *name;
        void *function;
    } calls[] = {
        {"ncclGetUniqueId", &l->get_unique_id},
        {"ncclCommInitRankConfig", &l->comm_init},
        {"ncclCommGetAsyncError", &l->comm_async_error},
        {"ncclCommFinalize", &l->comm_finalize},
        {"ncclCommDestroy", &l->comm_destroy},
        {"ncclCommAbort", &l->comm_abort},
        {"ncclGroupStart", &l->group_start},
        {"ncclGroupEnd", &l->group_end},
        {"ncclSend", &l->send},
        {"ncclRecv", &l->recv},
        {"ncclAllGather", &l->all_gather},
        {"ncclAllReduce", &l->all_reduce},
        {"ncclReduceScatter", &l->reduce_scatter},
        {"ncclBroadcast", &l->broadcast},
        {"ncclGetErrorString", &l->error_string},
        {"ncclGetLastError", &l->last_error},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (!find(handle, calls[i].name, calls[i].function)) return calls[i].name;
    return NULL;
}

static void *open_library(void)
{
    void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return handle ? handle : dlopen(YK_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

int yk_comm_nccl_version(void)
{
    __typeof__(ncclGetVersion) *get_version;
    void *handle = open_library(); /* it stays open */
    int version = 0;
    if (!handle || !find(handle, "ncclGetVersion", &get_version)) return 0;
    return get_version(&version) == ncclSuccess ? version : 0;
}

yk_status yk_nccl_library_load(nccl_library *library_out)
{
    nccl_library l;
    void *handle = open_library();
    if (!handle)
        return yk_fail(YK_EUNSUPPORTED, "comm.backend",
                       "several ranks on GPUs need NCCL: neither libnccl.so.2 nor " YK_NCCL_LIBRARY
                       " can be loaded (%s); install it, or name its folder in LD_LIBRARY_PATH",
                       dlerror());
    const char *missing = find_missing(handle, &l);
    if (missing)
        return yk_fail(YK_EUNSUPPORTED, "comm.backend",
                       "the NCCL that is found has no %s; install 2.14 or newer", missing);
    *library_out = l;
    return YK_OK;
}
