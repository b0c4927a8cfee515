/* runtime/device/cuda/graph_cuda.c - CUDA graphs.
 *
 * The capture is the thread's own, so that other threads' calls do not end it. The executable graph is
 * uploaded when it is made: its first launch costs what the others do.
 */
#include "runtime/device/cuda/cuda_device.h"

yk_status yk_cuda_capture_begin(yk_stream *s)
{
    YK_TRY(yk_cuda_enter(s->device));
    return yk_cuda_check(
        cudaStreamBeginCapture(yk_cuda_stream_of(s), cudaStreamCaptureModeThreadLocal), "graph");
}

static yk_status check_capture(cudaError_t error)
{
    if (error == cudaSuccess) return YK_OK;
    return yk_fail(YK_EDEVICE, "graph",
                   "operations could not be captured: %s; set cuda.graphs: off",
                   cudaGetErrorString(error));
}

yk_status yk_cuda_capture_end(yk_stream *s, void **graph_out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    cudaStream_t stream = yk_cuda_stream_of(s);
    YK_TRY(check_capture(cudaStreamEndCapture(stream, &graph)));
    cudaError_t error = cudaGraphInstantiate(&made, graph, 0);
    (void)cudaGraphDestroy(graph);
    YK_TRY(check_capture(error));
    error = cudaGraphUpload(made, stream);
    if (error != cudaSuccess) {
        (void)cudaGraphExecDestroy(made);
        return check_capture(error);
    }
    *graph_out = made;
    return YK_OK;
}

yk_status yk_cuda_graph_launch(yk_stream *s, void *graph)
{
    YK_TRY(yk_cuda_enter(s->device));
    return yk_cuda_check(cudaGraphLaunch(graph, yk_cuda_stream_of(s)), "graph");
}

void yk_cuda_graph_destroy(yk_device *d, void *graph)
{
    (void)cudaSetDevice(((const yk_cuda_state *)d->state)->index);
    (void)cudaGraphExecDestroy(graph);
}
