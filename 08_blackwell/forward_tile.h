// The tiles of chapter 8's forward, and where they stand. A tile is 128 rows: one for each lane of
// tensor memory, so that a thread of a warpgroup has a query row to itself and no row is ever
// shared. Q, K, V and O have tiles of the same size, 128 rows of head_dim numbers, S one of
// 128 x 128.
//
//   tensor memory, 512 columns of 128 lanes (a lane is a query row):
//
//   column   0        64       128      192      256             384             512
//            │ S of tile 0     │ S of tile 1     │ O of tile 0   │ O of tile 1   │
//                     │ its P  │        │ its P  │
//
// P, two numbers to a column, takes the upper half of the S that it was made of: a thread has read
// all of its row before it writes there, and the next S comes when P has been multiplied.
#ifndef FORWARD_TILE_H
#define FORWARD_TILE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

static const int MAX_SHARED_BYTES = 227 * 1024; // of a thread block of capability 10.0
static const int ROWS = 128;                    // query rows of a tile: lanes of tensor memory
static const int KEYS = 128;                    // of a block of keys
static const int LINE = 128;                    // bytes of a box's row: what TMA's swizzle spans
static const int COLUMNS = LINE / 2;            // numbers in it

template <int HEAD_DIM> struct ForwardTile {
    static constexpr int BOXES = HEAD_DIM / COLUMNS;
    static constexpr int NUMBERS = ROWS * HEAD_DIM; // of Q, K, V or O
    static constexpr int BYTES = NUMBERS * 2;
    static_assert(HEAD_DIM % COLUMNS == 0 && HEAD_DIM <= 128, "whole boxes; two O side by side");
};
static_assert(KEYS == ROWS, "K and V have tiles of Q's size");
static const int P_BYTES = ROWS * KEYS * 2;

// Columns of tensor memory, of tile 0 or 1.
static const int S_COLUMNS = KEYS, P_COLUMN = KEYS / 2; // P's within S
__device__ static constexpr int s_column(int tile) {
    return tile * S_COLUMNS;
}
__device__ static constexpr int o_column(int tile, int tiles) {
    return tiles * S_COLUMNS + tile * 128;
}

// The 16-bit type of the tensors, as instruction descriptors want to know it.
template <typename T> struct IsBf16 { static constexpr bool VALUE = false; };
template <> struct IsBf16<__nv_bfloat16> { static constexpr bool VALUE = true; };

// A tile that reaches past the last key or row must not overflow a coordinate.
static const int64_t MAX_FORWARD_SEQLEN = INT32_MAX - 512;

#endif
