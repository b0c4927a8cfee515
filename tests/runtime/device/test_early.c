/* tests/runtime/device/test_early.c - operations that are enqueued at once take each other's results.
 *
 * A GPU may start a kernel before the one before it has ended, and the kernel has to wait for it by
 * itself. So a chain of operations, each of which reads what the one before has written, must give the
 * bits that it gives when each is waited for; at once, and as a graph. What a kernel that does not wait
 * would read instead is NaN.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/device/graph.h"
#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/tested_device.h"

enum { COLS = 1600, VOCAB = 301, NORMS = 5 };

typedef enum way { WAITING, AT_ONCE, AS_A_GRAPH } way;

typedef struct chain {
    op_buffer *x, *y[2], *weight, *rstd, *tokens;
    op_buffer *sum, *table; /* results */
    int64_t rows;
} chain;

static chain make_chain(op_case *c)
{
    chain a = {.rows = tested_on_cuda() ? 4096 : 20};
    op_case_begin(c, YK_BF16, "a chain of R=%d C=%d", (int)a.rows, COLS);
    a.x = op_input(c, YK_BF16, a.rows * COLS, 1);
    for (int i = 0; i < 2; i++) a.y[i] = op_output(c, YK_BF16, a.rows * COLS);
    a.weight = op_input(c, YK_BF16, COLS, 1);
    a.rstd = op_output(c, YK_F32, a.rows);
    a.tokens = op_indices(c, a.rows, VOCAB);
    a.sum = op_output(c, YK_F32, COLS);
    a.table = op_output(c, YK_F32, VOCAB * COLS);
    return a;
}

static void wait_if(yk_stream *stream, way w)
{
    if (w == WAITING) assert_int_equal(yk_stream_synchronize(stream), YK_OK);
}

static void enqueue(const chain *a, yk_stream *stream, way w)
{
    const void *from = a->x->data;
    for (int i = 0; i < NORMS; i++) {
        void *to = a->y[i % 2]->data;
        yk_norm_forward_args norm = {.y = to,
                                     .rstd = a->rstd->data,
                                     .x = from,
                                     .weight = a->weight->data,
                                     .rows = a->rows,
                                     .cols = COLS,
                                     .eps = 1e-5f,
                                     .kind = YK_NORM_RMS,
                                     .dtype = YK_BF16};
        assert_int_equal(yk_norm_forward(stream, &norm), YK_OK);
        wait_if(stream, w);
        from = to;
    }
    yk_linear_backward_weight_args sums = {.dbias = a->sum->data,
                                           .dy = from,
                                           .m = a->rows,
                                           .n = COLS,
                                           .dtype = YK_BF16,
                                           .grad_dtype = YK_F32};
    assert_int_equal(yk_linear_backward_weight(stream, &sums), YK_OK);
    wait_if(stream, w);
    yk_embed_backward_args embed = {.dwte = a->table->data,
                                    .dy = from,
                                    .tokens = a->tokens->data,
                                    .rows = a->rows,
                                    .cols = COLS,
                                    .vocab = VOCAB,
                                    .dtype = YK_BF16,
                                    .grad_dtype = YK_F32};
    assert_int_equal(yk_embed_backward(stream, &embed), YK_OK);
    wait_if(stream, w);
    embed.accumulate_wte = true;
    assert_int_equal(yk_embed_backward(stream, &embed), YK_OK);
    wait_if(stream, w);
}

static void run(op_case *c, const chain *a, way w)
{
    yk_graph *graph = NULL;
    if (w == AS_A_GRAPH) assert_int_equal(yk_stream_capture_begin(c->stream), YK_OK);
    enqueue(a, c->stream, w);
    if (w == AS_A_GRAPH) {
        assert_int_equal(yk_stream_capture_end(c->stream, &graph), YK_OK);
        assert_int_equal(yk_graph_launch(graph, c->stream), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    yk_graph_destroy(graph);
}

/* NaN to all that the chain writes. */
static void poison(op_case *c, const chain *a)
{
    op_buffer *written[] = {a->y[0], a->y[1], a->rstd, a->sum, a->table};
    for (int i = 0; i < 5; i++) {
        void *nan = malloc((size_t)written[i]->bytes);
        assert_non_null(nan);
        memset(nan, 0xff, (size_t)written[i]->bytes);
        assert_int_equal(
            yk_copy(c->stream, written[i]->data, nan, written[i]->bytes, YK_COPY_HOST_TO_DEVICE),
            YK_OK);
        assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
        free(nan);
    }
}

/* The results, for the caller to free. */
static uint8_t *results(op_case *c, const chain *a)
{
    uint8_t *got = malloc((size_t)(a->sum->bytes + a->table->bytes));
    assert_non_null(got);
    assert_int_equal(yk_copy(c->stream, got, a->sum->data, a->sum->bytes, YK_COPY_DEVICE_TO_HOST),
                     YK_OK);
    assert_int_equal(yk_copy(c->stream, got + a->sum->bytes, a->table->data, a->table->bytes,
                             YK_COPY_DEVICE_TO_HOST),
                     YK_OK);
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    return got;
}

static void expect_bits_of_waiting(op_case *c, way w)
{
    chain a = make_chain(c);
    enqueue(&a, c->dry_stream, AT_ONCE);
    op_lend_workspace(c);
    poison(c, &a);
    run(c, &a, WAITING);
    uint8_t *want = results(c, &a);
    for (int i = 0; i < 4; i++) {
        poison(c, &a);
        run(c, &a, w);
        uint8_t *got = results(c, &a);
        assert_memory_equal(got, want, (size_t)(a.sum->bytes + a.table->bytes));
        free(got);
    }
    free(want);
}

static void operations_enqueued_at_once_take_each_others_results(void **state)
{
    expect_bits_of_waiting(*state, AT_ONCE);
}

static void operations_of_a_graph_take_each_others_results(void **state)
{
    op_case *c = *state;
    if (!yk_device_has_graphs(c->device)) skip();
    expect_bits_of_waiting(c, AS_A_GRAPH);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(operations_enqueued_at_once_take_each_others_results),
        OP_TEST(operations_of_a_graph_take_each_others_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
