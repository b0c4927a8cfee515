/* runtime/device/graph.h - operations of a stream, captured once and launched as one.
 *
 * Model.    Between capture_begin and capture_end, operations on a stream are checked as ever, do
 *           nothing, and are kept as a graph: their order, arguments and pointers. Launching the
 *           graph does all of them, for the host's time of one. A graph is good for exactly those
 *           arguments; who launches it sees to that.
 * Replay.   Code that does more than to enqueue, such as one that keeps a stack of memory, runs
 *           between replay_begin and replay_end: its operations are checked, counted and left out,
 *           and the graph takes their place.
 * Rule.     Inside of either only operations of ops.h go to the stream: no event, no host function,
 *           no other stream. What takes its time at the first use of an operation, such as choosing
 *           an algorithm, must have happened: run the operations once before they are captured.
 * Devices.  `cuda`: CUDA graphs. `dry` counts. `cpu` has none.
 * Threads.  As a stream.
 */
#ifndef YK_RUNTIME_DEVICE_GRAPH_H
#define YK_RUNTIME_DEVICE_GRAPH_H

#include "runtime/device/device.h"

typedef struct yk_graph yk_graph;

/* Can operations be captured on this device? */
bool yk_device_has_graphs(const yk_device *device);

/* Begin to keep the stream's operations instead of doing them.                           [local]
 *
 * YK_EUNSUPPORTED  the device has no graphs
 * YK_EDEVICE       the device failed
 */
yk_status yk_stream_capture_begin(yk_stream *stream);

/* End that, and make the graph, which the caller owns. Nothing has been done yet.        [local]
 *
 * YK_EDEVICE  something that cannot be captured was enqueued
 */
yk_status yk_stream_capture_end(yk_stream *stream, yk_graph **graph_out);

/* Do all of a graph's operations.                                                       [stream] */
yk_status yk_graph_launch(yk_graph *graph, yk_stream *stream);

/* From begin to end the stream's operations are checked and left out; then the graph is launched, which
 * holds the same ones. Aborts when their number differs.                                [stream] */
void yk_graph_replay_begin(yk_graph *graph, yk_stream *stream);
yk_status yk_graph_replay_end(yk_graph *graph, yk_stream *stream);

/* Release a graph whose launches have been passed. NULL does nothing. */
void yk_graph_destroy(yk_graph *graph);

/* Operations that the stream was given since it was created, those of graphs counted once each time. */
int64_t yk_stream_n_ops(const yk_stream *stream);

#endif
