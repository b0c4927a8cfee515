/* runtime/device/ops_wire.h - gradients on their way between ranks: the operations that pack them for a
 * wire, add what has arrived, and unpack the sum.
 *
 * As in ops.h, but that every stream takes them, one for transfers too. They are the loops of wire.h in
 * a device's memory, and give the bits that those give; a NaN stays some NaN.
 *
 * Scale     What travels as fp16 is multiplied by a power of two that follows from the greatest finite
 *           gradient of any rank: so near to the top of the format that the sum over the ranks just
 *           fits. The device reads that greatest value when the stream is there, so the host never
 *           waits for it. Other formats have no scale.
 * In place  A buffer may be packed into its own front, part by part from there, and what has been
 *           packed into the front of its place be unpacked in that place.
 */
#ifndef YK_RUNTIME_DEVICE_OPS_WIRE_H
#define YK_RUNTIME_DEVICE_OPS_WIRE_H

#include "runtime/device/ops.h"

/* The most ranks whose sum a scale leaves room for. */
#define YK_WIRE_RANKS_MAX 8192

typedef struct yk_wire_scale {
    const float *greatest; /* device memory: the greatest of all ranks; NULL: the scale is 1 */
    int n_ranks;           /* 1 .. YK_WIRE_RANKS_MAX, with `greatest` */
} yk_wire_scale;

/* *greatest = the greatest finite |x[i]|; 0 when there is none. */
typedef struct yk_greatest_args {
    float *greatest; /* device memory */
    const void *x;   /* (n) */
    int64_t n;
    yk_dtype dtype;
} yk_greatest_args;
yk_status yk_greatest(yk_stream *stream, const yk_greatest_args *a);

/* packed[i] = x[i] * scale, rounded to the wire; bf16 stops at its greatest number. */
typedef struct yk_pack_args {
    void *packed;  /* (n) of `wire`; may be x, or begin below it */
    const void *x; /* (n) of `dtype`, no narrower than the wire */
    yk_wire_scale scale;
    int64_t *n_flushed; /* device memory: grows by how many x[i] != 0 became 0; NULL: not counted */
    int64_t n;
    yk_dtype dtype, wire;
} yk_pack_args;
yk_status yk_pack(yk_stream *stream, const yk_pack_args *a);

/* sum[i] = part 0 + part 1 + ..., added in fp32 in this order and rounded to the wire; then, unless it
 * travels on, divided by the scale and rounded to `dtype`, or with `accumulate` added in fp32 to what
 * is there. With one part this unpacks. */
typedef struct yk_sum_parts_args {
    void *sum;         /* (n) of `dtype`, or of `wire` when it travels; may be own, or begin below
                        * it when it is narrower; may be parts, when there is one */
    const void *parts; /* part p: (n) of `wire`, at parts + p * stride bytes */
    const void *own;   /* (n) of `dtype`: taken for part number own_part, packed as it is read;
                        * NULL: that one lies with the others */
    int64_t stride;
    int n_parts, own_part;
    yk_wire_scale scale;
    int64_t *n_flushed; /* as yk_pack()'s, for own */
    int64_t n;
    bool travels, accumulate; /* not both */
    yk_dtype dtype, wire;     /* the wire is no wider */
} yk_sum_parts_args;
yk_status yk_sum_parts(yk_stream *stream, const yk_sum_parts_args *a);

/* The loss_sum, sum_squares and n_tokens of `values` become the sums of those of all[0], all[1], ... in
 * this order, non_finite their or; the other members stay. */
typedef struct yk_sum_values_args {
    yk_step_values *values;    /* device memory; outside of all */
    const yk_step_values *all; /* (n) device memory */
    int64_t n;                 /* > 0 */
} yk_sum_values_args;
yk_status yk_sum_values(yk_stream *stream, const yk_sum_values_args *a);

yk_cost yk_greatest_cost(const yk_greatest_args *a);
yk_cost yk_pack_cost(const yk_pack_args *a);
yk_cost yk_sum_parts_cost(const yk_sum_parts_args *a);
yk_cost yk_sum_values_cost(const yk_sum_values_args *a);

#endif
