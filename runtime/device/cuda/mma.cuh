/* runtime/device/cuda/mma.cuh - matrix instructions of sm_80 and later, and the
 * tiles they read.
 *
 * A tile is rows of DP 16-bit elements in shared memory. Its 16-byte chunks are
 * swizzled within a row by the row's number, so that the eight rows which one
 * ldmatrix reads at one column lie in different banks.
 *
 * Fragments of m16n8k16, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments"):
 *     A (16,16)   a0: row g, k 2t 2t+1   a1: row g+8   a2: row g, k 2t+8 2t+9   a3: row g+8
 *     B (16,8)    b0: k 2t 2t+1, col g   b1: k 2t+8 2t+9, col g
 *     C (16,8)    c0 c1: row g, col 2t 2t+1   c2 c3: row g+8
 * Two neighbouring C fragments, rounded to 16 bits, are one A fragment.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_MMA_CUH
#define YK_RUNTIME_DEVICE_CUDA_MMA_CUH

#include "runtime/device/cuda/copy_async.cuh"
#include "runtime/device/cuda/kernels.cuh"

/* Shared memory that a block may have on every GPU from sm_86 on. */
#define SHARED_EVERYWHERE (99 * 1024)

/* ---- tiles --------------------------------------------------------------------------------- */

/* What the chunk number of a row is XORed with. Rows of a multiple of 128 bytes
 * begin in one bank: eight rows take eight chunks. Else two or four rows share
 * 128 bytes, and four or two chunks are enough. */
template <int DP> static __device__ inline int swizzle_of(int row)
{
    return DP % 64 == 0 ? row & 7 : DP % 32 == 0 ? row >> 1 & 3 : row >> 2 & 1;
}

/* Byte offset of chunk `chunk` of row `row`. */
template <int DP> static __device__ inline uint32_t chunk_offset(int row, int chunk)
{
    return (uint32_t)(row * DP * 2 + ((chunk ^ swizzle_of<DP>(row)) << 4));
}

/* How the threads of a block share a tile of DP columns: each has one chunk of
 * a row, and again STEP rows further on. */
template <int DP, int THREADS> struct tile_share {
    static constexpr int CHUNKS = DP / 8;
    static constexpr int LANES = CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;
    static constexpr int STEP = THREADS / LANES;

    /* The thread's first element of a matrix whose rows are `stride` elements apart. */
    static __device__ inline int64_t begin(int stride)
    {
        return (int64_t)(threadIdx.x / LANES) * stride + threadIdx.x % LANES * 8;
    }
};

/* Start copying the first ROWS rows of a matrix, `from` being its begin plus the thread's begin();
 * zeros from row rows_left on, and from column `cols` on, a multiple of 8. */
template <int DP, int ROWS, int THREADS, typename T>
static __device__ inline void load_tile(uint32_t tile, const T *from, int stride, int rows_left,
                                        int cols)
{
    typedef tile_share<DP, THREADS> share;
    int row = threadIdx.x / share::LANES, chunk = threadIdx.x % share::LANES;
    if (share::CHUNKS != share::LANES && chunk >= share::CHUNKS) return;
    if (share::STEP > ROWS && row >= ROWS) return;
    int rows_there = chunk * 8 < cols ? rows_left : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += share::STEP)
        copy_async(tile + chunk_offset<DP>(row + i, chunk), from + (int64_t)i * stride,
                   row + i < rows_there);
}

static __device__ inline void load_matrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The address of a lane's row in a fragment at the tile's first row and column, for one of the two
 * orders in which ldmatrix.x4 can be given its four 8x8 parts. Tiles begin at a multiple of 128
 * bytes; adding a multiple of 8 rows, as a number of bytes, moves the fragment down. */
template <int DP> static __device__ inline uint32_t lane_down(uint32_t tile)
{
    int lane = threadIdx.x & 31; /* parts: down, then right */
    return tile + chunk_offset<DP>(lane & 15, lane >> 4);
}

template <int DP> static __device__ inline uint32_t lane_right(uint32_t tile)
{
    int lane = threadIdx.x & 31; /* parts: right, then down */
    return tile + chunk_offset<DP>((lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
}

/* From the first column and row to column `col`, a multiple of 16, and row
 * `row`, of 8. Swizzling is an XOR of address bits that a row's begin leaves
 * zero, so a constant column costs one operation at most. */
template <int DP> static __device__ inline uint32_t moved(uint32_t lane, int row, int col)
{
    constexpr int SPAN = DP % 64 == 0 ? 64 : DP % 32 == 0 ? 32 : 16;
    return (lane ^ (uint32_t)(col % SPAN * 2)) + (uint32_t)(col / SPAN * SPAN * 2 + row * DP * 2);
}

/* moved() from a column that only the running program knows. Where the columns are a power of two
 * and col0 a multiple of what is walked from it, the begin is moved once. */
template <int DP> struct column_mover {
    static constexpr bool ONCE = (DP & (DP - 1)) == 0;
    uint32_t lane;
    int col0;

    __device__ inline column_mover(uint32_t lane_, int col0_)
        : lane(ONCE ? moved<DP>(lane_, 0, col0_) : lane_), col0(ONCE ? 0 : col0_)
    {
    }

    __device__ inline uint32_t moved_by(int row, int col) const
    {
        return moved<DP>(lane, row, col0 + col);
    }
};

/* What the four parts are as fragments:
 *     down    A (16,16) of rows and k = columns: load_matrix(lane_down)
 *     down    two B, of columns n = the tile's columns and k = its rows: ..._transposed(lane_down)
 *     right   two B, of columns n = the tile's rows and k = its columns: load_matrix(lane_right)
 *     right   A, of rows = the tile's columns and k = its rows: ..._transposed(lane_right) */

/* ---- products ------------------------------------------------------------------------------ */

static __device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1, f16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int M, int N> static __device__ inline void clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0;
}

/* c = A B', both tiles of DP columns: rows of A by rows of B. between(n) is called for each n below
 * N on the way: arithmetic that the products hide. */
template <typename T, int DP, int M, int N, typename F>
static __device__ inline void multiply_tiles(float (&c)[M][N][4], uint32_t a_lane, uint32_t b_lane,
                                             F between)
{
    clear(c);
#pragma unroll
    for (int d = 0; d < DP; d += 16) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_matrix(a[m], moved<DP>(a_lane, m * 16, d));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_matrix(b, moved<DP>(b_lane, n * 8, d));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(c[m][n], a[m], b[0], b[1], T());
                multiply_add(c[m][n + 1], a[m], b[2], b[3], T());
            }
        }
#pragma unroll
        for (int n = d * N / DP; n < (d + 16) * N / DP; n++) between(n);
    }
}

/* c += A B, A in registers with K queries, B the columns col0.. of a tile of K
 * rows. between(k) is called before the k-th sixteen of the queries are used. */
template <typename T, int DP, int M, int N, int K, typename F>
static __device__ inline void multiply_add_tile(float (&c)[M][N][4],
                                                const uint32_t (&a)[M][K / 16][4], uint32_t b_lane,
                                                int col0, F between)
{
    column_mover<DP> column(b_lane, col0);
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        between(k / 16);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_matrix_transposed(b, column.moved_by(k, n * 8));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(c[m][n], a[m][k / 16], b[0], b[1], T());
                multiply_add(c[m][n + 1], a[m][k / 16], b[2], b[3], T());
            }
        }
    }
}

/* Round fragments, times `scale`, into rows row0.. of `out`, columns col0..,
 * where there are such. */
template <typename T, int M, int N>
static __device__ inline void put_rows(T *out, int stride, int row0, int n_rows, int col0,
                                       int n_cols, const float (&c)[M][N][4], float scale)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row0 + m * 16 + (lane >> 2) + h * 8;
            if (row >= n_rows) continue;
            T *to = out + (int64_t)row * stride + col0 + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < N; n++)
                if (col0 + n * 8 < n_cols)
                    *reinterpret_cast<uint32_t *>(to + n * 8) =
                        round_pair(c[m][n][2 * h] * scale, c[m][n][2 * h + 1] * scale, T());
        }
}

/* 2^x by the special-function unit; 2^-inf is 0. */
static __device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

#endif
