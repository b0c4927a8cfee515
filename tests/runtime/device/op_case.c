/* tests/runtime/device/op_case.c - buffers between guard zones, and the comparison. */
#include "tests/runtime/device/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/device/tested_device.h"

#define GUARD_BYTES 256
#define GUARD_BYTE  0xa5
#define NAN_BYTE    0xff /* every dtype's NaN, and a double's; -1 as an integer */

int op_device_missing(void)
{
    return tested_device_missing() ? 77 : 0;
}

/* ---- the case ----------------------------------------------------------------------------- */

void op_case_open(op_case *c, int threads, uint64_t seed)
{
    *c = (op_case){.seed = seed, .random = seed, .digest = 14695981039346656037u};
    yk_device_spec spec;
    assert_int_equal(tested_device_open(threads, &c->device), YK_OK);
    assert_int_equal(yk_stream_create(c->device, YK_STREAM_COMPUTE, "test", &c->stream), YK_OK);
    assert_int_equal(yk_device_spec_find(tested_on_cuda() ? "h200" : "cpu", &spec), YK_OK);
    spec.cudnn = false; /* as an open device is at first */
    assert_int_equal(yk_device_open_dry(&spec, &c->dry), YK_OK);
    assert_int_equal(yk_stream_create(c->dry, YK_STREAM_COMPUTE, "dry", &c->dry_stream), YK_OK);
}

static void release_workspace(op_case *c)
{
    if (c->lent_bytes == 0) return;
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    int64_t all = c->lent_bytes + 2 * GUARD_BYTES;
    yk_device_free(c->device, YK_MEMORY_DEVICE, all, c->lent);
    yk_device_free(c->device, YK_MEMORY_PINNED, all, c->lent_image);
    c->lent_bytes = 0;
}

static int64_t allocation_bytes(const op_buffer *b)
{
    return b->bytes + 2 * GUARD_BYTES;
}

static void release_buffers(op_case *c)
{
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    for (int i = 0; i < c->n_buffers; i++) {
        op_buffer *b = &c->buffers[i];
        yk_device_free(c->device, YK_MEMORY_DEVICE, allocation_bytes(b), b->memory);
        free(b->host);
        free(b->value);
        free(b->got);
    }
    for (int i = 0; i < c->n_outs; i++) free(c->outs[i]);
    c->n_buffers = c->n_outs = 0;
    yk_stream_set_workspace(c->stream, NULL, 0);
}

void op_case_close(op_case *c)
{
    release_buffers(c);
    release_workspace(c);
    yk_stream_destroy(c->stream);
    yk_stream_destroy(c->dry_stream);
    yk_device_close(c->device);
    yk_device_close(c->dry);
}

static uint64_t fresh_seed(void)
{
    const char *given = getenv("YK_TEST_SEED");
    if (given) return strtoull(given, NULL, 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)getpid();
}

int op_case_setup(void **state)
{
    op_case *c = calloc(1, sizeof *c);
    if (!c) return -1;
    op_case_open(c, 3, fresh_seed());
    print_message("YK_TEST_SEED=%llu\n", (unsigned long long)c->seed);
    *state = c;
    return 0;
}

int op_case_teardown(void **state)
{
    op_case *c = *state;
    if (c->worst > 0)
        print_message("largest error: %.3f of its bound, at %s\n", c->worst, c->worst_at);
    op_case_close(c);
    free(c);
    return 0;
}

void op_case_begin(op_case *c, yk_dtype t, const char *label, ...)
{
    release_buffers(c);
    va_list list;
    va_start(list, label);
    int used = snprintf(c->label, sizeof c->label, "%s ", yk_dtype_name(t));
    vsnprintf(c->label + used, sizeof c->label - (size_t)used, label, list);
    va_end(list);
    /* A GPU's products round operands made inside an operation to the stored type, and add with
     * truncation. */
    c->arith = (oracle_arith){.eps = 0x1p-24};
    if (tested_on_cuda() && t != YK_F32)
        c->arith = (oracle_arith){.eps = 0x1p-23, .operand = 2 * oracle_unit_roundoff(t)};
    if (c->tf32 && t == YK_F32) /* 10 bits of fraction, the others cut off */
        c->arith = (oracle_arith){.eps = 0x1p-23, .factor = 0x1p-10};
    /* A fresh dry stream counts this case's workspace alone. */
    yk_stream_destroy(c->dry_stream);
    assert_int_equal(yk_stream_create(c->dry, YK_STREAM_COMPUTE, "dry", &c->dry_stream), YK_OK);
}

/* ---- random numbers ----------------------------------------------------------------------- */

/* Steele, Lea and Flood 2014: SplitMix64. */
uint64_t op_random(op_case *c)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t op_random_below(op_case *c, int64_t n)
{
    return (int64_t)(op_random(c) % (uint64_t)n);
}

static double op_random_unit(op_case *c)
{
    return ((double)(op_random(c) >> 11) + 0.5) * 0x1p-53;
}

double op_random_normal(op_case *c)
{
    double radius = sqrt(-2 * log(op_random_unit(c)));
    return radius * cos(6.283185307179586 * op_random_unit(c));
}

/* ---- buffers ------------------------------------------------------------------------------ */

/* Copies are waited for together: processes that share a GPU take turns at it, and each waits a turn. */
static void enqueue_copy(op_case *c, void *dst, const void *src, int64_t bytes, yk_copy_kind kind)
{
    assert_int_equal(yk_copy(c->stream, dst, src, bytes, kind), YK_OK);
}

static op_buffer *new_buffer(op_case *c, op_role role, yk_dtype t, int64_t n, int64_t bytes)
{
    assert_true(c->n_buffers < OP_MAX_BUFFERS);
    op_buffer *b = &c->buffers[c->n_buffers++];
    *b = (op_buffer){.role = role, .dtype = t, .n = n, .bytes = bytes};
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, allocation_bytes(b), &b->memory),
                     YK_OK);
    b->data = (uint8_t *)b->memory + GUARD_BYTES;
    b->host = malloc((size_t)allocation_bytes(b));
    b->value = calloc((size_t)n + 1, sizeof *b->value);
    b->got = calloc((size_t)n + 1, sizeof *b->got);
    assert_true(b->host && b->value && b->got);
    memset(b->host, GUARD_BYTE, (size_t)allocation_bytes(b));
    memset(b->host + GUARD_BYTES, NAN_BYTE, (size_t)bytes);
    return b;
}

static void upload(op_case *c, const op_buffer *b)
{
    enqueue_copy(c, b->memory, b->host, allocation_bytes(b), YK_COPY_HOST_TO_DEVICE);
}

op_buffer *op_given(op_case *c, op_role role, yk_dtype t, int64_t n, const double *values)
{
    op_buffer *b = new_buffer(c, role, t, n, n * yk_dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        b->value[i] = values[i];
        oracle_encode(t, values[i], b->host + GUARD_BYTES + i * yk_dtype_bytes(t));
    }
    upload(c, b);
    return b;
}

static op_buffer *normal_buffer(op_case *c, op_role role, yk_dtype t, int64_t n, double scale)
{
    double *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = oracle_round(t, op_random_normal(c) * scale);
    op_buffer *b = op_given(c, role, t, n, values);
    free(values);
    return b;
}

op_buffer *op_input(op_case *c, yk_dtype t, int64_t n, double scale)
{
    return normal_buffer(c, OP_INPUT, t, n, scale);
}

op_buffer *op_inout(op_case *c, yk_dtype t, int64_t n, double scale)
{
    return normal_buffer(c, OP_INOUT, t, n, scale);
}

op_buffer *op_integers(op_case *c, int64_t n, const int32_t *values)
{
    op_buffer *b = new_buffer(c, OP_INPUT, YK_I32, n, 4 * n);
    memcpy(b->host + GUARD_BYTES, values, (size_t)(4 * n));
    upload(c, b);
    return b;
}

op_buffer *op_indices(op_case *c, int64_t n, int64_t below)
{
    int32_t *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = (int32_t)op_random_below(c, below);
    op_buffer *b = op_integers(c, n, values);
    free(values);
    return b;
}

const int32_t *op_ints(const op_buffer *b)
{
    return (const int32_t *)(const void *)(b->host + GUARD_BYTES);
}

const uint8_t *op_bytes(const op_buffer *b)
{
    return b->host + GUARD_BYTES;
}

op_buffer *op_output(op_case *c, yk_dtype t, int64_t n)
{
    op_buffer *b = new_buffer(c, OP_OUTPUT, t, n, n * yk_dtype_bytes(t));
    upload(c, b);
    return b;
}

op_buffer *op_gradient(op_case *c, yk_dtype t, int64_t n, bool accumulate)
{
    return accumulate ? op_inout(c, t, n, 1) : op_output(c, t, n);
}

op_buffer *op_step_values(op_case *c, const yk_step_values *values)
{
    op_buffer *b = new_buffer(c, OP_INOUT, YK_I32, 0, sizeof *values);
    memcpy(b->host + GUARD_BYTES, values, sizeof *values);
    upload(c, b);
    return b;
}

yk_step_values op_step_values_got(const op_buffer *b)
{
    yk_step_values values;
    memcpy(&values, b->host + GUARD_BYTES, sizeof values);
    return values;
}

/* ---- running ------------------------------------------------------------------------------ */

static void make_workspace(op_case *c, int64_t bytes)
{
    void *memory, *image;
    int64_t all = bytes + 2 * GUARD_BYTES;
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, all, &memory), YK_OK);
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_PINNED, all, &image), YK_OK);
    c->lent = memory;
    c->lent_image = image;
    c->lent_bytes = bytes;
    memset(image, GUARD_BYTE, (size_t)all);
    memset(c->lent_image + GUARD_BYTES, NAN_BYTE, (size_t)bytes);
}

void op_lend_workspace(op_case *c)
{
    int64_t bytes = yk_stream_workspace_high(c->dry_stream);
    if (bytes != c->lent_bytes) release_workspace(c);
    yk_stream_set_workspace(c->stream, NULL, 0);
    if (bytes == 0) return;
    if (c->lent_bytes == 0) make_workspace(c, bytes);
    enqueue_copy(c, c->lent, c->lent_image, bytes + 2 * GUARD_BYTES, YK_COPY_HOST_TO_DEVICE);
    yk_stream_set_workspace(c->stream, c->lent + GUARD_BYTES, bytes);
}

static void check_guard(const op_case *c, const uint8_t *guard, const char *where)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != GUARD_BYTE)
            fail_msg("%s: written outside %s, guard byte %d", c->label, where, i);
}

/* The guards before and behind the workspace, into `guards`. */
static void fetch_workspace(op_case *c, uint8_t (*guards)[GUARD_BYTES])
{
    if (c->lent_bytes == 0) return;
    enqueue_copy(c, guards[0], c->lent, GUARD_BYTES, YK_COPY_DEVICE_TO_HOST);
    enqueue_copy(c, guards[1], c->lent + GUARD_BYTES + c->lent_bytes, GUARD_BYTES,
                 YK_COPY_DEVICE_TO_HOST);
}

static void check_workspace(const op_case *c, uint8_t (*guards)[GUARD_BYTES])
{
    if (c->lent_bytes == 0) return;
    check_guard(c, guards[0], "the workspace, before it");
    check_guard(c, guards[1], "the workspace, behind it");
}

static void digest_bytes(op_case *c, const uint8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) c->digest = (c->digest ^ bytes[i]) * 1099511628211u;
}

static uint8_t *fetch(op_case *c, const op_buffer *b)
{
    uint8_t *image = malloc((size_t)allocation_bytes(b));
    assert_non_null(image);
    enqueue_copy(c, image, b->memory, allocation_bytes(b), YK_COPY_DEVICE_TO_HOST);
    return image;
}

/* Check and keep what has been fetched; `image` is released. */
static void collect(op_case *c, op_buffer *b, int index, uint8_t *image)
{
    char where[40];
    bool same = memcmp(image + GUARD_BYTES, b->host + GUARD_BYTES, (size_t)b->bytes) == 0;
    memcpy(b->host, image, (size_t)allocation_bytes(b));
    free(image);
    snprintf(where, sizeof where, "buffer %d of the case", index);
    check_guard(c, b->host, where);
    check_guard(c, b->host + GUARD_BYTES + b->bytes, where);
    if (b->role == OP_INPUT && !same) fail_msg("%s: input %d was changed", c->label, index);
    if (b->role != OP_INPUT) digest_bytes(c, b->host + GUARD_BYTES, b->bytes);
    if (b->role == OP_INPUT || b->dtype == YK_I32 || c->bits_only) return;
    for (int64_t i = 0; i < b->n; i++)
        b->got[i] = oracle_decode(b->dtype, b->host + GUARD_BYTES + i * yk_dtype_bytes(b->dtype));
}

void op_collect(op_case *c)
{
    uint8_t *images[OP_MAX_BUFFERS], guards[2][GUARD_BYTES];
    for (int i = 0; i < c->n_buffers; i++) images[i] = fetch(c, &c->buffers[i]);
    fetch_workspace(c, guards);
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    for (int i = 0; i < c->n_buffers; i++) collect(c, &c->buffers[i], i, images[i]);
    check_workspace(c, guards);
}

/* ---- comparing ---------------------------------------------------------------------------- */

oracle_out op_out(op_case *c, int64_t n)
{
    oracle_out out;
    assert_true(c->n_outs + 2 <= 2 * OP_MAX_BUFFERS);
    out.value = calloc((size_t)n + 1, sizeof *out.value);
    out.bound = calloc((size_t)n + 1, sizeof *out.bound);
    assert_true(out.value && out.bound);
    c->outs[c->n_outs++] = out.value;
    c->outs[c->n_outs++] = out.bound;
    return out;
}

static void expect_number(op_case *c, const char *name, int64_t i, yk_dtype t, double got,
                          double want, double bound)
{
    double allowed = oracle_stored_bound(t, want, bound), error = fabs(got - want);
    if (bound == 0) {
        double exact = oracle_round(t, want);
        if (got == exact || (isnan(got) && isnan(exact))) return;
        fail_msg("%s: %s[%lld] is %.9g and not %.9g to the bit", c->label, name, (long long)i, got,
                 exact);
    }
    if (isinf(got) && isinf(oracle_round(t, want + copysign(allowed, got)))) return;
    if (!(error <= allowed))
        fail_msg("%s: %s[%lld] is %.9g, should be %.9g within %.3g, off by %.3g", c->label, name,
                 (long long)i, got, want, allowed, error);
    if (error / allowed > c->worst) {
        c->worst = error / allowed;
        snprintf(c->worst_at, sizeof c->worst_at, "%s: %s", c->label, name);
    }
}

void op_expect(op_case *c, const op_buffer *b, const char *name, oracle_out want)
{
    for (int64_t i = 0; i < b->n; i++)
        expect_number(c, name, i, b->dtype, b->got[i], want.value[i], want.bound[i]);
}

void op_expect_equal(op_case *c, const op_buffer *a, const op_buffer *b, const char *name)
{
    assert_int_equal(a->bytes, b->bytes);
    for (int64_t i = 0; i < a->bytes; i++)
        if (a->host[GUARD_BYTES + i] != b->host[GUARD_BYTES + i])
            fail_msg("%s: %s differs in bits at byte %lld", c->label, name, (long long)i);
}

void op_expect_unchanged(op_case *c, const op_buffer *b, const char *name)
{
    for (int64_t i = 0; i < b->n; i++)
        if (memcmp(&b->got[i], &b->value[i], sizeof(double)) != 0)
            fail_msg("%s: %s[%lld] became %.9g from %.9g", c->label, name, (long long)i, b->got[i],
                     b->value[i]);
}

void op_on_each_unit(op_case *c, void (*family)(op_case *c))
{
    yk_device_set_amx(c->device, false);
    family(c);
    if (tested_on_cuda()) return;
    yk_device_set_amx(c->device, true);
    family(c);
}

void op_be_smaller_card(op_case *c)
{
    if (!tested_on_cuda()) skip();
    assert_int_equal(yk_device_limit_shared(c->device, 99 * 1024), YK_OK);
}

void op_use_tf32(op_case *c)
{
    if (!tested_on_cuda()) skip();
    yk_device_set_tf32(c->device, true);
    c->tf32 = true;
}

static uint64_t digest_of(void (*family)(op_case *c), int threads, uint64_t seed)
{
    op_case c;
    op_case_open(&c, threads, seed);
    c.bits_only = true;
    family(&c);
    op_case_close(&c);
    return c.digest;
}

void op_expect_same_bits_again(void (*family)(op_case *c))
{
    uint64_t seed = fresh_seed(), first = digest_of(family, 1, seed);
    print_message("YK_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int threads = 2; threads <= (tested_on_cuda() ? 2 : 4); threads++)
        if (digest_of(family, threads, seed) != first)
            fail_msg("%d threads give other bits than 1 does", threads);
}
