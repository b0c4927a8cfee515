/* runtime/device/cpu/amx_cpu.c - the matrix units: permission, strips, and the product of two. */
#include "runtime/device/cpu/amx.h"

#if CPU_HAS_AMX

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define SIDE      16                 /* rows of a tile, and its columns of fp32 */
#define TILE      (SIDE * AMX_DEPTH) /* bf16 numbers in a tile */
#define TILE_STEP 64                 /* bytes between a tile's rows in a strip */

bool yk_cpu_amx_allow(void)
{
    const long request_permission = 0x1023, tile_data = 18; /* of arch_prctl, since Linux 5.16 */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

void yk_cpu_amx_begin(void)
{
    struct {
        uint8_t palette, start_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = TILE_STEP;
        shape.rows[i] = SIDE;
    }
    __asm__ volatile("" : : "r"(&shape) : "memory"); /* gcc takes the next line to read 8 bytes */
    _tile_loadconfig(&shape);
}

void yk_cpu_amx_end(void)
{
    _tile_release();
}

/* ---- strips ------------------------------------------------------------------------------- */

#define HIGH_HALF 0xffff0000u

/* The nearest bf16 number to each, as fp32. A NaN may lose itself here, but not in what is left over;
 * nor does an infinite number, whose rest is a NaN. */
VEC_INLINE vecu nearest(vecf x)
{
    return ((vecu)x + 0x8000u) & HIGH_HALF;
}

/* The words of a tile, for each piece: `even` and `odd` are the numbers that share a word. The last
 * piece is what is left over, which bf16 holds. */
VEC_INLINE void put_words(vecu words[][SIDE], int i, vecf even, vecf odd, int pieces)
{
#pragma GCC unroll 3
    for (int p = 0; p + 1 < pieces; p++) {
        vecu low = nearest(even), high = nearest(odd);
        words[p][i] = low >> 16 | high;
        even -= (vecf)low;
        odd -= (vecf)high;
    }
    words[pieces - 1][i] = (vecu)even >> 16 | ((vecu)odd & HIGH_HALF);
}

/* Two vectors that lie behind each other, as words of their even and odd numbers. */
VEC_INLINE void part(vecf *even, vecf *odd, vecf a, vecf b)
{
    *even = VEC_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *odd = VEC_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/* The numbers in depth 0 .. d-1 of row or column `at`, those beside each other apart. */
VEC_INLINE void load_along(vecf *even, vecf *odd, const void *from, int64_t at, int64_t d,
                           yk_dtype t)
{
    vecf behind = {0};
    if (d > VEC_LANES) behind = vec_load_n(from, at + VEC_LANES, d - VEC_LANES, t);
    part(even, odd, vec_load_n(from, at, d, t), behind);
    __builtin_prefetch(cpu_at(from, at + AMX_DEPTH, t));
    __builtin_prefetch(cpu_at(from, at + AMX_DEPTH + VEC_LANES, t));
}

/* n rows or columns at place `at` in depth, and at the next one when that is there. */
VEC_INLINE void load_across(vecf *even, vecf *odd, const void *from, int64_t at, int64_t l_step,
                            int64_t n, bool both, yk_dtype t)
{
    *even = vec_load_n(from, at, n, t);
    if (both) *odd = vec_load_n(from, at + l_step, n, t);
    __builtin_prefetch(cpu_at(from, at + AMX_DEPTH * l_step, t));
    __builtin_prefetch(cpu_at(from, at + (AMX_DEPTH + 1) * l_step, t));
}

/* A tile for each piece, from n rows or columns and d of depth. A word holds two numbers that follow
 * each other in depth. Where depth is what memory runs along, a vector of words belongs to one row or
 * column, else to one place in depth. The left operand wants the former, the right one the latter.
 * What the next tile will read is fetched meanwhile: its rows are far apart. */
VEC_INLINE void pack_tiles(uint16_t *to, amx_side side, const void *from, int64_t at,
                           int64_t i_step, int64_t l_step, bool along, int64_t n, int64_t d,
                           yk_dtype t)
{
    int pieces = amx_pieces(t);
    vecu words[3][SIDE];
    for (int i = 0; i < SIDE; i++) {
        vecf even = {0}, odd = {0};
        if (along && i < n) load_along(&even, &odd, from, at + i * i_step, d, t);
        if (!along && 2 * i < d)
            load_across(&even, &odd, from, at + 2 * i * l_step, l_step, n, 2 * i + 1 < d, t);
        put_words(words, i, even, odd, pieces);
    }
    for (int p = 0; p < pieces; p++) {
        if (along != (side == AMX_LEFT)) vec_transpose((vecf *)words[p]);
        for (int i = 0; i < SIDE; i++)
            memcpy(to + p * 2 * TILE + i * AMX_DEPTH, &words[p][i], sizeof words[p][i]);
    }
}

VEC_INLINE void pack(uint16_t *to, amx_side side, const void *from, int64_t at, int64_t i_step,
                     int64_t l_step, bool along, int64_t n, int64_t k, yk_dtype t)
{
    int pieces = amx_pieces(t);
    for (int64_t l = 0; l < k; l += AMX_DEPTH)
        for (int half = 0; half < 2; half++) {
            uint16_t *tiles = to + (l / AMX_DEPTH * pieces * 2 + half) * TILE;
            int64_t first = half * SIDE, there = n - first;
            if (there <= 0) {
                for (int p = 0; p < pieces; p++) memset(tiles + p * 2 * TILE, 0, 2 * TILE);
                continue;
            }
            pack_tiles(tiles, side, from, at + first * i_step + l * l_step, i_step, l_step, along,
                       yk_min(there, SIDE), yk_min(k - l, AMX_DEPTH), t);
        }
}

void yk_cpu_amx_pack(void *to, amx_side side, const void *from, int64_t at, int64_t i_step,
                     int64_t l_step, int64_t n, int64_t k, yk_dtype dtype)
{
    if (l_step == 1)
        YK_CPU_BY_DTYPE(dtype, pack(to, side, from, at, i_step, 1, true, n, k, T));
    else
        YK_CPU_BY_DTYPE(dtype, pack(to, side, from, at, 1, l_step, false, n, k, T));
}

/* ---- products ----------------------------------------------------------------------------- */

/* Registers: 0 .. 3 the sums, 4 and 5 the left operand's halves, 6 and 7 the right one's. */
#define LOAD_LEFT(piece)                                                                           \
    _tile_loadd(4, left + (piece)*2 * TILE, TILE_STEP);                                            \
    _tile_loadd(5, left + ((piece)*2 + 1) * TILE, TILE_STEP)
#define LOAD_RIGHT(piece)                                                                          \
    _tile_loadd(6, right + (piece)*2 * TILE, TILE_STEP);                                           \
    _tile_loadd(7, right + ((piece)*2 + 1) * TILE, TILE_STEP)
#define MULTIPLY                                                                                   \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    _tile_dpbf16ps(1, 4, 7);                                                                       \
    _tile_dpbf16ps(2, 5, 6);                                                                       \
    _tile_dpbf16ps(3, 5, 7)

/* One step of depth: products of pieces, so ordered that one operand changes at a time and the
 * product of the largest comes last. */
VEC_INLINE void step(const uint16_t *left, const uint16_t *right, int pieces)
{
    if (pieces == 3) {
        LOAD_LEFT(2);
        LOAD_RIGHT(0);
        MULTIPLY;
        LOAD_LEFT(1);
        MULTIPLY;
        LOAD_RIGHT(1);
        MULTIPLY;
        LOAD_LEFT(0);
        MULTIPLY;
        LOAD_RIGHT(2);
        MULTIPLY;
        LOAD_RIGHT(0);
        MULTIPLY;
    } else if (pieces == 2) {
        LOAD_LEFT(0);
        LOAD_RIGHT(1);
        MULTIPLY;
        LOAD_LEFT(1);
        MULTIPLY;
        LOAD_RIGHT(0);
        MULTIPLY;
        LOAD_LEFT(0);
        MULTIPLY;
    } else {
        LOAD_LEFT(0);
        LOAD_RIGHT(0);
        MULTIPLY;
    }
}

VEC_INLINE void tile(const uint16_t *left, const uint16_t *right, int64_t k, int pieces, float *c,
                     int64_t c_row, bool add)
{
    int64_t c_bytes = 4 * c_row;
    float *lower = c + SIDE * c_row;
    __asm__ volatile("" ::: "memory"); /* gcc's loads of tiles do not say that they read memory */
    if (add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + SIDE, c_bytes);
        _tile_loadd(2, lower, c_bytes);
        _tile_loadd(3, lower + SIDE, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t l = 0; l < k; l += AMX_DEPTH) {
        step(left, right, pieces);
        left += pieces * 2 * TILE;
        right += pieces * 2 * TILE;
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + SIDE, c_bytes);
    _tile_stored(2, lower, c_bytes);
    _tile_stored(3, lower + SIDE, c_bytes);
}

void yk_cpu_amx_tile(const void *left, const void *right, int64_t k, yk_dtype dtype, float *c,
                     int64_t c_row, bool add)
{
    if (dtype == YK_F32)
        tile(left, right, k, 3, c, c_row, add);
    else if (dtype == YK_F16)
        tile(left, right, k, 2, c, c_row, add);
    else
        tile(left, right, k, 1, c, c_row, add);
}

#endif
