/* tests/runtime/device/cuda/test_rounds.c - the order in which attention's blocks start, for many shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/cuda/rounds.h"

#define MOST_HEADS 400
#define MOST_TILES 600

static const int all_heads[] = {1,  2,  3,  5,  7,  12, 13,  24,  25,  28,  33,
                                40, 56, 64, 65, 96, 97, 131, 224, 384, 399, 400};
static const int all_tiles[] = {1, 2, 3, 5, 8, 9, 16, 31, 32, 33, 64, 127, 256, 511, 512, 513, 600};

/* A shape and its rounds. */
typedef struct round_case {
    int heads, n_heads, n_tiles, round_heads; /* heads of a sequence and of the batch */
} round_case;

static round_case round_case_of(int heads, int n_heads, int n_tiles)
{
    return (round_case){heads, n_heads, n_tiles, yk_cuda_round_heads(n_heads, n_tiles)};
}

/* A block's tile, and its head's number in the whole batch. */
static yk_cuda_place place(const round_case *r, int block, int *head_out)
{
    yk_cuda_place p = yk_cuda_place_of(block, r->n_tiles, r->heads, r->n_heads, r->round_heads);
    assert_in_range(p.head, 0, r->heads - 1);
    *head_out = p.batch * r->heads + p.head;
    return p;
}

typedef void checker(const round_case *r);

static void every_shape(checker *check)
{
    for (size_t h = 0; h < sizeof all_heads / sizeof *all_heads; h++)
        for (size_t t = 0; t < sizeof all_tiles / sizeof *all_tiles; t++)
            for (int heads = 1; heads <= all_heads[h]; heads += 1 + all_heads[h] / 3) {
                if (all_heads[h] % heads) continue;
                round_case r = round_case_of(heads, all_heads[h], all_tiles[t]);
                check(&r);
            }
}

static void each_once(const round_case *r)
{
    static unsigned char seen[MOST_HEADS][MOST_TILES];
    memset(seen, 0, sizeof seen);
    for (int block = 0; block < r->n_heads * r->n_tiles; block++) {
        int head, tile = place(r, block, &head).tile;
        assert_in_range(head, 0, r->n_heads - 1);
        assert_in_range(tile, 0, r->n_tiles - 1);
        assert_int_equal(seen[head][tile]++, 0);
    }
}

static void every_tile_of_every_head_has_one_block(void **state)
{
    (void)state;
    every_shape(each_once);
}

/* Round after round, and in each all heads' longest tiles before their next ones. */
static void longest_first(const round_case *r)
{
    int block = 0;
    for (int begin = 0; begin < r->n_heads; begin += r->round_heads) {
        int end = (int)yk_min(begin + r->round_heads, r->n_heads);
        for (int tile = r->n_tiles - 1; tile >= 0; tile--)
            for (int wanted = begin; wanted < end; wanted++) {
                int head, got = place(r, block++, &head).tile;
                assert_int_equal(head, wanted);
                assert_int_equal(got, tile);
            }
    }
}

static void the_longest_tiles_of_all_heads_of_a_round_start_first(void **state)
{
    (void)state;
    every_shape(longest_first);
}

static void enough_but_not_many(const round_case *r)
{
    int64_t blocks = (int64_t)r->round_heads * r->n_tiles, all = (int64_t)r->n_heads * r->n_tiles;
    assert_true(blocks >= yk_min(all, YK_CUDA_ROUND_BLOCKS));
    assert_true(blocks <= 2 * YK_CUDA_ROUND_BLOCKS + r->n_tiles);
}

static void a_round_has_blocks_enough_and_no_more_heads_than_it_needs(void **state)
{
    (void)state;
    every_shape(enough_but_not_many);
}

static void the_last_blocks_of_all_are_the_shortest(void **state)
{
    (void)state;
    round_case r = round_case_of(32, 64, 32);
    assert_int_equal(r.round_heads, 16);
    for (int last = 1; last <= 16; last++) {
        int head;
        assert_int_equal(place(&r, 64 * 32 - last, &head).tile, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_of_every_head_has_one_block),
        cmocka_unit_test(the_longest_tiles_of_all_heads_of_a_round_start_first),
        cmocka_unit_test(a_round_has_blocks_enough_and_no_more_heads_than_it_needs),
        cmocka_unit_test(the_last_blocks_of_all_are_the_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
