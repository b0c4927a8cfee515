/* tests/models/test_cache.c - generation over a key-value cache gives the logits of the whole text
 * run through at once, however it is cut into pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/models/rig.h"
#include "tests/models/shapes.h"
#include "tests/models/values.h"

#define LENGTH 16 /* all positions that the tiny shapes have */

/* Logits after the first `n` tokens, run in pieces of 1 to `longest` tokens. */
static void run_in_pieces(rig *r, const int32_t *tokens, int64_t n, int64_t longest, double *logits)
{
    rig_restart(r);
    for (int64_t at = 0, piece = 1; at < n; at += piece) {
        piece = piece % longest + 1;
        if (piece > n - at) piece = n - at;
        rig_generate(r, tokens + at, piece, logits);
    }
}

/* The distances that the types' rounding leaves, by dtype. */
static const double bounds[YK_N_FLOAT_DTYPES] = {2e-6, 0.02, 0.003};

static void pieces_of_any_length_give_the_same_logits(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
            rig r;
            yk_model_shape shape = shape_tiny_at(i);
            double *whole = calloc((size_t)shape.vocab_rows, sizeof *whole);
            double *pieces = calloc((size_t)shape.vocab_rows, sizeof *pieces);
            rig_open(&r, &shape, &(rig_options){.dtype = (yk_dtype)t});
            double **p = values_of_params(r.model, 7);
            values_batch b = values_batch_create(r.model, 1, LENGTH, 2);
            rig_set_params(&r, p);
            for (int64_t n = 1; n <= LENGTH; n++) {
                run_in_pieces(&r, b.tokens, n, 1 + n % 5, pieces);
                rig_restart(&r);
                rig_generate(&r, b.tokens, n, whole);
                double distance = values_distance(pieces, whole, shape.vocab_rows);
                if (!(distance <= bounds[t]))
                    fail_msg("%s: %s: %lld tokens: off by %g", shape_tiny_name(i),
                             yk_dtype_name((yk_dtype)t), (long long)n, distance);
            }
            free(whole);
            free(pieces);
            values_free(r.model, p);
            values_batch_destroy(&b);
            rig_close(&r);
        }
    }
}

static void what_is_behind_the_cache_is_not_seen(void **state)
{
    (void)state;
    rig r;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    double *before = calloc((size_t)shape.vocab_rows, sizeof *before);
    double *after = calloc((size_t)shape.vocab_rows, sizeof *after);
    rig_open(&r, &shape, &(rig_options){0});
    double **p = values_of_params(r.model, 7);
    values_batch b = values_batch_create(r.model, 1, LENGTH, 2);
    rig_set_params(&r, p);
    rig_generate(&r, b.tokens, 4, before);
    rig_generate(&r, b.tokens + 4, LENGTH - 4, after); /* fills the cache to its end */
    rig_restart(&r);
    rig_generate(&r, b.tokens, 4, after);
    assert_memory_equal(before, after, (size_t)shape.vocab_rows * sizeof *before);
    free(before);
    free(after);
    values_free(r.model, p);
    values_batch_destroy(&b);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_length_give_the_same_logits),
        cmocka_unit_test(what_is_behind_the_cache_is_not_seen),
    };
    if (rig_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
