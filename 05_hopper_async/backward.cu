// Chapter 5, the backward: FlashAttention-3's. fp16 and bf16, head_dim 64 and 128.
//
// A block owns 128 keys, 64 for each of two warpgroups that multiply, and walks over the tiles of
// query rows. S and dP are computed the other way round, keys as rows, so that what comes out of
// one product is where the next one wants it:
//
//   Sᵀ = K Qᵀ    dPᵀ = V dOᵀ      left and right from shared memory
//   dV += Pᵀ dO  dK += dSᵀ Q      left from registers: P never leaves them
//   dQ  = dS K                    sums over all keys: dSᵀ goes through shared memory
//
// The roles, and who waits for whom:
//
//   warpgroup 0  warp 0  loads: K and V once; Q with lse, dO with D, two tiles ahead (TMA)
//                warp 1  adds the finished dQ tiles to their sums in HBM (TMA reduce-add)
//   warpgroups 1, 2      the products, and the softmax's derivative
//
//   mbarriers       kv_full; q_full, dout_full, q_empty, dout_empty for each of two stages
//   named barriers  DS_READY: both warpgroups have written their keys of dS, and read the dS before
//                   DQ_FULL, DQ_EMPTY (a pair for each warpgroup): the warpgroup's share of dQ lies
//                   in shared memory; it has been read from there
#include "backward.h"

#include "backward_products.h"
#include "device/elect.h"
#include "device/mbarrier.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/register_count.h"
#include "device/tensor_map.h"
#include "device/tma.h"

// ---- the loading warp

// A tile of ROWS rows, block of columns by block of columns, from row `first_row` of a head. Rows
// past the last become zeros, and count among the bytes all the same.
template <int ROWS, int BLOCKS, typename T>
__device__ static inline void load_tile(T *tile_smem, const CUtensorMap *map, uint64_t *full,
                                        int64_t first_row, int head, int batch) {
#pragma unroll
    for (int block = 0; block < BLOCKS; block++)
        tma_load_4d(tile_smem + block * ROWS * 64, map, full, block * 64, (int)first_row, head,
                    batch);
}

// One thread: brings K and V, then every tile of Q and dO as soon as there is room.
template <typename T, int HEAD_DIM>
__device__ static inline void load_all(BackwardShared<T, HEAD_DIM> &shared,
                                       const BackwardMaps &maps, const Attention &a,
                                       const BackwardWorkspace &w, const BlockKeys &block) {
    using Tile = BackwardTile<HEAD_DIM>;
    mbarrier_arrive_expect(&shared.kv_full, 2 * Tile::KEY_BYTES);
    load_tile<KEYS, Tile::BLOCKS>(shared.k, &maps.k, &shared.kv_full, block.first_key,
                                  block.kv_head, block.batch);
    load_tile<KEYS, Tile::BLOCKS>(shared.v, &maps.v, &shared.kv_full, block.first_key,
                                  block.kv_head, block.batch);

    for (RowTiles at(block); at.left > 0; at.advance()) {
        const int64_t row = at.tile * Tile::ROWS;
        const int64_t vector =
            ((int64_t)block.batch * a.heads + at.head) * w.sums.padded_rows + row;

        uint64_t *full = &shared.q_full[at.stage];
        mbarrier_wait(&shared.q_empty[at.stage], at.parity ^ 1); // at once the first time
        mbarrier_arrive_expect(full, Tile::ROW_BYTES + Tile::VECTOR_BYTES);
        load_tile<Tile::ROWS, Tile::BLOCKS>(shared.q[at.stage], &maps.q, full, row, at.head,
                                            block.batch);
        bulk_load(shared.lse[at.stage], w.lse_base_2 + vector, Tile::VECTOR_BYTES, full);

        full = &shared.dout_full[at.stage];
        mbarrier_wait(&shared.dout_empty[at.stage], at.parity ^ 1);
        mbarrier_arrive_expect(full, Tile::ROW_BYTES + Tile::VECTOR_BYTES);
        load_tile<Tile::ROWS, Tile::BLOCKS>(shared.dout[at.stage], &maps.dout, full, row, at.head,
                                            block.batch);
        bulk_load(shared.row_dots[at.stage], w.sums.row_dots + vector, Tile::VECTOR_BYTES, full);
    }
}

// ---- the warp that adds to dQ

// A warp: each share of dQ that a warpgroup puts into shared memory → added to the sums in HBM. The
// additions are atomic and in no order, or one block of keys after the other (deterministic).
template <typename T, int HEAD_DIM>
__device__ static inline void add_all_dq(BackwardShared<T, HEAD_DIM> &shared, const Attention &a,
                                         const BackwardWorkspace &w, const BlockKeys &block) {
    using Tile = BackwardTile<HEAD_DIM>;
    const bool elected = elect_one(); // one thread issues, commits and waits: groups are a thread's
    for (RowTiles at(block); at.left > 0; at.advance()) {
        const int64_t head_index = (int64_t)block.batch * a.heads + at.head;
        const int64_t row = at.tile * Tile::ROWS;
        float *sums = w.sums.dq_sums + (head_index * w.sums.padded_rows + row) * HEAD_DIM;
        unsigned *turns = w.sums.turns + head_index * w.sums.row_tiles + at.tile;
        const unsigned turn =
            a.deterministic ? turn_of<Tile::ROWS, KEYS>(a, row, block.first_key) : 0;
        if (a.deterministic && elected) {
            turn_wait_alone(turns, turn); // the blocks of keys before have added …
            fence_proxy_async_global();   // … as TMA sees it, too
        }
        __syncwarp();
#pragma unroll
        for (int share = 0; share < 2; share++) {
            named_barrier_sync(DQ_FULL + share, 128 + 32); // the warpgroup's stores → this warp
            if (elected) {
                bulk_add_fp32(sums + share * Tile::SHARE, shared.dq[share],
                              sizeof shared.dq[share]);
                tma_commit();
            }
            __syncwarp();
        }
        if (at.left > 1) { // nobody waits for the last one's
            if (elected) tma_wait_read<1>();
            __syncwarp();
            named_barrier_arrive(DQ_EMPTY, 128 + 32); // the first share has been read
            if (elected) tma_wait_read<0>();
            __syncwarp();
            named_barrier_arrive(DQ_EMPTY + 1, 128 + 32);
        }
        if (a.deterministic && elected) {
            tma_wait_written<0>();      // the sums are written …
            fence_proxy_async_global(); // … as threads see it, too
            turn_end_alone(turns, turn);
        }
    }
    if (elected) tma_wait_read<0>(); // shared memory must live as long as it is read
}

// ---- the warpgroups that multiply

// The share of dQ → shared memory, once the warp that adds has read the one before. 16 bytes a
// lane, side by side (WarpgroupLayout); the sums in HBM have the same order.
__device__ inline void hand_over_dq(float *dq_smem, const Result<64> &dq, int share, bool first) {
    if (!first) named_barrier_sync(DQ_EMPTY + share, 128 + 32);
#pragma unroll
    for (int n = 0; n < 8; n++)
        *(float4 *)&dq_smem[n * 512 + threadIdx.x % 128 * 4] =
            make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
    fence_proxy_async();                             // these stores → TMA …
    named_barrier_arrive(DQ_FULL + share, 128 + 32); // … which the other warp starts
}

// A warp's arrival, for all its lanes.
__device__ inline void release(uint64_t *empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
}

// The warpgroup's keys of dK or dV → shared memory → HBM. Keys past the last are left out by TMA.
template <typename T, int HEAD_DIM>
__device__ static inline void store_keys(T *tile_smem, const CUtensorMap *map,
                                         const Result<HEAD_DIM> &c, const BlockKeys &block,
                                         int share) {
    uint32_t packed[HEAD_DIM / 16][4];
    pack_weights<T, HEAD_DIM>(packed, c);
    store_packed<KEYS, HEAD_DIM>(tile_smem, warp_key_of(share), packed);
    fence_proxy_async();
    named_barrier_sync(KEYS_READY + share, 128); // the warpgroup's stores → TMA
    if (threadIdx.x % 128 != 0) return;
    for (int column = 0; column < HEAD_DIM; column += 64)
        tma_store_4d(map, tile_smem + column * KEYS + share * WARPGROUP_KEYS * 64, column,
                     (int)block.first_key + share * WARPGROUP_KEYS, block.kv_head, block.batch);
    tma_commit();
}

// Pᵀ and dSᵀ of a tile of rows, the warpgroup's 64 keys, as operands.
template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void weigh(uint32_t (&p)[BackwardTile<HEAD_DIM>::ROWS / 16][4],
                                    uint32_t (&ds)[BackwardTile<HEAD_DIM>::ROWS / 16][4],
                                    BackwardShared<T, HEAD_DIM> &shared, const Attention &a,
                                    const RowTiles &at, int share) {
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS, stage = at.stage;
    const int own_keys = share * WARPGROUP_KEYS; // the first of them, in the tile
    const int64_t first_row = at.tile * ROWS, first_key = at.keys.first_key + own_keys;
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    Result<ROWS> s, dp;

    mbarrier_wait(&shared.q_full[stage], at.parity);
    wgmma_fence();
    issue_keys_rows<T, HEAD_DIM>(s, shared.k + own_keys * 64, shared.q[stage]); // Sᵀ = K Qᵀ
    wgmma_commit();
    mbarrier_wait(&shared.dout_full[stage], at.parity);
    wgmma_fence();
    issue_keys_rows<T, HEAD_DIM>(dp, shared.v + own_keys * 64, shared.dout[stage]); // dPᵀ = V dOᵀ
    wgmma_commit();

    wgmma_wait<1>(); // S
    wgmma_results(s);
    if (CAPPED || !exponent.plain) adjust_scores<ROWS>(s, exponent);
    if (CAPPED) {
        wgmma_wait<0>();
        wgmma_results(dp);
        apply_cap_slope<ROWS>(dp, s, shared.row_dots[stage]);
        wgmma_results(dp); // ptxas would mix it with what follows, and run out of registers
        wgmma_results(s);
    }
    if (needs_mask<ROWS>(a, first_row, first_key))
        mask_keys<ROWS>(s, a, first_row,
                        first_key + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
    exponentiate<ROWS>(s, shared.lse[stage], exponent.factor); // while dP is computed

    // ptxas moves a wait for wgmma up as far as its basic block goes: above all exponentials. A
    // loop ends the block; this one passes at once, the phase being over.
    mbarrier_wait(&shared.dout_full[stage], at.parity);
    wgmma_wait<0>(); // dP
    wgmma_results(dp);
    differentiate<ROWS>(dp, s, shared.row_dots[stage]);
    pack_weights<T, ROWS>(p, s);
    pack_weights<T, ROWS>(ds, dp);
}

// A warpgroup: its keys of dK and dV, and its shares of dQ.
template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void multiply_all(BackwardShared<T, HEAD_DIM> &shared,
                                           const BackwardMaps &maps, const Attention &a,
                                           const BlockKeys &block, int share) {
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    Result<HEAD_DIM> dk, dv;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0;

    mbarrier_wait(&shared.kv_full, 0);
    bool first = true;
    for (RowTiles at(block); at.left > 0; at.advance()) {
        const int stage = at.stage;
        uint32_t p[ROWS / 16][4], ds[ROWS / 16][4];
        weigh<T, HEAD_DIM, CAPPED>(p, ds, shared, a, at, share);
        // Two buffers of dS do: who is here for tile j + 2 has passed DS_READY of tile j + 1, and
        // the other warpgroup came there only when its dQ of tile j was computed.
        store_packed<KEYS, ROWS>(shared.ds[stage], warp_key_of(share), ds);

        wgmma_fence();
        issue_weighted_rows<T, HEAD_DIM>(dv, p, shared.dout[stage]); // dV += Pᵀ dO
        wgmma_commit();
        fence_proxy_async(); // dS, lse and D: this thread is done with them → wgmma, TMA
        named_barrier_sync(DS_READY, 256);

        Result<64> dq;
        issue_dq<T, HEAD_DIM>(dq, shared.ds[stage], shared.k, share); // dQ = dS K
        wgmma_commit();
        wgmma_wait<1>(); // dV
        release(&shared.dout_empty[stage]);
        issue_weighted_rows<T, HEAD_DIM>(dk, ds, shared.q[stage]); // dK += dSᵀ Q
        wgmma_commit();
        wgmma_wait<1>(); // dQ
        wgmma_results(dq);
        hand_over_dq(shared.dq[share], dq, share, first);
        first = false;
        wgmma_wait<0>(); // dK
        release(&shared.q_empty[stage]);
    }
    wgmma_results(dk);
    wgmma_results(dv);

    // V's place: only this warpgroup has read these keys of V. K's: when both are done with dQ.
    store_keys<T, HEAD_DIM>(shared.v, &maps.dv, dv, block, share);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) dk[i / 4][i % 4] *= a.softmax_scale;
    named_barrier_sync(DS_READY, 256);
    store_keys<T, HEAD_DIM>(shared.k, &maps.dk, dk, block, share);
    if (threadIdx.x % 128 == 0) tma_wait_read<0>(); // shared memory must live as long as it is read
}

// ---- the kernel

template <typename T, int HEAD_DIM, bool CAPPED>
__global__ void __launch_bounds__(THREADS, 1)
    backward_hopper(const Attention a, const BackwardWorkspace w,
                    const __grid_constant__ BackwardMaps maps) {
    extern __shared__ uint8_t dynamic_smem[];
    using Shared = BackwardShared<T, HEAD_DIM>;
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    Shared &shared =
        *(Shared *)(dynamic_smem + (-shared_address(dynamic_smem) & (SWIZZLE_SPAN - 1)));
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);

    const BlockWork work =
        block_work(block_place(a, w.sums), tiles_of(a.seqlen_k, KEYS), a.kv_heads);
    BlockKeys block;
    block.batch = work.batch;
    block.kv_head = work.head;
    block.group = a.heads / a.kv_heads;
    block.first_key = work.tile * KEYS;
    const int64_t last_key = min(block.first_key + KEYS, a.seqlen_k) - 1;
    const KeyRange rows = rows_seeing_any(block.first_key, last_key, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    block.first_tile = rows.begin / ROWS;
    block.tiles = max(tiles_of(rows.end, ROWS) - block.first_tile, (int64_t)0);

    if (threadIdx.x == 0) {
        mbarrier_init(&shared.kv_full, 1);
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&shared.q_full[stage], 1);
            mbarrier_init(&shared.dout_full[stage], 1);
            mbarrier_init(&shared.q_empty[stage], 2 * 4); // the warps that multiply
            mbarrier_init(&shared.dout_empty[stage], 2 * 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads(); // the barriers → all threads

    if (warpgroup == 0) {
        give_registers<LOADER_REGISTERS>();
        const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
        if (warp == 0 && elect_one()) load_all<T, HEAD_DIM>(shared, maps, a, w, block);
        if (warp == 1) add_all_dq<T, HEAD_DIM>(shared, a, w, block);
    } else {
        take_registers<MULTIPLIER_REGISTERS>();
        multiply_all<T, HEAD_DIM, CAPPED>(shared, maps, a, block, warpgroup - 1);
    }
}

// ---- the launch

template <typename T, int HEAD_DIM>
static cudaError_t make_maps(BackwardMaps *maps, const Attention *a) {
    const CUtensorMapDataType type =
        a->dtype == DTYPE_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    cudaError_t error = cudaSuccess;
    const auto make = [&](CUtensorMap *map, const char *name, const void *tensor, int64_t seqlen,
                          int heads, int rows) {
        if (error == cudaSuccess)
            error = make_head_map(map, name, tensor, type, 2, a->batch, seqlen, heads, HEAD_DIM,
                                  rows, LINE / 2);
    };
    make(&maps->k, "k", a->k, a->seqlen_k, a->kv_heads, KEYS);
    make(&maps->v, "v", a->v, a->seqlen_k, a->kv_heads, KEYS);
    make(&maps->dk, "dk", a->dk, a->seqlen_k, a->kv_heads, WARPGROUP_KEYS);
    make(&maps->dv, "dv", a->dv, a->seqlen_k, a->kv_heads, WARPGROUP_KEYS);
    if (a->seqlen_q == 0) return error; // no rows: nobody asks for Q and dO
    make(&maps->q, "q", a->q, a->seqlen_q, a->heads, ROWS);
    make(&maps->dout, "dout", a->dout, a->seqlen_q, a->heads, ROWS);
    return error;
}

template <typename T, int HEAD_DIM>
static cudaError_t launch_main(const Attention *a, const BackwardWorkspace &w) {
    const int64_t blocks = tiles_of(a->seqlen_k, KEYS) * a->batch * a->kv_heads;
    if (blocks == 0) return cudaSuccess; // no keys, no dK and dV
    const auto kernel =
        a->softcap > 0 ? backward_hopper<T, HEAD_DIM, true> : backward_hopper<T, HEAD_DIM, false>;
    const int bytes = sizeof(BackwardShared<T, HEAD_DIM>) + SWIZZLE_SPAN;
    BackwardMaps maps = {};
    cudaError_t error = make_maps<T, HEAD_DIM>(&maps, a);
    if (error == cudaSuccess) error = allow_shared_memory(kernel, bytes);
    if (error != cudaSuccess) return error;
    kernel<<<(unsigned)blocks, THREADS, bytes, a->stream>>>(*a, w, maps);
    return cudaGetLastError();
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    const BackwardWorkspace w = backward_workspace(a, ROWS);
    const int64_t heads = (int64_t)a->batch * a->heads;
    const unsigned prepare = (unsigned)(w.sums.row_tiles * heads);
    const unsigned finish = (unsigned)(tiles_of(a->seqlen_q, FINISH_ROWS) * heads);
    if (prepare > 0)
        prepare_hopper_backward<T, HEAD_DIM, ROWS><<<prepare, ROWS, 0, a->stream>>>(*a, w);
    const cudaError_t error = launch_main<T, HEAD_DIM>(a, w);
    if (error != cudaSuccess) return error;
    if (finish > 0)
        finish_dq<T, HEAD_DIM, WarpgroupLayout<HEAD_DIM>>
            <<<finish, HEAD_DIM, 0, a->stream>>>(*a, w.sums);
    return cudaGetLastError();
}

template <typename T> static cudaError_t launch_of(const Attention *a) {
#if BUILT_64
    if (a->head_dim == 64) return launch_backward<T, 64>(a);
#endif
#if BUILT_128
    if (a->head_dim == 128) return launch_backward<T, 128>(a);
#endif
    return cudaErrorInvalidValue;
}

cudaError_t hopper_backward(const Attention *a) {
    return a->dtype == DTYPE_FP16 ? launch_of<__half>(a) : launch_of<__nv_bfloat16>(a);
}

size_t hopper_backward_workspace(const Attention *a) {
    return backward_workspace(a,
                              a->head_dim <= 64 ? BackwardTile<64>::ROWS : BackwardTile<128>::ROWS)
        .bytes;
}

const char *hopper_backward_refuses(const Attention *a) {
    if (a->dtype == DTYPE_FP32)
        return "wgmma multiplies fp16 and bf16; chapter 4's step recompute has a backward for fp32";
    if (a->head_dim != 64 && a->head_dim != 128)
        return "chapter 5 has a backward for head_dim 64 and 128; chapter 4's step recompute has "
               "one "
               "for all";
    const int bytes = a->head_dim == 64 ? sizeof(BackwardShared<__half, 64>)
                                        : sizeof(BackwardShared<__half, 128>);
    return refuses_recompute(a, true, KEYS, bytes + SWIZZLE_SPAN);
}
