/* engine/libraries.c - see libraries.h. */
#include "engine/libraries.h"

#include "runtime/base/arith.h"

static int64_t arenas(const yk_plan *plan)
{
    return plan->sizes.persistent + plan->sizes.activation;
}

int64_t yk_libraries_held(const yk_device *device, int64_t allocated)
{
    return yk_max(yk_device_held_bytes(device) - allocated, 0);
}

yk_status yk_libraries_missing(yk_world *world, const yk_plan *plan, int64_t held, int64_t later,
                               int64_t *missing_out)
{
    int64_t missing = held > 0 ? yk_max(held + later - plan->library_bytes, 0) : 0;
    if (world) YK_TRY(yk_world_max(world, missing, &missing));
    *missing_out = missing;
    return YK_OK;
}

yk_status yk_libraries_check_room(yk_device *device, const yk_plan *plan)
{
    int64_t held = yk_libraries_held(device, 0);
    int64_t later = held > 0 ? yk_max(plan->library_bytes - held, 0) : 0;
    return yk_device_check_room(device, "the run's memory", arenas(plan) + later);
}

yk_status yk_libraries_count(yk_world *world, const yk_device *device, yk_plan *plan)
{
    int64_t missing;
    plan->held_bytes = yk_libraries_held(device, arenas(plan));
    YK_TRY(yk_libraries_missing(world, plan, plan->held_bytes, YK_LIBRARIES_LATER, &missing));
    if (missing == 0) return YK_OK;
    yk_plan_count_libraries(plan, missing);
    if (yk_plan_device_bytes(plan) <= plan->limit) return YK_OK;
    return yk_fail(
        YK_ENOFIT, "memory",
        "libraries hold %.0f MiB and load up to %.0f more, %.0f more than was planned, and "
        "with that training takes %.2f GiB of the %.2f that may be used; raise "
        "memory.device_limit, or take a smaller train.micro_batch",
        (double)plan->held_bytes / 0x1p20, (double)YK_LIBRARIES_LATER / 0x1p20,
        (double)missing / 0x1p20, (double)yk_plan_device_bytes(plan) / 0x1p30,
        (double)plan->limit / 0x1p30);
}

void yk_libraries_review(const yk_device *device, yk_plan *plan)
{
    int64_t held = yk_libraries_held(device, arenas(plan)), counted = plan->library_bytes;
    if (held == 0) return;
    plan->held_bytes = held;
    plan->library_bytes = held;
    if (held > counted)
        yk_warn(
            "memory",
            "libraries hold %.0f MiB after the first step, and room was left for %.0f: %.2f GiB "
            "of the %.2f that may be used are taken",
            (double)held / 0x1p20, (double)counted / 0x1p20,
            (double)yk_plan_device_bytes(plan) / 0x1p30, (double)plan->limit / 0x1p30);
}
