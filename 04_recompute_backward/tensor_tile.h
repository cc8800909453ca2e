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

// Starts the copy of `rows` rows of COLUMNS numbers, from row `first_row` on. Rows past the last
// are not read and become zeros, and so do columns from `columns` on. The caller commits the
// group; wait and barrier must stand before anybody reads the tile.
template <typename T, int COLUMNS, int THREADS>
__device__ static inline void copy_tile(T *tile_smem, const HeadRows<T> from, int64_t first_row,
                                        int rows, int64_t columns = COLUMNS) {
    const int PIECES = COLUMNS / PIECE;
#pragma unroll
    for (int at = threadIdx.x; at < rows * PIECES; at += THREADS) {
        const int row = at / PIECES, piece = at % PIECES;
        const int64_t left = first_row + row < from.count ? columns - piece * PIECE : 0;
        const int bytes = left <= 0 ? 0 : left >= PIECE ? 16 : (int)left * 2;
        const T *source = from.first;
        if (bytes > 0) source += (first_row + row) * from.stride + piece * PIECE;
        cp_async16(&tile_smem[swizzled<COLUMNS>(row, piece)], source, bytes);
    }
}

// The inverse, without cp.async: whole rows to memory, 16 bytes a thread, those past the last left
// out. Columns from `columns` on are left out by whole pieces: rows in memory are padded to them.
template <typename T, int COLUMNS, int THREADS>
__device__ static inline void store_tile(T *to, int64_t stride, int64_t first_row, int64_t count,
                                         const T *tile_smem, int rows, int64_t columns = COLUMNS) {
    const int PIECES = COLUMNS / PIECE;
#pragma unroll
    for (int at = threadIdx.x; at < rows * PIECES; at += THREADS) {
        const int row = at / PIECES, piece = at % PIECES;
        if (first_row + row >= count || piece * PIECE >= columns) continue;
        *(uint4 *)&to[(first_row + row) * stride + piece * PIECE] =
            *(const uint4 *)&tile_smem[swizzled<COLUMNS>(row, piece)];
    }
}

// The lane's row and piece in the four 8 x 8 matrices of one ldmatrix: down the rows first, or
// along the columns first.
template <int COLUMNS>
__device__ static inline int rows_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return swizzled<COLUMNS>(row + lane % 16, column / PIECE + lane / 16);
}

template <int COLUMNS>
__device__ static inline int columns_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return swizzled<COLUMNS>(row + lane / 16 * 8 + lane % 8, column / PIECE + lane / 8 % 2);
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
template <int N> struct Accumulator {
    float number[N / 8][4];
};

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
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const int piece = column / PIECE + n;
        T *upper = &tile_smem[swizzled<COLUMNS>(row + group, piece) + pair];
        T *lower = &tile_smem[swizzled<COLUMNS>(row + group + 8, piece) + pair];
        store2(upper, factor * c.number[n][0], factor * c.number[n][1]);
        store2(lower, factor * c.number[n][2], factor * c.number[n][3]);
    }
}

#endif
