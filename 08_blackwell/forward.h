// Chapter 8's second kernel, the steps from pingpong on: FlashAttention-4's forward. A step's .cu
// file sets these switches and then includes it:
//
//   FORWARD_KERNEL   the kernel's name
//   EMULATED         a share of the exponentials is computed on the FMA units (exp2_polynomial.h)
//   LAZY             O is rescaled only where a row's maximum has grown by more than THRESHOLD
//   PERSISTENT       a block takes one pair of tiles after the other, the longest first
//   SOFTMAX          false only in the exhibit gemm-only
//   FLEXIBLE         blocks of keys come from lists (block_mask.h), scores go through the function
//                    SCORE_MOD (mods.h); only if PERSISTENT
//
// A thread block has two tiles of 128 query rows of a head, and they take turns: while one is in its
// softmax, the tensor core multiplies the other's. The one thread that starts all products makes
// the turns by its order alone:
//
//   tensor core   │ S₀ │ S₁ │ P₀V │ S₀ │ P₁V │ S₁ │ P₀V │ S₀ │ …     S: of the next block
//   softmax 0          │  S₀ → P₀ │        │  S₀ → P₀    │
//   softmax 1               │  S₁ → P₁     │      │  S₁ → P₁ …
//   correction             O₀, O₁: rescaled between P V and P V
//
// pipeline.h says who waits for whom, and where things stand.
#ifndef FORWARD_H
#define FORWARD_H

#include "counters.h"
#include "device/register_count.h"
#include "mailbox.h"
#include "pipeline.h"
#include "products.h"
#include "softmax.h"

#ifndef SCORE_MOD // flexible_….cu define it
#define SCORE_MOD SCORE_NONE
#endif

// LAZY: how far a row's weights may outgrow 1, in powers of 2. 2^8 is no burden to any of P's types.
static const float THRESHOLD = 8;

// ---- load: one thread

// Block of K or V that comes use `use`, once the products that read the buffer's last are done.
template <typename T, int HEAD_DIM>
__device__ static inline void load_block(const Smem<T, HEAD_DIM> &smem, const CUtensorMap *map,
                                         const Work &work, int key, uint32_t use) {
    wait_empty(smem.barriers(), use);
    load_tile<T, HEAD_DIM>(smem.kv(use), map, &smem.barriers()->kv_full[use % smem.STAGES], key,
                           work.kv_head, work.batch);
}

// A tile past the last row gets the last one again: nobody stores what becomes of it.
template <typename T, int HEAD_DIM>
__device__ static inline void load_query(const Attention &a, const Smem<T, HEAD_DIM> &smem,
                                         const CUtensorMap *map, const Work &work, int tile,
                                         uint32_t pair) {
    mbarrier_wait(&smem.barriers()->q_empty[tile], pair % 2 ^ 1);
    load_tile<T, HEAD_DIM>(smem.q(tile), map, &smem.barriers()->q_full[tile],
                           min(work.first_row + tile * ROWS, (int)a.seqlen_q - 1), work.head,
                           work.batch);
}

// K of a block comes before its V, and the first block's K first of all. The next pair is chosen
// before the last V: early enough for its Q and K to come in time, and no earlier, since who is
// ahead should get it.
template <typename T, int HEAD_DIM>
__device__ static inline void load(const Attention &a, const Smem<T, HEAD_DIM> &smem,
                                   const ForwardMaps &maps, const TileOrder &order) {
    Mailbox *mailbox = &smem.barriers()->mailbox;
    uint32_t place = blockIdx.x, use = 0, pair = 0;
    if (PERSISTENT) send_work(mailbox, 0, a, order, place, TILES * ROWS);
    for (uint32_t n = 0; PERSISTENT ? place < (uint32_t)order.places : n == 0; n++) {
        const Work &work = mailbox->work[n % MAILS];
        const int blocks = work.blocks;
        for (int j = 0; j < blocks; j++) {
            load_block<T, HEAD_DIM>(smem, &maps.k, work, key_of(work, j), use++);
            if (j == 0) {
                load_query<T, HEAD_DIM>(a, smem, &maps.q, work, 0, pair);
                load_query<T, HEAD_DIM>(a, smem, &maps.q, work, 1, pair);
            }
            if (j + 1 < blocks)
                load_block<T, HEAD_DIM>(smem, &maps.v, work, key_of(work, j), use++);
        }
        if (PERSISTENT) {
            // exercise 6: begin
            place = next_place(&((Counters *)a.workspace)->taken);
            send_work(mailbox, n + 1, a, order, place, TILES * ROWS);
            // exercise 6: end
        }
        if (blocks > 0)
            load_block<T, HEAD_DIM>(smem, &maps.v, work, key_of(work, blocks - 1), use++);
        for (int tile = 0; tile < TILES; tile++, use++) { // a buffer for O
            wait_empty(smem.barriers(), use);
            mbarrier_arrive(&smem.barriers()->kv_full[use % smem.STAGES]);
        }
        pair += blocks > 0;
    }
}

// ---- multiply: one thread

// O += P V of one tile, in two parts as P comes.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_values(const Smem<T, HEAD_DIM> &smem, uint32_t tmem,
                                              int tile, uint32_t v_use, uint32_t block,
                                              bool first) {
    auto *barriers = smem.barriers();
    const uint32_t o_tmem = tmem + o_column(tile, TILES);
    const uint32_t p_tmem = tmem + s_column(tile) + P_COLUMN;
    // exercise 4: begin
    mbarrier_wait(&barriers->p_full[tile], block % 2);
    tcgen05_fence_after(); // behind the softmax's and the correction's loads and stores
    // exercise 4: end
    add_weighted_values_from<T, HEAD_DIM, 0, FIRST_KEYS>(o_tmem, p_tmem, smem.kv(v_use), !first);
    mbarrier_wait(&barriers->p_rest[tile], block % 2);
    tcgen05_fence_after();
    add_weighted_values_from<T, HEAD_DIM, FIRST_KEYS, KEYS>(o_tmem, p_tmem, smem.kv(v_use), true);
}

template <typename T, int HEAD_DIM>
__device__ static inline void multiply(const Smem<T, HEAD_DIM> &smem, uint32_t tmem) {
    auto *barriers = smem.barriers();
    const Work *work;
    uint32_t use = 0, block = 0, pair = 0;
    for (uint32_t n = 0; receive_work(&work, &barriers->mailbox, n); n++) {
        const int blocks = work->blocks;
        release_work_alone(&barriers->mailbox, n);
        if (blocks > 0) wait_full(barriers, use);
        for (int tile = 0; tile < TILES && blocks > 0; tile++) {
            mbarrier_wait(&barriers->q_full[tile], pair % 2);
            multiply_query_key<T, HEAD_DIM>(tmem + s_column(tile), smem.q(tile), smem.kv(use));
            tcgen05_commit(&barriers->s_full[tile]);
            if (blocks == 1) tcgen05_commit(&barriers->q_empty[tile]);
        }
        if (blocks > 0) tcgen05_commit(&barriers->kv_empty[use++ % smem.STAGES]);

        for (int j = 0; j < blocks; j++, block++) {
            const uint32_t v_use = use, k_use = use + 1; // of the next block
            wait_full(barriers, v_use);
            for (int tile = 0; tile < TILES; tile++) {
                multiply_values<T, HEAD_DIM>(smem, tmem, tile, v_use, block, j == 0);
                // Before S: what takes V's place should come under P V, which leaves half of shared
                // memory's bandwidth, not under the next S, which takes all of it.
                if (tile == 1) tcgen05_commit(&barriers->kv_empty[v_use % smem.STAGES]);
                if (j + 1 == blocks) {
                    tcgen05_commit(&barriers->o_full[tile]);
                    continue;
                }
                if (tile == 0) wait_full(barriers, k_use);
                multiply_query_key<T, HEAD_DIM>(tmem + s_column(tile), smem.q(tile),
                                                smem.kv(k_use));
                tcgen05_commit(&barriers->s_full[tile]);
                if (j + 2 == blocks) tcgen05_commit(&barriers->q_empty[tile]);
            }
            if (j + 1 < blocks) tcgen05_commit(&barriers->kv_empty[k_use % smem.STAGES]);
            use += j + 1 < blocks ? 2 : 1;
        }
        pair += blocks > 0;
        use += TILES; // O's
    }
}

// ---- softmax: a warpgroup for each tile, a thread a row

// What a row's softmax knows: m log2(e), l. With LAZY the maximum is the one that P and l are
// relative to, which may lie up to THRESHOLD below.
typedef struct {
    float max, sum;
} Row;

// Takes a block's largest score in; returns by what older weights are to be multiplied.
__device__ static inline float raise_maximum(Row *row, float largest) {
    // exercise 1: begin
    const float before = row->max, now = fmaxf(before, largest);
    if (before == -CUDART_INF_F) { // no weight is older
        row->max = now;
        return 1;
    }
    if (LAZY && now - before <= THRESHOLD) return 1;
    row->max = now;
    return exp2_approximate(before - now);
    // exercise 1: end
}

// The row's weights of a block → tensor memory, handed over in two parts.
template <typename T, int STAGES>
__device__ static inline void store_weights(Barriers<STAGES> *barriers, int tile,
                                            float (&s_reg)[KEYS], uint32_t p_tmem, float factor,
                                            float base) {
#pragma unroll
    for (int from = 0; from < KEYS; from += PART) {
        uint32_t p_reg[PART / 2];
        if (SOFTMAX) exponentiate<EMULATED>(s_reg, from, factor, base);
        pack_weights<T>(p_reg, s_reg, from);
        tmem_store(p_tmem + from / 2, p_reg);
        const int done = from + PART;
        if (done != FIRST_KEYS && done != KEYS) continue;
        // exercise 2: begin
        tmem_store_wait();
        tcgen05_fence_before(); // S has been read, so much of P written →
        mbarrier_arrive(done == KEYS ? &barriers->p_rest[tile] : &barriers->p_full[tile]);
        // exercise 2: end
    }
}

// A row of scores and what is in its way.
typedef struct {
    UnmaskedKeys unmasked; // of the tile
    MaskRow row;           // FLEXIBLE: what the mask mod knows of it
    ScoreHead head;        // and the score mod, of its head
} RowMask;

__device__ static inline RowMask row_mask(const Attention &a, const Work &work, int first_row,
                                          int row) {
    RowMask mask;
    if (FLEXIBLE) {
        mask.row = mask_row(a, work.batch, row);
        mask.head = score_head(a, work.head);
    } else {
        mask.unmasked = keys_without_mask(a, first_row);
    }
    return mask;
}

// A score mod sees scaled scores: the factor is then log2(e) alone.
__device__ static inline Exponent forward_exponent(const Attention &a) {
    return SCORE_MOD == SCORE_NONE ? exponent_of(a.softmax_scale, a.softcap) : exponent_of(1, 0);
}

// FLEXIBLE: finish_scores for the block of an entry; returns the largest score.
__device__ static inline float finish_modified(float (&s_reg)[KEYS], const Attention &a,
                                               const Exponent &exponent, const RowMask &mask,
                                               int entry, int details, int tile, uint32_t s_tmem) {
    const int key = (entry >> ENTRY_SHIFT) * KEYS;
    const bool partial = entry >> tile & 1;
    float largest = 0;
    if (SCORE_MOD != SCORE_NONE)
        largest = modify_scores<SCORE_MOD>(s_reg, a, mask.head, mask.row.position, key, s_tmem);
    else if (!exponent.plain)
        adjust_scores(s_reg, exponent);
    if (partial) mask_partial(s_reg, a.mask_mod, mask.row, key, details);
    return partial || SCORE_MOD == SCORE_NONE ? largest_of(s_reg) : largest;
}

template <typename T, int HEAD_DIM>
__device__ static inline void soften(const Attention &a, const Smem<T, HEAD_DIM> &smem, int tile,
                                     uint32_t tmem) {
    const Exponent exponent = forward_exponent(a);
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t s_tmem = tmem_quarter(tmem, threadIdx.x / 32) + s_column(tile);
    auto *barriers = smem.barriers();
    const Work *work;
    uint32_t block = 0;
    for (uint32_t n = 0; receive_work(&work, &barriers->mailbox, n); n++) {
        const int first_row = work->first_row + tile * ROWS, own_row = first_row + thread;
        const RowMask mask = row_mask(a, *work, first_row, own_row);
        Row row = {-CUDART_INF_F, 0};
        int key = FLEXIBLE ? 0 : work->last_key; // of the block
        const int warp = threadIdx.x / 32;
        int entry = 0, details = 0;
        if (FLEXIBLE && work->blocks > 0) {
            entry = entry_of(*work, 0);
            details = details_of(*work, 0, warp);
        }
        for (int left = work->blocks; left > 0; left--, block++, key -= KEYS) {
            float s_reg[KEYS], factor = 1;
            mbarrier_wait(&barriers->s_full[tile], block % 2);
            tcgen05_fence_after(); // behind the products
            PHASE("softmax");
            load_scores(s_reg, s_tmem);
            if (SOFTMAX) {
                float largest;
                if (FLEXIBLE) {
                    largest =
                        finish_modified(s_reg, a, exponent, mask, entry, details, tile, s_tmem);
                } else {
                    finish_scores(s_reg, a, exponent, mask.unmasked, own_row, key);
                    largest = largest_of(s_reg);
                }
                factor = raise_maximum(&row, largest * exponent.factor);
            }
            if (FLEXIBLE && left > 1) {
                entry = entry_of(*work, work->blocks - left + 1);
                details = details_of(*work, work->blocks - left + 1, warp);
            }
            if (left < work->blocks) { // there are older blocks
                barriers->growth[tile][thread] = factor;
                mbarrier_arrive(&barriers->grown[tile]);
            }
            store_weights<T>(barriers, tile, s_reg, s_tmem + P_COLUMN, exponent.factor,
                             finite_max(row.max));
            row.sum = row.sum * factor + sum_of(s_reg); // under the product
        }
        PHASE("epilogue");
        mbarrier_wait(&barriers->sum_empty[tile], n % 2 ^ 1);
        barriers->sum[tile][thread] = row.sum;
        mbarrier_arrive(&barriers->sum_full[tile]);
        if (own_row < a.seqlen_q)
            a.lse[vector_offset(work->batch, work->head, own_row, a.heads, a.seqlen_q)] =
                log_sum_exp_base_2(row.max, row.sum);
        release_work(&barriers->mailbox, n);
    }
}

// ---- correction: a warpgroup, a thread a row of each tile

// This thread's O may be multiplied: it has been rescaled, or read.
template <int STAGES>
__device__ static inline void release_output(Barriers<STAGES> *barriers, int tile) {
    tcgen05_fence_before(); // its loads and stores →
    mbarrier_arrive(&barriers->p_full[tile]);
}

// Between two blocks: O of the blocks before this one times what this block's softmax says, the
// kernel's use number `use` of that. Counts whether it was. P V of the block before is done: the
// commit that says so is the one behind S of this block, and the softmax has waited for that before it
// said anything of growth.
template <int HEAD_DIM, int STAGES>
__device__ static inline void correct(Barriers<STAGES> *barriers, int tile, int row,
                                      uint32_t o_tmem, uint32_t use, uint32_t *rescales) {
    mbarrier_wait(&barriers->grown[tile], use % 2);
    const float factor = barriers->growth[tile][row];
    if (SOFTMAX && (!LAZY || __any_sync(0xffffffffu, factor != 1))) { // a warp moves O together
        ++*rescales;
        // exercise 3: begin
        tcgen05_fence_after(); // behind those products
        rescale_output<HEAD_DIM>(o_tmem, factor);
        tmem_store_wait();
        // exercise 3: end
    }
    release_output(barriers, tile);
}

// A tile's O, normalised → shared memory: the ring's use `use`.
template <typename T, int HEAD_DIM>
__device__ static inline void finish(const Smem<T, HEAD_DIM> &smem, int tile, int row,
                                     uint32_t o_tmem, uint32_t n, uint32_t pair, uint32_t use,
                                     bool exists) {
    auto *barriers = smem.barriers();
    PHASE("epilogue");
    mbarrier_wait(&barriers->sum_full[tile], n % 2);
    const float sum = barriers->sum[tile][row];
    mbarrier_arrive(&barriers->sum_empty[tile]);
    const float factor = !SOFTMAX ? 1 : sum > 0 ? 1 / sum : 0;
    if (exists) {
        // exercise 5: begin
        mbarrier_wait(&barriers->o_full[tile], pair % 2);
        tcgen05_fence_after();
        // exercise 5: end
    }
    wait_full(barriers, use);
    write_output<T, HEAD_DIM>(smem.kv(use), row, o_tmem, factor, exists);
    if (exists) release_output(barriers, tile); // for the next pair's first block
    fence_proxy_async();                        // this thread's part of O → TMA
    mbarrier_arrive(&barriers->out_full[tile]);
}

template <typename T, int HEAD_DIM>
__device__ static inline void correct_and_finish(const Attention &a, const Smem<T, HEAD_DIM> &smem,
                                                 uint32_t tmem) {
    const int row = threadIdx.x % WARPGROUP;
    const uint32_t o_tmem = tmem_quarter(tmem, threadIdx.x / 32) + o_column(0, TILES);
    const uint32_t next = o_column(1, TILES) - o_column(0, TILES);
    auto *barriers = smem.barriers();
    const Work *work;
    uint32_t block = 0, pair = 0, use = 0, rescales = 0;
    for (int tile = 0; tile < TILES; tile++) release_output(barriers, tile); // nothing is there yet
    for (uint32_t n = 0; receive_work(&work, &barriers->mailbox, n); n++) {
        const int blocks = work->blocks;
        for (int j = 1; j < blocks; j++)
            for (int tile = 0; tile < TILES; tile++)
                correct<HEAD_DIM>(barriers, tile, row, o_tmem + tile * next, block + j - 1 - pair,
                                  &rescales);
        block += blocks;
        use += 2 * blocks;
        for (int tile = 0; tile < TILES; tile++, use++)
            finish(smem, tile, row, o_tmem + tile * next, n, pair, use, blocks > 0);
        pair += blocks > 0;
        release_work(&barriers->mailbox, n);
    }
    if (LAZY && SOFTMAX && threadIdx.x % 32 == 0) {
        Counters *counters = (Counters *)a.workspace;
        WarpCount *count = (WarpCount *)(counters + 1) + blockIdx.x * COUNTING_WARPS;
        count[threadIdx.x / 32 % COUNTING_WARPS] = {TILES * (block - pair), rescales};
        if (blockIdx.x == 0 && threadIdx.x / 32 == CORRECTION_WARP) counters->blocks = gridDim.x;
    }
}

// ---- store: one thread

template <typename T, int HEAD_DIM>
__device__ static inline void store_output(const Attention &a, const Smem<T, HEAD_DIM> &smem,
                                           const ForwardMaps &maps) {
    auto *barriers = smem.barriers();
    const Work *work;
    uint32_t use = 0;
    for (uint32_t n = 0; receive_work(&work, &barriers->mailbox, n); n++) {
        use += 2 * work->blocks;
        for (int tile = 0; tile < TILES; tile++, use++) {
            const int first_row = work->first_row + tile * ROWS;
            mbarrier_wait(&barriers->out_full[tile], n % 2);
            if (first_row < a.seqlen_q)
                store_tile<T, HEAD_DIM>(&maps.o, smem.kv(use), *work, first_row);
            tma_wait_read<0>();
            mbarrier_arrive(&barriers->kv_empty[use % smem.STAGES]);
        }
        release_work_alone(&barriers->mailbox, n);
    }
}

// ---- the kernel

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, 1)
    FORWARD_KERNEL(const Attention a, const __grid_constant__ ForwardMaps maps,
                   const __grid_constant__ TileOrder order) {
    extern __shared__ __align__(1024) uint8_t smem_start[];
    const Smem<T, HEAD_DIM> smem = {smem_start};
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); // uniform
    if (!PERSISTENT && threadIdx.x == 0)
        find_work_of_block(&smem.barriers()->mailbox.work[0], a, TILES * ROWS);
    prepare(smem.barriers(), maps);
    const uint32_t tmem = smem.barriers()->tmem;

    if (warp < CORRECTION_WARP) {
        take_registers<Registers<HEAD_DIM>::SOFTMAX>();
        soften(a, smem, warp / 4, tmem);
    } else if (warp < MULTIPLY_WARP) {
        give_registers<Registers<HEAD_DIM>::CORRECTION>();
        correct_and_finish(a, smem, tmem);
    } else {
        give_registers<Registers<HEAD_DIM>::OTHER>();
        if (warp == MULTIPLY_WARP && elect_one()) multiply(smem, tmem);
        if (warp == STORE_WARP && elect_one()) store_output(a, smem, maps);
        if (warp == LOAD_WARP && elect_one()) load(a, smem, maps, order);
    }
    tcgen05_fence_before();
    __syncthreads(); // nobody reads tensor memory any more
    tcgen05_fence_after();
    if (warp == MULTIPLY_WARP) tmem_free<TMEM_COLUMNS>(tmem);
}

#include "launch.h"

#endif
