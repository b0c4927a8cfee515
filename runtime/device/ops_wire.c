/* runtime/device/ops_wire.c - the dispatcher of ops_wire.h, and what each operation costs.
 *
 * As in ops.c: refuse, deal with zero elements, call the backend. None takes workspace.
 */
#include "runtime/device/ops_wire.h"

#include "runtime/device/dispatch.h"

static bool is_scale(const yk_wire_scale *s, yk_dtype wire)
{
    if (!s->greatest) return true;
    return wire == YK_F16 && s->n_ranks >= 1 && s->n_ranks <= YK_WIRE_RANKS_MAX;
}

static bool is_no_wider(yk_dtype wire, yk_dtype dtype)
{
    return yk_dtype_bytes(wire) <= yk_dtype_bytes(dtype);
}

yk_status yk_greatest(yk_stream *stream, const yk_greatest_args *a)
{
    REQUIRE(a->n >= 0);
    REQUIRE(is_float(a->dtype));
    REQUIRE(a->greatest && (a->x || a->n == 0));
    REQUIRE_IN_TABLE(stream, greatest);
    ENQUEUE(stream, greatest, yk_greatest_cost(a), a);
}

yk_status yk_pack(yk_stream *stream, const yk_pack_args *a)
{
    REQUIRE(a->n >= 0);
    REQUIRE(is_float(a->dtype) && is_float(a->wire) && is_no_wider(a->wire, a->dtype));
    REQUIRE(is_scale(&a->scale, a->wire));
    if (a->n == 0) return YK_OK;
    REQUIRE(a->packed && a->x);
    REQUIRE_IN_TABLE(stream, pack);
    ENQUEUE(stream, pack, yk_pack_cost(a), a);
}

yk_status yk_sum_parts(yk_stream *stream, const yk_sum_parts_args *a)
{
    REQUIRE(a->n >= 0 && a->n_parts > 0);
    REQUIRE(!a->own || (a->own_part >= 0 && a->own_part < a->n_parts));
    REQUIRE(is_float(a->dtype) && is_float(a->wire) && is_no_wider(a->wire, a->dtype));
    REQUIRE(is_scale(&a->scale, a->wire));
    REQUIRE(!a->travels || !a->accumulate);
    if (a->n == 0) return YK_OK;
    REQUIRE(a->sum && (a->parts || (a->own && a->n_parts == 1)));
    REQUIRE_IN_TABLE(stream, sum_parts);
    ENQUEUE(stream, sum_parts, yk_sum_parts_cost(a), a);
}

yk_status yk_sum_values(yk_stream *stream, const yk_sum_values_args *a)
{
    REQUIRE(a->n > 0);
    REQUIRE(a->values && a->all);
    REQUIRE_IN_TABLE(stream, sum_values);
    ENQUEUE(stream, sum_values, yk_sum_values_cost(a), a);
}

/* ---- cost --------------------------------------------------------------------------------- */

static yk_cost memory_cost(yk_dtype t, double bytes)
{
    return (yk_cost){.kind = YK_COST_MEMORY, .dtype = t, .bytes = bytes};
}

static double bytes_of(yk_dtype t, int64_t n)
{
    return (double)yk_dtype_bytes(t) * (double)n;
}

yk_cost yk_greatest_cost(const yk_greatest_args *a)
{
    return memory_cost(a->dtype, bytes_of(a->dtype, a->n));
}

yk_cost yk_pack_cost(const yk_pack_args *a)
{
    return memory_cost(a->dtype, bytes_of(a->dtype, a->n) + bytes_of(a->wire, a->n));
}

yk_cost yk_sum_parts_cost(const yk_sum_parts_args *a)
{
    int64_t arrived = a->n_parts - (a->own ? 1 : 0);
    int64_t of_dtype = (a->own ? 1 : 0) + (a->travels ? 0 : 1) + (a->accumulate ? 1 : 0);
    return memory_cost(a->dtype, bytes_of(a->wire, a->n * (arrived + (a->travels ? 1 : 0))) +
                                     bytes_of(a->dtype, a->n * of_dtype));
}

yk_cost yk_sum_values_cost(const yk_sum_values_args *a)
{
    return memory_cost(YK_F32, (double)(a->n + 2) * (double)sizeof(yk_step_values));
}
