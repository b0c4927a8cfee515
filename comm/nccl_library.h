/* comm/nccl_library.h - NCCL, loaded when a group needs it; included by comm/ alone.
 *
 * So a program runs on machines without it, and takes the one that a cluster's modules or a Python
 * environment bring along (LD_LIBRARY_PATH) before the one it was built with.
 */
#ifndef YK_COMM_NCCL_LIBRARY_H
#define YK_COMM_NCCL_LIBRARY_H

#include <nccl.h>

#include "runtime/base/status.h"

/* The calls that are used, as nccl.h has them. */
typedef struct nccl_library {
    __typeof__(ncclGetUniqueId) *get_unique_id;
    __typeof__(ncclCommInitRankConfig) *comm_init;
    __typeof__(ncclCommGetAsyncError) *comm_async_error;
    __typeof__(ncclCommFinalize) *comm_finalize;
    __typeof__(ncclCommDestroy) *comm_destroy;
    __typeof__(ncclCommAbort) *comm_abort;
    __typeof__(ncclGroupStart) *group_start;
    __typeof__(ncclGroupEnd) *group_end;
    __typeof__(ncclSend) *send;
    __typeof__(ncclRecv) *recv;
    __typeof__(ncclAllGather) *all_gather;
    __typeof__(ncclAllReduce) *all_reduce;
    __typeof__(ncclReduceScatter) *reduce_scatter;
    __typeof__(ncclBroadcast) *broadcast;
    __typeof__(ncclGetErrorString) *error_string;
    __typeof__(ncclGetLastError) *last_error;
} nccl_library;

/* Load it; it stays loaded, since it has threads of its own.                              [local]
 *
 * YK_EUNSUPPORTED  it is not found, or older than 2.14; the message says where it was looked for
 */
yk_status yk_nccl_library_load(nccl_library *library_out);

#endif
