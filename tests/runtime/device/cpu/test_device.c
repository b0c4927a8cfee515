/* tests/runtime/device/cpu/test_device.c - opening the cpu, and the bits of its conversions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/ops.h"

static void a_number_of_threads_out_of_range_is_refused(void **state)
{
    yk_device *d = (yk_device *)(void *)state;
    assert_int_equal(yk_device_open_cpu(-1, &d), YK_EINVAL);
    assert_int_equal(yk_device_open_cpu(1025, &d), YK_EINVAL);
    assert_ptr_equal(d, state); /* untouched */
}

static void the_description_is_one_to_plan_with(void **state)
{
    (void)state;
    yk_device *one, *two, *all;
    assert_int_equal(yk_device_open_cpu(1, &one), YK_OK);
    assert_int_equal(yk_device_open_cpu(2, &two), YK_OK);
    assert_int_equal(yk_device_open_cpu(0, &all), YK_OK);
    const yk_device_spec *s = yk_device_get_spec(one), *t = yk_device_get_spec(two);
    assert_int_equal(yk_device_get_kind(one), YK_DEVICE_CPU);
    assert_int_equal(s->kind, YK_DEVICE_CPU);
    assert_true(s->name[0] != 0);
    assert_true(s->memory_bytes > INT64_C(1) << 28);
    assert_true(s->memory_rate > 0 && s->host_link_rate > 0 && s->launch_s > 0);
    for (int i = 0; i < YK_N_FLOAT_DTYPES; i++) {
        assert_true(s->matmul_flops[i] > 1e9 && s->attention_flops[i] > 1e9);
        assert_true(t->matmul_flops[i] == 2 * s->matmul_flops[i]);
    }
    assert_true(yk_device_get_spec(all)->matmul_flops[0] >= s->matmul_flops[0]);
    yk_device_close(all);
    yk_device_close(two);
    yk_device_close(one);
}

/* ---- conversions -------------------------------------------------------------------------- */

typedef struct stream {
    yk_device *device;
    yk_stream *stream;
} stream;

static int open_stream(void **state)
{
    static stream s;
    if (yk_device_open_cpu(2, &s.device) != YK_OK) return 1;
    *state = &s;
    return yk_stream_create(s.device, YK_STREAM_COMPUTE, "test", &s.stream) != YK_OK;
}

static int close_stream(void **state)
{
    stream *s = *state;
    yk_stream_destroy(s->stream);
    yk_device_close(s->device);
    return 0;
}

static void cast(const stream *s, void *dst, yk_dtype to, const void *src, yk_dtype from, int64_t n)
{
    yk_cast_args a = {.dst = dst, .src = src, .n = n, .dst_dtype = to, .src_dtype = from};
    assert_int_equal(yk_cast(s->stream, &a), YK_OK);
}

/* Signalling NaNs and payloads too, which vector instructions treat in a way of their own. */
static void every_half_widens_to_the_bits_of_dtype_h(void **state)
{
    static uint16_t halves[65536];
    static float got[65536];
    for (int i = 0; i < 65536; i++) halves[i] = (uint16_t)i;
    for (int t = YK_BF16; t <= YK_F16; t++) {
        cast(*state, got, YK_F32, halves, (yk_dtype)t, 65536);
        for (int i = 0; i < 65536; i++) {
            float want = t == YK_BF16 ? yk_bf16_to_f32(halves[i]) : yk_f16_to_f32(halves[i]);
            assert_memory_equal(&got[i], &want, 4);
        }
    }
}

/* Every 4099th pattern of 32 bits, and all of those near a boundary of fp16. */
static void floats_narrow_to_the_bits_of_dtype_h(void **state)
{
    enum { N = 1 << 20, NEAR = 8192 };
    static const uint32_t edges[] = {0x00000000, 0x33000000, 0x33800000, 0x387fc000, 0x38800000,
                                     0x477fe000, 0x477ff000, 0x7f7f8000, 0x7f800000, 0x7fc00000};
    float *in = malloc(N * sizeof *in);
    uint16_t *got = malloc(N * sizeof *got);
    assert_true(in && got);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t near = edges[i / NEAR % 10] + i % NEAR - NEAR / 2 + (i / NEAR / 10 % 2 << 31);
        uint32_t bits = i < 20 * NEAR ? near : i * 4099u;
        memcpy(&in[i], &bits, 4);
    }
    for (int t = YK_BF16; t <= YK_F16; t++) {
        cast(*state, got, (yk_dtype)t, in, YK_F32, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(got[i], t == YK_BF16 ? yk_f32_to_bf16(in[i]) : yk_f32_to_f16(in[i]));
    }
    free(got);
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_of_threads_out_of_range_is_refused),
        cmocka_unit_test(the_description_is_one_to_plan_with),
        cmocka_unit_test_setup_teardown(every_half_widens_to_the_bits_of_dtype_h, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(floats_narrow_to_the_bits_of_dtype_h, open_stream,
                                        close_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
