/* runtime/device/graph.c - see graph.h; what a backend provides is in backend.h. */
#include "runtime/device/graph.h"

#include <stdlib.h>

#include "runtime/device/dispatch.h"

struct yk_graph {
    yk_device *device;
    int64_t n_ops;
    void *state;
};

bool yk_device_has_graphs(const yk_device *device)
{
    return device->backend->capture_begin != NULL;
}

yk_status yk_stream_capture_begin(yk_stream *stream)
{
    REQUIRE(stream->holds == YK_STREAM_OPEN);
    REQUIRE_IN_TABLE(stream, capture_begin);
    YK_TRY(stream->device->backend->capture_begin(stream));
    stream->holds = YK_STREAM_CAPTURED;
    stream->n_before = stream->n_ops;
    return YK_OK;
}

yk_status yk_stream_capture_end(yk_stream *stream, yk_graph **graph_out)
{
    REQUIRE(stream->holds == YK_STREAM_CAPTURED);
    stream->holds = YK_STREAM_OPEN;
    yk_graph *g = calloc(1, sizeof *g);
    void *state;
    yk_status status = stream->device->backend->capture_end(stream, &state);
    if (status != YK_OK || !g) {
        if (status == YK_OK) stream->device->backend->graph_destroy(stream->device, state);
        free(g);
        return status != YK_OK ? status : yk_fail(YK_ENOMEM, "graph", "no memory for a graph");
    }
    *g = (yk_graph){
        .device = stream->device, .n_ops = stream->n_ops - stream->n_before, .state = state};
    stream->n_ops = stream->n_before; /* they count when they are launched */
    *graph_out = g;
    return YK_OK;
}

yk_status yk_graph_launch(yk_graph *graph, yk_stream *stream)
{
    REQUIRE(stream->holds == YK_STREAM_OPEN && stream->device == graph->device);
    stream->n_ops += graph->n_ops;
    return graph->device->backend->graph_launch(stream, graph->state);
}

void yk_graph_replay_begin(yk_graph *graph, yk_stream *stream)
{
    YK_CHECK(stream->holds == YK_STREAM_OPEN && stream->device == graph->device);
    stream->holds = YK_STREAM_REPLAYED;
    stream->n_before = stream->n_ops;
}

yk_status yk_graph_replay_end(yk_graph *graph, yk_stream *stream)
{
    YK_CHECK(stream->holds == YK_STREAM_REPLAYED);
    YK_CHECK(stream->n_ops - stream->n_before == graph->n_ops);
    stream->holds = YK_STREAM_OPEN;
    stream->n_ops = stream->n_before;
    return yk_graph_launch(graph, stream);
}

void yk_graph_destroy(yk_graph *graph)
{
    if (!graph) return;
    graph->device->backend->graph_destroy(graph->device, graph->state);
    free(graph);
}

int64_t yk_stream_n_ops(const yk_stream *stream)
{
    return stream->n_ops;
}
