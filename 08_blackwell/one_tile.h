// Chapter 8's first kernel: attention on tensor memory at its plainest. A step's .cu file sets these
// switches and then includes it:
//
//   FORWARD_KERNEL   the kernel's name
//   P_IN_TMEM        the weights P go back to tensor memory; else through shared memory
//
// A thread block takes one tile of 128 query rows of one head. Six warps:
//
//   warps 0-3   softmax   row `thread` of the tile: S → P, O rescaled, at the end O → HBM
//   warp 4      multiply  one thread starts all products; the warp holds the tensor memory
//   warp 5      load      one thread starts the copies of Q, K and V
//
// All goes round in a circle, and everybody waits for the one before:
//
//   s_full   multiply → softmax   S of block j is there. (And P V of block j - 1 is done: a commit
//                                 tells of all that its thread has issued.)
//   p_full   softmax → multiply   P of block j is there, O has been rescaled, S has been read
//   p_rest   softmax → multiply   P_IN_TMEM: p_full was for the first keys alone; now the others'
//                                 P is there, too. P V begins while the last exponentials are computed
//   full     load → multiply      K, V: a ring of STAGES buffers each
//   empty    multiply → load      the products that read the buffer are done
//
//   shared memory │ Q, later O │ K: STAGES │ V: STAGES │ P, unless in tensor memory │ mbarriers │
#ifndef ONE_TILE_H
#define ONE_TILE_H

#include "device/elect.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/tma.h"
#include "maps.h"
#include "products.h"
#include "softmax.h"
#include "work.h"

static const int STAGES = 2;
static const int SOFTMAX_THREADS = 128, MULTIPLY_WARP = 4, LOAD_WARP = 5, THREADS = 192;
static const int O_COLUMN = o_column(0, 1), TMEM_COLUMNS = 256;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

typedef struct {
    Ring k, v;
    uint64_t q_full, s_full, p_full, p_rest, o_full;
    uint32_t tmem; // where the block's tensor memory begins
} Barriers;

template <typename T, int HEAD_DIM> struct Smem {
    using Tile = ForwardTile<HEAD_DIM>;
    static constexpr int P_AT = (1 + 2 * STAGES) * Tile::BYTES;
    static constexpr int BARRIERS_AT = P_AT + (P_IN_TMEM ? 0 : P_BYTES);
    static constexpr int BYTES = BARRIERS_AT + (int)sizeof(Barriers);
    static_assert(BYTES <= MAX_SHARED_BYTES, "the tiles must fit");
    uint8_t *start;
    __device__ inline T *q() const { return (T *)start; }
    __device__ inline T *k(int j) const { return q() + (1 + j % STAGES) * Tile::NUMBERS; }
    __device__ inline T *v(int j) const { return q() + (1 + STAGES + j % STAGES) * Tile::NUMBERS; }
    __device__ inline T *p() const { return (T *)(start + P_AT); }
    __device__ inline Barriers *barriers() const { return (Barriers *)(start + BARRIERS_AT); }
};

// ---- load: one thread

// Block j of K or V, once the products that read the buffer's last one are done.
template <typename T, int HEAD_DIM>
__device__ static inline void load_block(T *to_smem, const CUtensorMap *map, Ring *ring,
                                         const Work &work, int j) {
    const int stage = j % STAGES;
    mbarrier_wait(&ring->empty[stage], j / STAGES % 2 ^ 1); // a new ring's buffers are empty
    load_tile<T, HEAD_DIM>(to_smem, map, &ring->full[stage], key_of(work, j), work.kv_head,
                           work.batch);
}

template <typename T, int HEAD_DIM>
__device__ static inline void load(const Smem<T, HEAD_DIM> &smem, const ForwardMaps &maps,
                                   const Work &work) {
    Barriers *barriers = smem.barriers();
    load_tile<T, HEAD_DIM>(smem.q(), &maps.q, &barriers->q_full, work.first_row, work.head,
                           work.batch);
    for (int j = 0; j < work.blocks; j++) {
        load_block<T, HEAD_DIM>(smem.k(j), &maps.k, &barriers->k, work, j);
        load_block<T, HEAD_DIM>(smem.v(j), &maps.v, &barriers->v, work, j);
    }
}

// ---- multiply: one thread

template <typename T, int HEAD_DIM>
__device__ static inline void multiply(const Smem<T, HEAD_DIM> &smem, const Work &work,
                                       uint32_t tmem) {
    Barriers *barriers = smem.barriers();
    if (work.blocks == 0) return; // nothing has been loaded
    mbarrier_wait(&barriers->q_full, 0);
    for (int j = 0; j < work.blocks; j++) {
        const int stage = j % STAGES, parity = j / STAGES % 2;
        mbarrier_wait(&barriers->k.full[stage], parity);
        multiply_query_key<T, HEAD_DIM>(tmem, smem.q(), smem.k(j));
        tcgen05_commit(&barriers->s_full);         // → softmax
        tcgen05_commit(&barriers->k.empty[stage]); // → load

        mbarrier_wait(&barriers->v.full[stage], parity);
        mbarrier_wait(&barriers->p_full, j % 2);
        tcgen05_fence_after(); // behind the softmax's loads and stores
        if (P_IN_TMEM) {
            const uint32_t p_tmem = tmem + P_COLUMN;
            add_weighted_values_from<T, HEAD_DIM, 0, FIRST_KEYS>(tmem + O_COLUMN, p_tmem, smem.v(j),
                                                                 j > 0);
            mbarrier_wait(&barriers->p_rest, j % 2);
            tcgen05_fence_after();
            add_weighted_values_from<T, HEAD_DIM, FIRST_KEYS, KEYS>(tmem + O_COLUMN, p_tmem,
                                                                    smem.v(j), true);
        } else {
            add_weighted_values<T, HEAD_DIM>(tmem + O_COLUMN, smem.p(), smem.v(j), j > 0);
        }
        tcgen05_commit(&barriers->v.empty[stage]);
    }
    tcgen05_commit(&barriers->o_full);
}

// ---- softmax: a thread a row

// PART of the row's scores → weights, where P V takes them from. In tensor memory they are there
// behind tmem_store_wait.
template <typename T, int HEAD_DIM>
__device__ static inline void store_weights(float (&s_reg)[KEYS], int from, float factor,
                                            float base, const Smem<T, HEAD_DIM> &smem,
                                            uint32_t p_tmem) {
    uint32_t p_reg[PART / 2];
    exponentiate<false>(s_reg, from, factor, base);
    pack_weights<T>(p_reg, s_reg, from);
    if (P_IN_TMEM)
        tmem_store(p_tmem + from / 2, p_reg);
    else
        write_line(smem.p(), threadIdx.x, from, p_reg);
}

// This thread's loads of S, and its stores of O and P → the products.
__device__ static inline void hand_over(uint64_t *barrier) {
    tmem_store_wait();
    tcgen05_fence_before();
    mbarrier_arrive(barrier);
}

template <typename T, int HEAD_DIM>
__device__ static inline void soften(const Attention &a, const Smem<T, HEAD_DIM> &smem,
                                     const ForwardMaps &maps, const Work &work, uint32_t tmem) {
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    const UnmaskedKeys unmasked = keys_without_mask(a, work.first_row);
    const int row = work.first_row + threadIdx.x;
    const uint32_t own = tmem_quarter(tmem, threadIdx.x / 32);
    Barriers *barriers = smem.barriers();
    float row_max = -CUDART_INF_F, row_sum = 0; // m log2(e), l

    for (int j = 0; j < work.blocks; j++) {
        float s_reg[KEYS];
        mbarrier_wait(&barriers->s_full, j % 2);
        tcgen05_fence_after(); // behind the products
        PHASE("softmax");
        load_scores(s_reg, own);
        finish_scores(s_reg, a, exponent, unmasked, row, key_of(work, j));
        const float new_max = fmaxf(row_max, largest_of(s_reg) * exponent.factor);
        const float base = finite_max(new_max);
        const float rescale = exp2_approximate(row_max - base);
        if (j > 0) rescale_output<HEAD_DIM>(own + O_COLUMN, rescale);
#pragma unroll
        for (int from = 0; from < KEYS; from += PART) {
            store_weights(s_reg, from, exponent.factor, base, smem, own + P_COLUMN);
            if (P_IN_TMEM && from + PART == FIRST_KEYS) hand_over(&barriers->p_full);
        }
        if (!P_IN_TMEM) fence_proxy_async(); // this thread's part of P → the tensor cores
        hand_over(P_IN_TMEM ? &barriers->p_rest : &barriers->p_full);
        row_sum = row_sum * rescale + sum_of(s_reg); // under the product
        row_max = new_max;
    }

    PHASE("epilogue");
    if (work.blocks > 0) mbarrier_wait(&barriers->o_full, 0); // and Q has been read
    tcgen05_fence_after();
    write_output<T, HEAD_DIM>(smem.q(), threadIdx.x, own + O_COLUMN, row_sum > 0 ? 1 / row_sum : 0,
                              work.blocks > 0);
    fence_proxy_async();                    // this thread's part of O → TMA
    named_barrier_sync(1, SOFTMAX_THREADS); // all threads' → the one that stores
    if (threadIdx.x == 0) store_tile<T, HEAD_DIM>(&maps.o, smem.q(), work, work.first_row);
    if (row < a.seqlen_q)
        a.lse[vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q)] =
            log_sum_exp_base_2(row_max, row_sum);
    if (threadIdx.x == 0) tma_wait_read<0>(); // shared memory must live so long
    tcgen05_fence_before();                   // O has been read → tmem_free
}

// ---- the kernel

// Thread 0 makes the mbarriers, a warp gets tensor memory; then all threads, and TMA, may use them.
__device__ static inline void prepare(Barriers *barriers, const ForwardMaps &maps) {
    if (threadIdx.x == 0) {
        prefetch_maps(maps);
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&barriers->k.full[stage], 1);
            mbarrier_init(&barriers->v.full[stage], 1);
            mbarrier_init(&barriers->k.empty[stage], 1);
            mbarrier_init(&barriers->v.empty[stage], 1);
        }
        mbarrier_init(&barriers->q_full, 1);
        mbarrier_init(&barriers->s_full, 1);
        mbarrier_init(&barriers->p_full, SOFTMAX_THREADS);
        mbarrier_init(&barriers->p_rest, SOFTMAX_THREADS);
        mbarrier_init(&barriers->o_full, 1);
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

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, 1)
    FORWARD_KERNEL(const Attention a, const __grid_constant__ ForwardMaps maps) {
    extern __shared__ __align__(1024) uint8_t smem_start[];
    const Smem<T, HEAD_DIM> smem = {smem_start};
    Work work;
    find_work_of_block(&work, a, ROWS);
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); // uniform
    prepare(smem.barriers(), maps);
    const uint32_t tmem = smem.barriers()->tmem;

    if (warp == MULTIPLY_WARP) {
        if (elect_one()) multiply(smem, work, tmem);
    } else if (warp == LOAD_WARP) {
        if (elect_one() && work.blocks > 0) load(smem, maps, work);
    } else {
        soften(a, smem, maps, work, tmem);
    }
    __syncthreads(); // nobody reads tensor memory any more
    if (warp == MULTIPLY_WARP) {
        tcgen05_fence_after();
        tmem_free<TMEM_COLUMNS>(tmem);
    }
}

// ---- host

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const int64_t blocks = tiles_of(a->seqlen_q, ROWS) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess; // no query rows, no outputs
    const int bytes = Smem<T, HEAD_DIM>::BYTES;
    ForwardMaps maps;
    cudaError_t error = make_forward_maps<T, HEAD_DIM>(&maps, a);
    if (error == cudaSuccess) error = allow_shared_memory(FORWARD_KERNEL<T, HEAD_DIM>, bytes);
    if (error != cudaSuccess) return error;
    FORWARD_KERNEL<T, HEAD_DIM><<<(unsigned)blocks, THREADS, bytes, a->stream>>>(*a, maps);
    return cudaGetLastError();
}

DEFINE_FORWARD

#endif
