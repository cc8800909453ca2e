// Who works on a thread block's two tiles of query rows, and how they wait for each other
// (forward.h). Sixteen warps:
//
//   warps 0-3, 4-7   softmax      of tile 0, of tile 1: a thread a row. S → P
//   warps 8-11       correction   O: rescaled, and at the end normalised → shared memory
//   warp 12          multiply     one thread starts the products of both tiles
//   warp 13          store        one thread starts O → HBM
//   warp 14          load         one thread starts the copies of Q, K and V
//   warp 15          nothing
//
// mbarriers, two of each but kv_…: one for each tile. `block` counts blocks of keys, `tile` pairs of
// tiles that have any, `n` all pairs of tiles, each from the kernel's begin; the phase of a use is
// its number's parity.
//
//   q_full      load → multiply          tile        Q has come
//   q_empty     multiply → load          tile        its products have been done
//   kv_full     load → multiply          its use     K or V has come: a ring of STAGES buffers
//   kv_empty    multiply → load          its use     its products have been done
//     and       load → correction        its use     O may be written to the buffer
//               store → load             its use     and has been read
//   s_full      multiply → softmax       block       S has come, and O is there without this block
//   p_full      softmax, correction      block       the first keys' P has been written, S read; O
//               → multiply                           has been rescaled, or may begin anew
//   p_rest      softmax → multiply       block       the other keys' P has been written
//   grown       softmax → correction     block       by what O is to be multiplied, for each block
//                                                    but a tile's first; behind s_full, so O is there
//   sum_full    softmax → correction     n           and at the tile's end
//   sum_empty   correction → softmax     n           that has been read
//   o_full      multiply → correction    tile        O is complete
//   out_full    correction → store       n           O stands in shared memory
//
// O has no place of its own in shared memory: it takes two buffers of the ring behind its K and V,
// one for each tile, in their order. So the next pair's Q, and its first K and V, needn't wait for it.
//
// What `grown` tells of may be overwritten at the next block: its s_full comes after this one's
// p_full, and for that the correction has read it.
#ifndef PIPELINE_H
#define PIPELINE_H

#include "device/elect.h"
#include "device/mbarrier.h"
#include "device/proxy.h"
#include "device/tcgen05.h"
#include "forward_tile.h"
#include "mailbox.h"
#include "maps.h"

static const int TILES = 2, WARPGROUP = 128; // threads
static const int CORRECTION_WARP = 8, MULTIPLY_WARP = 12, STORE_WARP = 13, LOAD_WARP = 14;
static const int THREADS = 512;
static const int WORKING_WARPS = LOAD_WARP; // that read what the load warp has chosen

// Registers of a thread, by role: together those of an SM.
template <int HEAD_DIM> struct Registers {
    static constexpr int SOFTMAX = 176;
    static constexpr int CORRECTION = HEAD_DIM <= 64 && PERSISTENT ? 80 : 88;
    static constexpr int OTHER = 65536 / WARPGROUP - 2 * SOFTMAX - CORRECTION;
};

static const int TMEM_COLUMNS = 512;

template <int HEAD_DIM> static constexpr int stages() {
    return HEAD_DIM <= 64 ? 10 : 5;
}

template <int STAGES> struct Barriers {
    uint64_t q_full[TILES], q_empty[TILES];
    uint64_t kv_full[STAGES], kv_empty[STAGES];
    uint64_t s_full[TILES], p_full[TILES], p_rest[TILES], o_full[TILES];
    uint64_t grown[TILES], sum_full[TILES], sum_empty[TILES];
    uint64_t out_full[TILES];
    Mailbox mailbox;
    float growth[TILES][ROWS], sum[TILES][ROWS];
    uint32_t tmem; // where the block's tensor memory begins
};

//   shared memory │ Q: 2 tiles │ K, V and O: STAGES buffers │ mbarriers, numbers │
template <typename T, int HEAD_DIM> struct Smem {
    using Tile = ForwardTile<HEAD_DIM>;
    static constexpr int STAGES = stages<HEAD_DIM>();
    static constexpr int BARRIERS_AT = (TILES + STAGES) * Tile::BYTES;
    static constexpr int BYTES = BARRIERS_AT + (int)sizeof(Barriers<STAGES>);
    static_assert(BYTES <= MAX_SHARED_BYTES, "the tiles must fit");
    uint8_t *start;
    __device__ inline T *q(int tile) const { return (T *)start + tile * Tile::NUMBERS; }
    __device__ inline T *kv(uint32_t use) const { return q(TILES + (int)(use % STAGES)); }
    __device__ inline Barriers<STAGES> *barriers() const {
        return (Barriers<STAGES> *)(start + BARRIERS_AT);
    }
};

// Buffer use `use` of the ring: filled; empty of the use before (a new ring's are).
template <int STAGES>
__device__ static inline void wait_full(Barriers<STAGES> *barriers, uint32_t use) {
    mbarrier_wait(&barriers->kv_full[use % STAGES], use / STAGES % 2);
}
template <int STAGES>
__device__ static inline void wait_empty(Barriers<STAGES> *barriers, uint32_t use) {
    mbarrier_wait(&barriers->kv_empty[use % STAGES], use / STAGES % 2 ^ 1);
}

// Thread 0 makes the mbarriers, a warp gets tensor memory; then all threads, and TMA, may use them.
template <int STAGES>
__device__ static inline void prepare(Barriers<STAGES> *barriers, const ForwardMaps &maps) {
    if (threadIdx.x == 0) {
        prefetch_maps(maps);
        for (int tile = 0; tile < TILES; tile++) {
            mbarrier_init(&barriers->q_full[tile], 1);
            mbarrier_init(&barriers->q_empty[tile], 1);
            mbarrier_init(&barriers->s_full[tile], 1);
            mbarrier_init(&barriers->p_full[tile], 2 * WARPGROUP);
            mbarrier_init(&barriers->p_rest[tile], WARPGROUP);
            mbarrier_init(&barriers->grown[tile], WARPGROUP);
            mbarrier_init(&barriers->sum_full[tile], WARPGROUP);
            mbarrier_init(&barriers->sum_empty[tile], WARPGROUP);
            mbarrier_init(&barriers->o_full[tile], 1);
            mbarrier_init(&barriers->out_full[tile], WARPGROUP);
        }
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&barriers->kv_full[stage], 1);
            mbarrier_init(&barriers->kv_empty[stage], 1);
        }
        mailbox_init(&barriers->mailbox, WORKING_WARPS);
        fence_mbarrier_init(); // → TMA
    }
    if (threadIdx.x / 32 == MULTIPLY_WARP) {
        tmem_alloc<TMEM_COLUMNS>(&barriers->tmem);
        tmem_relinquish();
    }
    tcgen05_fence_before();
    __syncthreads(); // → all threads
    tcgen05_fence_after();
}

#endif
