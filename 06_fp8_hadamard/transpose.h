// V, keys by columns, → its transpose in shared memory, as wgmma's right operand: with 8-bit
// numbers that operand must have keys side by side, and V in memory has columns.
//
// A warp does 32 keys × 16 columns at a time. ldmatrix.trans moves 16-bit numbers, so it sees pairs
// of columns: lane (group g, quad lane t) gets from its matrix j, keys 8 j … 8 j + 7,
//
//     byte      0           1             2               3
//     key       8j + 2t     8j + 2t       8j + 2t + 1     8j + 2t + 1
//     column    2g          2g + 1        2g              2g + 1
//
// Of two such registers, j = 0 and 1, byte permutes make one for each column:
//
//     column 2g,  bytes 0, 2 of both (0x6420):   keys 2t, 2t + 1, 8 + 2t, 8 + 2t + 1
//     column 2g+1, bytes 1, 3 of both (0x7531):  the same keys
//
// and stmatrix writes them to the column's line, at byte 4t. So the keys change places, 16 at a
// time: byte 4t + i of a line holds key 2t + i % 2 + i / 2 * 8. P's keys change places in the same
// way by themselves: what a lane holds of S of those four keys is what it must hold of the left
// operand at k = 4t … 4t + 3 (take_weights in softmax.h), and a sum doesn't ask for the order.
//
// Banks: of the 8 lines that stmatrix writes at a time, columns 0, 2, …, 14, two would share banks.
// So the upper four groups swap: matrix 0 has lines 0, 2, 4, 6, 9, 11, 13, 15, matrix 1 the others.
#ifndef TRANSPOSE_H
#define TRANSPOSE_H

#include "attention_tile.h"
#include "device/mma.h"
#include "device/stmatrix.h"
#include "device/tma.h"

static const int TRANSPOSERS = 4; // warps that share a tile

// This warp's part of a tile, the warp being one of TRANSPOSERS: all keys of a few pieces of 16
// columns. So a lane's addresses differ by constants from step to step, and a step is six
// instructions. from_smem: as TMA brought it; to_smem: boxes of 32 keys.
template <int HEAD_DIM>
__device__ static inline void transpose_values(uint8_t *to_smem, const uint8_t *from_smem,
                                               int warp) {
    using Tile = AttentionTile<HEAD_DIM>;
    const int PIECES = HEAD_DIM / 16 / TRANSPOSERS, LINE_PIECES = Tile::LINE / 16;
    const int lane = threadIdx.x % 32, row = lane % 8;
    const bool upper = lane / 4 >= 4; // as a holder of row lane / 4
    const uint32_t pick[2] = {upper ? 0x7531u : 0x6420u, upper ? 0x6420u : 0x7531u};
    // As a namer of addresses: row `row` of matrix lane / 8. Matrices 0, 1: the first 16 keys.
    const int line = 2 * row + (lane / 8 % 2 ^ row / 4);
    to_smem += line * 32 + swizzled_place<32>(line, lane / 16) * 16;
    from_smem += lane * Tile::LINE; // ldmatrix: a lane names a key

#pragma unroll 1 // its few registers are enough for one piece's addresses
    for (int i = 0; i < PIECES; i++) {
        const int piece = warp * PIECES + i;
        uint8_t *to = to_smem + piece * (16 * 32);
        const uint8_t *from = from_smem + piece / LINE_PIECES * Tile::KEYS * Tile::LINE +
                              swizzled_place<Tile::LINE>(lane, piece % LINE_PIECES) * 16;
#pragma unroll
        for (int step = 0; step < Tile::KEY_STEPS; step++) {
            uint32_t pairs[4], columns[4];
            load_matrix_x4_transposed(pairs, from + step * 32 * Tile::LINE);
#pragma unroll
            for (int m = 0; m < 4; m++)
                columns[m] = __byte_perm(pairs[m / 2 * 2], pairs[m / 2 * 2 + 1], pick[m % 2]);
            store_matrix_x4(to + step * HEAD_DIM * 32, columns);
        }
    }
}

#endif
