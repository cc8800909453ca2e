// The tiles of chapter 6's attention kernel: how many rows and keys a thread block works on at a
// time, who works, and how much shared memory that takes. FlashAttention-3's, for e4m3.
//
//   head_dim   query rows   keys    registers: producer, consumer
//   64         192          160     32, 160
//   128        128          224     24, 240
//   256        128          128     24, 240
//
// A warpgroup takes 64 query rows. Its registers hold O, head_dim / 2 numbers a thread, S, keys / 2,
// and P, 4 numbers a register, keys / 8: 64 + 112 + 28 for head_dim 128.
//
// Q, K and V stand as TMA brings them: as boxes of LINE bytes a row, swizzled over LINE. V's
// transpose stands as boxes of 32 keys: a line of 32 bytes for each column, swizzled over 32.
#ifndef ATTENTION_TILE_H
#define ATTENTION_TILE_H

#include "device/wgmma_fp8.h"
#include "quantised.h"

static const int MAX_SHARED_BYTES = 227 * 1024; // of a thread block of capability 9.0

template <int HEAD_DIM> struct AttentionTile {
    static constexpr int WARPGROUPS = HEAD_DIM <= 64 ? 3 : 2; // that compute
    static constexpr int ROWS = WARPGROUPS * WGMMA_ROWS;      // query rows
    static constexpr int KEYS = KEY_BLOCK(HEAD_DIM);
    static constexpr int LINE = HEAD_DIM <= 64 ? 64 : 128; // bytes, and numbers, of a box's row
    static constexpr int BOXES = HEAD_DIM / LINE;
    static constexpr int KEY_STEPS = KEYS / WGMMA_FP8_DEPTH; // boxes of V's transpose
    static constexpr int Q_BYTES = ROWS * HEAD_DIM;
    static constexpr int KV_BYTES = KEYS * HEAD_DIM; // of K, of V, and of V's transpose
    static constexpr int THREADS = (WARPGROUPS + 1) * WARPGROUP_THREADS;
    static constexpr int PRODUCER_REGISTERS = HEAD_DIM <= 64 ? 32 : 24;
    static constexpr int CONSUMER_REGISTERS = HEAD_DIM <= 64 ? 160 : 240;
    static_assert(QUERY_BLOCK == WGMMA_ROWS, "a warpgroup's rows have one scale");
    static_assert(KEYS % WGMMA_FP8_DEPTH == 0, "P V sums over 32 keys an instruction");
    static_assert(Q_BYTES % 1024 == 0 && KV_BYTES % 1024 == 0, "swizzles start at 1024 bytes");
};

// A tile that reaches past the last key or row must not overflow a coordinate.
static const int64_t MAX_ATTENTION_SEQLEN = INT32_MAX - 256;

struct Barriers; // attention.h

// What a thread block works on, and where it stands in shared memory. TMA's coordinates are
// 32-bit, so these are too.
struct Tiles {
    int warpgroup; // this thread's
    int batch, head, kv_head;
    int first_row;
    uint32_t blocks;                // of keys
    int last_key;                   // the first key of the last of them
    int unmasked_from, unmasked_to; // keys that all rows see
    uint8_t *q_smem, *k_smem, *v_smem, *v_transposed_smem;
    Barriers *barriers;
};

// The first key of block j; they are taken from the last down.
template <int KEYS> __device__ static inline int key_of(const Tiles &tiles, uint32_t j) {
    return tiles.last_key - (int)j * KEYS;
}

#endif
