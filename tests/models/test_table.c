/* tests/models/test_table.c - the parameter table is complete: nothing twice, nothing left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "models/table.h"
#include "tests/models/shapes.h"

typedef struct known {
    const char *preset;
    int64_t count; /* as the models' authors or transformers' num_parameters() give it */
} known;

static const known knowns[] = {
    {"gpt2-124m", 124439808},    {"gpt2-355m", 354823168},     {"gpt2-774m", 774030080},
    {"gpt2-1.5b", 1557611200},   {"llama2-7b", 6738415616},    {"llama3-8b", 8030261248},
    {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},  {"qwen2.5-14b", 14770033664}, {"qwen2.5-32b", 32763876352},
};
#define N_KNOWN (sizeof knowns / sizeof knowns[0])

static yk_model *create(const yk_model_shape *shape)
{
    yk_model *model;
    assert_int_equal(yk_model_create(shape, &model), YK_OK);
    return model;
}

static bool is_vocabulary(const yk_model *m, int i)
{
    return i == m->embed.tokens || i == m->head.out;
}

/* Elements of the table without the padding rows. */
static int64_t count_of_table(const yk_model *m)
{
    int64_t count = 0;
    for (int i = 0; i < m->n_params; i++) {
        const yk_param *p = &m->params[i];
        count += is_vocabulary(m, i) ? m->shape.vocab * p->shape[1] : yk_param_count(p);
    }
    return count;
}

static void presets_have_the_published_number_of_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KNOWN; i++) {
        yk_model_shape shape = shape_of_preset(knowns[i].preset);
        yk_model *m = create(&shape);
        print_message("%s\n", knowns[i].preset);
        assert_int_equal(yk_model_shape_count(&shape), knowns[i].count);
        assert_int_equal(count_of_table(m), knowns[i].count);
        yk_model_destroy(m);
    }
}

static void every_shape_counts_what_its_table_holds(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape shape = shape_tiny_at(i);
        yk_model *m = create(&shape);
        assert_int_equal(count_of_table(m), yk_model_shape_count(&shape));
        yk_model_destroy(m);
    }
}

static void names_are_unique_and_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape shape = shape_tiny_at(i);
        yk_model *m = create(&shape);
        for (int k = 0; k < yk_model_n_params(m); k++) {
            assert_true(strlen(yk_model_params(m)[k].name) > 0);
            assert_int_equal(yk_model_find_param(m, yk_model_params(m)[k].name), k);
        }
        assert_int_equal(yk_model_find_param(m, "block.0.nothing"), -1);
        yk_model_destroy(m);
    }
}

static void units_are_in_order_and_only_a_tied_embedding_is_shared(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape shape = shape_tiny_at(i);
        yk_model *m = create(&shape);
        assert_int_equal(yk_model_n_units(m), shape.layers + 2);
        for (int k = 0; k < m->n_params; k++) {
            const yk_param *p = &m->params[k];
            assert_true(p->unit >= (k ? m->params[k - 1].unit : 0) && p->unit < m->n_units);
            bool shared = shape.tied && k == m->embed.tokens;
            assert_int_equal(p->shared_unit, shared ? m->n_units - 1 : -1);
        }
        assert_int_equal(m->params[m->n_params - 1].unit, m->n_units - 1);
        yk_model_destroy(m);
    }
}

static void matrices_decay_and_vectors_do_not(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape shape = shape_tiny_at(i);
        yk_model *m = create(&shape);
        for (int k = 0; k < m->n_params; k++) {
            const yk_param *p = &m->params[k];
            const char *dot = strrchr(p->name, '.');
            bool vector = strstr(p->name, "norm") || strcmp(dot, ".bias") == 0;
            assert_int_equal(p->n_dims, vector ? 1 : 2);
            assert_int_equal(p->decay, !vector);
        }
        yk_model_destroy(m);
    }
}

static void a_matrix_of_one_column_is_still_a_matrix(void **state)
{
    (void)state;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    shape.width = 1;
    yk_model *m = create(&shape);
    const yk_param *p = &m->params[m->blocks[0].qkv.weight];
    assert_int_equal(p->shape[1], 1);
    assert_int_equal(p->n_dims, 2);
    assert_true(p->decay);
    yk_model_destroy(m);
}

static void the_vocabulary_is_padded_to_whole_units(void **state)
{
    (void)state;
    yk_model_shape shape = shape_of_preset("gpt2-124m");
    assert_int_equal(shape.vocab, 50257);
    assert_int_equal(shape.vocab_rows, 50304);
    yk_model *m = create(&shape);
    assert_int_equal(m->params[m->embed.tokens].shape[0], 50304);
    yk_model_destroy(m);
    yk_model_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_number_of_parameters),
        cmocka_unit_test(every_shape_counts_what_its_table_holds),
        cmocka_unit_test(names_are_unique_and_found_again),
        cmocka_unit_test(units_are_in_order_and_only_a_tied_embedding_is_shared),
        cmocka_unit_test(matrices_decay_and_vectors_do_not),
        cmocka_unit_test(a_matrix_of_one_column_is_still_a_matrix),
        cmocka_unit_test(the_vocabulary_is_padded_to_whole_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
