/* engine/plan_trace.c - the timeline of a planned step. */
#include "engine/feed.h"
#include "engine/plan_parts.h"
#include "engine/step.h"
#include "runtime/observe/trace.h"

/* Spans of a step that are kept. */
#define SPANS_MAX 1000000

static yk_status record(yk_engine *e, yk_feed *feed, yk_trace *trace)
{
    yk_recorder *recorder;
    YK_TRY(yk_step_run(e, feed, 0, 0.0f)); /* one goes before */
    YK_TRY(yk_recorder_create(e->device, SPANS_MAX, &recorder));
    yk_recorder_start(recorder);
    yk_status status = yk_step_run(e, feed, 1, 0.0f);
    if (status == YK_OK) status = yk_recorder_stop(recorder);
    if (status == YK_OK) status = yk_trace_add(trace, 0, "step", recorder);
    yk_recorder_destroy(recorder);
    return status;
}

static yk_status write_trace(yk_engine *e, const char *path)
{
    yk_feed feed;
    yk_trace *trace;
    YK_TRY(yk_feed_init(&feed, e, NULL));
    yk_status status = yk_trace_open(path, &trace);
    if (status == YK_OK) {
        status = record(e, &feed, trace);
        yk_status closed = yk_trace_close(trace);
        if (status == YK_OK) status = closed;
    }
    yk_feed_fini(&feed);
    return status;
}

yk_status yk_plan_trace(const yk_plan *plan, const yk_model_shape *shape,
                        const yk_topology *topology, const char *path)
{
    yk_plan_target target = {shape, &plan->spec, topology, 0, NULL};
    yk_device *dry;
    yk_engine *e;
    YK_TRY(yk_plan_open_dry(&target, &plan->config, &dry, &e));
    yk_status status = write_trace(e, path);
    yk_engine_destroy(e);
    yk_device_close(dry);
    return status;
}
