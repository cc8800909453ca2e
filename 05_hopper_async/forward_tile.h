// The tiles of chapter 5's forward: how many rows and keys a thread block works on at a time, who
// works, and how much shared memory that takes. The sizes are those of FlashAttention-3 where P
// stays in registers; up to head_dim 96 it also has longer ones, with P in shared memory.
//
//   head_dim   query rows   keys                            registers: producer, consumer
//   64         192          128                             32, 160
//   96         192          112                             32, 160
//   128        128          176; 128 with a mask            24, 240
//   192        128          112                             24, 240
//   256        128          80                              24, 240
//
// A warpgroup (128 threads) takes 64 query rows. Its registers hold O, head_dim / 2 numbers a
// thread, S, keys / 2, and P, keys / 4: 64 + 88 + 44 for head_dim 128. With longer tiles Q is read
// less often from shared memory; with shorter ones a mask wastes less.
//
// In shared memory a tile stands as TMA brings it: as boxes of LINE bytes a row, swizzled over
// LINE.
#ifndef FORWARD_TILE_H
#define FORWARD_TILE_H

#include "device/wgmma.h"

static const int MAX_SHARED_BYTES = 227 * 1024; // of a thread block of capability 9.0

template <int HEAD_DIM, int KEYS> struct ForwardTile {
    static constexpr int WARPGROUPS = HEAD_DIM <= 96 ? 3 : 2; // that compute
    static constexpr int ROWS = WARPGROUPS * WGMMA_ROWS;      // query rows
    static constexpr int LINE = HEAD_DIM % 64 == 0 ? 128 : 64;
    static constexpr int COLUMNS = LINE / 2; // of a box
    static constexpr int BOXES = HEAD_DIM / COLUMNS;
    static constexpr int Q_BYTES = ROWS * HEAD_DIM * 2;
    static constexpr int KV_BYTES = KEYS * HEAD_DIM * 2; // of K, and of V
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 3 ? 32 : 24;
    static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 3 ? 160 : 240;
    static_assert(KEYS % WGMMA_DEPTH == 0, "P V sums over 16 keys an instruction");
    static_assert(Q_BYTES % 1024 == 0 && KEYS * LINE % 1024 == 0, "swizzles start at 1024 bytes");
};

// Keys of a tile. `masked`: a mask takes keys from many tiles, as causal does.
#define FORWARD_KEYS(head_dim, masked)                                                             \
    ((head_dim) <= 64    ? 128                                                                     \
     : (head_dim) <= 96  ? 112                                                                     \
     : (head_dim) <= 128 ? ((masked) ? 128 : 176)                                                  \
     : (head_dim) <= 192 ? 112                                                                     \
                         : 80)

// A tile that reaches past the last key or row must not overflow a coordinate.
static const int64_t MAX_FORWARD_SEQLEN = INT32_MAX - 256;

#endif
