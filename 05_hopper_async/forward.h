// Chapter 5's forward kernel, all of its steps. A step's .cu file sets these switches and then
// includes it:
//
//   FORWARD_KERNEL   the kernel's name
//   STAGES           buffers of K and of V that TMA fills in turn
//   SPECIALISED      copies are started by a warpgroup of their own, the producer
//   PINGPONG         warpgroups take turns on the tensor cores
//   OVERLAP          a warpgroup's softmax runs while its P V does
//   SOFTMAX          false only in the exhibit gemm-only
//
// A thread block takes one tile of query rows of one head and walks the blocks of keys that its
// rows see, the last first: masks cut the last blocks, and what comes after needs no mask.
// Warpgroup w takes rows 64 w … 64 w + 63 and never needs another's numbers; they share K and V.
//
// K and V come through rings of STAGES buffers. Block j uses buffer j % STAGES, and each buffer has
// two mbarriers:
//
//   full    TMA → who computes.   One arrival, by who starts the copy, and the copy's bytes.
//   empty   who computes → TMA.   One arrival of each warp, when wgmma has read the buffer.
//
// Block j is use j / STAGES of its buffer, counted from 0, so the parity of its full phase is
// j / STAGES % 2. Before that the buffer must be empty of the use before, of the other parity.
//
//   shared memory │ Q, later O │ K: STAGES buffers │ V: STAGES buffers │ mbarriers │
#ifndef FORWARD_H
#define FORWARD_H

#include "device/elect.h"
#include "device/fragments.h"
#include "device/mbarrier.h"
#include "device/named_barrier.h"
#include "device/phase.h"
#include "device/proxy.h"
#include "device/register_count.h"
#include "device/stmatrix.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "forward_tile.h"

typedef struct {
    CUtensorMap q, k, v, o;
} ForwardMaps;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

typedef struct {
    uint64_t q_full;
    Ring k, v;
} Barriers;

// What a thread block works on, and where it stands in shared memory. TMA's coordinates are
// 32-bit, so these are too.
template <typename T> struct Tiles {
    int warpgroup; // this thread's
    int batch, head, kv_head;
    int first_row;
    int blocks;                     // of keys
    int last_key;                   // the first key of the last of them
    int unmasked_from, unmasked_to; // keys that all rows see
    T *q_smem, *k_smem, *v_smem;
    Barriers *barriers;
};

// The first key of block j; they are taken from the last down.
template <typename T, int KEYS> __device__ static inline int key_of(const Tiles<T> &tiles, int j) {
    return tiles.last_key - j * KEYS;
}

// ---- copies: one thread starts them

// Starts copying tile_rows rows of a head, a box of COLUMNS columns after the other. The barrier's
// phase ends when all of their bytes are there; rows past the last come as zeros and count too.
template <typename T, int HEAD_DIM, int KEYS, int TILE_ROWS>
__device__ static inline void load_rows(T *to_smem, const CUtensorMap *map, uint64_t *full, int row,
                                        int head, int batch) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    // exercise 1: begin
    mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM * 2);
    // exercise 1: end
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_load_4d(to_smem + box * TILE_ROWS * Tile::COLUMNS, map, full, box * Tile::COLUMNS, row,
                    head, batch);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_query(const Tiles<T> &tiles, const ForwardMaps &maps) {
    const int ROWS = ForwardTile<HEAD_DIM, KEYS>::ROWS;
    load_rows<T, HEAD_DIM, KEYS, ROWS>(tiles.q_smem, &maps.q, &tiles.barriers->q_full,
                                       tiles.first_row, tiles.head, tiles.batch);
}

// Block j of K or V, once all warps have read what the buffer held.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_block(const Tiles<T> &tiles, T *buffers, const CUtensorMap *map,
                                         Ring *ring, int j) {
    const int stage = j % STAGES;
    // exercise 2: begin
    mbarrier_wait(&ring->empty[stage], j / STAGES % 2 ^ 1); // a new ring's buffers are empty
    // exercise 2: end
    PHASE("load");
    load_rows<T, HEAD_DIM, KEYS, KEYS>(buffers + stage * KEYS * HEAD_DIM, map, &ring->full[stage],
                                       key_of<T, KEYS>(tiles, j), tiles.kv_head, tiles.batch);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_key(const Tiles<T> &tiles, const ForwardMaps &maps, int j) {
    load_block<T, HEAD_DIM, KEYS>(tiles, tiles.k_smem, &maps.k, &tiles.barriers->k, j);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_value(const Tiles<T> &tiles, const ForwardMaps &maps, int j) {
    load_block<T, HEAD_DIM, KEYS>(tiles, tiles.v_smem, &maps.v, &tiles.barriers->v, j);
}

// The producer's whole work, in one thread. V comes one block behind K: it is needed later.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void produce(const Tiles<T> &tiles, const ForwardMaps &maps) {
    load_key<T, HEAD_DIM, KEYS>(tiles, maps, 0);
    load_query<T, HEAD_DIM, KEYS>(tiles, maps);
    for (int j = 0; j < tiles.blocks; j++) {
        if (j + 1 < tiles.blocks) load_key<T, HEAD_DIM, KEYS>(tiles, maps, j + 1);
        load_value<T, HEAD_DIM, KEYS>(tiles, maps, j);
    }
}

// Without a producer, thread 0 starts the copies between its own work: before block j those of
// block j + STAGES - 1, into the buffer that block j - 1 has left. It waits for the slowest warp.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_ahead(const Tiles<T> &tiles, const ForwardMaps &maps, int j) {
    if (SPECIALISED) return;
    if (threadIdx.x == 0) {
        if (j == 0) load_query<T, HEAD_DIM, KEYS>(tiles, maps);
        for (int i = j == 0 ? 0 : j + STAGES - 1; i < min(j + STAGES, tiles.blocks); i++) {
            load_key<T, HEAD_DIM, KEYS>(tiles, maps, i);
            load_value<T, HEAD_DIM, KEYS>(tiles, maps, i);
        }
    }
    __syncwarp(); // wgmma wants the warp together
}

// ---- products: a warpgroup starts them

// Starts s_reg = Q Kᵀ of this warpgroup's rows and block j, a group of its own.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void multiply_query_key(float (&s_reg)[KEYS / 8][4], const Tiles<T> &tiles,
                                                 int j) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const uint64_t q =
        k_major_operand<Tile::LINE>(tiles.q_smem + tiles.warpgroup * WGMMA_ROWS * Tile::COLUMNS);
    const uint64_t k = k_major_operand<Tile::LINE>(tiles.k_smem + j % STAGES * KEYS * HEAD_DIM);
    PHASE("qk_gemm");
    wgmma_fence(); // s_reg has been read
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += WGMMA_DEPTH) {
        const int box = d / Tile::COLUMNS, bytes = d % Tile::COLUMNS * 2;
        wgmma_shared<T, K_MAJOR, K_MAJOR>(s_reg,
                                          operand_at(q, box * Tile::ROWS * Tile::LINE + bytes),
                                          operand_at(k, box * KEYS * Tile::LINE + bytes), d > 0);
    }
    wgmma_commit();
}

// Starts o_reg += P V of block j, a group of its own. Along V's lines run O's columns.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values(float (&o_reg)[HEAD_DIM / 8][4],
                                                  const uint32_t (&p_reg)[KEYS / 16][4],
                                                  const Tiles<T> &tiles, int j) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const uint64_t v = mn_major_operand<Tile::LINE>(tiles.v_smem + j % STAGES * KEYS * HEAD_DIM,
                                                    KEYS * Tile::LINE);
    PHASE("pv_gemm");
    wgmma_fence(); // p_reg and o_reg have been written
#pragma unroll
    for (int step = 0; step < KEYS / WGMMA_DEPTH; step++)
        wgmma_registers<T, MN_MAJOR>(o_reg, p_reg[step],
                                     operand_at(v, step * WGMMA_DEPTH * Tile::LINE), 1);
    wgmma_commit();
}

// This warp's wgmma have read the buffer: after the wait that covers them.
__device__ static inline void release(Ring *ring, int j) {
    // exercise 3: begin
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring->empty[j % STAGES]);
    // exercise 3: end
}

__device__ static inline void wait_full(Ring *ring, int j) {
    mbarrier_wait(&ring->full[j % STAGES], j / STAGES % 2);
}

// ---- turns on the tensor cores
//
// A warpgroup starts its products only in its turn, and passes the turn on as soon as they are
// started: while it waits for them and works on its softmax, the next one's products run. Barrier
// 1 + w is where warpgroup w waits, and the one before it arrives.

static const int TURN_THREADS = 2 * WARPGROUP_THREADS; // one warpgroup waits, one arrives

__device__ static inline void take_turn(int warpgroup) {
    named_barrier_sync(1 + warpgroup, TURN_THREADS);
}

template <int WARPGROUPS> __device__ static inline void pass_turn(int warpgroup) {
    // exercise 4: begin
    named_barrier_arrive(1 + (warpgroup + 1) % WARPGROUPS, TURN_THREADS);
    // exercise 4: end
}

// The first turn is warpgroup 0's: the last one passes it on before it begins, and not at its end.
template <int WARPGROUPS> __device__ static inline void begin_turns(int warpgroup) {
    if (warpgroup == WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup);
}

template <int WARPGROUPS> __device__ static inline void end_turns(int warpgroup) {
    if (warpgroup < WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup);
}

// ---- softmax

// Scores of keys key … key + KEYS - 1 that the mask or the end of the keys forbids → -inf.
template <typename T, int KEYS>
__device__ static inline void mask_block(float (&s_reg)[KEYS / 8][4], const Attention &a,
                                         const Tiles<T> &tiles, int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen = visible_keys(tiles.first_row + fragment_row(half), a.seqlen_q,
                                           a.seqlen_k, a.window_left, a.window_right);
        // Counted from this lane's first column. Few masks have a left side: mostly half of the
        // comparisons do.
        const int begin = (int)seen.begin - key - fragment_column(0);
        const int end = (int)seen.end - key - fragment_column(0);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (t * 8 + i >= end) s_reg[t][2 * half + i] = -CUDART_INF_F;
        if (a.window_left < 0) continue;
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (t * 8 + i < begin) s_reg[t][2 * half + i] = -CUDART_INF_F;
    }
}

// s_reg: products → weights, relative to the new maximum. Returns in rescale what the rows' older
// weights are to be multiplied with.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void update_softmax(float (&s_reg)[KEYS / 8][4], float (&row_max)[2],
                                             float (&row_sum)[2], float (&rescale)[2],
                                             const Attention &a, const Exponent &exponent,
                                             const Tiles<T> &tiles, int j) {
    rescale[0] = rescale[1] = 1;
    if (!SOFTMAX) return;
    PHASE("softmax");
    if (!exponent.plain) adjust_fragments<KEYS>(s_reg, exponent);
    const int key = key_of<T, KEYS>(tiles, j);
    if (key < tiles.unmasked_from || key + KEYS > tiles.unmasked_to)
        mask_block<T, KEYS>(s_reg, a, tiles, key);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float block_max = fragment_row_max<KEYS>(s_reg, half) * exponent.factor;
        const float new_max = fmaxf(row_max[half], block_max);
        const float base = finite_max(new_max);
        const float block_sum =
            exponentiate_fragments_base_2<KEYS>(s_reg, half, exponent.factor, base);
        rescale[half] = exp2_approximate(row_max[half] - base);
        row_sum[half] = row_sum[half] * rescale[half] + block_sum;
        row_max[half] = new_max;
    }
}

// p_reg = P, rounded and packed as wgmma's left operand; o_reg times rescale.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void take_weights(uint32_t (&p_reg)[KEYS / 16][4],
                                           float (&o_reg)[HEAD_DIM / 8][4],
                                           const float (&s_reg)[KEYS / 8][4],
                                           const float (&rescale)[2]) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) weights_operand<T, KEYS>(p_reg[step], s_reg, step);
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (SOFTMAX) scale_output<HEAD_DIM>(o_reg, half, rescale[half]);
}

// ---- the two loops

// One product after the other: Q Kᵀ, softmax, P V.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void attend(float (&o_reg)[HEAD_DIM / 8][4], float (&row_max)[2],
                                     float (&row_sum)[2], const Attention &a, const Tiles<T> &tiles,
                                     const ForwardMaps &maps) {
    const int WARPGROUPS = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS;
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    if (PINGPONG) begin_turns<WARPGROUPS>(tiles.warpgroup);
    if (PINGPONG) take_turn(tiles.warpgroup);
    for (int j = 0; j < tiles.blocks; j++) {
        float s_reg[KEYS / 8][4], rescale[2];
        uint32_t p_reg[KEYS / 16][4];
        load_ahead<T, HEAD_DIM, KEYS>(tiles, maps, j);
        if (j == 0) mbarrier_wait(&tiles.barriers->q_full, 0);
        wait_full(&tiles.barriers->k, j);
        multiply_query_key<T, HEAD_DIM, KEYS>(s_reg, tiles, j);
        if (PINGPONG) pass_turn<WARPGROUPS>(tiles.warpgroup);
        wgmma_wait<0>();
        wgmma_results(s_reg);
        release(&tiles.barriers->k, j);

        update_softmax<T, HEAD_DIM, KEYS>(s_reg, row_max, row_sum, rescale, a, exponent, tiles, j);
        take_weights<T, HEAD_DIM, KEYS>(p_reg, o_reg, s_reg, rescale);

        wait_full(&tiles.barriers->v, j);
        if (PINGPONG) take_turn(tiles.warpgroup);
        add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, p_reg, tiles, j);
        wgmma_wait<0>();
        wgmma_results(o_reg);
        release(&tiles.barriers->v, j);
    }
    if (PINGPONG) end_turns<WARPGROUPS>(tiles.warpgroup);
}

// Q Kᵀ of block j is started before P V of block j - 1, and its softmax runs while P V does:
//
//   tensor cores   │ Q K(j)ᵀ │ P(j-1) V(j-1) │ Q K(j+1)ᵀ │ P(j) V(j) │
//   registers                │ softmax(j)    │           │ softmax(j+1)
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void attend_overlapped(float (&o_reg)[HEAD_DIM / 8][4],
                                                float (&row_max)[2], float (&row_sum)[2],
                                                const Attention &a, const Tiles<T> &tiles) {
    const int WARPGROUPS = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS;
    const bool TURNS = PINGPONG && HEAD_DIM <= 128; // wider: the products outlast the softmax
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    Barriers *barriers = tiles.barriers;
    float s_reg[KEYS / 8][4], rescale[2];
    uint32_t p_reg[KEYS / 16][4];

    mbarrier_wait(&barriers->q_full, 0);
    wait_full(&barriers->k, 0);
    // Turns from the first product on: two at once would end together, and so would begin two
    // softmaxes that share the arithmetic, while the tensor cores have nothing.
    if (TURNS) begin_turns<WARPGROUPS>(tiles.warpgroup);
    if (TURNS) take_turn(tiles.warpgroup);
    multiply_query_key<T, HEAD_DIM, KEYS>(s_reg, tiles, 0);
    if (TURNS) pass_turn<WARPGROUPS>(tiles.warpgroup);
    wgmma_wait<0>();
    wgmma_results(s_reg);
    release(&barriers->k, 0);
    update_softmax<T, HEAD_DIM, KEYS>(s_reg, row_max, row_sum, rescale, a, exponent, tiles, 0);
    take_weights<T, HEAD_DIM, KEYS>(p_reg, o_reg, s_reg, rescale);
    if (tiles.blocks > 1) wait_full(&barriers->k, 1);

    for (int j = 1; j < tiles.blocks; j++) {
        // exercise 5: begin
        if (TURNS) take_turn(tiles.warpgroup);
        multiply_query_key<T, HEAD_DIM, KEYS>(s_reg, tiles, j);
        wait_full(&barriers->v, j - 1);
        add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, p_reg, tiles, j - 1);
        if (TURNS) pass_turn<WARPGROUPS>(tiles.warpgroup);
        wgmma_wait<1>(); // Q Kᵀ; P V runs on
        wgmma_results(s_reg);
        release(&barriers->k, j);
        update_softmax<T, HEAD_DIM, KEYS>(s_reg, row_max, row_sum, rescale, a, exponent, tiles, j);
        // The next block's wait stands here, not at the top: ptxas moves a wait for wgmma up over
        // arithmetic, but not over a loop, and this one keeps the softmax before it.
        if (j + 1 < tiles.blocks) wait_full(&barriers->k, j + 1);
        wgmma_wait<0>();
        wgmma_results(o_reg);
        release(&barriers->v, j - 1);
        take_weights<T, HEAD_DIM, KEYS>(p_reg, o_reg, s_reg, rescale);
        // exercise 5: end
    }

    wait_full(&barriers->v, tiles.blocks - 1);
    if (TURNS) take_turn(tiles.warpgroup);
    add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, p_reg, tiles, tiles.blocks - 1);
    wgmma_wait<0>();
    wgmma_results(o_reg);
    if (TURNS) end_turns<WARPGROUPS>(tiles.warpgroup);
}

// ---- the end

// o_reg → O through shared memory, where the warpgroup's rows of Q stood; lse_reg → lse.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void store_output_tile(const float (&o_reg)[HEAD_DIM / 8][4],
                                                const float (&lse_reg)[2], const Attention &a,
                                                const Tiles<T> &tiles, const ForwardMaps &maps) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int barrier = 1 + Tile::WARPGROUPS + tiles.warpgroup;
    T *o_smem = tiles.q_smem + tiles.warpgroup * WGMMA_ROWS * Tile::COLUMNS; // + boxes
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    const int row_pieces = row * (Tile::COLUMNS / 8); // of 16 bytes, before this row

    named_barrier_sync(barrier, WARPGROUP_THREADS); // all four warps' Q Kᵀ have read Q
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) {
        uint32_t o_pair[4];
        weights_operand<T, HEAD_DIM>(o_pair, o_reg, step); // the same fragments as P's
        const int column = step * 16, piece = column % Tile::COLUMNS / 8 + lane / 16;
        const int place = swizzled_place<Tile::LINE>(row, piece);
        store_matrix_x4(o_smem + column / Tile::COLUMNS * Tile::ROWS * Tile::COLUMNS +
                            (row_pieces + place) * 8,
                        o_pair);
    }
    // exercise 6: begin
    fence_proxy_async();                            // this thread's part of O → TMA
    named_barrier_sync(barrier, WARPGROUP_THREADS); // all threads' parts → the one that stores
    // exercise 6: end
    const int first_row = tiles.first_row + tiles.warpgroup * WGMMA_ROWS;
    if (threadIdx.x % WARPGROUP_THREADS == 0 && first_row < a.seqlen_q) {
#pragma unroll
        for (int box = 0; box < Tile::BOXES; box++)
            tma_store_4d(&maps.o, o_smem + box * Tile::ROWS * Tile::COLUMNS, box * Tile::COLUMNS,
                         first_row, tiles.head, tiles.batch);
        tma_commit();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int lse_row = tiles.first_row + fragment_row(half);
        if (lane % 4 == 0 && lse_row < a.seqlen_q)
            a.lse[vector_offset(tiles.batch, tiles.head, lse_row, a.heads, a.seqlen_q)] =
                lse_reg[half];
    }
    if (threadIdx.x % WARPGROUP_THREADS == 0) tma_wait_read<0>(); // shared memory must live so long
}

// All that a warpgroup that computes does.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void consume(const Attention &a, const Tiles<T> &tiles,
                                      const ForwardMaps &maps) {
    float o_reg[HEAD_DIM / 8][4] = {};
    float row_max[2] = {-CUDART_INF_F, -CUDART_INF_F}, row_sum[2] = {}; // m log2(e); this lane's l
    if (tiles.blocks > 0) {
        if (OVERLAP)
            attend_overlapped<T, HEAD_DIM, KEYS>(o_reg, row_max, row_sum, a, tiles);
        else
            attend<T, HEAD_DIM, KEYS>(o_reg, row_max, row_sum, a, tiles, maps);
    }
    PHASE("epilogue");
    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(row_sum[half]);
        if (SOFTMAX) scale_output<HEAD_DIM>(o_reg, half, sum > 0 ? 1 / sum : 0);
        lse[half] = log_sum_exp_base_2(row_max[half], sum);
    }
    store_output_tile<T, HEAD_DIM, KEYS>(o_reg, lse, a, tiles, maps);
}

// What this block works on.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline Tiles<T> tiles_of_block(const Attention &a, uint8_t *smem) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, Tile::ROWS), a.heads);
    const int64_t first_row = work.tile * Tile::ROWS;
    const int64_t last_row = min(first_row + Tile::ROWS, a.seqlen_q) - 1;
    const KeyRange any = keys_seen_by_any(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    // Nothing runs before this has ended, so no division here is of 64 bits.
    const int first_key = (int)any.begin / KEYS * KEYS, end_key = (int)any.end;
    Tiles<T> tiles;
    tiles.warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP_THREADS, 0); // uniform
    tiles.batch = work.batch;
    tiles.head = work.head;
    tiles.kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    tiles.first_row = (int)first_row;
    tiles.blocks = (int)tiles_of((uint32_t)max(end_key - first_key, 0), KEYS);
    tiles.last_key = first_key + (tiles.blocks - 1) * KEYS;
    tiles.unmasked_from = (int)all.begin;
    tiles.unmasked_to = (int)all.end;
    tiles.q_smem = (T *)smem;
    tiles.k_smem = (T *)(smem + Tile::Q_BYTES);
    tiles.v_smem = (T *)(smem + Tile::Q_BYTES + STAGES * Tile::KV_BYTES);
    tiles.barriers = (Barriers *)(smem + Tile::Q_BYTES + 2 * STAGES * Tile::KV_BYTES);
    return tiles;
}

// Thread 0 makes the mbarriers and fetches the maps; then all threads, and TMA, may use them.
template <int WARPS>
__device__ static inline void make_barriers(Barriers *barriers, const ForwardMaps &maps) {
    if (threadIdx.x == 0) {
        tma_prefetch_map(&maps.q);
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.v);
        mbarrier_init(&barriers->q_full, 1);
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&barriers->k.full[stage], 1);
            mbarrier_init(&barriers->v.full[stage], 1);
            mbarrier_init(&barriers->k.empty[stage], WARPS);
            mbarrier_init(&barriers->v.empty[stage], WARPS);
        }
        fence_mbarrier_init(); // → TMA
    }
    __syncthreads(); // → all threads
}

// Threads of a block: the consumers', and the producer's warpgroup if there is one.
#define FORWARD_THREADS(HEAD_DIM, KEYS)                                                            \
    ((ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS + (SPECIALISED ? 1 : 0)) * WARPGROUP_THREADS)

#define FORWARD_BYTES(HEAD_DIM, KEYS)                                                              \
    (ForwardTile<HEAD_DIM, KEYS>::Q_BYTES + 2 * STAGES * ForwardTile<HEAD_DIM, KEYS>::KV_BYTES +   \
     (int)sizeof(Barriers))

template <typename T, int HEAD_DIM, int KEYS>
__global__ void __launch_bounds__(FORWARD_THREADS(HEAD_DIM, KEYS), 1)
    FORWARD_KERNEL(const Attention a, const __grid_constant__ ForwardMaps maps) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    extern __shared__ __align__(1024) uint8_t smem[];
    const Tiles<T> tiles = tiles_of_block<T, HEAD_DIM, KEYS>(a, smem);
    make_barriers<Tile::WARPGROUPS * 4>(tiles.barriers, maps);

    if (SPECIALISED && tiles.warpgroup == Tile::WARPGROUPS) {
        give_registers<Tile::PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == Tile::WARPGROUPS * 4 && tiles.blocks > 0 && elect_one())
            produce<T, HEAD_DIM, KEYS>(tiles, maps);
    } else {
        if (SPECIALISED) take_registers<Tile::CONSUMER_REGISTERS>();
        consume<T, HEAD_DIM, KEYS>(a, tiles, maps);
    }
}

// ---- host

template <typename T, int HEAD_DIM, int KEYS>
static cudaError_t launch_forward_tile(const Attention *a) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    static_assert(FORWARD_BYTES(HEAD_DIM, KEYS) <= MAX_SHARED_BYTES, "the tiles must fit");
    const int64_t blocks = tiles_of(a->seqlen_q, Tile::ROWS) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess; // no query rows, no outputs
    const CUtensorMapDataType type =
        IsHalf<T>::VALUE ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    ForwardMaps maps;
    cudaError_t error = make_head_map(&maps.q, "Q", a->q, type, 2, a->batch, a->seqlen_q, a->heads,
                                      HEAD_DIM, Tile::ROWS, Tile::COLUMNS);
    if (error == cudaSuccess)
        error = make_head_map(&maps.o, "O", a->o, type, 2, a->batch, a->seqlen_q, a->heads,
                              HEAD_DIM, WGMMA_ROWS, Tile::COLUMNS);
    maps.k = maps.v = maps.q; // without keys nothing is loaded, and no map of them could be made
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps.k, "K", a->k, type, 2, a->batch, a->seqlen_k, a->kv_heads,
                              HEAD_DIM, KEYS, Tile::COLUMNS);
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps.v, "V", a->v, type, 2, a->batch, a->seqlen_k, a->kv_heads,
                              HEAD_DIM, KEYS, Tile::COLUMNS);
    if (error == cudaSuccess)
        error =
            allow_shared_memory(FORWARD_KERNEL<T, HEAD_DIM, KEYS>, FORWARD_BYTES(HEAD_DIM, KEYS));
    if (error != cudaSuccess) return error;
    FORWARD_KERNEL<T, HEAD_DIM, KEYS><<<(unsigned)blocks, FORWARD_THREADS(HEAD_DIM, KEYS),
                                        FORWARD_BYTES(HEAD_DIM, KEYS), a->stream>>>(*a, maps);
    return cudaGetLastError();
}

// Head_dim 128 has a second tile, for masks.
template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const bool masked = a->window_left >= 0 || a->window_right >= 0;
    if (masked) return launch_forward_tile<T, HEAD_DIM, FORWARD_KEYS(HEAD_DIM, true)>(a);
    return launch_forward_tile<T, HEAD_DIM, FORWARD_KEYS(HEAD_DIM, false)>(a);
}

DEFINE_DISPATCH_16_BIT(forward, launch_forward)

// What the forward can't do, or NULL.
static inline const char *refuses_forward(const Attention *a, bool backward) {
    if (backward) return "this chapter's backward is part of its step intra-warpgroup";
    if (a->dtype == DTYPE_FP32)
        return "wgmma multiplies fp16 and bf16; use --dtype fp16 or bf16, or chapter 3's step "
               "normalise-once for fp32";
    if (max(a->seqlen_q, a->seqlen_k) > MAX_FORWARD_SEQLEN)
        return "TMA's coordinates are 32-bit; use a --seqlen below 2^31 - 256";
    return refuses_on_cuda_cores(a, tiles_of(a->seqlen_q, WGMMA_ROWS) * a->batch * a->heads);
}

#endif
