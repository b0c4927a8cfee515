/* tests/runtime/device/test_ops_wire.c - packing, adding and unpacking on a device give the bits of the
 * loops in wire.h, which tests/runtime/device/test_wire.c holds against conversions of single values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/ops_wire.h"
#include "runtime/device/wire.h"
#include "tests/runtime/device/op_case.h"

#define PARTS_MAX 8

static const int64_t sizes[] = {1, 3, 17, 128, 2049, 4099, 20001};
#define N_SIZES 7

/* ---- what is given ------------------------------------------------------------------------ */

/* Of every magnitude that gradients have, and now and then something odd. */
static double some_number(op_case *c, yk_dtype t)
{
    static const double odd[] = {0,           -0.0,  INFINITY, -INFINITY, NAN, 0x1.fffffep127,
                                 -0x1.ffp127, 1e-45, 0x1p-134};
    if (op_random_below(c, 50) == 0) return oracle_round(t, odd[op_random_below(c, 9)]);
    int exponent = (int)op_random_below(c, 60) - 45;
    return oracle_round(t, ldexp(op_random_normal(c), exponent));
}

static op_buffer *numbers(op_case *c, op_role role, yk_dtype t, int64_t n)
{
    double *values = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) values[i] = some_number(c, t);
    return op_given(c, role, t, n, values);
}

/* What a rank packed: a number of the wire that its neighbours' sum leaves finite. */
static op_buffer *arrived(op_case *c, yk_dtype wire, int64_t n)
{
    double *values = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) {
        double x = some_number(c, wire);
        values[i] = wire == YK_F16 && isfinite(x) ? oracle_round(wire, x / 16) : x;
    }
    return op_given(c, OP_INPUT, wire, n, values);
}

/* Numbers begin .. begin+n-1 of a buffer as it was before, as they are stored. */
static void *stored(const op_buffer *b, int64_t begin, int64_t n)
{
    int64_t size = yk_dtype_bytes(b->dtype);
    char *bytes = malloc((size_t)(n * size) + 1);
    assert_non_null(bytes);
    for (int64_t i = 0; i < n; i++) oracle_encode(b->dtype, b->value[begin + i], bytes + i * size);
    return bytes;
}

/* A scale that most of the numbers survive, and its exponent. */
static yk_wire_scale some_scale(op_case *c, yk_dtype wire, bool scaled, int *exponent_out)
{
    static const double greatest[] = {0x1p-30, 3.5, 1000, 0x1.fffffep127, 1e-42, 0};
    *exponent_out = 0;
    if (wire != YK_F16 || !scaled) return (yk_wire_scale){0};
    double most = oracle_round(YK_F32, greatest[op_random_below(c, 6)]);
    int n_ranks = 1 + (int)op_random_below(c, 9);
    *exponent_out = yk_wire_scale_exponent((float)most, n_ranks);
    return (yk_wire_scale){op_given(c, OP_INPUT, YK_F32, 1, &most)->data, n_ranks};
}

/* ---- what is expected --------------------------------------------------------------------- */

/* Numbers first .. first+n-1 of `b`, seen as `t`, are those in `want`, signs of zeros too. */
static void expect_bits(op_case *c, const op_buffer *b, int64_t first, const void *want, yk_dtype t,
                        int64_t n)
{
    int64_t size = yk_dtype_bytes(t);
    const uint8_t *bytes = op_bytes(b) + first * size;
    for (int64_t i = 0; i < n; i++) {
        double got = oracle_decode(t, bytes + i * size);
        double expected = oracle_decode(t, (const uint8_t *)want + i * size);
        if (isnan(got) && isnan(expected)) continue;
        if (got != expected || signbit(got) != signbit(expected))
            fail_msg("%s: number %lld is %.9g and not %.9g", c->label, (long long)i, got, expected);
    }
}

/* The counter lies where a step counts its tokens. */
static op_buffer *counter(op_case *c)
{
    return op_step_values(c, &(yk_step_values){.n_tokens = 7});
}

static int64_t *counter_of(const op_buffer *b)
{
    return &((yk_step_values *)b->data)->n_tokens;
}

static void expect_count(const op_buffer *b, int64_t want)
{
    assert_int_equal(op_step_values_got(b).n_tokens, 7 + want);
}

static void *at(const op_buffer *b, int64_t bytes)
{
    return (char *)b->data + bytes;
}

/* Call `family` for each pair of a gradient's type and a wire that is no wider. */
static void for_each_pair(op_case *c, void (*family)(op_case *c, yk_dtype t, yk_dtype wire))
{
    for (int d = 0; d < 3; d++)
        for (int w = 0; w < 3; w++)
            if (yk_dtype_bytes(op_dtypes[w]) <= yk_dtype_bytes(op_dtypes[d]))
                family(c, op_dtypes[d], op_dtypes[w]);
}

/* ---- the scale ---------------------------------------------------------------------------- */

static void greatest_case(op_case *c, yk_dtype t, int64_t n, int64_t skip)
{
    op_case_begin(c, t, "greatest n=%d from %d", (int)n, (int)skip);
    op_buffer *x = numbers(c, OP_INPUT, t, n + skip), *greatest = op_output(c, YK_F32, 1);
    OP_RUN(
        c, yk_greatest,
        &((yk_greatest_args){
            .greatest = greatest->data, .x = at(x, skip * yk_dtype_bytes(t)), .n = n, .dtype = t}));
    void *host = stored(x, skip, n);
    float want = yk_wire_greatest(host, n, t);
    expect_bits(c, greatest, 0, &want, YK_F32, 1);
    free(host);
}

static void the_greatest_finite_number_is_found(void **state)
{
    op_case *c = *state;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SIZES; i++)
            for (int64_t skip = 0; skip < 2; skip++) greatest_case(c, op_dtypes[d], sizes[i], skip);
    greatest_case(c, YK_BF16, 300001, 0);
    greatest_case(c, YK_F32, 0, 0);
}

/* ---- packing ------------------------------------------------------------------------------ */

/* n numbers of x from `from` on, packed to as many places of `packed`, which may be x. */
static void pack_part(op_case *c, yk_dtype t, yk_dtype wire, int64_t n, bool scaled, op_buffer *x,
                      op_buffer *packed, int64_t from)
{
    op_buffer *count = counter(c);
    int exponent;
    yk_pack_args a = {.packed = at(packed, from * yk_dtype_bytes(wire)),
                      .x = at(x, from * yk_dtype_bytes(t)),
                      .scale = some_scale(c, wire, scaled, &exponent),
                      .n_flushed = counter_of(count),
                      .n = n,
                      .dtype = t,
                      .wire = wire};
    OP_RUN(c, yk_pack, &a);
    void *host = stored(x, from, n);
    int64_t flushed = yk_wire_pack(host, wire, host, t, n, exponent);
    expect_bits(c, packed, from, host, wire, n);
    expect_count(count, flushed);
    free(host);
}

static void pack_case(op_case *c, yk_dtype t, yk_dtype wire, int64_t n, bool scaled, int64_t skip)
{
    op_case_begin(c, t, "pack to %s n=%d scaled=%d from %d", yk_dtype_name(wire), (int)n, scaled,
                  (int)skip);
    op_buffer *x = numbers(c, OP_INPUT, t, n + skip), *packed = op_output(c, wire, n + skip);
    pack_part(c, t, wire, n, scaled, x, packed, skip);
}

static void pack_pair(op_case *c, yk_dtype t, yk_dtype wire)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int way = 0; way < 4; way++) pack_case(c, t, wire, sizes[i], way & 1, way >> 1);
}

static void packing_gives_the_bits_of_the_loops(void **state)
{
    for_each_pair(*state, pack_pair);
}

/* Numbers `begin` on of a buffer are packed to where they lie in its packed front. */
static void pack_in_place_case(op_case *c, yk_dtype t, yk_dtype wire, int64_t n, int64_t begin)
{
    op_case_begin(c, t, "pack in place to %s n=%d from %d", yk_dtype_name(wire), (int)n,
                  (int)begin);
    op_buffer *x = numbers(c, OP_INOUT, t, n + begin);
    pack_part(c, t, wire, n, true, x, x, begin);
}

static void pack_in_place_pair(op_case *c, yk_dtype t, yk_dtype wire)
{
    static const int64_t begins[] = {0, 1, 128, 3000, 40000};
    for (int i = 0; i < N_SIZES; i++)
        for (int b = 0; b < 5; b++) pack_in_place_case(c, t, wire, sizes[i], begins[b]);
}

static void a_buffer_is_packed_into_its_own_front(void **state)
{
    for_each_pair(*state, pack_in_place_pair);
}

/* ---- sums --------------------------------------------------------------------------------- */

typedef struct sum_shape {
    int64_t n;
    int n_parts, own_part; /* own_part -1: with the others */
    bool travels, accumulate, scaled;
    int64_t skip; /* elements at the front of every buffer that are left alone */
} sum_shape;

/* What the loops make of a sum's parts; `sum_out` holds what was there before. */
static int64_t expected_sum(const yk_sum_parts_args *a, const op_buffer *parts,
                            const op_buffer *own, int64_t own_skip, int exponent, void *sum_out)
{
    void *host[PARTS_MAX] = {0}, *total = calloc((size_t)a->n + 1, 4);
    const void *all[PARTS_MAX];
    int64_t stride = a->stride / yk_dtype_bytes(a->wire), flushed = 0;
    int64_t skip =
        parts ? ((const char *)a->parts - (const char *)parts->data) / yk_dtype_bytes(a->wire) : 0;
    assert_non_null(total);
    for (int p = 0; p < a->n_parts; p++) {
        bool is_own = own && p == a->own_part;
        host[p] = is_own ? stored(own, own_skip, a->n) : stored(parts, skip + p * stride, a->n);
        if (is_own) flushed = yk_wire_pack(host[p], a->wire, host[p], a->dtype, a->n, exponent);
        all[p] = host[p];
    }
    yk_wire_sum(total, all, a->n_parts, a->n, a->wire);
    if (a->travels)
        memcpy(sum_out, total, (size_t)(a->n * yk_dtype_bytes(a->wire)));
    else
        yk_wire_unpack(sum_out, a->dtype, total, a->wire, a->n, exponent, a->accumulate);
    for (int p = 0; p < a->n_parts; p++) free(host[p]);
    free(total);
    return flushed;
}

static void sum_case(op_case *c, yk_dtype t, yk_dtype wire, sum_shape s)
{
    op_case_begin(c, t, "sum of %d in %s n=%d own=%d travels=%d add=%d scaled=%d skip=%d",
                  s.n_parts, yk_dtype_name(wire), (int)s.n, s.own_part, s.travels, s.accumulate,
                  s.scaled, (int)s.skip);
    yk_dtype to = s.travels ? wire : t;
    int64_t room = (s.n + s.skip + 127) / 128 * 128, w = yk_dtype_bytes(wire);
    op_buffer *parts = arrived(c, wire, s.n_parts * room), *count = counter(c);
    op_buffer *own = s.own_part >= 0 ? numbers(c, OP_INPUT, t, s.n + s.skip) : NULL;
    op_buffer *sum =
        s.accumulate ? numbers(c, OP_INOUT, to, s.n + s.skip) : op_output(c, to, s.n + s.skip);
    int exponent;
    yk_sum_parts_args a = {.sum = at(sum, s.skip * yk_dtype_bytes(to)),
                           .parts = at(parts, s.skip * w),
                           .own = own ? at(own, s.skip * yk_dtype_bytes(t)) : NULL,
                           .stride = room * w,
                           .n_parts = s.n_parts,
                           .own_part = s.own_part,
                           .scale = some_scale(c, wire, s.scaled, &exponent),
                           .n_flushed = counter_of(count),
                           .n = s.n,
                           .travels = s.travels,
                           .accumulate = s.accumulate,
                           .dtype = t,
                           .wire = wire};
    OP_RUN(c, yk_sum_parts, &a);
    void *want = stored(sum, s.skip, s.n);
    int64_t flushed = expected_sum(&a, parts, own, s.skip, exponent, want);
    expect_bits(c, sum, s.skip, want, to, s.n);
    expect_count(count, flushed);
    free(want);
}

static void sum_pair(op_case *c, yk_dtype t, yk_dtype wire)
{
    static const int n_parts[] = {1, 2, 3, 8};
    static const int64_t lengths[] = {1, 131, 4099};
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < 4; p++)
            for (int way = 0; way < 6; way++) {
                int own = way % 3 == 0 ? -1 : way % 3 == 1 ? 0 : n_parts[p] - 1;
                sum_shape s = {.n = lengths[i],
                               .n_parts = n_parts[p],
                               .own_part = own,
                               .travels = way >= 3,
                               .accumulate = way < 3 && (p & 1),
                               .scaled = way != 1,
                               .skip = way == 5 ? 1 : 0};
                sum_case(c, t, wire, s);
            }
    sum_case(c, t, wire, (sum_shape){.n = 20001, .n_parts = 5, .own_part = 2, .scaled = true});
}

static void sums_give_the_bits_of_the_loops(void **state)
{
    for_each_pair(*state, sum_pair);
}

/* The sum of what has arrived and of numbers `begin` on of a buffer goes to where it lies in that
 * buffer's packed front, to travel on. */
static void sum_in_place_case(op_case *c, yk_dtype t, yk_dtype wire, int64_t n, int64_t begin)
{
    op_case_begin(c, t, "sum in place in %s n=%d from %d", yk_dtype_name(wire), (int)n, (int)begin);
    int64_t w = yk_dtype_bytes(wire);
    op_buffer *parts = arrived(c, wire, 2 * n), *own = numbers(c, OP_INOUT, t, n + begin);
    int exponent;
    yk_sum_parts_args a = {.sum = at(own, begin * w),
                           .parts = parts->data,
                           .own = at(own, begin * yk_dtype_bytes(t)),
                           .stride = n * w,
                           .n_parts = 2,
                           .own_part = 1,
                           .scale = some_scale(c, wire, true, &exponent),
                           .n = n,
                           .travels = true,
                           .dtype = t,
                           .wire = wire};
    OP_RUN(c, yk_sum_parts, &a);
    void *want = stored(own, 0, n);
    (void)expected_sum(&a, parts, own, begin, exponent, want);
    expect_bits(c, own, begin, want, wire, n);
    free(want);
}

static void sum_in_place_pair(op_case *c, yk_dtype t, yk_dtype wire)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int64_t begin = 0; begin <= 3072; begin += 3072)
            sum_in_place_case(c, t, wire, sizes[i], begin);
}

static void a_sum_goes_to_the_packed_front_of_its_own_part(void **state)
{
    for_each_pair(*state, sum_in_place_pair);
}

/* A packed buffer in the front of its place becomes what it was made from. */
static void unpack_in_place_case(op_case *c, yk_dtype t, yk_dtype wire, int64_t n)
{
    op_case_begin(c, wire, "unpack in place to %s n=%d", yk_dtype_name(t), (int)n);
    int64_t room = n * yk_dtype_bytes(t) / yk_dtype_bytes(wire);
    op_buffer *x = numbers(c, OP_INOUT, wire, room);
    int exponent;
    yk_sum_parts_args a = {.sum = x->data,
                           .parts = x->data,
                           .n_parts = 1,
                           .scale = some_scale(c, wire, true, &exponent),
                           .n = n,
                           .dtype = t,
                           .wire = wire};
    OP_RUN(c, yk_sum_parts, &a);
    void *packed = stored(x, 0, n), *want = calloc((size_t)n + 1, 4);
    assert_non_null(want);
    yk_wire_unpack(want, t, packed, wire, n, exponent, false);
    expect_bits(c, x, 0, want, t, n);
    free(want);
    free(packed);
}

static void unpack_in_place_pair(op_case *c, yk_dtype t, yk_dtype wire)
{
    for (int i = 0; i < N_SIZES; i++) unpack_in_place_case(c, t, wire, sizes[i]);
}

static void a_packed_buffer_is_unpacked_in_its_place(void **state)
{
    for_each_pair(*state, unpack_in_place_pair);
}

/* ---- values ------------------------------------------------------------------------------- */

static void values_are_summed_in_order(void **state)
{
    op_case *c = *state;
    for (int n = 1; n <= 9; n += 4) {
        op_case_begin(c, YK_F32, "values of %d", n);
        yk_step_values all[9] = {0}, mine = {.lr = 3, .loss_scale = 5, .adam_steps = 9, .skip = 1};
        double loss_sum = 0, sum_squares = 0;
        for (int i = 0; i < n; i++) {
            all[i].loss_sum = ldexp(op_random_normal(c), (int)op_random_below(c, 40));
            all[i].sum_squares = ldexp(op_random_normal(c), (int)op_random_below(c, 40));
            all[i].n_tokens = ((int64_t)1 << 40) + i;
            all[i].non_finite = n == 5 && i == 2;
            loss_sum += all[i].loss_sum;
            sum_squares += all[i].sum_squares;
        }
        op_buffer *others = op_integers(c, n * (int64_t)(sizeof all[0] / 4), (const int32_t *)all);
        op_buffer *values = op_step_values(c, &mine);
        OP_RUN(c, yk_sum_values,
               &((yk_sum_values_args){.values = values->data, .all = others->data, .n = n}));
        yk_step_values got = op_step_values_got(values), want = mine;
        want.loss_sum = loss_sum;
        want.sum_squares = sum_squares;
        want.n_tokens = n * ((int64_t)1 << 40) + n * (n - 1) / 2;
        want.non_finite = n == 5;
        assert_memory_equal(&got, &want, sizeof got);
    }
}

/* ---- streams ------------------------------------------------------------------------------ */

/* What a reduction enqueues: find the greatest, pack by it, unpack by it. The host waits once. */
static void a_transfer_stream_takes_them(void **state)
{
    op_case *c = *state;
    op_case_begin(c, YK_F32, "transfer");
    int64_t n = 5000;
    yk_stream *s;
    assert_int_equal(yk_stream_create(c->device, YK_STREAM_TRANSFER, "reduce", &s), YK_OK);
    double *values = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) values[i] = ldexp((double)(i % 1000) - 500, -40);
    op_buffer *x = op_given(c, OP_INPUT, YK_F32, n, values), *back = op_output(c, YK_F32, n);
    op_buffer *packed = op_output(c, YK_F16, n), *greatest = op_output(c, YK_F32, 1);
    yk_wire_scale scale = {greatest->data, 2};
    yk_greatest_args g = {.greatest = greatest->data, .x = x->data, .n = n, .dtype = YK_F32};
    yk_pack_args p = {.packed = packed->data,
                      .x = x->data,
                      .scale = scale,
                      .n = n,
                      .dtype = YK_F32,
                      .wire = YK_F16};
    yk_sum_parts_args u = {.sum = back->data,
                           .parts = packed->data,
                           .n_parts = 1,
                           .scale = scale,
                           .n = n,
                           .dtype = YK_F32,
                           .wire = YK_F16};
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK); /* the inputs are there */
    assert_int_equal(yk_greatest(s, &g), YK_OK);
    assert_int_equal(yk_pack(s, &p), YK_OK);
    assert_int_equal(yk_sum_parts(s, &u), YK_OK);
    assert_int_equal(yk_stream_synchronize(s), YK_OK);
    op_collect(c);
    for (int64_t i = 0; i < n; i++) assert_true(back->got[i] == values[i]);
    yk_stream_destroy(s);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(the_greatest_finite_number_is_found),
        OP_TEST(packing_gives_the_bits_of_the_loops),
        OP_TEST(a_buffer_is_packed_into_its_own_front),
        OP_TEST(sums_give_the_bits_of_the_loops),
        OP_TEST(a_sum_goes_to_the_packed_front_of_its_own_part),
        OP_TEST(a_packed_buffer_is_unpacked_in_its_place),
        OP_TEST(values_are_summed_in_order),
        OP_TEST(a_transfer_stream_takes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
