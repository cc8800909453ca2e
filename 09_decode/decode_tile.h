// The tiles of chapter 9's kernels, from split-kv on: how many query rows and keys a thread block
// works on at a time, who takes what of them, and where things stand in shared memory.
//
// A tile has 16 query rows, or 64 where there are more. mma.sync multiplies 16 rows at a time, so:
//
//   ROWS 16   each warp takes other keys of the block, all 16 rows; sums are merged at the end
//   ROWS 64   each of four warps takes other rows, all keys of the block
//
//   head_dim   keys   buffers   warps: ROWS 16, 64
//   64         128    3                4       4
//   96         64     4                4       4
//   128        64     3                4       4
//   192        32     4                2       4
//   256        32     3, 2             2       4       2: where Q stays in one
//
// Of a cache of fp8 a block has twice as many keys, but not at head_dim 64; four warps share them.
//
//   shared memory │ buffer 0: K, V │ buffer 1: K, V │ … │ page numbers │
//
// All buffers together take 96 KB whatever the head_dim, which every GPU from Ampere on has; an
// SM of Hopper has it twice. What is under way at a time, all buffers but one, is more than
// enough: HBM brings an SM of an H200 17 bytes a clock, after some 700 clocks, so that 12 KB on
// the way would do if all SMs asked evenly.
#ifndef DECODE_TILE_H
#define DECODE_TILE_H

#include "device/swizzle.h"
#include "device/tile_choice.h"
#include "split.h"

// Keys that a thread block takes at a time.
#define DECODE_KEYS(head_dim, fp8)                                                                 \
    ((head_dim) <= 64 ? 128 : ((head_dim) <= 128 ? 64 : 32) << ((fp8) ? 1 : 0))

// `rows` query rows; fp8: of K and V, 8-bit numbers.
template <int head_dim, int rows, bool fp8> struct DecodeTile {
    static constexpr int HEAD_DIM = head_dim, ROWS = rows;
    static constexpr bool FP8 = fp8;
    static constexpr int UNITS = FP8 ? HEAD_DIM / 2 : HEAD_DIM; // of 16 bits, in a row of K or V
    static constexpr int KEYS = DECODE_KEYS(HEAD_DIM, FP8);
    static constexpr int ROW_WARPS = ROWS / 16; // warps with other rows
    static constexpr int KEY_WARPS = ROW_WARPS > 1 ? 1 : KEYS < 64 ? 2 : 4;
    static constexpr int WARP_KEYS = KEYS / KEY_WARPS; // of a block
    static constexpr int THREADS = ROW_WARPS * KEY_WARPS * 32;
    static constexpr int BLOCKS_PER_SM = 2;       // whose registers fit
    static constexpr int KV_UNITS = KEYS * UNITS; // of K, and of V
    static constexpr int BUFFER_BYTES = 2 * KV_UNITS * 2;
    // Q comes into the last buffer and goes on to registers. Of the widest heads 64 rows don't fit
    // there, nor any beside fp8's: Q stays, and the buffers are one less.
    static constexpr bool QUERY_STAYS = HEAD_DIM > 192 && (ROWS == 64 || FP8);
    static constexpr int ALL_BUFFERS = 96 * 1024 / BUFFER_BYTES;
    static constexpr int BUFFERS = ALL_BUFFERS - QUERY_STAYS;
    static constexpr int QUERY_AT = (ALL_BUFFERS - 1) * BUFFER_BYTES;
    static constexpr int PAGES_AT = ALL_BUFFERS * BUFFER_BYTES; // page numbers: work.h
    static constexpr int BYTES = PAGES_AT + (BUFFERS - 1) * THREADS * 4;

    // Copies: neighbouring lanes take 16 bytes each of a span of a row (swizzle.h).
    static constexpr int SPAN = UNITS % 64 == 0 ? 64 : 32; // units
    static constexpr int LANES = SPAN / 8;
    static constexpr int ROW_STEP = THREADS / LANES; // from a thread's row to its next
    static constexpr int THREAD_KEYS = KEYS / ROW_STEP;

    // Each warp's sums wait in shared memory to be merged, where the buffers were. Rows are 8
    // numbers longer than they must be: so the four rows that a warp writes at a time fall into
    // other banks.
    static constexpr int OUTPUT_STRIDE = HEAD_DIM + 8;
    static constexpr int OUTPUT_FLOATS = KEY_WARPS * ROWS * OUTPUT_STRIDE;
    static constexpr int ROWS_AT = OUTPUT_FLOATS + 2 * KEY_WARPS * ROWS; // behind maxima and sums

    static_assert(ROWS == 16 || ROWS == 64, "one warp's rows, or four warps'");
    static_assert(WARP_KEYS % 16 == 0, "P V sums over 16 keys an instruction");
    static_assert(KEYS % ROW_STEP == 0, "each thread copies the same number of rows");
    static_assert(UNITS % SPAN == 0, "rows of whole spans");
    static_assert(ROWS * HEAD_DIM * 2 <= BUFFER_BYTES, "Q comes through a buffer");
    static_assert((ROWS_AT + 2 * ROWS) * 4 <= BYTES, "the merge needs room");
    static_assert(BYTES <= LEAST_SHARED_BYTES, "the buffers must fit on every GPU");
};

#endif
