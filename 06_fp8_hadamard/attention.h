// Chapter 6's attention kernel: chapter 5's, with e4m3 operands. A .cu file sets these switches and
// then includes it:
//
//   ATTENTION_KERNEL   the kernel's name
//   TWO_LEVEL          O's sum over the key blocks is made of fp32 additions, not by wgmma
//
// A thread block takes one tile of query rows of one head and walks the blocks of keys that its
// rows see, the last first. Scores, weights and scales are softmax.h's.
//
// V comes by TMA as it stands in memory, and the producer's four warps transpose it (transpose.h).
// Rings of STAGES buffers, each buffer with two mbarriers, as in chapter 5:
//
//   k               TMA → who computes
//   v               TMA → who transposes
//   v_transposed    who transposes → who computes
//
//   shared memory │ Q │ K: STAGES │ V: STAGES │ V's transpose: STAGES │ mbarriers │
#ifndef ATTENTION_KERNEL_H
#define ATTENTION_KERNEL_H

#include "attention_tile.h"
#include "device/elect.h"
#include "device/mbarrier.h"
#include "device/named_barrier.h"
#include "device/phase.h"
#include "device/proxy.h"
#include "device/register_count.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "fp8_attention.h"
#include "softmax.h"
#include "transpose.h"

static const uint32_t STAGES = 2;

typedef struct {
    CUtensorMap q, k, v;
} Maps;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

struct Barriers {
    uint64_t q_full;
    Ring k, v, v_transposed;
};

// ---- rings

__device__ static inline void wait_full(Ring *ring, uint32_t j) {
    mbarrier_wait(&ring->full[j % STAGES], j / STAGES % 2);
}

__device__ static inline void wait_empty(Ring *ring, uint32_t j) {
    mbarrier_wait(&ring->empty[j % STAGES], j / STAGES % 2 ^ 1); // a new ring's buffers are empty
}

// This warp no longer needs the buffer.
__device__ static inline void release(Ring *ring, uint32_t j) {
    mbarrier_arrive_if(threadIdx.x % 32 == 0, &ring->empty[j % STAGES]);
}

// ---- the producer: copies and V's transpose

// Starts copying tile_rows rows of a head, a box of LINE columns after the other. The barrier's
// phase ends when all of their bytes are there; rows past the last come as zeros and count too.
template <int HEAD_DIM, int TILE_ROWS>
__device__ static inline void load_rows(uint8_t *to_smem, const CUtensorMap *map, uint64_t *full,
                                        int row, int head, int batch) {
    using Tile = AttentionTile<HEAD_DIM>;
    PHASE("load");
    mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM);
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_load_4d(to_smem + box * TILE_ROWS * Tile::LINE, map, full, box * Tile::LINE, row, head,
                    batch);
}

// Block j of K or V, once its buffer is free.
template <int HEAD_DIM>
__device__ static inline void load_block(const Tiles &tiles, uint8_t *buffers,
                                         const CUtensorMap *map, Ring *ring, uint32_t j) {
    using Tile = AttentionTile<HEAD_DIM>;
    const uint32_t stage = j % STAGES;
    wait_empty(ring, j);
    load_rows<HEAD_DIM, Tile::KEYS>(buffers + stage * Tile::KV_BYTES, map, &ring->full[stage],
                                    key_of<Tile::KEYS>(tiles, j), tiles.kv_head, tiles.batch);
}

template <int HEAD_DIM>
__device__ static inline void load_key(const Tiles &tiles, const Maps &maps, uint32_t j) {
    if (j < tiles.blocks) load_block<HEAD_DIM>(tiles, tiles.k_smem, &maps.k, &tiles.barriers->k, j);
}

template <int HEAD_DIM>
__device__ static inline void load_value(const Tiles &tiles, const Maps &maps, uint32_t j) {
    if (j < tiles.blocks) load_block<HEAD_DIM>(tiles, tiles.v_smem, &maps.v, &tiles.barriers->v, j);
}

template <int HEAD_DIM>
__device__ static inline void load_query(const Tiles &tiles, const Maps &maps) {
    const int ROWS = AttentionTile<HEAD_DIM>::ROWS;
    load_rows<HEAD_DIM, ROWS>(tiles.q_smem, &maps.q, &tiles.barriers->q_full, tiles.first_row,
                              tiles.head, tiles.batch);
}

// The producer's whole work: all four warps transpose, and one thread also starts the copies. What
// that thread waits for is over before the next transpose may begin: the buffer of K(j + 2) is free
// after Q K(j)ᵀ, that of V(j + 1)'s transpose only after P V(j - 1), which comes later.
template <int HEAD_DIM>
__device__ static inline void produce(const Tiles &tiles, const Maps &maps) {
    using Tile = AttentionTile<HEAD_DIM>;
    const int warp = threadIdx.x / 32 % 4;
    const bool loader = warp == 0 && elect_one();
    Ring *from = &tiles.barriers->v, *to = &tiles.barriers->v_transposed;
    if (loader) {
        load_key<HEAD_DIM>(tiles, maps, 0);
        load_query<HEAD_DIM>(tiles, maps);
        load_value<HEAD_DIM>(tiles, maps, 0);
        load_key<HEAD_DIM>(tiles, maps, 1);
    }
    for (uint32_t j = 0; j < tiles.blocks; j++) {
        const uint32_t stage = j % STAGES;
        if (loader) load_value<HEAD_DIM>(tiles, maps, j + 1);
        __syncwarp();
        wait_full(from, j);
        wait_empty(to, j);
        PHASE("transpose");
        transpose_values<HEAD_DIM>(tiles.v_transposed_smem + stage * Tile::KV_BYTES,
                                   tiles.v_smem + stage * Tile::KV_BYTES, warp);
        fence_proxy_async(); // this thread's lines → wgmma, and V, which it has read, → TMA
        __syncwarp();        // all lanes' → the one that arrives
        release(from, j);
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&to->full[stage]);
        if (loader) load_key<HEAD_DIM>(tiles, maps, j + 2);
    }
}

// ---- products: a warpgroup starts them

// Starts s_reg = Q Kᵀ of this warpgroup's rows and block j, a group of its own.
template <int HEAD_DIM, int PIECES>
__device__ static inline void multiply_query_key(float (&s_reg)[PIECES][4], const Tiles &tiles,
                                                 uint32_t j) {
    using Tile = AttentionTile<HEAD_DIM>;
    const uint64_t q =
        k_major_operand<Tile::LINE>(tiles.q_smem + tiles.warpgroup * WGMMA_ROWS * Tile::LINE);
    const uint64_t k = k_major_operand<Tile::LINE>(tiles.k_smem + j % STAGES * Tile::KV_BYTES);
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

// V's transpose of block j, from `column` on.
template <int HEAD_DIM>
__device__ static inline uint64_t values_operand(const Tiles &tiles, uint32_t j, int column) {
    return k_major_operand<32>(tiles.v_transposed_smem +
                               j % STAGES * AttentionTile<HEAD_DIM>::KV_BYTES + column * 32);
}

// Starts sum_reg = P V of block j, or with ADD adds it, a group of its own: of O's columns from
// `column` on, as many as sum_reg holds.
template <int HEAD_DIM, int ADD, int PIECES, int KEY_STEPS>
__device__ static inline void multiply_values(float (&sum_reg)[PIECES][4],
                                              const uint32_t (&p_reg)[KEY_STEPS][4],
                                              const Tiles &tiles, uint32_t j, int column) {
    const uint64_t v = values_operand<HEAD_DIM>(tiles, j, column);
    PHASE("pv_gemm");
    wgmma_fence(); // p_reg and sum_reg have been written
    wgmma_fp8_registers<ADD>(sum_reg, p_reg[0], v);
#pragma unroll
    for (int step = 1; step < KEY_STEPS; step++)
        wgmma_fp8_registers<1>(sum_reg, p_reg[step], operand_at(v, step * HEAD_DIM * 32));
    wgmma_commit();
}

// ---- turns on the tensor cores (chapter 5)
//
// A warpgroup starts its products only in its turn, and passes the turn on as soon as they are
// started. Barrier 1 + w is where warpgroup w waits, and the one before it arrives.

static const int TURN_THREADS = 2 * WARPGROUP_THREADS; // one warpgroup waits, one arrives

__device__ static inline void take_turn(int warpgroup) {
    named_barrier_sync(1 + warpgroup, TURN_THREADS);
}

template <int WARPGROUPS> __device__ static inline void pass_turn(int warpgroup) {
    named_barrier_arrive(1 + (warpgroup + 1) % WARPGROUPS, TURN_THREADS);
}

// The first turn is warpgroup 0's: the last one passes it on before it begins, and not at its end.
template <int WARPGROUPS> __device__ static inline void begin_turns(int warpgroup) {
    if (warpgroup == WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup);
}

template <int WARPGROUPS> __device__ static inline void end_turns(int warpgroup) {
    if (warpgroup < WARPGROUPS - 1) pass_turn<WARPGROUPS>(warpgroup);
}

// ---- the two loops

// wgmma sums over all keys. As in chapter 5 the softmax of block j runs while P V of block j - 1
// does, and more closely: after each of P V's instructions stands a piece of the row maxima. A warp
// that starts a product while two of its warpgroup's are under way stands still until the first of
// them is done, and e4m3 products are so short that a softmax that begins after the last of them
// begins when they are nearly over. Returns the v_scale that o_reg's units are.
template <int HEAD_DIM>
__device__ static inline float attend_overlapped(float (&o_reg)[HEAD_DIM / 8][4],
                                                 RowSoftmax (&rows)[2], const Attention &a,
                                                 const Scales &scales, const Tiles &tiles) {
    using Tile = AttentionTile<HEAD_DIM>;
    const int WARPGROUPS = Tile::WARPGROUPS;
    const bool TURNS = HEAD_DIM >= 128;
    Barriers *barriers = tiles.barriers;
    float s_reg[Tile::KEYS / 8][4];
    uint16_t pair_reg[Tile::KEYS / 8][2];
    uint32_t p_reg[Tile::KEY_STEPS][4];
    BlockScales now = load_scales(scales, 0), next = load_scales(scales, min(1u, tiles.blocks - 1));
    float v_scale = now.v; // of the newest block in p_reg

    mbarrier_wait(&barriers->q_full, 0);
    wait_full(&barriers->k, 0);
    multiply_query_key<HEAD_DIM>(s_reg, tiles, 0);
    wgmma_wait<0>();
    wgmma_results(s_reg);
    release(&barriers->k, 0);
    update_softmax(rows, s_reg, a, block_exponent(scales, now.k), tiles, 0);
    round_weights(pair_reg, rows, s_reg);
    take_weights(p_reg, pair_reg);
    float units = 1;
    if (TURNS) begin_turns<WARPGROUPS>(tiles.warpgroup);
    wait_full(&barriers->k, min(1u, tiles.blocks - 1));

    for (uint32_t j = 1; j < tiles.blocks; j++) {
        now = next;
        next = load_scales(scales, min(j + 1, tiles.blocks - 1)); // a block ahead: it takes a while
        const Exponent exponent = block_exponent(scales, now.k);
        if (TURNS) take_turn(tiles.warpgroup);
        multiply_query_key<HEAD_DIM>(s_reg, tiles, j);
        rescale_output<HEAD_DIM>(o_reg, rows, units); // for block j - 1, while Q Kᵀ runs
        wait_full(&barriers->v_transposed, j - 1);
        wgmma_wait<0>();
        wgmma_results(s_reg);
        release(&barriers->k, j);
        finish_scores(s_reg, a, exponent, tiles, j);
        float largest[2] = {-CUDART_INF_F, -CUDART_INF_F};
        const uint64_t v = values_operand<HEAD_DIM>(tiles, j - 1, 0);
        PHASE("pv_gemm");
#pragma unroll
        for (int step = 0; step < Tile::KEY_STEPS; step++) {
            wgmma_fence(); // o_reg and p_reg are as they were; ptxas wants to be told
            wgmma_fp8_registers<1>(o_reg, p_reg[step], operand_at(v, step * HEAD_DIM * 32));
            largest[0] = lane_max(largest[0], s_reg, 0, 4 * step, 4 * step + 4);
            largest[1] = lane_max(largest[1], s_reg, 1, 4 * step, 4 * step + 4);
        }
        wgmma_commit();
        if (TURNS) pass_turn<WARPGROUPS>(tiles.warpgroup);
        PHASE("softmax");
#pragma unroll
        for (int half = 0; half < 2; half++) {
            update_max(&rows[half], largest[half], exponent);
            exponentiate(rows[half], s_reg, half, exponent);
        }
        round_weights(pair_reg, rows, s_reg);
        units = units_of(v_scale, now.v);
        v_scale = now.v;
        // The next block's wait stands here, not at the top: ptxas moves a wait for wgmma up over
        // arithmetic, but not over a loop, and this one keeps the softmax before it. (The last
        // block's was over long ago.)
        wait_full(&barriers->k, min(j + 1, tiles.blocks - 1));
        wgmma_wait<0>();
        wgmma_results(o_reg);
        release(&barriers->v_transposed, j - 1);
        take_weights(p_reg, pair_reg);
    }

    rescale_output<HEAD_DIM>(o_reg, rows, units);
    wait_full(&barriers->v_transposed, tiles.blocks - 1);
    if (TURNS) take_turn(tiles.warpgroup);
    multiply_values<HEAD_DIM, 1>(o_reg, p_reg, tiles, tiles.blocks - 1, 0);
    wgmma_wait<0>();
    wgmma_results(o_reg);
    if (TURNS) end_turns<WARPGROUPS>(tiles.warpgroup);
    return v_scale;
}

// wgmma sums over the keys of a block only, into sum_reg; o_reg + sum_reg is an addition of fp32.
// There are no registers for S beside sum_reg, so one product comes after the other, and for wide
// heads one half of O's columns after the other.
template <int HEAD_DIM>
__device__ static inline float attend_two_level(float (&o_reg)[HEAD_DIM / 8][4],
                                                RowSoftmax (&rows)[2], const Attention &a,
                                                const Scales &scales, const Tiles &tiles) {
    using Tile = AttentionTile<HEAD_DIM>;
    const int WARPGROUPS = Tile::WARPGROUPS;
    const int COLUMNS = HEAD_DIM <= 128 ? HEAD_DIM : HEAD_DIM / 2; // of a sum_reg
    Barriers *barriers = tiles.barriers;
    BlockScales next = load_scales(scales, 0);
    float v_scale = next.v;
    mbarrier_wait(&barriers->q_full, 0);
    begin_turns<WARPGROUPS>(tiles.warpgroup);
    take_turn(tiles.warpgroup);
    for (uint32_t j = 0; j < tiles.blocks; j++) {
        float s_reg[Tile::KEYS / 8][4];
        uint32_t p_reg[Tile::KEY_STEPS][4];
        const BlockScales now = next;
        next = load_scales(scales, min(j + 1, tiles.blocks - 1)); // a block ahead: it takes a while
        const Exponent exponent = block_exponent(scales, now.k);
        wait_full(&barriers->k, j);
        multiply_query_key<HEAD_DIM>(s_reg, tiles, j);
        pass_turn<WARPGROUPS>(tiles.warpgroup);
        wgmma_wait<0>();
        wgmma_results(s_reg);
        release(&barriers->k, j);

        update_softmax(rows, s_reg, a, exponent, tiles, j);
        uint16_t pair_reg[Tile::KEYS / 8][2];
        round_weights(pair_reg, rows, s_reg);
        take_weights(p_reg, pair_reg);
        rescale_output<HEAD_DIM>(o_reg, rows, units_of(v_scale, now.v));
        v_scale = now.v;

        wait_full(&barriers->v_transposed, j);
        take_turn(tiles.warpgroup);
#pragma unroll
        for (int column = 0; column < HEAD_DIM; column += COLUMNS) {
            float sum_reg[COLUMNS / 8][4];
            multiply_values<HEAD_DIM, 0>(sum_reg, p_reg, tiles, j, column);
            wgmma_wait<0>();
            wgmma_results(sum_reg);
#pragma unroll
            for (int t = 0; t < COLUMNS / 8; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) o_reg[column / 8 + t][i] += sum_reg[t][i];
        }
        release(&barriers->v_transposed, j);
    }
    end_turns<WARPGROUPS>(tiles.warpgroup);
    return v_scale;
}

// ---- the block

// All that a warpgroup that computes does.
template <typename T, int HEAD_DIM>
__device__ static inline void consume(const Attention &a, const Quantised &x, const Tiles &tiles) {
    float o_reg[HEAD_DIM / 8][4] = {};
    RowSoftmax rows[2] = {{-CUDART_INF_F, 0, 0, 1}, {-CUDART_INF_F, 0, 0, 1}};
    float v_scale = 1;
    if (tiles.blocks > 0) {
        const Scales scales = scales_of(a, x, tiles, AttentionTile<HEAD_DIM>::KEYS);
        if (TWO_LEVEL)
            v_scale = attend_two_level<HEAD_DIM>(o_reg, rows, a, scales, tiles);
        else
            v_scale = attend_overlapped<HEAD_DIM>(o_reg, rows, a, scales, tiles);
    }
    PHASE("epilogue");
    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(rows[half].sum);
        scale_output<HEAD_DIM>(o_reg, half, sum > 0 ? v_scale / sum : 0);
        // The weights' 2^8 goes where that is exact: taken off behind the logarithm it would round.
        lse[half] = log_sum_exp_base_2(rows[half].max + WEIGHT_BITS, sum * exp2f(-WEIGHT_BITS));
    }
    FusedWork<T> work; // where O goes: two bytes a number, twice the place that Q leaves
    work.batch = tiles.batch;
    work.head = tiles.head;
    work.first_row = tiles.first_row;
    store_fragments<T, HEAD_DIM>(a, work, o_reg, lse);
}

// What this block works on.
template <int HEAD_DIM>
__device__ static inline Tiles tiles_of_block(const Attention &a, uint8_t *smem) {
    using Tile = AttentionTile<HEAD_DIM>;
    const int KEYS = Tile::KEYS;
    const FusedWork<uint8_t> work = fused_work_of<uint8_t>(a, HEAD_DIM, Tile::ROWS, KEYS);
    Tiles tiles;
    tiles.warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP_THREADS, 0); // uniform
    tiles.batch = work.batch;
    tiles.head = work.head;
    tiles.kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    tiles.first_row = (int)work.first_row;
    tiles.blocks = (uint32_t)tiles_of(max(work.end_key - work.first_key, (int64_t)0), KEYS);
    tiles.last_key = (int)work.first_key + ((int)tiles.blocks - 1) * KEYS;
    tiles.unmasked_from = (int)work.seen_by_all.begin;
    tiles.unmasked_to = (int)work.seen_by_all.end;
    tiles.q_smem = smem;
    tiles.k_smem = tiles.q_smem + Tile::Q_BYTES;
    tiles.v_smem = tiles.k_smem + STAGES * Tile::KV_BYTES;
    tiles.v_transposed_smem = tiles.v_smem + STAGES * Tile::KV_BYTES;
    tiles.barriers = (Barriers *)(tiles.v_transposed_smem + STAGES * Tile::KV_BYTES);
    return tiles;
}

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
        mbarrier_init(&barriers->q_full, 1);
        make_ring(&barriers->k, 1, WARPS);
        make_ring(&barriers->v, 1, TRANSPOSERS);
        make_ring(&barriers->v_transposed, TRANSPOSERS, WARPS);
        fence_mbarrier_init(); // → TMA
    }
    __syncthreads(); // → all threads
}

#define ATTENTION_BYTES(HEAD_DIM)                                                                  \
    (AttentionTile<HEAD_DIM>::Q_BYTES + 3 * STAGES * AttentionTile<HEAD_DIM>::KV_BYTES +           \
     (int)sizeof(Barriers))

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(AttentionTile<HEAD_DIM>::THREADS, 1)
    ATTENTION_KERNEL(const Attention a, const Quantised x, const __grid_constant__ Maps maps) {
    using Tile = AttentionTile<HEAD_DIM>;
    extern __shared__ __align__(1024) uint8_t smem[];
    const Tiles tiles = tiles_of_block<HEAD_DIM>(a, smem);
    make_barriers<Tile::WARPGROUPS * 4>(tiles.barriers, maps);

    if (tiles.warpgroup == Tile::WARPGROUPS) {
        give_registers<Tile::PRODUCER_REGISTERS>();
        if (tiles.blocks > 0) produce<HEAD_DIM>(tiles, maps);
    } else {
        take_registers<Tile::CONSUMER_REGISTERS>();
        consume<T, HEAD_DIM>(a, x, tiles);
    }
}

// ---- host

template <typename T, int HEAD_DIM>
static cudaError_t launch_attention(const Attention *a, const Quantised *x) {
    using Tile = AttentionTile<HEAD_DIM>;
    static_assert(ATTENTION_BYTES(HEAD_DIM) <= MAX_SHARED_BYTES, "the tiles must fit");
    const int64_t blocks = tiles_of(a->seqlen_q, Tile::ROWS) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess; // no query rows, no outputs
    const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    Maps maps;
    cudaError_t error = make_head_map(&maps.q, "Q in e4m3", x->q, type, 1, a->batch, a->seqlen_q,
                                      a->heads, HEAD_DIM, Tile::ROWS, Tile::LINE);
    maps.k = maps.v = maps.q; // without keys nothing is loaded, and no map of them could be made
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps.k, "K in e4m3", x->k, type, 1, a->batch, a->seqlen_k,
                              a->kv_heads, HEAD_DIM, Tile::KEYS, Tile::LINE);
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps.v, "V in e4m3", x->v, type, 1, a->batch, a->seqlen_k,
                              a->kv_heads, HEAD_DIM, Tile::KEYS, Tile::LINE);
    if (error == cudaSuccess)
        error = allow_shared_memory(ATTENTION_KERNEL<T, HEAD_DIM>, ATTENTION_BYTES(HEAD_DIM));
    if (error != cudaSuccess) return error;
    ATTENTION_KERNEL<T, HEAD_DIM>
        <<<(unsigned)blocks, Tile::THREADS, ATTENTION_BYTES(HEAD_DIM), a->stream>>>(*a, *x, maps);
    return cudaGetLastError();
}

// The variant of the problem's output type and head_dim.
template <typename T> static cudaError_t launch_of(const Attention *a, const Quantised *x) {
#define LAUNCH(D)                                                                                  \
    if (a->head_dim == D) return launch_attention<T, D>(a, x);
    FOR_EACH_FP8_HEAD_DIM(LAUNCH)
#undef LAUNCH
    return cudaErrorInvalidValue;
}

static cudaError_t launch(const Attention *a, const Quantised *x) {
    if (a->dtype == DTYPE_FP16) return launch_of<__half>(a, x);
    if (a->dtype == DTYPE_BF16) return launch_of<__nv_bfloat16>(a, x);
    return cudaErrorInvalidValue;
}

#endif
