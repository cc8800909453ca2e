// Chapter 7's forward in fp8: chapter 6's attention of a Quantised, in thread blocks that stay.
//
//   producer     4 warps             transpose V; one thread also chooses the tile (work.h) and
//                                    starts the copies of Q, K and V
//   consumers    2 or 3 warpgroups   products, softmax (chapter 6's), O → global memory
//
// Rings as in chapter 6, whose uses count on from tile to tile as in forward.h:
//
//   q, k            TMA → who computes; q's uses are tiles
//   v               TMA → who transposes
//   v_transposed    who transposes → who computes
//
//   shared memory │ Q: STAGES │ K: STAGES │ V: STAGES │ V's transpose: STAGES │ barriers │
//
// A warpgroup stores its O itself, straight from its registers: nobody waits for such a store, and
// what stands in shared memory needn't make room for an O of twice the bytes.
#ifndef FORWARD_FP8_H
#define FORWARD_FP8_H

#include "../06_fp8_hadamard/softmax.h"
#include "../06_fp8_hadamard/transpose.h"
#include "device/elect.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/register_count.h"
#include "device/tensor_map.h"

static const bool PACKED = false; // rows of several heads would have several scales
#include "work.h"

static const uint32_t STAGES = 2; // buffers of each ring

typedef __nv_bfloat16 Output;

typedef struct {
    CUtensorMap q, k, v;
} Maps;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

struct Barriers {
    Mailbox mailbox;
    Ring q, k, v, v_transposed;
};

template <int HEAD_DIM> struct Fp8Tile : AttentionTile<HEAD_DIM> {
    using Base = AttentionTile<HEAD_DIM>;
    static constexpr int WARPS = Base::WARPGROUPS * 4; // that compute
    // Chapter 6's producer has 24 for wide heads; who reckons tiles needs more.
    static constexpr int PRODUCER_REGISTERS = HEAD_DIM <= 64 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = HEAD_DIM <= 64 ? 160 : 232;
    static constexpr bool TURNS = HEAD_DIM >= 128; // on the tensor cores, as in chapter 6
    static constexpr int K_AT = STAGES * Base::Q_BYTES;
    static constexpr int V_AT = K_AT + STAGES * Base::KV_BYTES;
    static constexpr int V_TRANSPOSED_AT = V_AT + STAGES * Base::KV_BYTES;
    static constexpr int BARRIERS_AT = V_TRANSPOSED_AT + STAGES * Base::KV_BYTES;
    static constexpr int BYTES = BARRIERS_AT + (int)sizeof(Barriers);
    static_assert(BYTES <= MAX_SHARED_BYTES, "the tiles must fit");
};

template <int HEAD_DIM> struct Smem {
    using Tile = Fp8Tile<HEAD_DIM>;
    uint8_t *start;
    __device__ inline uint8_t *q(uint32_t n) const { return start + n % STAGES * Tile::Q_BYTES; }
    __device__ inline uint8_t *k(uint32_t use) const {
        return start + Tile::K_AT + use % STAGES * Tile::KV_BYTES;
    }
    __device__ inline uint8_t *v(uint32_t use) const {
        return start + Tile::V_AT + use % STAGES * Tile::KV_BYTES;
    }
    __device__ inline uint8_t *v_transposed(uint32_t use) const {
        return start + Tile::V_TRANSPOSED_AT + use % STAGES * Tile::KV_BYTES;
    }
    __device__ inline Barriers *barriers() const { return (Barriers *)(start + Tile::BARRIERS_AT); }
};

__device__ static inline void wait_full(Ring *ring, uint32_t use) {
    mbarrier_wait(&ring->full[use % STAGES], use / STAGES % 2);
}
__device__ static inline void wait_empty(Ring *ring, uint32_t use) {
    mbarrier_wait(&ring->empty[use % STAGES], use / STAGES % 2 ^ 1); // a new ring is empty
}

// This warp no longer needs the buffer.
__device__ static inline void release(Ring *ring, uint32_t use) {
    mbarrier_arrive_if(threadIdx.x % 32 == 0, &ring->empty[use % STAGES]);
}

// ---- the producer's one thread that starts copies

// Starts copying tile_rows rows of a head, a box of LINE columns after the other.
template <int HEAD_DIM, int TILE_ROWS>
__device__ static inline void load_rows(uint8_t *to_smem, const CUtensorMap *map, uint64_t *full,
                                        int row, int head, int batch) {
    using Tile = Fp8Tile<HEAD_DIM>;
    PHASE("load");
    mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM);
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_load_4d(to_smem + box * TILE_ROWS * Tile::LINE, map, full, box * Tile::LINE, row, head,
                    batch);
}

// Block j of a tile's K, as the ring's use; of its V.
template <int HEAD_DIM>
__device__ static inline void load_key(const Smem<HEAD_DIM> &smem, const Maps &maps,
                                       const Work &work, int j, uint32_t use) {
    const int KEYS = Fp8Tile<HEAD_DIM>::KEYS;
    Ring *ring = &smem.barriers()->k;
    wait_empty(ring, use);
    load_rows<HEAD_DIM, KEYS>(smem.k(use), &maps.k, &ring->full[use % STAGES],
                              work.last_key - j * KEYS, work.kv_head, work.batch);
}

template <int HEAD_DIM>
__device__ static inline void load_value(const Smem<HEAD_DIM> &smem, const Maps &maps,
                                         const Work &work, int j, uint32_t use) {
    const int KEYS = Fp8Tile<HEAD_DIM>::KEYS;
    Ring *ring = &smem.barriers()->v;
    wait_empty(ring, use);
    load_rows<HEAD_DIM, KEYS>(smem.v(use), &maps.v, &ring->full[use % STAGES],
                              work.last_key - j * KEYS, work.kv_head, work.batch);
}

// Tile n's first K, its Q, and its first V: their buffers are those of the use before the last. (Q
// comes without keys, too: its uses count all tiles.)
template <int HEAD_DIM>
__device__ static inline void begin_tile(const Smem<HEAD_DIM> &smem, const Maps &maps,
                                         const Work &work, uint32_t n, uint32_t first_use) {
    if (work.blocks < 0) return;
    Ring *ring = &smem.barriers()->q;
    if (work.blocks > 0) load_key(smem, maps, work, 0, first_use);
    wait_empty(ring, n);
    load_rows<HEAD_DIM, Fp8Tile<HEAD_DIM>::ROWS>(smem.q(n), &maps.q, &ring->full[n % STAGES],
                                                 work.first_row, work.head, work.batch);
    if (work.blocks > 0) load_value(smem, maps, work, 0, first_use);
}

// ---- the producer: four warps

// This warp's part of a V's transpose.
template <int HEAD_DIM>
__device__ static inline void transpose_block(const Smem<HEAD_DIM> &smem, uint32_t use) {
    __syncwarp(); // with the lane that starts copies
    Ring *from = &smem.barriers()->v, *to = &smem.barriers()->v_transposed;
    wait_full(from, use);
    wait_empty(to, use);
    PHASE("transpose");
    transpose_values<HEAD_DIM>(smem.v_transposed(use), smem.v(use), threadIdx.x / 32 % TRANSPOSERS);
    fence_proxy_async(); // this thread's lines → wgmma, and V, which it has read, → TMA
    __syncwarp();        // all lanes' → the one that arrives
    release(from, use);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&to->full[use % STAGES]);
}

// The producer's whole work. As in chapter 6 one lane also starts the copies; what it waits for is
// over before the next transpose may begin. The next tile is chosen, and its first K and V started,
// before this one's last V is transposed.
template <int HEAD_DIM>
__device__ static inline void produce(const Attention &a, const Smem<HEAD_DIM> &smem,
                                      const Maps &maps, const TileOrder &order, uint32_t *taken) {
    const int ROWS = Fp8Tile<HEAD_DIM>::ROWS, KEYS = Fp8Tile<HEAD_DIM>::KEYS;
    const bool loader = threadIdx.x / 32 % TRANSPOSERS == 0 && elect_one();
    Mailbox *mailbox = &smem.barriers()->mailbox;
    const uint32_t places = (uint32_t)places_of(&order);
    uint32_t use = 0;
    if (loader) {
        send_work(mailbox, 0, a, order, blockIdx.x, places, ROWS, KEYS);
        begin_tile(smem, maps, mailbox->work[0], 0, 0);
        if (mailbox->work[0].blocks > 1) load_key(smem, maps, mailbox->work[0], 1, 1);
    }
    for (uint32_t n = 0;; n++) {
        __syncwarp();
        const Work &work = receive_work(mailbox, n), &next = mailbox->work[(n + 1) % MAILS];
        const int blocks = work.blocks;
        if (blocks < 0) break;
        for (int j = 1; j < blocks; j++, use++) { // use: of the V to transpose, a block behind
            if (loader) load_value(smem, maps, work, j, use + 1);
            transpose_block(smem, use);
            if (loader && j + 1 < blocks) load_key(smem, maps, work, j + 1, use + 2);
        }
        const uint32_t next_use = use + (blocks > 0);
        if (loader) {
            const uint32_t place = next_place(true, 0, taken);
            send_work(mailbox, n + 1, a, order, place, places, ROWS, KEYS);
            begin_tile(smem, maps, next, n + 1, next_use);
        }
        if (blocks > 0) transpose_block(smem, use);
        if (loader && next.blocks > 1) load_key(smem, maps, next, 1, next_use + 1);
        use = next_use;
        release_work(mailbox, n);
    }
}

// ---- products: a warpgroup starts them

// Starts s_reg = Q Kᵀ of this warpgroup's rows of tile n and a block of keys, a group of its own.
template <int HEAD_DIM, int PIECES>
__device__ static inline void multiply_query_key(float (&s_reg)[PIECES][4],
                                                 const Smem<HEAD_DIM> &smem, int warpgroup,
                                                 uint32_t n, uint32_t use) {
    using Tile = Fp8Tile<HEAD_DIM>;
    const uint64_t q = k_major_operand<Tile::LINE>(smem.q(n) + warpgroup * WGMMA_ROWS * Tile::LINE);
    const uint64_t k = k_major_operand<Tile::LINE>(smem.k(use));
    PHASE("qk_gemm");
    wgmma_fence(); // s_reg has been read
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += WGMMA_FP8_DEPTH) {
        const int box = d / Tile::LINE, bytes = d % Tile::LINE;
        const uint64_t q_part = operand_at(q, box * Tile::ROWS * Tile::LINE + bytes);
        const uint64_t k_part = operand_at(k, box * Tile::KEYS * Tile::LINE + bytes);
        if (d == 0)
            wgmma_fp8_shared<0>(s_reg, q_part, k_part);
        else
            wgmma_fp8_shared<1>(s_reg, q_part, k_part);
    }
    wgmma_commit();
}

// ---- turns on the tensor cores, which go round from tile to tile (forward.h)

static const int TURN_THREADS = 2 * WARPGROUP_THREADS; // one warpgroup waits, one arrives

__device__ static inline void take_turn(int warpgroup) {
    named_barrier_sync(1 + warpgroup, TURN_THREADS);
}

template <int WARPGROUPS> __device__ static inline void pass_turn(int warpgroup) {
    named_barrier_arrive(1 + (warpgroup + 1) % WARPGROUPS, TURN_THREADS);
}

// ---- the loop over keys

// Chapter 6's attend_overlapped: the softmax of block j runs while P V of block j - 1 does, its row
// maxima in between P V's instructions. first_use: of block 0, in all rings. Returns the v_scale that
// o_reg's units are.
template <int HEAD_DIM>
__device__ static inline float attend(float (&o_reg)[HEAD_DIM / 8][4], RowSoftmax (&rows)[2],
                                      const Attention &a, const Scales &scales, const Tiles &tiles,
                                      const Smem<HEAD_DIM> &smem, uint32_t n, uint32_t first_use) {
    using Tile = Fp8Tile<HEAD_DIM>;
    const int WARPGROUPS = Tile::WARPGROUPS, warpgroup = tiles.warpgroup;
    Barriers *barriers = smem.barriers();
    float s_reg[Tile::KEYS / 8][4];
    uint16_t pair_reg[Tile::KEYS / 8][2];
    uint32_t p_reg[Tile::KEY_STEPS][4];
    BlockScales now = load_scales(scales, 0), next = load_scales(scales, min(1u, tiles.blocks - 1));
    float v_scale = now.v; // of the newest block in p_reg

    wait_full(&barriers->q, n);
    wait_full(&barriers->k, first_use);
    multiply_query_key<HEAD_DIM>(s_reg, smem, warpgroup, n, first_use);
    wgmma_wait<0>();
    wgmma_results(s_reg);
    release(&barriers->k, first_use);
    update_softmax(rows, s_reg, a, block_exponent(scales, now.k), tiles, 0);
    round_weights(pair_reg, rows, s_reg);
    take_weights(p_reg, pair_reg);
    float units = 1;
    if (tiles.blocks > 1) wait_full(&barriers->k, first_use + 1);

    for (uint32_t j = 1; j < tiles.blocks; j++) {
        const uint32_t use = first_use + j; // of K; V is a block behind
        now = next;
        next = load_scales(scales, min(j + 1, tiles.blocks - 1)); // a block ahead: it takes a while
        const Exponent exponent = block_exponent(scales, now.k);
        if (Tile::TURNS) take_turn(warpgroup);
        multiply_query_key<HEAD_DIM>(s_reg, smem, warpgroup, n, use);
        rescale_output<HEAD_DIM>(o_reg, rows, units); // for block j - 1, while Q Kᵀ runs
        wait_full(&barriers->v_transposed, use - 1);
        wgmma_wait<0>();
        wgmma_results(s_reg);
        release(&barriers->k, use);
        finish_scores(s_reg, a, exponent, tiles, j);
        float largest[2] = {-CUDART_INF_F, -CUDART_INF_F};
        const uint64_t v = k_major_operand<32>(smem.v_transposed(use - 1));
        PHASE("pv_gemm");
#pragma unroll
        for (int step = 0; step < Tile::KEY_STEPS; step++) {
            wgmma_fence(); // o_reg and p_reg are as they were; ptxas wants to be told
            wgmma_fp8_registers<1>(o_reg, p_reg[step], operand_at(v, step * HEAD_DIM * 32));
            largest[0] = lane_max(largest[0], s_reg, 0, 4 * step, 4 * step + 4);
            largest[1] = lane_max(largest[1], s_reg, 1, 4 * step, 4 * step + 4);
        }
        wgmma_commit();
        if (Tile::TURNS) pass_turn<WARPGROUPS>(warpgroup);
        PHASE("softmax");
#pragma unroll
        for (int half = 0; half < 2; half++) {
            update_max(&rows[half], largest[half], exponent);
            exponentiate(rows[half], s_reg, half, exponent);
        }
        round_weights(pair_reg, rows, s_reg);
        units = units_of(v_scale, now.v);
        v_scale = now.v;
        // The next block's wait stands here so that ptxas keeps the softmax before it. The last block
        // has none (chapter 6's waits once more for its own): the next tile's K may be there by now.
        if (j + 1 < tiles.blocks) wait_full(&barriers->k, use + 1);
        wgmma_wait<0>();
        wgmma_results(o_reg);
        release(&barriers->v_transposed, use - 1);
        take_weights(p_reg, pair_reg);
    }

    const uint32_t last_use = first_use + tiles.blocks - 1;
    release(&barriers->q, n);
    rescale_output<HEAD_DIM>(o_reg, rows, units);
    wait_full(&barriers->v_transposed, last_use);
    if (Tile::TURNS) take_turn(warpgroup);
    const uint64_t v = k_major_operand<32>(smem.v_transposed(last_use));
    PHASE("pv_gemm");
    wgmma_fence(); // p_reg and o_reg have been written
#pragma unroll
    for (int step = 0; step < Tile::KEY_STEPS; step++)
        wgmma_fp8_registers<1>(o_reg, p_reg[step], operand_at(v, step * HEAD_DIM * 32));
    wgmma_commit();
    if (Tile::TURNS) pass_turn<WARPGROUPS>(warpgroup);
    wgmma_wait<0>();
    wgmma_results(o_reg);
    release(&barriers->v_transposed, last_use);
    return v_scale;
}

// ---- the consumers

__device__ static inline Tiles tiles_of_work(const Work &work, int warpgroup) {
    Tiles tiles;
    tiles.warpgroup = warpgroup;
    tiles.batch = work.batch;
    tiles.head = work.head;
    tiles.kv_head = work.kv_head;
    tiles.first_row = work.first_row;
    tiles.blocks = (uint32_t)work.blocks;
    tiles.last_key = work.last_key;
    tiles.unmasked_from = work.unmasked_from;
    tiles.unmasked_to = work.unmasked_to;
    return tiles;
}

// A head's sink as the rows' maxima are, in base 2 and 2^8 weights; -inf: there is none.
__device__ static inline float sink_max(const Attention &a, int head) {
    return a.has_sink ? a.sink[head] * CUDART_L2E_F - WEIGHT_BITS : -CUDART_INF_F;
}

// Before the first block: nothing, or the head's sink (softmax.h of this chapter).
__device__ static inline RowSoftmax begin_row(const Attention &a, int head) {
    RowSoftmax row;
    row.max = sink_max(a, head);
    row.sum = a.has_sink && threadIdx.x % 4 == 0 ? exp2f(WEIGHT_BITS) : 0;
    row.base = 0;
    row.rescale = 1;
    return row;
}

// o_reg → O, and lse.
template <int HEAD_DIM>
__device__ static inline void finish_tile(float (&o_reg)[HEAD_DIM / 8][4],
                                          const RowSoftmax (&rows)[2], float v_scale,
                                          const Attention &a, const Work &work) {
    PHASE("epilogue");
    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(rows[half].sum);
        scale_output<HEAD_DIM>(o_reg, half, sum > 0 ? v_scale / sum : 0);
        // The weights' 2^8 goes where that is exact: taken off behind the logarithm it would round.
        const float max = rows[half].max, one = sum * exp2f(-WEIGHT_BITS);
        lse[half] = a.has_sink && max == sink_max(a, work.head) // exp2.h's log_sum_exp_of_sink
                        ? a.sink[work.head] + logf(one)
                        : log_sum_exp_base_2(max + WEIGHT_BITS, one);
    }
    FusedWork<Output> rows_of_block;
    rows_of_block.batch = work.batch;
    rows_of_block.head = work.head;
    rows_of_block.first_row = work.first_row;
    store_fragments<Output, HEAD_DIM>(a, rows_of_block, o_reg, lse);
}

// All that a warpgroup that computes does.
template <int HEAD_DIM>
__device__ static inline void consume(const Attention &a, const Quantised &x,
                                      const Smem<HEAD_DIM> &smem, int warpgroup) {
    using Tile = Fp8Tile<HEAD_DIM>;
    const int WARPGROUPS = Tile::WARPGROUPS;
    Barriers *barriers = smem.barriers();
    uint32_t use = 0;
    if (Tile::TURNS && warpgroup == WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup); // the first
    for (uint32_t n = 0;; n++) {
        const Work &work = receive_work(&barriers->mailbox, n);
        if (work.blocks < 0) break;
        float o_reg[HEAD_DIM / 8][4] = {};
        RowSoftmax rows[2] = {begin_row(a, work.head), begin_row(a, work.head)};
        float v_scale = 1;
        if (work.blocks > 0) {
            const Tiles tiles = tiles_of_work(work, warpgroup);
            const Scales scales = scales_of(a, x, tiles, Tile::KEYS);
            v_scale = attend(o_reg, rows, a, scales, tiles, smem, n, use);
            use += tiles.blocks;
        } else {
            wait_full(&barriers->q, n);
            release(&barriers->q, n);
        }
        finish_tile<HEAD_DIM>(o_reg, rows, v_scale, a, work);
        release_work(&barriers->mailbox, n);
    }
    if (Tile::TURNS && warpgroup == 0) take_turn(warpgroup); // takes back what was passed on last
}

// ---- the kernel

__device__ static inline void make_ring(Ring *ring, int full_arrivals, int empty_arrivals) {
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        mbarrier_init(&ring->full[stage], full_arrivals);
        mbarrier_init(&ring->empty[stage], empty_arrivals);
    }
}

// Thread 0 makes the mbarriers and fetches the maps; then all threads, and TMA, may use them.
template <int WARPS>
__device__ static inline void make_barriers(Barriers *barriers, const Maps &maps) {
    if (threadIdx.x == 0) {
        tma_prefetch_map(&maps.q);
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.v);
        for (int i = 0; i < MAILS; i++) {
            mbarrier_init(&barriers->mailbox.full[i], 1);
            mbarrier_init(&barriers->mailbox.empty[i], WARPS + TRANSPOSERS);
        }
        make_ring(&barriers->q, 1, WARPS);
        make_ring(&barriers->k, 1, WARPS);
        make_ring(&barriers->v, 1, TRANSPOSERS);
        make_ring(&barriers->v_transposed, TRANSPOSERS, WARPS);
        fence_mbarrier_init(); // → TMA
    }
    __syncthreads(); // → all threads
}

template <int HEAD_DIM>
__global__ void __launch_bounds__(Fp8Tile<HEAD_DIM>::THREADS, 1)
    forward_fp8(const Attention a, const Quantised x, const __grid_constant__ Maps maps,
                const __grid_constant__ TileOrder order, uint32_t *taken) {
    using Tile = Fp8Tile<HEAD_DIM>;
    extern __shared__ __align__(1024) uint8_t smem_start[];
    const Smem<HEAD_DIM> smem = {smem_start};
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP_THREADS, 0); // uniform
    make_barriers<Tile::WARPS>(smem.barriers(), maps);

    if (warpgroup == Tile::WARPGROUPS) {
        give_registers<Tile::PRODUCER_REGISTERS>();
        produce(a, smem, maps, order, taken);
    } else {
        take_registers<Tile::CONSUMER_REGISTERS>();
        consume(a, x, smem, warpgroup);
    }
}

#endif
