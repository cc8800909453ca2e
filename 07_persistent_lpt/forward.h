// Chapter 7's forward kernel, all of its steps: chapter 5's intra-warpgroup, as thread blocks that
// stay and take one tile of query rows after the other. A step's .cu file sets these switches and
// then includes it:
//
//   FORWARD_KERNEL   the kernel's name
//   ORDER            which tile comes when (schedule.h)
//   DYNAMIC          a block takes the next tile that nobody has; else every gridDim.x-th
//   OVERLAPPED       a tile's O is stored under the next tile's products
//   PACKED           a tile takes all query heads of a K/V head (packing.h); only if OVERLAPPED
//   CACHED           chapter 9's alone: K and V may be a cache, used to a length by each sequence
//
// One thread block on each SM. Its roles run side by side and each loops over the same tiles:
//
//   producer     1 thread            chooses the tile (work.h), starts the copies of Q, K and V
//   consumers    2 or 3 warpgroups   products, softmax, O → shared memory: 64 query rows each
//   store warps  1 for each of them  O → global memory by TMA; only if OVERLAPPED
//
// Nobody meets at a tile's end. The producer is ahead by the two buffers that K and V have each, so
// that a tile's first K and its Q come while the one before is still multiplied; turns on the tensor
// cores go round from tile to tile. What orders them are mbarriers, all with a phase for each use:
//
//   k, v: full, empty   chapter 5's rings. Block j of a tile is use first_use + j, where first_use
//                       counts the blocks of all tiles before.
//   q: full, empty      one buffer; tile n's Q is its use n.
//   o_empty             the place of O has been read: use n as well. Not to be overwritten before.
//
// Where O stands:
//   not OVERLAPPED   in Q's place. The next Q can't be loaded before O has been stored.
//   OVERLAPPED       in its own, or (OWN_OUTPUT = false) in V's: warpgroup w's O takes the buffer of
//                    V's use first_use + blocks + w. The next V's wait for o_empty, and they are
//                    needed a Q Kᵀ and a softmax later than the next tile's K and Q.
#ifndef FORWARD_H
#define FORWARD_H

#include "device/elect.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/register_count.h"
#include "device/stmatrix.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "forward_tile.h"
#include "softmax.h"

typedef struct {
    CUtensorMap q, k, v, o;
} ForwardMaps;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

typedef struct {
    Mailbox mailbox;
    Ring k, v;
    uint64_t q_full, q_empty, o_empty;
} Barriers;

template <typename T, int HEAD_DIM, int KEYS> struct Smem {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    uint8_t *start;
    __device__ inline T *q() const { return (T *)start; }
    __device__ inline T *k(uint32_t use) const {
        return (T *)(start + Tile::K_AT + use % STAGES * Tile::KV_BYTES);
    }
    __device__ inline T *v(uint32_t use) const {
        return (T *)(start + Tile::V_AT + use % STAGES * Tile::KV_BYTES);
    }
    // A warpgroup's O of the tile after whose last V comes use next_use.
    __device__ inline T *o(int warpgroup, uint32_t next_use) const {
        if (!OVERLAPPED) return q() + warpgroup * WGMMA_ROWS * Tile::COLUMNS;
        if (!Tile::OWN_OUTPUT) return v(next_use + warpgroup);
        return (T *)(start + Tile::O_AT + warpgroup * Tile::O_BYTES);
    }
    __device__ inline Barriers *barriers() const { return (Barriers *)(start + Tile::BARRIERS_AT); }
};

// Rows from a box of O to the next: in Q's place those of all warpgroups.
template <int HEAD_DIM, int KEYS> __device__ static constexpr int output_box_rows() {
    return OVERLAPPED ? WGMMA_ROWS : ForwardTile<HEAD_DIM, KEYS>::ROWS;
}

// A use's buffer has been filled; it is empty of the use before. (Use u is the buffer's u / STAGES,
// and a new ring's buffers are empty.)
__device__ static inline void wait_full(Ring *ring, uint32_t use) {
    mbarrier_wait(&ring->full[use % STAGES], use / STAGES % 2);
}
__device__ static inline void wait_empty(Ring *ring, uint32_t use) {
    mbarrier_wait(&ring->empty[use % STAGES], use / STAGES % 2 ^ 1);
}

// This warp's wgmma have read the buffer: after the wait that covers them.
__device__ static inline void release(Ring *ring, uint32_t use) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring->empty[use % STAGES]);
}

// ---- the producer: one thread

// Starts copying tile_rows rows of a head, a box of COLUMNS columns after the other. The barrier's
// phase ends when all of their bytes are there; rows past the last come as zeros and count too.
template <typename T, int HEAD_DIM, int KEYS, int TILE_ROWS>
__device__ static inline void load_rows(T *to_smem, const CUtensorMap *map, uint64_t *full, int row,
                                        int head, int batch) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM * 2);
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_load_4d(to_smem + box * TILE_ROWS * Tile::COLUMNS, map, full, box * Tile::COLUMNS, row,
                    head, batch);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_key(const Smem<T, HEAD_DIM, KEYS> &smem, const ForwardMaps &maps,
                                       const Work &work, int key, uint32_t use) {
    Ring *ring = &smem.barriers()->k;
    wait_empty(ring, use);
    PHASE("load");
    load_rows<T, HEAD_DIM, KEYS, KEYS>(smem.k(use), &maps.k, &ring->full[use % STAGES],
                                       work.k_start + key, work.kv_head, work.batch);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_value(const Smem<T, HEAD_DIM, KEYS> &smem,
                                         const ForwardMaps &maps, const Work &work, int key,
                                         uint32_t use) {
    Ring *ring = &smem.barriers()->v;
    wait_empty(ring, use);
    PHASE("load");
    load_rows<T, HEAD_DIM, KEYS, KEYS>(smem.v(use), &maps.v, &ring->full[use % STAGES],
                                       work.k_start + key, work.kv_head, work.batch);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_query(const Attention &a, const Smem<T, HEAD_DIM, KEYS> &smem,
                                         const ForwardMaps &maps, const Work &work, uint32_t n) {
    Barriers *barriers = smem.barriers();
    // exercise 3: begin
    mbarrier_wait(&barriers->q_empty, n % 2 ^ 1);
    // exercise 3: end
    PHASE("load");
    if (PACKED) {
        load_groups<T, HEAD_DIM, KEYS>(smem.q(), &maps.q, &barriers->q_full, a, work);
        return;
    }
    load_rows<T, HEAD_DIM, KEYS, ForwardTile<HEAD_DIM, KEYS>::ROWS>(
        smem.q(), &maps.q, &barriers->q_full, work.q_start + work.first_row, work.head, work.batch);
}

// The producer's whole work. V comes one block behind K: it is needed later. The next tile is
// chosen before the last V: early enough for its K and Q to come in time, and no earlier, since who
// is ahead should get it.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void produce(const Attention &a, const Smem<T, HEAD_DIM, KEYS> &smem,
                                      const ForwardMaps &maps, const TileOrder &order) {
    const int rows = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS * tokens_of(a);
    Barriers *barriers = smem.barriers();
    Mailbox *mailbox = &barriers->mailbox;
    uint32_t *taken = (uint32_t *)a.workspace;
    const uint32_t places = (uint32_t)places_of(&order);
    uint32_t place = blockIdx.x, use = 0;
    send_work(mailbox, 0, a, order, place, places, rows, KEYS);
    for (uint32_t n = 0; place < places; n++) {
        const Work &work = mailbox->work[n % MAILS];
        int key = work.last_key, left = work.blocks;
        if (left > 0) load_key(smem, maps, work, key, use);
        // A tile without keys needs only its Q to be done. The wait must come before, or its O may
        // be stored by then, too: a parity doesn't tell one phase from the next but one.
        if (OVERLAPPED && left == 0) mbarrier_wait(&barriers->o_empty, n % 2 ^ 1);
        load_query(a, smem, maps, work, n);
        if (left > 1) load_key(smem, maps, work, key - KEYS, use + 1);
        if (OVERLAPPED && left > 0) mbarrier_wait(&barriers->o_empty, n % 2 ^ 1); // V may come
        for (; left > 1; left--, use++, key -= KEYS) {
            load_value(smem, maps, work, key, use);
            if (left > 2) load_key(smem, maps, work, key - 2 * KEYS, use + 2);
        }
        // exercise 2: begin
        place = next_place(DYNAMIC, place, taken);
        send_work(mailbox, n + 1, a, order, place, places, rows, KEYS);
        // exercise 2: end
        if (left > 0) load_value(smem, maps, work, key, use++);
    }
}

// ---- products: a warpgroup starts them

// Starts s_reg = Q Kᵀ of this warpgroup's rows and a block of keys, a group of its own.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void multiply_query_key(float (&s_reg)[KEYS / 8][4],
                                                 const Smem<T, HEAD_DIM, KEYS> &smem, int warpgroup,
                                                 uint32_t use) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const uint64_t q =
        k_major_operand<Tile::LINE>(smem.q() + warpgroup * WGMMA_ROWS * Tile::COLUMNS);
    const uint64_t k = k_major_operand<Tile::LINE>(smem.k(use));
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

// Starts o_reg += P V of a block, a group of its own. Along V's lines run O's columns.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values(float (&o_reg)[HEAD_DIM / 8][4],
                                                  const uint32_t (&p_reg)[KEYS / 16][4],
                                                  const Smem<T, HEAD_DIM, KEYS> &smem,
                                                  uint32_t use) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const uint64_t v = mn_major_operand<Tile::LINE>(smem.v(use), KEYS * Tile::LINE);
    PHASE("pv_gemm");
    wgmma_fence(); // p_reg and o_reg have been written
#pragma unroll
    for (int step = 0; step < KEYS / WGMMA_DEPTH; step++)
        wgmma_registers<T, MN_MAJOR>(o_reg, p_reg[step],
                                     operand_at(v, step * WGMMA_DEPTH * Tile::LINE), 1);
    wgmma_commit();
}

// ---- turns on the tensor cores
//
// As in chapter 5: a warpgroup starts its products only in its turn, and passes the turn on as soon
// as they are started. All warpgroups take equally many turns in a tile, so after the last of one
// tile the first of the next is warpgroup 0's again: turns begin once, and end once.

static const int TURN_THREADS = 2 * WARPGROUP_THREADS; // one warpgroup waits, one arrives
static const int CONSUMERS_MEET = 15;                  // another named barrier, of all consumers

__device__ static inline void take_turn(int warpgroup) {
    named_barrier_sync(1 + warpgroup, TURN_THREADS);
}

template <int WARPGROUPS> __device__ static inline void pass_turn(int warpgroup) {
    named_barrier_arrive(1 + (warpgroup + 1) % WARPGROUPS, TURN_THREADS);
}

// The first turn is warpgroup 0's: the last one passes it on before it begins, and takes back what
// was passed on at the end.
template <int WARPGROUPS> __device__ static inline void begin_turns(int warpgroup) {
    if (warpgroup == WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup);
}

__device__ static inline void end_turns(int warpgroup) {
    if (warpgroup == 0) take_turn(warpgroup);
}

// ---- the loop over keys

// All warps' Q Kᵀ have read Q, and nothing else takes its place: the next one may come.
__device__ static inline void release_query(Barriers *barriers) {
    if (OVERLAPPED && threadIdx.x % 32 == 0) mbarrier_arrive(&barriers->q_empty);
}

// Where sequences follow each other, a box of V that reaches past one's end has the next one's
// first rows; in a cache, whatever stands there. Their weights are 0, but 0 times inf or NaN is not:
// zeros take their place. All consumers do it together, once a tile.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void clear_tail(const Smem<T, HEAD_DIM, KEYS> &smem, const Work &work,
                                         uint32_t use) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int valid = work.seqlen_k - work.last_key;
    wait_full(&smem.barriers()->v, use);
    // Lines of a swizzle are permuted in themselves, so whole ones are simply cleared.
    const int box_pieces = (KEYS - valid) * (Tile::LINE / 16);
    for (int i = threadIdx.x; i < Tile::BOXES * box_pieces; i += Tile::WARPS * 32) {
        const int box = i / box_pieces, piece = i % box_pieces;
        T *line = smem.v(use) + (box * KEYS + valid) * Tile::COLUMNS;
        *(uint4 *)(line + piece * 8) = make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async();
    named_barrier_sync(CONSUMERS_MEET, Tile::WARPS * 32);
}

// Q Kᵀ of block j is started before P V of block j - 1, and its softmax runs while P V does:
//
//   tensor cores   │ Q K(j)ᵀ │ P(j-1) V(j-1) │ Q K(j+1)ᵀ │ P(j) V(j) │
//   registers                │ softmax(j)    │           │ softmax(j+1)
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void attend(float (&o_reg)[HEAD_DIM / 8][4], float (&row_max)[2],
                                     float (&row_sum)[2], const Attention &a,
                                     const Exponent &exponent, const Work &work,
                                     const Smem<T, HEAD_DIM, KEYS> &smem, int warpgroup,
                                     uint32_t use) {
    const int WARPGROUPS = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS;
    const bool TURNS = ForwardTile<HEAD_DIM, KEYS>::TURNS;
    Barriers *barriers = smem.barriers();
    const Keys keys = keys_of(work);
    float s_reg[KEYS / 8][4], rescale[2];
    uint32_t p_reg[KEYS / 16][4];

    wait_full(&barriers->k, use);
    if (TURNS) take_turn(warpgroup);
    multiply_query_key(s_reg, smem, warpgroup, use);
    if (TURNS) pass_turn<WARPGROUPS>(warpgroup);
    wgmma_wait<0>();
    wgmma_results(s_reg);
    release(&barriers->k, use);
    update_softmax<KEYS>(s_reg, row_max, row_sum, rescale, a, exponent, work, keys, 0);
    take_weights<T, HEAD_DIM, KEYS>(p_reg, o_reg, s_reg, rescale);
    if ((a.varlen || (CACHED && a.cache)) && keys.last_key + KEYS > work.seqlen_k)
        clear_tail(smem, work, use);
    if (keys.blocks > 1) wait_full(&barriers->k, use + 1);

    for (int j = 1; j < keys.blocks; j++, use++) { // use: of V, a block behind K's
        if (TURNS) take_turn(warpgroup);
        multiply_query_key(s_reg, smem, warpgroup, use + 1);
        wait_full(&barriers->v, use);
        add_weighted_values(o_reg, p_reg, smem, use);
        if (TURNS) pass_turn<WARPGROUPS>(warpgroup);
        wgmma_wait<1>(); // Q Kᵀ; P V runs on
        wgmma_results(s_reg);
        release(&barriers->k, use + 1);
        update_softmax<KEYS>(s_reg, row_max, row_sum, rescale, a, exponent, work, keys, j);
        // The next block's wait stands here, not at the top: ptxas moves a wait for wgmma up over
        // arithmetic, but not over a loop, and this one keeps the softmax before it.
        if (j + 1 < keys.blocks) wait_full(&barriers->k, use + 2);
        wgmma_wait<0>();
        wgmma_results(o_reg);
        release(&barriers->v, use);
        take_weights<T, HEAD_DIM, KEYS>(p_reg, o_reg, s_reg, rescale);
    }

    release_query(barriers);
    wait_full(&barriers->v, use);
    if (TURNS) take_turn(warpgroup);
    add_weighted_values(o_reg, p_reg, smem, use);
    if (TURNS) pass_turn<WARPGROUPS>(warpgroup);
    wgmma_wait<0>();
    wgmma_results(o_reg);
    release(&barriers->v, use);
}

// ---- the end of a tile

// Named barriers of a warpgroup: at one its warps meet, at the other its O changes hands.
static const int HAND_OVER_THREADS = WARPGROUP_THREADS + 32; // it arrives, its store warp waits

template <int WARPGROUPS> __device__ static inline int meeting_barrier(int warpgroup) {
    return 1 + WARPGROUPS + warpgroup;
}
template <int WARPGROUPS> __device__ static inline int hand_over_barrier(int warpgroup) {
    return 1 + 2 * WARPGROUPS + warpgroup;
}

// Can TMA store a warpgroup's O? It leaves out rows past the tensor's last, but not those past a
// sequence's last, where the next one begins.
__device__ static inline bool is_partial(const Attention &a, const Work &work, int warpgroup) {
    return a.varlen && work.first_row + (warpgroup + 1) * tokens_of(a) > work.seqlen_q;
}

// One thread starts storing a warpgroup's O, and waits until shared memory has been read.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void store_rows(const T *o_smem, const Attention &a,
                                         const ForwardMaps &maps, const Work &work, int warpgroup) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int first_row = work.first_row + warpgroup * tokens_of(a);
    if (first_row >= work.seqlen_q) return;
    PHASE("store");
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_store_4d(&maps.o, o_smem + box * output_box_rows<HEAD_DIM, KEYS>() * Tile::COLUMNS,
                     box * Tile::COLUMNS, PACKED ? work.head : work.q_start + first_row,
                     PACKED ? work.q_start + first_row : work.head, work.batch);
    tma_commit();
    tma_wait_read<0>();
}

// The same by `threads` threads, of which this is number `thread`, 16 bytes at a time, and no more
// rows than the sequence has.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void copy_rows(const T *o_smem, const Attention &a, const Work &work,
                                        int warpgroup, int thread, int threads) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int PIECES = HEAD_DIM / 8, BOX_PIECES = Tile::COLUMNS / 8; // of a row
    const int first_row = work.first_row + warpgroup * tokens_of(a);
    const int rows = min(work.seqlen_q - first_row, tokens_of(a)) * group_of(a);
    T *o = (T *)a.o + row_offset(0, work.q_start + first_row, work.head, 0, a.heads, HEAD_DIM);
#pragma unroll 1 // a store warp has few registers
    for (int i = thread; i < rows * PIECES; i += threads) {
        const int row = i / PIECES, piece = i % PIECES;
        const int line = piece / BOX_PIECES * output_box_rows<HEAD_DIM, KEYS>() + row;
        const int place = swizzled_place<Tile::LINE>(row, piece % BOX_PIECES);
        *(uint4 *)(o + (PACKED ? rows_from_first(a, row) : (int64_t)row * a.heads) * HEAD_DIM +
                   piece * 8) = *(const uint4 *)(o_smem + line * Tile::COLUMNS + place * 8);
    }
    fence_proxy_async(); // these reads come before what TMA brings here
}

// Waits until O's place is free. V's buffer: all warps have read the use before, and so has TMA the
// O before. Q's: this warpgroup's four warps have read their rows.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void wait_for_output_place(const Smem<T, HEAD_DIM, KEYS> &smem,
                                                    int warpgroup, uint32_t n, uint32_t next_use) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    Barriers *barriers = smem.barriers();
    if (!OVERLAPPED) {
        named_barrier_sync(meeting_barrier<Tile::WARPGROUPS>(warpgroup), WARPGROUP_THREADS);
        return;
    }
    mbarrier_wait(&barriers->o_empty, n % 2 ^ 1);
    if (!Tile::OWN_OUTPUT) wait_empty(&barriers->v, next_use + warpgroup);
}

// o_reg → O in shared memory, swizzled as TMA wants it.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void write_output(T *o_smem, const float (&o_reg)[HEAD_DIM / 8][4]) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    const int row_pieces = row * (Tile::COLUMNS / 8); // of 16 bytes, before this row
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) {
        uint32_t o_pair[4];
        weights_operand<T, HEAD_DIM>(o_pair, o_reg, step); // the same fragments as P's
        const int column = step * 16, piece = column % Tile::COLUMNS / 8 + lane / 16;
        const int place = swizzled_place<Tile::LINE>(row, piece);
        store_matrix_x4(
            o_smem + column / Tile::COLUMNS * output_box_rows<HEAD_DIM, KEYS>() * Tile::COLUMNS +
                (row_pieces + place) * 8,
            o_pair);
    }
    fence_proxy_async(); // this thread's part of O → TMA
}

// O in shared memory → whoever stores it.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void hand_over(const T *o_smem, const Attention &a,
                                        const Smem<T, HEAD_DIM, KEYS> &smem,
                                        const ForwardMaps &maps, const Work &work, int warpgroup) {
    const int WARPGROUPS = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS;
    if (OVERLAPPED) {
        named_barrier_arrive(hand_over_barrier<WARPGROUPS>(warpgroup), HAND_OVER_THREADS);
        return;
    }
    const int barrier = meeting_barrier<WARPGROUPS>(warpgroup);
    const int thread = threadIdx.x % WARPGROUP_THREADS;
    named_barrier_sync(barrier, WARPGROUP_THREADS);
    if (is_partial(a, work, warpgroup)) {
        copy_rows<T, HEAD_DIM, KEYS>(o_smem, a, work, warpgroup, thread, WARPGROUP_THREADS);
        named_barrier_sync(barrier, WARPGROUP_THREADS);
    } else if (thread == 0) {
        store_rows<T, HEAD_DIM, KEYS>(o_smem, a, maps, work, warpgroup);
    }
    if (thread == 0) mbarrier_arrive(&smem.barriers()->q_empty);
}

template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void finish_tile(float (&o_reg)[HEAD_DIM / 8][4],
                                          const float (&row_max)[2], const float (&row_sum)[2],
                                          const Attention &a, const Smem<T, HEAD_DIM, KEYS> &smem,
                                          const ForwardMaps &maps, const Work &work, int warpgroup,
                                          uint32_t n, uint32_t next_use) {
    PHASE("epilogue");
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] = quad_sum(row_sum[half]);
        scale_output<HEAD_DIM>(o_reg, half, sum[half] > 0 ? 1 / sum[half] : 0);
    }
    T *o_smem = smem.o(warpgroup, next_use);
    wait_for_output_place(smem, warpgroup, n, next_use);
    write_output<T, HEAD_DIM, KEYS>(o_smem, o_reg);
    hand_over(o_smem, a, smem, maps, work, warpgroup);
    // lse last: now O's registers are free.
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = token_of_fragment(a, work, half), head = head_of_fragment(a, work, half);
        if (threadIdx.x % 4 == 0 && row < work.seqlen_q)
            a.lse[vector_offset(work.batch, head, work.q_start + row, a.heads,
                                a.varlen ? a.total_q : a.seqlen_q)] =
                row_lse(row_max[half], sum[half], a, head);
    }
}

// All that a store warp does.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void store_tiles(const Attention &a, const Smem<T, HEAD_DIM, KEYS> &smem,
                                          const ForwardMaps &maps, int warpgroup) {
    const int WARPGROUPS = ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS;
    Barriers *barriers = smem.barriers();
    uint32_t use = 0;
    for (uint32_t n = 0;; n++) {
        const Work &work = receive_work(&barriers->mailbox, n);
        if (work.blocks < 0) break;
        use += work.blocks;
        const T *o_smem = smem.o(warpgroup, use);
        named_barrier_sync(hand_over_barrier<WARPGROUPS>(warpgroup), HAND_OVER_THREADS);
        if (is_partial(a, work, warpgroup))
            copy_rows<T, HEAD_DIM, KEYS>(o_smem, a, work, warpgroup, threadIdx.x % 32, 32);
        else if (elect_one())
            store_rows<T, HEAD_DIM, KEYS>(o_smem, a, maps, work, warpgroup);
        // exercise 5: begin
        __syncwarp(); // all lanes' reads → the one that arrives, which is the one that has waited
        if (elect_one()) mbarrier_arrive(&barriers->o_empty);
        // exercise 5: end
        release_work(&barriers->mailbox, n);
    }
}

// All that a warpgroup that computes does.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void consume(const Attention &a, const Smem<T, HEAD_DIM, KEYS> &smem,
                                      const ForwardMaps &maps, int warpgroup) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    Barriers *barriers = smem.barriers();
    uint32_t use = 0;
    if (Tile::TURNS) begin_turns<Tile::WARPGROUPS>(warpgroup);
    for (uint32_t n = 0;; n++) {
        const Work &work = receive_work(&barriers->mailbox, n);
        if (work.blocks < 0) break;
        float o_reg[HEAD_DIM / 8][4] = {};
        float row_max[2], row_sum[2]; // m log2(e); this lane's l
        begin_softmax(row_max, row_sum, a, work);
        mbarrier_wait(&barriers->q_full, n % 2);
        if (work.blocks > 0)
            attend(o_reg, row_max, row_sum, a, exponent, work, smem, warpgroup, use);
        else
            release_query(barriers);
        // exercise 4: begin
        use += work.blocks;
        finish_tile(o_reg, row_max, row_sum, a, smem, maps, work, warpgroup, n, use);
        release_work(&barriers->mailbox, n);
        // exercise 4: end
    }
    if (Tile::TURNS) end_turns(warpgroup);
}

// ---- the kernel

// Thread 0 makes the mbarriers and fetches the maps; then all threads, and TMA, may use them.
template <int WARPGROUPS>
__device__ static inline void make_barriers(Barriers *barriers, const ForwardMaps &maps) {
    const int WARPS = WARPGROUPS * 4;
    if (threadIdx.x == 0) {
        tma_prefetch_map(&maps.q);
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.v);
        for (int i = 0; i < MAILS; i++) {
            mbarrier_init(&barriers->mailbox.full[i], 1);
            mbarrier_init(&barriers->mailbox.empty[i], WARPS + (OVERLAPPED ? WARPGROUPS : 0));
        }
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&barriers->k.full[stage], 1);
            mbarrier_init(&barriers->v.full[stage], 1);
            mbarrier_init(&barriers->k.empty[stage], WARPS);
            mbarrier_init(&barriers->v.empty[stage], WARPS);
        }
        mbarrier_init(&barriers->q_full, 1);
        mbarrier_init(&barriers->q_empty, OVERLAPPED ? WARPS : WARPGROUPS);
        mbarrier_init(&barriers->o_empty, WARPGROUPS);
        fence_mbarrier_init(); // → TMA
    }
    __syncthreads(); // → all threads
}

// Threads of a block: the consumers', and the producer's warpgroup, whose other warps store.
#define FORWARD_THREADS(HEAD_DIM, KEYS)                                                            \
    ((ForwardTile<HEAD_DIM, KEYS>::WARPGROUPS + 1) * WARPGROUP_THREADS)

#define FORWARD_BYTES(HEAD_DIM, KEYS)                                                              \
    (ForwardTile<HEAD_DIM, KEYS>::BARRIERS_AT + (int)sizeof(Barriers))

template <typename T, int HEAD_DIM, int KEYS>
__global__ void __launch_bounds__(FORWARD_THREADS(HEAD_DIM, KEYS), 1)
    FORWARD_KERNEL(const Attention a, const __grid_constant__ ForwardMaps maps,
                   const __grid_constant__ TileOrder order) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    static_assert(OVERLAPPED || !PACKED,
                  "O in Q's place would leave numbers in rows that stay empty");
    extern __shared__ __align__(1024) uint8_t smem_start[];
    const Smem<T, HEAD_DIM, KEYS> smem = {smem_start};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP_THREADS, 0); // uniform
    if (PACKED) clear_query<T, HEAD_DIM, KEYS>(smem.q());
    make_barriers<Tile::WARPGROUPS>(smem.barriers(), maps);

    if (warpgroup == Tile::WARPGROUPS) {
        give_registers<Tile::PRODUCER_REGISTERS>();
        const int warp = threadIdx.x / 32 - Tile::WARPS;
        if (warp == 0 && elect_one()) produce(a, smem, maps, order);
        if (OVERLAPPED && warp >= 1 && warp <= Tile::WARPGROUPS)
            store_tiles(a, smem, maps, warp - 1);
    } else {
        take_registers<Tile::CONSUMER_REGISTERS>();
        consume(a, smem, maps, warpgroup);
    }
}

#include "launch.h"

#endif
