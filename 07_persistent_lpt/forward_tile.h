// The tiles of chapter 7's forward: who works on the rows and keys that a thread block takes at a
// time, and where things stand in shared memory. Sizes (tile_sizes.h) and registers are chapter 5's:
//
//   head_dim   registers: producer, consumer
//   64, 96     32, 160
//   above      40, 232
//
//   shared memory │ Q │ K: STAGES buffers │ V: STAGES buffers │ O, if it has its own │ barriers │
//
// A tile's O waits in shared memory until TMA has stored it, and the next tile's Q should not have
// to wait for that. Up to head_dim 96 there is room for both. Above, the O of warpgroup w stands
// where V will be needed latest: in the buffer that V comes to next but w (forward.h).
#ifndef FORWARD_TILE_H
#define FORWARD_TILE_H

#include "device/wgmma.h"
#include "tile_sizes.h"

static const int MAX_SHARED_BYTES = 227 * 1024; // of a thread block of capability 9.0
static const int STAGES = 2;                    // buffers of K and of V

template <int HEAD_DIM, int KEYS> struct ForwardTile {
    static constexpr int WARPGROUPS = FORWARD_WARPGROUPS(HEAD_DIM); // that compute
    static constexpr int WARPS = WARPGROUPS * 4;                    // theirs
    static constexpr int ROWS = FORWARD_ROWS(HEAD_DIM);             // query rows
    static constexpr int LINE = HEAD_DIM % 64 == 0 ? 128 : 64;
    static constexpr int COLUMNS = LINE / 2; // of a box
    static constexpr int BOXES = HEAD_DIM / COLUMNS;
    static constexpr int Q_BYTES = ROWS * HEAD_DIM * 2;
    static constexpr int KV_BYTES = KEYS * HEAD_DIM * 2;      // of K, and of V
    static constexpr int O_BYTES = WGMMA_ROWS * HEAD_DIM * 2; // of a warpgroup
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 3 ? 160 : 232;
    // Chapter 5's turns; in wider heads the products outlast the softmax.
    static constexpr bool TURNS = HEAD_DIM <= 128;
    static constexpr bool OWN_OUTPUT = WARPGROUPS == 3; // O has a place of its own

    static constexpr int K_AT = Q_BYTES;
    static constexpr int V_AT = K_AT + STAGES * KV_BYTES;
    static constexpr int O_AT = V_AT + STAGES * KV_BYTES;
    static constexpr int BARRIERS_AT = O_AT + (OWN_OUTPUT ? WARPGROUPS * O_BYTES : 0);

    static_assert(ROWS == WARPGROUPS * WGMMA_ROWS, "a warpgroup takes the rows of one wgmma");
    static_assert(KEYS % WGMMA_DEPTH == 0, "P V sums over 16 keys an instruction");
    static_assert(Q_BYTES % 1024 == 0 && KV_BYTES % 1024 == 0 && O_BYTES % 1024 == 0 &&
                      KEYS * LINE % 1024 == 0,
                  "swizzles start at 1024 bytes");
    static_assert(OWN_OUTPUT || (WARPGROUPS <= STAGES && O_BYTES <= KV_BYTES),
                  "each warpgroup's O needs a buffer of V");
};

// A tile that reaches past the last key or row must not overflow a coordinate.
static const int64_t MAX_FORWARD_SEQLEN = INT32_MAX - 256;

#endif
