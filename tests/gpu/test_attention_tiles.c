/* tests/gpu/test_attention_tiles.c - attention on a GPU at every padded head size, over several tiles of
 * queries and keys, held against the oracle.
 *
 * tests/runtime/device/test_attention.c has the small and odd shapes; these are the ones that reach every
 * kernel, cross tiles, let blocks wait for each other and use places again.
 *
 * ctest: TIMEOUT 600
 */
#include "tests/runtime/device/attention_case.h"
#include "tests/runtime/device/tested_device.h"

static void every_head_size(op_case *c)
{
    static const int64_t sizes[] = {8, 32, 40, 64, 72, 96, 112, 128, 136, 192, 200, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = YK_BF16; d <= YK_F16; d++) {
            attention_case(c, (yk_dtype)d, (attention_shape){1, 300, 2, 2, sizes[i]}, 0);
            attention_case(c, (yk_dtype)d, (attention_shape){2, 193, 2, 1, sizes[i]}, 40);
        }
}

static void attention_of_every_head_size_agrees_with_the_oracle(void **state)
{
    every_head_size(*state);
}

static void long_sequences(op_case *c)
{
    attention_case(c, YK_BF16, (attention_shape){1, 1024, 3, 3, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 1000, 4, 2, 64}, 300);
    attention_case(c, YK_F16, (attention_shape){1, 777, 2, 1, 128}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 640, 3, 1, 128}, 100);
}

static void attention_of_long_sequences_agrees_with_the_oracle(void **state)
{
    long_sequences(*state);
}

/* More heads than there are places for sums under way, so that places are used again; and than start
 * in one round, of which a shorter one is the last. */
static void many_heads(op_case *c)
{
    attention_case(c, YK_BF16, (attention_shape){12, 129, 64, 64, 16}, 0);
    attention_case(c, YK_BF16, (attention_shape){12, 130, 64, 16, 16}, 50);
    attention_case(c, YK_BF16, (attention_shape){9, 130, 65, 13, 16}, 50);
}

static void attention_of_many_heads_agrees_with_the_oracle(void **state)
{
    many_heads(*state);
}

/* Heads of 64 and 128 then take other tiles in the backward pass. */
static void smaller_card(op_case *c)
{
    op_be_smaller_card(c);
    for (int64_t size = 64; size <= 128; size += 64)
        for (int d = YK_BF16; d <= YK_F16; d++) {
            attention_case(c, (yk_dtype)d, (attention_shape){1, 300, 2, 2, size}, 0);
            attention_case(c, (yk_dtype)d, (attention_shape){2, 193, 2, 1, size - 8}, 40);
        }
    long_sequences(c);
    attention_case(c, YK_BF16, (attention_shape){3, 129, 64, 64, 64}, 0);
    attention_case(c, YK_F16, (attention_shape){3, 130, 64, 16, 64}, 50);
}

static void attention_on_a_smaller_card_agrees_with_the_oracle(void **state)
{
    smaller_card(*state);
}

static void attention_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(every_head_size);
    op_expect_same_bits_again(long_sequences);
    op_expect_same_bits_again(many_heads);
    if (tested_on_cuda()) op_expect_same_bits_again(smaller_card);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(attention_of_every_head_size_agrees_with_the_oracle),
        OP_TEST(attention_of_long_sequences_agrees_with_the_oracle),
        OP_TEST(attention_of_many_heads_agrees_with_the_oracle),
        OP_TEST(attention_on_a_smaller_card_agrees_with_the_oracle),
        cmocka_unit_test(attention_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
