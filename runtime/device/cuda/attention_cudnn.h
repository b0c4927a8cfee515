/* runtime/device/cuda/attention_cudnn.h - attention by cuDNN, beside our own kernels.
 *
 * Model.    Both take the same tensors, and the same natural logarithm of the softmax's sum lies
 *           between forward and backward, so that either may follow the other. A call that cuDNN
 *           does not serve (documents, fp32, a head size or length without a plan, a workspace
 *           above its bound) is not offered, and the caller takes its own kernels; where that is
 *           cuDNN's doing, a warning says so once a shape.
 * Plans.    Built at the first call of a shape, which is therefore not to be inside the capture of a
 *           graph, and kept.
 * Bits.     Forward repeats its bits. The gradient does where it is built to be deterministic: dq is
 *           then one sum, and not added up in memory by whichever block comes first.
 * Threads.  Any number; there is one lock, since cuDNN's handle has one stream at a time.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_ATTENTION_CUDNN_H
#define YK_RUNTIME_DEVICE_CUDA_ATTENTION_CUDNN_H

#include <cuda_runtime_api.h>

#include "runtime/device/ops.h"

typedef struct yk_cudnn_attention yk_cudnn_attention;

/* Load cuDNN for the current device.                                                    [local]
 *
 * why  (why_bytes) the reason when it is not there
 *
 * YK_EUNSUPPORTED  it is not there; nothing is reported
 * YK_ENOMEM        no memory for the plans
 */
yk_status yk_cudnn_attention_open(yk_cudnn_attention **attention_out, char *why, size_t why_bytes);

/* Release the plans and cuDNN's handle. NULL does nothing. */
void yk_cudnn_attention_close(yk_cudnn_attention *attention);

/* Whether gradients must repeat their bits; true at first. */
void yk_cudnn_attention_set_deterministic(yk_cudnn_attention *attention, bool on);

/* The library's version, as it counts. */
int64_t yk_cudnn_attention_version(const yk_cudnn_attention *attention);

/* Enqueue, with workspace of the size that sizes.h states for cuDNN.
 *
 * room         of the workspace, as the device's description has it
 * offered_out  false when nothing was enqueued
 *
 * YK_EDEVICE  cuDNN refused what it had done before
 */
yk_status yk_cudnn_attention_forward(yk_cudnn_attention *attention, cudaStream_t stream,
                                     const yk_attention_forward_args *a, void *ws,
                                     bool *offered_out);
yk_status yk_cudnn_attention_backward(yk_cudnn_attention *attention, cudaStream_t stream,
                                      const yk_attention_backward_args *a, int64_t room, void *ws,
                                      bool *offered_out);

#endif
