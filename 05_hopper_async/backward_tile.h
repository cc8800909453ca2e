// The backward's tiles, what a block keeps in shared memory, and the order of its work.
#ifndef BACKWARD_TILE_H
#define BACKWARD_TILE_H

#include <cuda.h>

#include "backward_workspace.h"

enum {
    KEYS = 128, // of a block, half of them for each warpgroup that multiplies
    WARPGROUP_KEYS = 64,
    LINE = 128, // bytes of a tile's line: 64 numbers
    STAGES = 2, // of Q, of dO, and of dS
    THREADS = 3 * 128,
    // At the launch a thread has 168 registers: 3 * 168 = 24 + 2 * 240.
    LOADER_REGISTERS = 24,
    MULTIPLIER_REGISTERS = 240,
};

// Named barriers; 0 is __syncthreads().
enum { DS_READY = 1, DQ_FULL = 2, DQ_EMPTY = 4, KEYS_READY = 6 };

template <int HEAD_DIM> struct BackwardTile {
    static constexpr int ROWS = HEAD_DIM <= 64 ? 128 : 64; // of queries
    static constexpr int BLOCKS = HEAD_DIM / 64;           // of 64 columns, 128 bytes
    // A warpgroup's share of the dQ tile is 64 rows by 64 columns: it takes half of the rows or of
    // the columns.
    static constexpr int SHARE = 64 * 64;
    static_assert(ROWS * HEAD_DIM == 2 * SHARE, "two warpgroups share dQ");
    static constexpr uint32_t KEY_BYTES = KEYS * HEAD_DIM * 2, ROW_BYTES = ROWS * HEAD_DIM * 2;
    static constexpr uint32_t VECTOR_BYTES = ROWS * sizeof(float);
};

// Tiles stand in blocks of 64 columns: [column / 64][row][column % 64], a row of a block being the
// 128 bytes that TMA and wgmma swizzle. dSᵀ is a tile with a row for each key.
template <typename T, int HEAD_DIM> struct BackwardShared {
    using Tile = BackwardTile<HEAD_DIM>;
    T k[KEYS * HEAD_DIM], v[KEYS * HEAD_DIM];
    T q[STAGES][Tile::ROWS * HEAD_DIM], dout[STAGES][Tile::ROWS * HEAD_DIM];
    T ds[STAGES][Tile::ROWS * KEYS];
    float dq[2][Tile::SHARE];
    float lse[STAGES][Tile::ROWS], row_dots[STAGES][Tile::ROWS];
    uint64_t kv_full, q_full[STAGES], q_empty[STAGES], dout_full[STAGES], dout_empty[STAGES];
};
static const int SWIZZLE_SPAN = 1024; // bytes after which the swizzle repeats: tiles start there
static_assert(sizeof(BackwardShared<__half, 64>) + SWIZZLE_SPAN <= 232448, "of an SM of an H100");
static_assert(sizeof(BackwardShared<__half, 128>) + SWIZZLE_SPAN <= 232448, "of an SM of an H100");

// Q, K, V, dO are read through these maps, dK and dV written.
typedef struct {
    CUtensorMap q, k, v, dout, dk, dv;
} BackwardMaps;

// What a block works on: 128 keys, and all tiles of query rows that see any of them, head by head.
struct BlockKeys {
    int batch, kv_head, group; // query heads that share the K/V head
    int64_t first_key;
    int64_t first_tile, tiles; // of query rows, in each head
};

// One tile of query rows after the other, for each role alike.
struct RowTiles {
    const BlockKeys &keys;
    int head;
    int64_t tile;
    int stage = 0;
    uint32_t parity = 0; // of the stage's use: 0 the first time, then 1, then 0 …
    int64_t left;

    __device__ inline RowTiles(const BlockKeys &block)
        : keys(block), head(block.kv_head * block.group), tile(block.first_tile),
          left(block.tiles * block.group) {}

    __device__ inline void advance() {
        left--;
        if (++tile == keys.first_tile + keys.tiles) tile = keys.first_tile, head++;
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

#endif
