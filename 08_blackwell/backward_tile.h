// The backward's tiles, the order of a block's work, and where things stand in tensor memory.
//
// Everything is transposed: a lane of tensor memory is a key, so Pᵀ and dSᵀ come out of one product
// where the next one wants its A. Tiles are 128 query rows by 128 keys.
//
//   tensor memory, 512 columns of 128 lanes:
//
//   column   0               128             256             384             512
//            │ Sᵀ of the tile │ dV            │ dPᵀ of it     │ dK            │
//            │ Pᵀ   │ Pᵀ      │               │ dSᵀ   │ dSᵀ   │               │
//                                             │ dQ of it      │
//
// Pᵀ and dSᵀ, two numbers to a column, take the place of what they are made of: each of two
// warpgroups has 64 query rows, columns of Sᵀ, reads them, and writes to the first 32 of these 64.
// dQ, whose lanes are query rows, takes the place of dSᵀ when dK has been multiplied by it.
#ifndef BLACKWELL_BACKWARD_TILE_H
#define BLACKWELL_BACKWARD_TILE_H

#include <cuda.h>

#include "../05_hopper_async/backward_workspace.h"
#include "device/register_count.h"
#include "forward_tile.h"

static const int SHARE = 64;      // query rows of a tile that a warpgroup computes P and dS of
static const int WARPGROUP = 128; // threads

// Columns of tensor memory.
static const int S_AT = 0, DV_AT = 128, DP_AT = 256, DK_AT = 384;
static const int BACKWARD_TMEM_COLUMNS = 512;

// Where in S's or dP's 128 columns the pair of numbers `row` and row + 1 of P or dS stands.
__device__ static constexpr int packed_column(int row) {
    return row / SHARE * SHARE + row % SHARE / 2;
}

// Who works (warps of 32 threads); the other two of the last warpgroup do nothing.
static const int COMPUTE_WARP = 4, MULTIPLY_WARP = 12, LOAD_WARP = 13, THREADS = 512;
static const int COMPUTE_WARPS = 8;

// A role's registers, from what all threads have at the launch on.
template <int REGISTERS> __device__ static inline void set_registers() {
    if (REGISTERS > 65536 / THREADS)
        take_registers<REGISTERS>();
    else
        give_registers<REGISTERS>();
}

// Q, K, V, dO are read through these maps, dK and dV written.
typedef struct {
    CUtensorMap q, k, v, dout, dk, dv;
} BackwardMaps;

// What a block works on: its keys, and all tiles of query rows that see any of them, head by head.
// TMA's coordinates are 32-bit, so these are too.
typedef struct {
    int batch, kv_head, group; // query heads that share the K/V head
    int first_key;
    int first_tile, tiles; // of query rows, in each head
} BlockKeys;

// The work of `keys` keys, at `place` of the order.
__device__ static inline BlockKeys block_keys(const Attention &a, uint32_t place, int keys) {
    const BlockWork work = block_work(place, tiles_of(a.seqlen_k, keys), a.kv_heads);
    BlockKeys block;
    block.batch = work.batch;
    block.kv_head = work.head;
    block.group = a.heads / a.kv_heads;
    block.first_key = (int)work.tile * keys;
    const int64_t last_key = min((int64_t)block.first_key + keys, a.seqlen_k) - 1;
    const KeyRange rows = rows_seeing_any(block.first_key, last_key, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    block.first_tile = (int)(rows.begin / ROWS);
    block.tiles = max((int)tiles_of(rows.end, ROWS) - block.first_tile, 0);
    return block;
}

// A block's place in the order of work, asked for by one thread. In the deterministic order a block
// may wait for one with a smaller place, so places are given out as blocks begin: whoever is waited
// for is running.
__device__ static inline uint32_t take_place(const Attention &a, const BackwardWorkspace &w,
                                             uint32_t otherwise) {
    return a.deterministic && a.seqlen_q > 0 ? atomicAdd(w.sums.ticket, 1u) : otherwise;
}

// One tile of query rows after the other, for each role alike: number n of the block.
struct RowTiles {
    const BlockKeys &keys;
    int head, tile, count; // count: of all heads together
    uint32_t n = 0;

    __device__ inline RowTiles(const BlockKeys &block)
        : keys(block), head(block.kv_head * block.group), tile(block.first_tile),
          count(block.tiles * block.group) {}

    __device__ inline bool more() const { return n < (uint32_t)count; }
    __device__ inline void advance() {
        n++;
        if (++tile == keys.first_tile + keys.tiles) tile = keys.first_tile, head++;
    }
    // Where the tile's lse and D stand among those of all padded rows.
    __device__ inline int64_t vector(const Attention &a, const BackwardWorkspace &w) const {
        return ((int64_t)keys.batch * a.heads + head) * w.sums.padded_rows + (int64_t)tile * ROWS;
    }
};

// Where dq_sums holds a number of dQ: 64 rows after the other, and of these four columns of each
// row, then the next four. So a warp's 16-byte stores fall into all banks alike, and 64 rows of
// some columns are one piece that TMA adds at once.
static const int PIECE_ROWS = 64, PIECE = 4; // rows, columns
template <int HEAD_DIM> struct PieceLayout {
    __device__ static inline int position(int row, int column) {
        return (row / PIECE_ROWS * HEAD_DIM + column / PIECE * PIECE) * PIECE_ROWS +
               row % PIECE_ROWS * PIECE + column % PIECE;
    }
};
static_assert(FINISH_ROWS == PIECE_ROWS, "finish_dq asks for rows of one piece");

#endif
