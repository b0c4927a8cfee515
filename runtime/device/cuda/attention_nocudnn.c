/* runtime/device/cuda/attention_nocudnn.c - a build without cuDNN. */
#include <stdio.h>

#include "runtime/device/cuda/attention_cudnn.h"

yk_status yk_cudnn_attention_open(yk_cudnn_attention **attention_out, char *why, size_t why_bytes)
{
    (void)attention_out;
    snprintf(why, why_bytes, "this program was built without cuDNN's headers; build it with them");
    return YK_EUNSUPPORTED;
}

void yk_cudnn_attention_close(yk_cudnn_attention *attention)
{
    (void)attention;
}

void yk_cudnn_attention_set_deterministic(yk_cudnn_attention *attention, bool on)
{
    (void)attention, (void)on;
}

int64_t yk_cudnn_attention_version(const yk_cudnn_attention *attention)
{
    (void)attention;
    return 0;
}

yk_status yk_cudnn_attention_forward(yk_cudnn_attention *attention, cudaStream_t stream,
                                     const yk_attention_forward_args *a, void *ws,
                                     bool *offered_out)
{
    (void)attention, (void)stream, (void)a, (void)ws;
    *offered_out = false;
    return YK_OK;
}

yk_status yk_cudnn_attention_backward(yk_cudnn_attention *attention, cudaStream_t stream,
                                      const yk_attention_backward_args *a, int64_t room, void *ws,
                                      bool *offered_out)
{
    (void)attention, (void)stream, (void)a, (void)room, (void)ws;
    *offered_out = false;
    return YK_OK;
}
