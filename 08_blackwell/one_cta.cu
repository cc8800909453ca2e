// Chapter 8, step one-cta: the backward. A block has 128 keys and walks over the tiles of 128 query
// rows; all five accumulators lie in tensor memory, and one thread starts all products. Keys are
// lanes (backward_tile.h), so that Pᵀ and dSᵀ need not leave tensor memory:
//
//   Sᵀ = K Qᵀ    dPᵀ = V dOᵀ      A and B from shared memory
//   dV += Pᵀ dO  dK += dSᵀ Q      A from tensor memory
//   dQ  = dS K                    sums over keys, which are lanes: dS goes through shared memory
//
// Sixteen warps:
//
//   warps 0-3    reduce     dQ: tensor memory → shared memory → added to the sums in HBM
//   warps 4-11   compute    two warpgroups, a thread a key, 64 query rows each: S → P, dP → dS
//   warp 12      multiply   one thread starts the products
//   warp 13      load       one thread starts the copies of K, V, Q and dO
//
// The order of the products hides what is computed between them: while P of tile n + 1 is made of
// its S, the tensor core works on dK and dQ of tile n; while dS is, on dV and the next S.
//
//   tensor core   … │ S n+1 │ dK n │ dQ n │ dP n+1 │ dV n+1 │ S n+2 │ dK n+1 │ …
//   compute                 │   S → P n+1          │  dP → dS n+1   │
//   reduce                              │ dQ n → HBM       │
//
// mbarriers, `n` counts tiles of query rows, and the phase of a use is its number's parity:
//
//   k_full, v_full   load → multiply        K, V have come
//   q_full[2]        load → multiply,       Q has come, and lse and D of its rows
//                    compute
//   q_empty[2]       multiply, compute      dK has been multiplied; lse and D have been read
//                    → load
//   dout_full        load → multiply        dO has come
//   dout_empty       multiply → load        dV has been multiplied
//   s_full           multiply → compute     S has come
//   p_full           compute → multiply     P has been written, S read
//   dp_full          multiply → compute     dP has come; so dQ of the tile before is done with dS
//   ds_full          compute → multiply     dS has been written twice, dP read
//   dq_full          multiply → reduce      dQ has come
//   dq_empty         reduce → multiply      and has been read: dP may come
//   keys_full        multiply → compute     dV and dK are complete
#include "one_cta.h"

#include "backward_copies.h"
#include "backward_math.h"
#include "backward_products.h"
#include "backward_launch.h"
#include "device/elect.h"
#include "device/named_barrier.h"
#include "device/proxy.h"

// Registers of a thread, by role: together those of an SM. Who reduces holds a row of dQ.
template <int HEAD_DIM> struct Registers {
    static constexpr int REDUCE = HEAD_DIM <= 64 ? 104 : 152;
    static constexpr int COMPUTE = HEAD_DIM <= 64 ? 160 : 136;
    static constexpr int OTHER = 65536 / WARPGROUP - REDUCE - 2 * COMPUTE;
};
static const int Q_STAGES = 2;
static const int DQ_COLUMNS = 32; // of dQ that go through shared memory at a time

//   shared memory │ K │ V │ Q: 2 stages │ dO │ dS │ dQ: 2 stages │ lse and D │ mbarriers │
template <typename T, int HEAD_DIM> struct OneCta {
    T k[KEYS * HEAD_DIM], v[KEYS * HEAD_DIM];
    T q[Q_STAGES][ROWS * HEAD_DIM], dout[ROWS * HEAD_DIM];
    T ds[KEYS * ROWS];
    float dq[2][ROWS * DQ_COLUMNS];
    float lse[Q_STAGES][ROWS], row_dots[Q_STAGES][ROWS];
    uint64_t k_full, v_full, q_full[Q_STAGES], q_empty[Q_STAGES], dout_full, dout_empty;
    uint64_t s_full, p_full, dp_full, ds_full, dq_full, dq_empty, keys_full;
    BlockKeys block;
    uint32_t tmem; // where the block's tensor memory begins
};
static_assert(sizeof(OneCta<__half, 128>) <= MAX_SHARED_BYTES, "the tiles must fit");

// ---- load: one thread

template <typename T, int HEAD_DIM>
__device__ static inline void load(OneCta<T, HEAD_DIM> &shared, const BackwardMaps &maps,
                                   const Attention &a, const BackwardWorkspace &w,
                                   BlockKeys block) {
    const uint32_t TILE_BYTES = sizeof shared.k, VECTOR_BYTES = sizeof shared.lse[0];
    for (RowTiles at(block); at.more(); at.advance()) {
        const int stage = at.n % Q_STAGES, row = at.tile * ROWS;
        PHASE("load");
        if (at.n == 0) {
            mbarrier_arrive_expect(&shared.k_full, TILE_BYTES);
            load_tile<HEAD_DIM>(shared.k, &maps.k, &shared.k_full, block.first_key, block.kv_head,
                                block.batch);
        }
        uint64_t *full = &shared.q_full[stage];
        mbarrier_wait(&shared.q_empty[stage], at.n / Q_STAGES % 2 ^ 1);
        mbarrier_arrive_expect(full, TILE_BYTES + 2 * VECTOR_BYTES);
        load_tile<HEAD_DIM>(shared.q[stage], &maps.q, full, row, at.head, block.batch);
        bulk_load(shared.lse[stage], w.lse_base_2 + at.vector(a, w), VECTOR_BYTES, full);
        bulk_load(shared.row_dots[stage], w.sums.row_dots + at.vector(a, w), VECTOR_BYTES, full);
        if (at.n == 0) {
            mbarrier_arrive_expect(&shared.v_full, TILE_BYTES);
            load_tile<HEAD_DIM>(shared.v, &maps.v, &shared.v_full, block.first_key, block.kv_head,
                                block.batch);
        }
        mbarrier_wait(&shared.dout_empty, at.n % 2 ^ 1);
        mbarrier_arrive_expect(&shared.dout_full, TILE_BYTES);
        load_tile<HEAD_DIM>(shared.dout, &maps.dout, &shared.dout_full, row, at.head, block.batch);
    }
}

// ---- multiply: one thread

// Sᵀ of tile n. Nobody needs the columns any more: P of the tile before has been written behind the
// last load of S, and its product comes first in the tensor core's queue.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_s(OneCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n) {
    mbarrier_wait(&shared.q_full[n % Q_STAGES], n / Q_STAGES % 2);
    PHASE("s_gemm");
    multiply_keys_rows<T, HEAD_DIM>(tmem + S_AT, shared.k, shared.q[n % Q_STAGES]);
    tcgen05_commit(&shared.s_full);
}

// dPᵀ and dV of tile n.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_dp_dv(OneCta<T, HEAD_DIM> &shared, uint32_t tmem,
                                             uint32_t n) {
    mbarrier_wait(&shared.dout_full, n % 2);
    mbarrier_wait(&shared.dq_empty, n % 2 ^ 1); // dQ of the tile before has been read
    tcgen05_fence_after();
    PHASE("dp_gemm");
    multiply_keys_rows<T, HEAD_DIM>(tmem + DP_AT, shared.v, shared.dout);
    tcgen05_commit(&shared.dp_full);
    mbarrier_wait(&shared.p_full, n % 2);
    tcgen05_fence_after(); // behind the stores of P
    PHASE("dv_gemm");
    add_weighted_rows<T, HEAD_DIM>(tmem + DV_AT, tmem + S_AT, shared.dout, n > 0);
    tcgen05_commit(&shared.dout_empty);
}

// dK and dQ of tile n: dQ goes where dK's dS stands, and behind dK.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_dk_dq(OneCta<T, HEAD_DIM> &shared, uint32_t tmem,
                                             uint32_t n) {
    mbarrier_wait(&shared.ds_full, n % 2);
    tcgen05_fence_after(); // behind the stores of dS
    PHASE("dk_gemm");
    add_weighted_rows<T, HEAD_DIM>(tmem + DK_AT, tmem + DP_AT, shared.q[n % Q_STAGES], n > 0);
    tcgen05_commit(&shared.q_empty[n % Q_STAGES]);
    PHASE("dq_gemm");
    multiply_dq<T, HEAD_DIM>(tmem + DP_AT, shared.ds, shared.k);
    tcgen05_commit(&shared.dq_full);
}

template <typename T, int HEAD_DIM>
__device__ static inline void multiply(OneCta<T, HEAD_DIM> &shared, BlockKeys block) {
    const uint32_t tmem = shared.tmem, tiles = (uint32_t)(block.tiles * block.group);
    if (tiles == 0) return;
    mbarrier_wait(&shared.k_full, 0);
    multiply_s(shared, tmem, 0);
    mbarrier_wait(&shared.v_full, 0);
    multiply_dp_dv(shared, tmem, 0);
    for (uint32_t n = 0; n < tiles; n++) {
        if (n + 1 < tiles) multiply_s(shared, tmem, n + 1);
        multiply_dk_dq(shared, tmem, n);
        if (n + 1 < tiles) multiply_dp_dv(shared, tmem, n + 1);
    }
    tcgen05_commit(&shared.keys_full);
}

// ---- compute: two warpgroups, a thread a key and SHARE rows of each tile

// A tile's S → P, and dP → dS, of the thread's key. With a cap dS wants the tanh that P is made of,
// so P waits for dP.
template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void weigh(OneCta<T, HEAD_DIM> &shared, const Attention &a,
                                    const Exponent &exponent, const RowTiles &at, int share,
                                    uint32_t s_tmem, uint32_t dp_tmem) {
    const int stage = at.n % Q_STAGES;
    const float *lse = shared.lse[stage] + share * SHARE;
    const float *dots = shared.row_dots[stage] + share * SHARE;
    const VisibleRows rows = visible_rows(a, at.tile * ROWS + share * SHARE, at.keys.first_key);
    float p_reg[SHARE];
    uint32_t p_packed[SHARE / 2], ds_packed[SHARE / 2];

    mbarrier_wait(&shared.q_full[stage], at.n / Q_STAGES % 2); // lse and D
    mbarrier_wait(&shared.s_full, at.n % 2);
    if (CAPPED) mbarrier_wait(&shared.dp_full, at.n % 2);
    tcgen05_fence_after(); // behind the products
    PHASE("softmax");
    if (CAPPED) {
        weigh_capped<T>(p_packed, ds_packed, s_tmem, dp_tmem, lse, dots, exponent, rows);
    } else {
        load_lane<SHARE>(p_reg, s_tmem);
        if (!exponent.plain) adjust_rows<SHARE>(p_reg, exponent);
        exponentiate_rows<SHARE>(p_reg, lse, exponent.factor, rows, 0);
        pack_numbers<T, SHARE>(p_packed, p_reg);
    }
    tmem_store(s_tmem, p_packed);
    tmem_store_wait();
    tcgen05_fence_before(); // S has been read, P written →
    mbarrier_arrive(&shared.p_full);

    if (!CAPPED) {
        mbarrier_wait(&shared.dp_full, at.n % 2);
        tcgen05_fence_after();
        PHASE("gradient");
        differentiate_share<T>(ds_packed, dp_tmem, p_reg, dots);
    }
    tmem_store(dp_tmem, ds_packed);                                           // for dK
    write_line(shared.ds, threadIdx.x % WARPGROUP, share * SHARE, ds_packed); // for dQ
    tmem_store_wait();
    tcgen05_fence_before(); // dP has been read, dS written →
    fence_proxy_async();    // … also to shared memory, and lse and D read → tensor core, TMA
    mbarrier_arrive(&shared.ds_full);
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, &shared.q_empty[stage]);
}

template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void compute(OneCta<T, HEAD_DIM> &shared, const BackwardMaps &maps,
                                      const Attention &a, BlockKeys block, int share) {
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    const uint32_t lanes = tmem_quarter(shared.tmem, threadIdx.x / 32);
    for (RowTiles at(block); at.more(); at.advance())
        weigh<T, HEAD_DIM, CAPPED>(shared, a, exponent, at, share, lanes + S_AT + share * SHARE,
                                   lanes + DP_AT + share * SHARE);
    if (block.tiles > 0) {
        mbarrier_wait(&shared.keys_full, 0);
        tcgen05_fence_after();
    }
    // All products are done: nobody reads V and K any more.
    if (share == 0)
        store_keys<T, HEAD_DIM>(shared.v, &maps.dv, lanes + DV_AT, block, block.first_key, share,
                                1);
    else
        store_keys<T, HEAD_DIM>(shared.k, &maps.dk, lanes + DK_AT, block, block.first_key, share,
                                a.softmax_scale);
}

// ---- reduce: a warpgroup, a thread a query row

// dQ of each tile is added to the sums in HBM, by atomic additions of TMA: in no order, or one
// block of keys after the other (deterministic).
template <typename T, int HEAD_DIM>
__device__ static inline void reduce(OneCta<T, HEAD_DIM> &shared, const Attention &a,
                                     const BackwardWorkspace &w, BlockKeys block) {
    const int row = threadIdx.x, half = row / PIECE_ROWS;
    const uint32_t dq_tmem = tmem_quarter(shared.tmem, threadIdx.x / 32) + DP_AT;
    const int PIECE_NUMBERS = PIECE_ROWS * DQ_COLUMNS; // 64 rows of what goes at a time
    for (RowTiles at(block); at.more(); at.advance()) {
        float *sums = w.sums.dq_sums + at.vector(a, w) * HEAD_DIM;
        unsigned *turns =
            w.sums.turns + ((int64_t)block.batch * a.heads + at.head) * w.sums.row_tiles + at.tile;
        const unsigned turn =
            a.deterministic ? turn_of<ROWS, KEYS>(a, (int64_t)at.tile * ROWS, block.first_key) : 0;
        float dq_reg[HEAD_DIM];
        mbarrier_wait(&shared.dq_full, at.n % 2);
        tcgen05_fence_after();
        PHASE("reduce");
        load_lane<HEAD_DIM>(dq_reg, dq_tmem);
        tcgen05_fence_before();
        mbarrier_arrive(&shared.dq_empty);
        if (a.deterministic && row == 0) {
            turn_wait_alone(turns, turn); // the blocks of keys before have added …
            fence_proxy_async_global();   // … as TMA sees it, too
        }
#pragma unroll
        for (int column = 0; column < HEAD_DIM; column += DQ_COLUMNS) {
            // This place's last additions have been started before the last barrier, and thread 0
            // has come there behind their reads.
            float *dq_smem = shared.dq[column / DQ_COLUMNS % 2];
            write_piece<DQ_COLUMNS>(dq_smem + half * PIECE_NUMBERS, row % PIECE_ROWS,
                                    dq_reg + column);
            fence_proxy_async();              // these stores → TMA
            if (row == 0) tma_wait_read<0>(); // the other place has been read
            named_barrier_sync(DQ_READY, WARPGROUP);
            if (row != 0) continue;
            for (int h = 0; h < ROWS / PIECE_ROWS; h++)
                bulk_add_fp32(sums + h * PIECE_ROWS * HEAD_DIM + column * PIECE_ROWS,
                              dq_smem + h * PIECE_NUMBERS, PIECE_NUMBERS * sizeof(float));
            tma_commit();
        }
        if (a.deterministic && row == 0) {
            tma_wait_written<0>();      // the sums are written …
            fence_proxy_async_global(); // … as threads see it, too
            turn_end_alone(turns, turn);
        }
    }
    if (row == 0) tma_wait_read<0>(); // shared memory must live as long as it is read
}

// ---- the kernel

template <typename T, int HEAD_DIM>
__device__ static inline void prepare(OneCta<T, HEAD_DIM> &shared, const Attention &a,
                                      const BackwardWorkspace &w, const BackwardMaps &maps) {
    if (threadIdx.x == 0) {
        shared.block = block_keys(a, take_place(a, w, blockIdx.x), KEYS);
        mbarrier_init(&shared.k_full, 1);
        mbarrier_init(&shared.v_full, 1);
        for (int stage = 0; stage < Q_STAGES; stage++) {
            mbarrier_init(&shared.q_full[stage], 1);
            mbarrier_init(&shared.q_empty[stage], 1 + COMPUTE_WARPS);
        }
        mbarrier_init(&shared.dout_full, 1);
        mbarrier_init(&shared.dout_empty, 1);
        mbarrier_init(&shared.s_full, 1);
        mbarrier_init(&shared.p_full, 2 * WARPGROUP);
        mbarrier_init(&shared.dp_full, 1);
        mbarrier_init(&shared.ds_full, 2 * WARPGROUP);
        mbarrier_init(&shared.dq_full, 1);
        mbarrier_init(&shared.dq_empty, WARPGROUP);
        mbarrier_init(&shared.keys_full, 1);
        fence_mbarrier_init(); // → TMA
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.q);
    }
    if (threadIdx.x / 32 == MULTIPLY_WARP) {
        tmem_alloc<BACKWARD_TMEM_COLUMNS>(&shared.tmem);
        tmem_relinquish();
    }
    tcgen05_fence_before();
    __syncthreads(); // → all threads
    tcgen05_fence_after();
}

template <typename T, int HEAD_DIM, bool CAPPED>
__global__ void __launch_bounds__(THREADS, 1) one_cta(const Attention a, const BackwardWorkspace w,
                                                      const __grid_constant__ BackwardMaps maps) {
    extern __shared__ __align__(1024) uint8_t smem_start[];
    OneCta<T, HEAD_DIM> &shared = *(OneCta<T, HEAD_DIM> *)smem_start;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); // uniform
    prepare(shared, a, w, maps);
    // Each role reads the rest from shared memory: what all hold, nobody has registers for.
    if (warp < COMPUTE_WARP) {
        set_registers<Registers<HEAD_DIM>::REDUCE>();
        reduce(shared, a, w, shared.block);
    } else if (warp < MULTIPLY_WARP) {
        set_registers<Registers<HEAD_DIM>::COMPUTE>();
        compute<T, HEAD_DIM, CAPPED>(shared, maps, a, shared.block, (warp - COMPUTE_WARP) / 4);
    } else {
        set_registers<Registers<HEAD_DIM>::OTHER>();
        if (warp == MULTIPLY_WARP && elect_one()) multiply(shared, shared.block);
        if (warp == LOAD_WARP && elect_one()) load(shared, maps, a, w, shared.block);
    }
    tcgen05_fence_before();
    __syncthreads(); // nobody reads tensor memory any more
    tcgen05_fence_after();
    if (threadIdx.x / 32 == MULTIPLY_WARP) tmem_free<BACKWARD_TMEM_COLUMNS>(shared.tmem);
}

// ---- the launch

template <typename T, int HEAD_DIM>
static cudaError_t launch_main(const Attention *a, const BackwardWorkspace &w,
                               const BackwardMaps &maps) {
    const auto kernel = a->softcap > 0 ? one_cta<T, HEAD_DIM, true> : one_cta<T, HEAD_DIM, false>;
    const int64_t blocks = tiles_of(a->seqlen_k, KEYS) * a->batch * a->kv_heads;
    const int bytes = sizeof(OneCta<T, HEAD_DIM>);
    const cudaError_t error = allow_shared_memory(kernel, bytes);
    if (error != cudaSuccess) return error;
    kernel<<<(unsigned)blocks, THREADS, bytes, a->stream>>>(*a, w, maps);
    return cudaGetLastError();
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    return launch_kernels<T, HEAD_DIM>(a, ROWS, launch_main<T, HEAD_DIM>);
}

DEFINE_BACKWARD

const Step one_cta_step = {
    .chapter = 8,
    .name = "one-cta",
    .idea = "the backward: five accumulators in tensor memory, P and dS never leave it for dV, dK",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace_bytes,
    .backward = backward,
};
