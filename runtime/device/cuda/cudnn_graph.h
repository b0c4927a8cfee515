/* runtime/device/cuda/cudnn_graph.h - describing a graph of operations to cuDNN, and running it.
 *
 * Model.    A graph is put together from tensors and the operations between them; cuDNN then finds
 *           one kernel, or a few, for the whole of it: a plan. Building a plan takes up to a second,
 *           running it some 10 us of the host, so a plan is kept for as long as its shape is used.
 * Tensors.  All have four dimensions. One that is named by an id lies in memory and is given at each
 *           run; an inner one exists between operations alone; a scalar is fp32, read from host
 *           memory when the plan is run.
 * Failure.  The first call that fails is remembered and nothing is done after it, so that a
 *           description reads without tests; yk_cudnn_graph_plan() says whether all went well.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_CUDNN_GRAPH_H
#define YK_RUNTIME_DEVICE_CUDA_CUDNN_GRAPH_H

#include <cuda_runtime_api.h>

#include "runtime/device/cuda/cudnn_library.h"

#define YK_CUDNN_MAX_MADE       192
#define YK_CUDNN_MAX_OPERATIONS 32
#define YK_CUDNN_FIRST_INNER    1000 /* ids of the caller are smaller */

typedef struct yk_cudnn_graph {
    const yk_cudnn *cudnn;                            /* borrowed */
    cudnnBackendDescriptor_t made[YK_CUDNN_MAX_MADE]; /* owned */
    int n_made;
    cudnnBackendDescriptor_t operations[YK_CUDNN_MAX_OPERATIONS]; /* of `made` */
    int n_operations;
    int n_inner;
    cudnnStatus_t status;          /* of the first call that failed */
    const char *failed_at;         /* what that was */
    cudnnBackendDescriptor_t plan; /* of `made`; NULL before yk_cudnn_graph_plan() */
    int64_t workspace_bytes;
} yk_cudnn_graph;

typedef struct yk_cudnn_view {
    int64_t size[4], stride[4]; /* in elements */
} yk_cudnn_view;

void yk_cudnn_graph_init(yk_cudnn_graph *g, const yk_cudnn *cudnn);
void yk_cudnn_graph_fini(yk_cudnn_graph *g);

/* ---- tensors ------------------------------------------------------------------------------ */

cudnnBackendDescriptor_t yk_cudnn_tensor(yk_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                         yk_cudnn_view view);
cudnnBackendDescriptor_t yk_cudnn_inner(yk_cudnn_graph *g, cudnnDataType_t type,
                                        yk_cudnn_view view);
cudnnBackendDescriptor_t yk_cudnn_scalar(yk_cudnn_graph *g, int64_t id);

/* ---- operations, each with fp32 arithmetic ------------------------------------------------ */

/* y = mode(x), mode(x, b), or the choice of x or b by t; b and t may be NULL. */
void yk_cudnn_pointwise(yk_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                        cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                        cudnnBackendDescriptor_t y);

/* y = x >= b, a tensor of booleans. */
void yk_cudnn_at_least(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                       cudnnBackendDescriptor_t y);

/* y = the index along `axis` of each element of x. */
void yk_cudnn_index(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y,
                    int64_t axis);

/* c = a b, over the last two dimensions. */
void yk_cudnn_product(yk_cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                      cudnnBackendDescriptor_t c);

/* y = the maximum or sum of x over the dimensions where y has one element and x more. */
void yk_cudnn_reduce(yk_cudnn_graph *g, cudnnReduceTensorOp_t what, cudnnBackendDescriptor_t x,
                     cudnnBackendDescriptor_t y);

/* y = x seen with y's sizes and strides: a transpose. */
void yk_cudnn_reshape(yk_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* ---- plans -------------------------------------------------------------------------------- */

/* Build the plan that cuDNN thinks best among those that need no more than `limit` bytes of
 * workspace. False when there is none: status and failed_at say why. */
bool yk_cudnn_graph_plan(yk_cudnn_graph *g, int64_t limit);

/* Enqueue the plan. False when cuDNN refused, and nothing was enqueued.
 *
 * ids, pointers  (n) the tensors that lie in memory, and the scalars
 * status_out     why, where it is false
 */
bool yk_cudnn_graph_run(const yk_cudnn_graph *g, cudaStream_t stream, int n, const int64_t *ids,
                        void *const *pointers, void *workspace, cudnnStatus_t *status_out);

#endif
