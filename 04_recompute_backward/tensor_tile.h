// Tiles of 16-bit numbers in shared memory, and the tensor cores' fragments from and to them.
//
// A tile's rows are cut into pieces of 16 bytes, which stand swizzled (device/swizzle.h): eight rows
// of one piece, what ldmatrix reads at a time, lie in different banks, and so does a row.
//
// A warp multiplies 16 x 16 fragments A with 16 x 8 fragments B. ldmatrix can turn 8 x 8 matrices
// over on the way, so a tile stored row by row serves as A or Aᵀ, B or Bᵀ:
//
//   load_a             A[m][k] from a tile with rows m       Q, K, V in Q Kᵀ, K Qᵀ, V dOᵀ; P in P V
//   load_a_transposed  A[m][k] from a tile with rows k       dS in dS K, from dSᵀ
//   load_b             B[k][n] from a tile with rows n       K in Q Kᵀ
//   load_b_transposed  B[k][n] from a tile with rows k       V in P V
#ifndef TENSOR_TILE_H
#define TENSOR_TILE_H

#include "device/cp_async.h"
#include "device/mma.h"
#include "device/number.h"
#include "device/swizzle.h"
#include "device/tile.h"

static const int PIECE = 8; // numbers in 16 bytes

// Where piece `piece` of row `row` lies.
template <int COLUMNS> __device__ static inline int swizzled(int row, int piece) {
    return row * COLUMNS + swizzled_piece(COLUMNS, row, piece) * PIECE;
}

// Starts the copy of ROWS rows of COLUMNS numbers, from row `first_row` on. Rows past the last are
// not read and become zeros, and so do columns from `columns` on. A thread takes one piece of every
// ROW_STEP-th row. The caller commits the group; a wait and a barrier must stand before anybody
// reads the tile.
template <typename T, int ROWS, int COLUMNS, int THREADS>
__device__ static inline void copy_tile(T *tile_smem, const HeadRows<T> from, int64_t first_row,
                                        int64_t columns = COLUMNS) {
    const int PIECES = COLUMNS / PIECE, ROW_STEP = THREADS / PIECES;
    static_assert(THREADS % PIECES == 0 && ROWS % ROW_STEP == 0, "all threads copy alike");
    const int piece = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
    const T *source = from.first + (first_row + first) * from.stride + piece * PIECE;
    if (first_row + ROWS <= from.count && columns >= COLUMNS) { // nearly all tiles
#pragma unroll
        for (int i = 0; i < ROWS / ROW_STEP; i++) {
            cp_async16(&tile_smem[swizzled<COLUMNS>(first + i * ROW_STEP, piece)], source);
            source += ROW_STEP * from.stride;
        }
        return;
    }
    const int numbers = (int)min(max(columns - piece * PIECE, (int64_t)0), (int64_t)PIECE);
    const int count = (int)min(max(from.count - first_row, (int64_t)0), (int64_t)ROWS);
#pragma unroll 1
    for (int row = first; row < ROWS; row += ROW_STEP) {
        const int bytes = row < count ? numbers * 2 : 0;
        cp_async16(&tile_smem[swizzled<COLUMNS>(row, piece)], bytes > 0 ? source : from.first,
                   bytes);
        source += ROW_STEP * from.stride;
    }
}

// The inverse, without cp.async: whole rows to memory, 16 bytes a thread, those past the last left
// out. Columns from `columns` on are left out by whole pieces: rows in memory are padded to them.
template <typename T, int ROWS, int COLUMNS, int THREADS>
__device__ static inline void store_tile(T *to, int64_t stride, int64_t first_row, int64_t count,
                                         const T *tile_smem, int64_t columns = COLUMNS) {
    const int PIECES = COLUMNS / PIECE, ROW_STEP = THREADS / PIECES;
    static_assert(THREADS % PIECES == 0 && ROWS % ROW_STEP == 0, "all threads store alike");
    const int piece = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
    const int rows = (int)min(count - first_row, (int64_t)ROWS);
    if (piece * PIECE >= columns) return;
    to += (first_row + first) * stride + piece * PIECE;
#pragma unroll
    for (int i = 0; i < ROWS / ROW_STEP; i++) {
        const int row = first + i * ROW_STEP;
        if (row < rows) *(uint4 *)to = *(const uint4 *)&tile_smem[swizzled<COLUMNS>(row, piece)];
        to += ROW_STEP * stride;
    }
}

// The lane's place in the four 8 x 8 matrices of one ldmatrix, from (row, column) on: down the rows
// first, or along the columns first. Rows are multiples of 8, columns of 16.
template <int COLUMNS> __device__ static inline int rows_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return lane_row_at(COLUMNS, lane_row(COLUMNS, lane % 16, lane / 16 * 8), row, column);
}

template <int COLUMNS> __device__ static inline int columns_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return lane_row_at(COLUMNS, lane_row(COLUMNS, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8), row,
                       column);
}

// A, 16 x 16 from (m, k).
template <int COLUMNS, typename T>
__device__ static inline void load_a(uint32_t a[4], const T *tile_smem, int m, int k) {
    load_matrix_x4(a, &tile_smem[rows_first<COLUMNS>(m, k)]);
}
template <int COLUMNS, typename T>
__device__ static inline void load_a_transposed(uint32_t a[4], const T *tile_smem, int m, int k) {
    load_matrix_x4_transposed(a, &tile_smem[columns_first<COLUMNS>(k, m)]);
}

// Two neighbouring fragments B: 16 x 8 from (k, n) in b[0], b[1], from (k, n + 8) in b[2], b[3].
template <int COLUMNS, typename T>
__device__ static inline void load_b(uint32_t b[4], const T *tile_smem, int k, int n) {
    load_matrix_x4(b, &tile_smem[columns_first<COLUMNS>(n, k)]);
}
template <int COLUMNS, typename T>
__device__ static inline void load_b_transposed(uint32_t b[4], const T *tile_smem, int k, int n) {
    load_matrix_x4_transposed(b, &tile_smem[rows_first<COLUMNS>(k, n)]);
}

// A piece of a matrix as this warp's accumulators: 16 rows, N columns.
template <int N> struct Accumulator { float number[N / 8][4]; };

// c += a (16 x 16) * b, b's columns n … n + 15 as load_b gives them.
template <typename T, int N>
__device__ static inline void multiply_add(Accumulator<N> &c, const uint32_t a[4],
                                           const uint32_t b[4], int n) {
    mma_m16n8k16<T>(c.number[n / 8], a, b);
    mma_m16n8k16<T>(c.number[n / 8 + 1], a, b + 2);
}

// Columns k … k + 15 of accumulators, rounded, as the A of the next product: a lane holds the same
// rows and columns in both, so P goes from one product to the next without leaving its registers.
template <typename T, int N>
__device__ static inline void accumulator_to_a(uint32_t a[4], const Accumulator<N> &c, int k) {
    const float *left = c.number[k / 8], *right = c.number[k / 8 + 1];
    a[0] = pack2<T>(left[0], left[1]);
    a[1] = pack2<T>(left[2], left[3]);
    a[2] = pack2<T>(right[0], right[1]);
    a[3] = pack2<T>(right[2], right[3]);
}

// factor * c → 16 rows of a tile, from (row, 0), rounded. The eight rows of a store fall into
// different banks.
template <typename T, int COLUMNS, int N>
__device__ static inline void accumulator_to_tile(T *tile_smem, int row, int column,
                                                  const Accumulator<N> &c, float factor) {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    const int first = swizzled<COLUMNS>(row + group, 0) + pair;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        T *upper = &tile_smem[lane_row_at(COLUMNS, first, 0, column + n * 8)];
        T *lower = &tile_smem[lane_row_at(COLUMNS, first, 8, column + n * 8)];
        store2(upper, factor * c.number[n][0], factor * c.number[n][1]);
        store2(lower, factor * c.number[n][2], factor * c.number[n][3]);
    }
}

#endif
