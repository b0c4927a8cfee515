/* tests/runtime/device/test_attention.c - attention and its gradient against the oracle.
 *
 * Bounds. A score has (D + 2) eps of its absolute terms; a probability that, the rounding of its
 * exponent and 4 eps; a softmax over n positions twice as much and (2n + 6) eps; sums over n
 * positions n eps. Backward: the probability again, (D + 2) eps of the terms of dy v and dy y, and
 * sums over the positions that see a key for each head of its group. tests/oracle/attention.c has
 * them pair by pair.
 */
#include <math.h>

#include "tests/runtime/device/attention_case.h"

/* The last two have more items than a backend has places for, and more keys than it takes at once. */
static const attention_shape shapes[] = {{1, 1, 1, 1, 1},    {1, 3, 1, 1, 4},   {2, 17, 3, 1, 6},
                                         {1, 129, 2, 2, 8},  {2, 65, 4, 2, 16}, {1, 127, 6, 3, 32},
                                         {1, 257, 2, 1, 64}, {5, 9, 16, 8, 4},  {1, 530, 2, 1, 24}};
#define N_SHAPES    9
#define MEAN_LENGTH 7 /* of documents; some are of one position */

/* ---- forward ------------------------------------------------------------------------------ */

/* `size` of q, k and v: a large one makes scores of some hundreds, which only a softmax that
 * subtracts the greatest survives. */
static void forward_case(op_case *c, yk_dtype t, attention_shape s, bool with_documents,
                         double size)
{
    int64_t rows = attention_rows(s), width = attention_width(s);
    op_case_begin(c, t, "attention_forward B=%d T=%d H=%d G=%d D=%d documents=%d size=%g",
                  (int)s.batch, (int)s.seq_len, (int)s.heads, (int)s.kv_heads, (int)s.head_size,
                  with_documents, size);
    op_buffer *qkv = op_input(c, t, rows * attention_qkv_width(s), size);
    op_buffer *documents = attention_documents(c, s, with_documents ? MEAN_LENGTH : 0);
    op_buffer *y = op_output(c, t, rows * width), *lse = op_output(c, YK_F32, rows * s.heads);
    yk_attention_forward_args a = attention_forward_args(s, t, documents);
    a.y = y->data;
    a.lse = lse->data;
    a.qkv = qkv->data;
    OP_RUN(c, yk_attention_forward, &a);
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * width), want_lse = op_out(c, rows * s.heads);
    oracle_attention shape64 = attention_oracle(s, documents);
    oracle_attention_forward(&c->arith, want, want_lse, qkv->value, &shape64);
    op_expect(c, lse, "lse", want_lse);
    op_expect(c, y, "y", want);
}

static void attention_forward_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int documents = 0; documents < 2; documents++)
                forward_case(c, op_dtypes[d], shapes[i], documents, 1);
}

/* ---- backward ----------------------------------------------------------------------------- */

static void backward_case(op_case *c, yk_dtype t, attention_shape s, bool with_documents)
{
    int64_t rows = attention_rows(s), width = attention_width(s);
    op_case_begin(c, t, "attention_backward B=%d T=%d H=%d G=%d D=%d documents=%d", (int)s.batch,
                  (int)s.seq_len, (int)s.heads, (int)s.kv_heads, (int)s.head_size, with_documents);
    op_buffer *qkv = op_input(c, t, rows * attention_qkv_width(s), 1);
    op_buffer *documents = attention_documents(c, s, with_documents ? MEAN_LENGTH : 0);
    oracle_attention shape64 = attention_oracle(s, documents);
    /* y and lse as a forward pass stores them. */
    oracle_out forward = op_out(c, rows * width), forward_lse = op_out(c, rows * s.heads);
    oracle_attention_forward(NULL, forward, forward_lse, qkv->value, &shape64);
    for (int64_t i = 0; i < rows * width; i++) forward.value[i] = oracle_round(t, forward.value[i]);
    for (int64_t i = 0; i < rows * s.heads; i++)
        forward_lse.value[i] = oracle_round(YK_F32, forward_lse.value[i]);
    op_buffer *y = op_given(c, OP_INPUT, t, rows * width, forward.value);
    op_buffer *lse = op_given(c, OP_INPUT, YK_F32, rows * s.heads, forward_lse.value);
    op_buffer *dy = op_input(c, t, rows * width, 1);
    op_buffer *dqkv = op_output(c, t, rows * attention_qkv_width(s));
    yk_attention_backward_args a = attention_backward_args(s, t, documents);
    a.dqkv = dqkv->data;
    a.dy = dy->data;
    a.y = y->data;
    a.lse = lse->data;
    a.qkv = qkv->data;
    OP_RUN(c, yk_attention_backward, &a);
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * attention_qkv_width(s));
    oracle_attention_backward(&c->arith, want, dy->value, y->value, lse->value, qkv->value,
                              &shape64);
    op_expect(c, dqkv, "dqkv", want);
}

static void attention_backward_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int documents = 0; documents < 2; documents++)
                backward_case(c, op_dtypes[d], shapes[i], documents);
}

/* ---- with a cache ------------------------------------------------------------------------- */

/* A cache whose rows from `past` on hold NaN: nothing may come of them. */
static op_buffer *cache_of(op_case *c, yk_dtype t, attention_shape s, int64_t past,
                           int64_t capacity)
{
    int64_t width = s.kv_heads * s.head_size, n = s.batch * capacity * width;
    double *values = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++)
        values[i] =
            i / width % capacity < past ? oracle_round(t, op_random_normal(c)) : (double)NAN;
    return op_given(c, OP_INOUT, t, n, values);
}

/* The rows past .. past+T-1 are those of qkv from column `first_head`; the others stay. */
static void expect_cache(op_case *c, const op_buffer *cache, const char *name, const op_buffer *qkv,
                         int64_t first_head, attention_shape s, int64_t past, int64_t capacity)
{
    int64_t width = s.kv_heads * s.head_size;
    oracle_out want = op_out(c, cache->n);
    for (int64_t i = 0; i < cache->n; i++) {
        int64_t b = i / (capacity * width), t = i / width % capacity - past, col = i % width;
        bool written = t >= 0 && t < s.seq_len;
        int64_t from =
            (b * s.seq_len + t) * attention_qkv_width(s) + first_head * s.head_size + col;
        want.value[i] = written ? qkv->value[from] : cache->value[i];
    }
    op_expect(c, cache, name, want);
}

static void cached_case(op_case *c, yk_dtype t, attention_shape s, int64_t past, int64_t spare)
{
    int64_t rows = attention_rows(s), width = attention_width(s);
    int64_t capacity = past + s.seq_len + spare;
    op_case_begin(c, t, "attention_cached B=%d T=%d past=%d S=%d H=%d G=%d D=%d", (int)s.batch,
                  (int)s.seq_len, (int)past, (int)capacity, (int)s.heads, (int)s.kv_heads,
                  (int)s.head_size);
    op_buffer *qkv = op_input(c, t, rows * attention_qkv_width(s), 1);
    op_buffer *k = cache_of(c, t, s, past, capacity), *v = cache_of(c, t, s, past, capacity);
    op_buffer *y = op_output(c, t, rows * width);
    OP_RUN(c, yk_attention_cached,
           &((yk_attention_cached_args){.y = y->data,
                                        .k_cache = k->data,
                                        .v_cache = v->data,
                                        .qkv = qkv->data,
                                        .batch = s.batch,
                                        .seq_len = s.seq_len,
                                        .past = past,
                                        .capacity = capacity,
                                        .heads = s.heads,
                                        .kv_heads = s.kv_heads,
                                        .head_size = s.head_size,
                                        .scale = attention_scale(s),
                                        .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * width);
    oracle_attention shape64 = attention_oracle(s, NULL);
    oracle_attention_cached(&c->arith, want, k->value, v->value, qkv->value, &shape64, past,
                            capacity);
    op_expect(c, y, "y", want);
    expect_cache(c, k, "k_cache", qkv, s.heads, s, past, capacity);
    expect_cache(c, v, "v_cache", qkv, s.heads + s.kv_heads, s, past, capacity);
}

static void attention_cached_family(op_case *c)
{
    static const attention_shape steps[] = {{1, 1, 1, 1, 2}, {2, 1, 4, 2, 8}, {3, 5, 3, 1, 17}};
    static const int64_t pasts[] = {0, 1, 17, 129};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 3; i++)
            for (int p = 0; p < 4; p++)
                for (int spare = 0; spare < 4; spare += 3)
                    cached_case(c, op_dtypes[d], steps[i], pasts[p], spare);
}

/* ---- tests -------------------------------------------------------------------------------- */

static void attention_forward_agrees_with_the_oracle(void **state)
{
    attention_forward_family(*state);
}

static void attention_forward_survives_large_scores(void **state)
{
    for (int d = 0; d < 3; d++)
        forward_case(*state, op_dtypes[d], (attention_shape){1, 33, 2, 1, 16}, false, 12);
}

static void attention_backward_agrees_with_the_oracle(void **state)
{
    attention_backward_family(*state);
}

static void attention_cached_agrees_with_the_oracle(void **state)
{
    attention_cached_family(*state);
}

static void attention_of_nothing_does_nothing(void **state)
{
    forward_case(*state, YK_F32, (attention_shape){0, 5, 2, 1, 4}, false, 1);
    forward_case(*state, YK_F32, (attention_shape){2, 0, 2, 1, 4}, false, 1);
    backward_case(*state, YK_F32, (attention_shape){0, 5, 2, 1, 4}, false);
    cached_case(*state, YK_F32, (attention_shape){2, 0, 2, 1, 4}, 3, 1);
}

static void attention_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(attention_forward_family);
    op_expect_same_bits_again(attention_backward_family);
    op_expect_same_bits_again(attention_cached_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(attention_forward_agrees_with_the_oracle),
        OP_TEST(attention_forward_survives_large_scores),
        OP_TEST(attention_backward_agrees_with_the_oracle),
        OP_TEST(attention_cached_agrees_with_the_oracle),
        OP_TEST(attention_of_nothing_does_nothing),
        cmocka_unit_test(attention_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
