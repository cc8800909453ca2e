// Chapter 8, step two-cta: the backward by pairs of blocks. What holds one-cta back is shared
// memory: a product of 128 x 128 x 128 reads two operands of 32 KB from it. A pair multiplies with
// 256 keys at a time (device/tcgen05_pair.h): each block has its own 128 of them as A, and of B, Q
// or dO, only half, which both read. So of each tile of rows a block has
//
//   Sᵀ, dPᵀ   256 keys x 128 rows   B: half of the rows of Q, dO, all columns     (q, dout)
//   dV, dK    256 keys x head_dim   B: half of the columns of dO, Q, all rows     (…_columns)
//   dQ        128 rows x head_dim   A: dS of 64 rows, of all 256 keys             (ds)
//                                   B: half of the columns of K of all 256 keys   (k_columns)
//
// dQ is where the pair's keys meet: its sum goes over all 256, so a block has dQ of 64 rows and no
// other block of the pair adds to them: half the additions in HBM. For that each block sends half
// of its dS to the other, from shared memory to shared memory, while the tensor cores work on dK
// and the next dP:
//
//   tensor cores  … │ S n+1 │ dK n │ dP n+1 │ dQ n │ dV n+1 │ S n+2 │ …
//   compute                 │   S → P n+1   │  dP → dS n+1   │
//   between blocks  │ half of dS n │
//
// Sixteen warps in each block, roles as in one-cta, and a relay warp. Thread `multiply` of block 0
// starts the products of both. mbarriers, "→ 0": those of block 0 are arrived at by both blocks;
// "→ both": a commit arrives in both.
//
//   k_full, v_full, k_columns_full          load → 0 multiply        have come in both blocks
//   q_full, dout_full, …_columns_full       load → 0 multiply        likewise, of each tile
//   q_empty, dout_empty, …_columns_empty    multiply → both load     have been multiplied
//   vectors_full[2], vectors_empty[2]       load ↔ compute           lse and D of the tile's rows
//   s_full, dp_full                         multiply → both compute  have come
//   s_read                                  compute → 0 multiply     S's second half has been read
//   p_full                                  compute → 0 multiply     P has been written
//   ds_full                                 compute → 0 multiply     dS is in tensor memory
//   ds_received                             the other block → relay  its half of dS is here
//   ds_shared                               compute, relay → 0 multiply   dS is in shared memory
//   ds_empty                                multiply → both compute  … and has been multiplied
//   dq_full                                 multiply → both reduce   dQ has come
//   dq_empty                                reduce → 0 multiply      … and been read: S may come
//   keys_full                               multiply → both compute  dV and dK are complete
//
// Tensor memory is full: dQ, 64 columns here, takes the second half of S's, whose P stands in the
// first.
#include "two_cta.h"

#include "backward_copies.h"
#include "backward_launch.h"
#include "backward_math.h"
#include "backward_products_pair.h"
#include "device/elect.h"

// Registers of a thread, by role: together those of an SM.
static const int REDUCE_REGISTERS = 120, COMPUTE_REGISTERS = 144;
static const int OTHER_REGISTERS = 65536 / WARPGROUP - REDUCE_REGISTERS - 2 * COMPUTE_REGISTERS;
static const int RELAY_WARP = 14;
static const int VECTOR_STAGES = 2;
static const int DQ_COLUMNS = 16; // of a lane, that go through shared memory at a time
static const int DQ_AT = S_AT + ROWS / 2;
static const int S_READ = 4; // named barriers, one for each quarter of the lanes

//   shared memory, of head_dim 128 in KB:
//
//   K │ V │ K's columns │ Q │ dO │ Q's columns │ dO's columns │ dS │ dS to send │ dQ │ lse, D │
//   32  32       32       16  16        16            16        32       16       16      2
template <typename T, int HEAD_DIM> struct TwoCta {
    static constexpr int HALF = HALF_ROWS * HEAD_DIM; // numbers of half a tile
    T k[KEYS * HEAD_DIM], v[KEYS * HEAD_DIM], k_columns[PAIR * KEYS * HEAD_DIM / 2];
    T q[HALF], dout[HALF], q_columns[HALF], dout_columns[HALF];
    T ds[PAIR * KEYS * HALF_ROWS], ds_out[KEYS * HALF_ROWS];
    float dq[2][128 * DQ_COLUMNS];
    float lse[VECTOR_STAGES][ROWS], row_dots[VECTOR_STAGES][ROWS];
    uint64_t k_full, v_full, k_columns_full;
    uint64_t q_full, dout_full, q_columns_full, dout_columns_full;
    uint64_t q_empty, dout_empty, q_columns_empty, dout_columns_empty;
    uint64_t vectors_full[VECTOR_STAGES], vectors_empty[VECTOR_STAGES];
    uint64_t s_full, s_read, p_full, dp_full, ds_full, ds_received, ds_shared, ds_empty;
    uint64_t dq_full, dq_empty, keys_full;
    BlockKeys block; // of the pair
    uint32_t tmem;   // where the block's tensor memory begins
};
static_assert(sizeof(TwoCta<__half, 128>) <= MAX_SHARED_BYTES, "the tiles must fit");

// Boxes of whole lines of 64 numbers, and of half of the columns.
typedef struct {
    BackwardMaps tiles;
    CUtensorMap k_columns, q_columns, dout_columns;
} PairMaps;

// ---- load: one thread of each block

// Starts copying `rows` rows of a head, and `columns` of their numbers, in boxes of BOX_ROWS by
// BOX_COLUMNS. Block 0's barrier counts the bytes of both blocks. A box behind the head's last row
// gets that one again: its keys are masked, its query rows have lse = inf, so nothing becomes of
// it.
template <int BOX_ROWS, int BOX_COLUMNS, typename T>
__device__ static inline void load_half(T *to_smem, const CUtensorMap *map, uint64_t *full,
                                        int column, int columns, int row, int rows, int last_row,
                                        int head, int batch) {
    PHASE("load");
    if (cluster_rank() == 0) mbarrier_arrive_expect(full, PAIR * columns * rows * (int)sizeof(T));
    for (int c = 0; c < columns; c += BOX_COLUMNS)
        for (int r = 0; r < rows; r += BOX_ROWS)
            tma_load_4d_pair(to_smem + (c * rows + r * BOX_COLUMNS), map, full, column + c,
                             min(row + r, last_row), head, batch);
}

// The order is that of the products, so that what is waited for first comes first.
template <typename T, int HEAD_DIM>
__device__ static inline void load(TwoCta<T, HEAD_DIM> &shared, const PairMaps &maps,
                                   const Attention &a, const BackwardWorkspace &w,
                                   BlockKeys block) {
    const int rank = (int)cluster_rank(), column = rank * HEAD_DIM / 2;
    const int own_key = block.first_key + rank * KEYS;
    const int last_key = (int)a.seqlen_k - 1, last_row = (int)a.seqlen_q - 1;
    const uint32_t VECTOR_BYTES = sizeof shared.lse[0];
    const auto load_keys = [&](T *to_smem, const CUtensorMap *map, uint64_t *full) {
        load_half<KEYS, COLUMNS>(to_smem, map, full, 0, HEAD_DIM, own_key, KEYS, last_key,
                                 block.kv_head, block.batch);
    };
    // Of the tile `at`: half of the rows, or of the columns.
    const auto load_rows = [&](T *to_smem, const CUtensorMap *map, uint64_t *full, uint64_t *empty,
                               const RowTiles &at) {
        mbarrier_wait_cluster(empty, at.n % 2 ^ 1);
        load_half<HALF_ROWS, COLUMNS>(to_smem, map, full, 0, HEAD_DIM,
                                      at.tile * ROWS + rank * HALF_ROWS, HALF_ROWS, last_row,
                                      at.head, block.batch);
    };
    const auto load_columns = [&](T *to_smem, const CUtensorMap *map, uint64_t *full,
                                  uint64_t *empty, const RowTiles &at) {
        mbarrier_wait_cluster(empty, at.n % 2 ^ 1);
        load_half<HALF_ROWS, HEAD_DIM / 2>(to_smem, map, full, column, HEAD_DIM / 2, at.tile * ROWS,
                                           ROWS, last_row, at.head, block.batch);
    };
    const auto load_vectors = [&](const RowTiles &at) {
        const int stage = at.n % VECTOR_STAGES;
        uint64_t *full = &shared.vectors_full[stage];
        mbarrier_wait(&shared.vectors_empty[stage], at.n / VECTOR_STAGES % 2 ^ 1);
        mbarrier_arrive_expect(full, 2 * VECTOR_BYTES);
        bulk_load(shared.lse[stage], w.lse_base_2 + at.vector(a, w), VECTOR_BYTES, full);
        bulk_load(shared.row_dots[stage], w.sums.row_dots + at.vector(a, w), VECTOR_BYTES, full);
    };

    RowTiles at(block);
    if (!at.more()) return;
    load_keys(shared.k, &maps.tiles.k, &shared.k_full);
    load_rows(shared.q, &maps.tiles.q, &shared.q_full, &shared.q_empty, at);
    load_vectors(at);
    load_keys(shared.v, &maps.tiles.v, &shared.v_full);
    load_rows(shared.dout, &maps.tiles.dout, &shared.dout_full, &shared.dout_empty, at);
    for (RowTiles next(block); at.more(); at.advance()) {
        next.advance();
        load_columns(shared.dout_columns, &maps.dout_columns, &shared.dout_columns_full,
                     &shared.dout_columns_empty, at);
        if (at.n == 0)
            load_half<KEYS, HEAD_DIM / 2>(shared.k_columns, &maps.k_columns, &shared.k_columns_full,
                                          column, HEAD_DIM / 2, block.first_key, PAIR * KEYS,
                                          last_key, block.kv_head, block.batch);
        if (next.more()) load_rows(shared.q, &maps.tiles.q, &shared.q_full, &shared.q_empty, next);
        load_columns(shared.q_columns, &maps.q_columns, &shared.q_columns_full,
                     &shared.q_columns_empty, at);
        if (!next.more()) continue;
        load_vectors(next);
        load_rows(shared.dout, &maps.tiles.dout, &shared.dout_full, &shared.dout_empty, next);
    }
    // A commit arrives in both blocks, so neither may end before the last ones have.
    mbarrier_wait_cluster(&shared.q_empty, at.n % 2 ^ 1);
    mbarrier_wait_cluster(&shared.dout_empty, at.n % 2 ^ 1);
    mbarrier_wait_cluster(&shared.dout_columns_empty, at.n % 2 ^ 1);
    mbarrier_wait_cluster(&shared.q_columns_empty, at.n % 2 ^ 1);
}

// ---- multiply: one thread of block 0

// Sᵀ of tile n: P of the tile before comes first in the queue, and its dQ has been read.
template <typename T, int HEAD_DIM>
__device__ static inline void start_s(TwoCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n) {
    mbarrier_wait_cluster(&shared.q_full, n % 2);
    if (n > 1) mbarrier_wait_cluster(&shared.dq_empty, n % 2); // of tile n - 2
    tcgen05_fence_after();
    PHASE("s_gemm");
    multiply_keys_rows<T, HEAD_DIM>(tmem + S_AT, shared.k, shared.q);
    tcgen05_commit_pair(&shared.s_full);
    tcgen05_commit_pair(&shared.q_empty);
}

template <typename T, int HEAD_DIM>
__device__ static inline void start_dp(TwoCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n) {
    mbarrier_wait_cluster(&shared.dout_full, n % 2);
    PHASE("dp_gemm");
    multiply_keys_rows<T, HEAD_DIM>(tmem + DP_AT, shared.v, shared.dout);
    tcgen05_commit_pair(&shared.dp_full);
    tcgen05_commit_pair(&shared.dout_empty);
}

template <typename T, int HEAD_DIM>
__device__ static inline void start_dv(TwoCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n) {
    mbarrier_wait_cluster(&shared.p_full, n % 2);
    mbarrier_wait_cluster(&shared.dout_columns_full, n % 2);
    tcgen05_fence_after(); // behind the stores of P
    PHASE("dv_gemm");
    add_weighted_rows<T, HEAD_DIM>(tmem + DV_AT, tmem + S_AT, SHARE / 2, shared.dout_columns,
                                   n > 0);
    tcgen05_commit_pair(&shared.dout_columns_empty);
}

template <typename T, int HEAD_DIM>
__device__ static inline void start_dk(TwoCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n) {
    mbarrier_wait_cluster(&shared.ds_full, n % 2);
    mbarrier_wait_cluster(&shared.q_columns_full, n % 2);
    tcgen05_fence_after(); // behind the stores of dS
    PHASE("dk_gemm");
    add_weighted_rows<T, HEAD_DIM>(tmem + DK_AT, tmem + DP_AT, SHARE, shared.q_columns, n > 0);
    tcgen05_commit_pair(&shared.q_columns_empty);
}

// dQ of tile n goes where the second half of S of tile n + 1 stands, which must have been read;
// behind the last S, where dQ of the tile before stands.
template <typename T, int HEAD_DIM>
__device__ static inline void start_dq(TwoCta<T, HEAD_DIM> &shared, uint32_t tmem, uint32_t n,
                                       bool is_last) {
    if (!is_last)
        mbarrier_wait_cluster(&shared.s_read, (n + 1) % 2);
    else if (n > 0)
        mbarrier_wait_cluster(&shared.dq_empty, (n - 1) % 2);
    mbarrier_wait_cluster(&shared.ds_shared, n % 2);
    tcgen05_fence_after();
    PHASE("dq_gemm");
    multiply_dq<T, HEAD_DIM>(tmem + DQ_AT, shared.ds, shared.k_columns);
    tcgen05_commit_pair(&shared.dq_full);
    tcgen05_commit_pair(&shared.ds_empty);
}

template <typename T, int HEAD_DIM>
__device__ static inline void multiply(TwoCta<T, HEAD_DIM> &shared, BlockKeys block) {
    const uint32_t tmem = shared.tmem, tiles = (uint32_t)(block.tiles * block.group);
    if (tiles == 0) return;
    mbarrier_wait_cluster(&shared.k_full, 0);
    start_s(shared, tmem, 0);
    mbarrier_wait_cluster(&shared.v_full, 0);
    start_dp(shared, tmem, 0);
    start_dv(shared, tmem, 0);
    mbarrier_wait_cluster(&shared.s_read, 0); // at once: parities tell only neighbours apart
    mbarrier_wait_cluster(&shared.k_columns_full, 0);
    for (uint32_t n = 0; n < tiles; n++) {
        const bool is_last = n + 1 == tiles;
        if (!is_last) start_s(shared, tmem, n + 1);
        start_dk(shared, tmem, n);
        if (!is_last) start_dp(shared, tmem, n + 1);
        start_dq(shared, tmem, n, is_last);
        if (!is_last) start_dv(shared, tmem, n + 1);
    }
    tcgen05_commit_pair(&shared.keys_full);
}

// ---- compute: two warpgroups of each block, a thread a key and SHARE rows of each tile

// An arrival of the warp at a barrier of block 0, for what all its threads have done.
__device__ static inline void arrive_in_first(uint64_t *barrier) {
    __syncwarp();
    mbarrier_arrive_in_if(threadIdx.x % 32 == 0, barrier, 0);
}

// dS of the warpgroup's rows → shared memory: this block's if they are its rows of dQ, else the
// other's.
template <typename T, int HEAD_DIM>
__device__ static inline void share_ds(TwoCta<T, HEAD_DIM> &shared, uint32_t n, int share,
                                       const uint32_t (&packed)[SHARE / 2]) {
    const int rank = (int)cluster_rank(), key = threadIdx.x % WARPGROUP;
    const bool own = share == rank;
    T *tile_smem = own ? shared.ds + rank * KEYS * HALF_ROWS : shared.ds_out;
    mbarrier_wait_cluster(&shared.ds_empty, n % 2 ^ 1); // dQ before is done: here and there
    write_line(tile_smem, key, 0, packed);
    fence_proxy_async(); // → tensor cores, TMA
    if (own) {
        arrive_in_first(&shared.ds_shared);
        return;
    }
    named_barrier_sync(KEYS_READY + share, WARPGROUP); // the warpgroup's stores → TMA
    if (key == 0)
        bulk_copy_to(shared.ds + rank * KEYS * HALF_ROWS, shared.ds_out, sizeof shared.ds_out,
                     &shared.ds_received, rank ^ 1);
}

// A tile's S → P, and dP → dS, of the thread's key. With a cap dS wants the tanh that P is made of,
// so P waits for dP.
template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void weigh(TwoCta<T, HEAD_DIM> &shared, const Attention &a,
                                    const Exponent &exponent, const RowTiles &at, int own_key,
                                    int share, uint32_t lanes) {
    const int stage = at.n % VECTOR_STAGES;
    const float *lse = shared.lse[stage] + share * SHARE;
    const float *dots = shared.row_dots[stage] + share * SHARE;
    const uint32_t s_tmem = lanes + S_AT + share * SHARE, dp_tmem = lanes + DP_AT + share * SHARE;
    const VisibleRows rows = visible_rows(a, at.tile * ROWS + share * SHARE, own_key);
    float p_reg[SHARE];
    uint32_t p_packed[SHARE / 2], ds_packed[SHARE / 2];

    mbarrier_wait(&shared.vectors_full[stage], at.n / VECTOR_STAGES % 2);
    mbarrier_wait_cluster(&shared.s_full, at.n % 2);
    if (CAPPED) mbarrier_wait_cluster(&shared.dp_full, at.n % 2);
    tcgen05_fence_after(); // behind the products
    PHASE("softmax");
    if (CAPPED)
        weigh_capped<T>(p_packed, ds_packed, s_tmem, dp_tmem, lse, dots, exponent, rows);
    else
        load_lane<SHARE>(p_reg, s_tmem);
    // The second warpgroup's P goes where the first one's S stands: behind its load.
    tcgen05_fence_before();
    if (share == 1) arrive_in_first(&shared.s_read);
    named_barrier_sync(S_READ + threadIdx.x / 32 % 4, 64);
    tcgen05_fence_after();
    if (!CAPPED) {
        if (!exponent.plain) adjust_rows<SHARE>(p_reg, exponent);
        exponentiate_rows<SHARE>(p_reg, lse, exponent.factor, rows, 0);
        pack_numbers<T, SHARE>(p_packed, p_reg);
    }
    tmem_store(lanes + S_AT + share * SHARE / 2, p_packed);
    tmem_store_wait();
    tcgen05_fence_before(); // S has been read, P written →
    arrive_in_first(&shared.p_full);

    if (!CAPPED) {
        mbarrier_wait_cluster(&shared.dp_full, at.n % 2);
        tcgen05_fence_after();
        PHASE("gradient");
        differentiate_share<T>(ds_packed, dp_tmem, p_reg, dots);
    }
    tmem_store(dp_tmem, ds_packed); // for dK
    tmem_store_wait();
    tcgen05_fence_before(); // dP has been read, dS written →
    arrive_in_first(&shared.ds_full);
    share_ds(shared, at.n, share, ds_packed); // for dQ
    // Also lse and D have been read, in front of the fence there → TMA
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, &shared.vectors_empty[stage]);
}

template <typename T, int HEAD_DIM, bool CAPPED>
__device__ static inline void compute(TwoCta<T, HEAD_DIM> &shared, const PairMaps &maps,
                                      const Attention &a, BlockKeys block, int share) {
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    const uint32_t lanes = tmem_quarter(shared.tmem, threadIdx.x / 32);
    const int own_key = block.first_key + (int)cluster_rank() * KEYS;
    for (RowTiles at(block); at.more(); at.advance())
        weigh<T, HEAD_DIM, CAPPED>(shared, a, exponent, at, own_key, share, lanes);
    if (block.tiles > 0) {
        mbarrier_wait_cluster(&shared.ds_empty, (block.tiles * block.group) % 2 ^ 1);
        mbarrier_wait_cluster(&shared.keys_full, 0);
        tcgen05_fence_after();
    }
    // All products are done: nobody reads V and K any more.
    if (share == 0)
        store_keys<T, HEAD_DIM>(shared.v, &maps.tiles.dv, lanes + DV_AT, block, own_key, share, 1);
    else
        store_keys<T, HEAD_DIM>(shared.k, &maps.tiles.dk, lanes + DK_AT, block, own_key, share,
                                a.softmax_scale);
}

// ---- relay: one thread of each block

// Tells block 0 when the other block's half of dS has come: bytes count only where they arrive.
template <typename T, int HEAD_DIM>
__device__ static inline void relay(TwoCta<T, HEAD_DIM> &shared, BlockKeys block) {
    for (RowTiles at(block); at.more(); at.advance()) {
        mbarrier_arrive_expect(&shared.ds_received, sizeof shared.ds_out);
        mbarrier_wait_cluster(&shared.ds_received, at.n % 2);
        mbarrier_arrive_in_if(true, &shared.ds_shared, 0);
    }
}

// ---- reduce: a warpgroup of each block, a thread a query row and half of its columns

// dQ of the block's rows of each tile is added to the sums in HBM, as in one-cta. In a fixed order
// the two blocks of a pair have turns of their own, for they add to different rows.
template <typename T, int HEAD_DIM>
__device__ static inline void reduce(TwoCta<T, HEAD_DIM> &shared, const Attention &a,
                                     const BackwardWorkspace &w, BlockKeys block) {
    const int rank = (int)cluster_rank(), row = threadIdx.x % HALF_ROWS;
    const int half = threadIdx.x / HALF_ROWS; // of the columns
    const int PIECE_NUMBERS = PIECE_ROWS * DQ_COLUMNS;
    const uint32_t dq_tmem = tmem_quarter(shared.tmem, threadIdx.x / 32) + DQ_AT;
    unsigned *turns = rank == 0 ? w.sums.turns : w.sums.ticket + 1;
    const bool starts = threadIdx.x == 0;
    for (RowTiles at(block); at.more(); at.advance()) {
        float *sums = w.sums.dq_sums + (at.vector(a, w) + rank * HALF_ROWS) * HEAD_DIM;
        unsigned *counter =
            turns + ((int64_t)block.batch * a.heads + at.head) * w.sums.row_tiles + at.tile;
        const unsigned turn =
            a.deterministic
                ? turn_of<ROWS, PAIR * KEYS>(a, (int64_t)at.tile * ROWS, block.first_key)
                : 0;
        float dq_reg[HEAD_DIM / 2];
        mbarrier_wait_cluster(&shared.dq_full, at.n % 2);
        tcgen05_fence_after();
        PHASE("reduce");
        load_lane<HEAD_DIM / 2>(dq_reg, dq_tmem);
        tcgen05_fence_before();
        arrive_in_first(&shared.dq_empty);
        if (a.deterministic && starts) {
            turn_wait_alone(counter, turn); // the pairs of blocks before have added …
            fence_proxy_async_global();     // … as TMA sees it, too
        }
#pragma unroll
        for (int column = 0; column < HEAD_DIM / 2; column += DQ_COLUMNS) {
            float *dq_smem = shared.dq[column / DQ_COLUMNS % 2];
            write_piece<DQ_COLUMNS>(dq_smem + half * PIECE_NUMBERS, row, dq_reg + column);
            fence_proxy_async();            // these stores → TMA
            if (starts) tma_wait_read<0>(); // the other place has been read
            named_barrier_sync(DQ_READY, WARPGROUP);
            if (!starts) continue;
            for (int h = 0; h < 2; h++)
                bulk_add_fp32(sums + (h * HEAD_DIM / 2 + column) * PIECE_ROWS,
                              dq_smem + h * PIECE_NUMBERS, PIECE_NUMBERS * sizeof(float));
            tma_commit();
        }
        if (a.deterministic && starts) {
            tma_wait_written<0>();      // the sums are written …
            fence_proxy_async_global(); // … as threads see it, too
            turn_end_alone(counter, turn);
        }
    }
    if (starts) tma_wait_read<0>(); // shared memory must live as long as it is read
}

// ---- the kernel

template <typename T, int HEAD_DIM>
__device__ static inline void make_barriers(TwoCta<T, HEAD_DIM> &shared) {
    uint64_t *const once[] = {
        &shared.k_full,     &shared.v_full,          &shared.k_columns_full,     &shared.q_full,
        &shared.dout_full,  &shared.q_columns_full,  &shared.dout_columns_full,  &shared.q_empty,
        &shared.dout_empty, &shared.q_columns_empty, &shared.dout_columns_empty, &shared.s_full,
        &shared.dp_full,    &shared.ds_received,     &shared.ds_empty,           &shared.dq_full,
        &shared.keys_full};
    for (uint64_t *barrier : once) mbarrier_init(barrier, 1);
    for (int stage = 0; stage < VECTOR_STAGES; stage++) {
        mbarrier_init(&shared.vectors_full[stage], 1);
        mbarrier_init(&shared.vectors_empty[stage], COMPUTE_WARPS);
    }
    mbarrier_init(&shared.s_read, PAIR * COMPUTE_WARPS / 2); // of a warpgroup
    mbarrier_init(&shared.p_full, PAIR * COMPUTE_WARPS);
    mbarrier_init(&shared.ds_full, PAIR * COMPUTE_WARPS);
    mbarrier_init(&shared.ds_shared, PAIR * (COMPUTE_WARPS / 2 + 1)); // half of dS, and a relay
    mbarrier_init(&shared.dq_empty, PAIR * WARPGROUP / 32);
    fence_mbarrier_init(); // → TMA, the other block
}

// The pair meets twice: before either touches the other, and when tensor memory is there and both
// know their work, which block 0 finds.
template <typename T, int HEAD_DIM>
__device__ static inline void prepare(TwoCta<T, HEAD_DIM> &shared, const Attention &a,
                                      const BackwardWorkspace &w, const PairMaps &maps) {
    if (threadIdx.x == 0) {
        make_barriers(shared);
        tma_prefetch_map(&maps.tiles.k);
        tma_prefetch_map(&maps.tiles.q);
    }
    cluster_sync();
    if (threadIdx.x == 0 && cluster_rank() == 0) {
        shared.block = block_keys(a, take_place(a, w, blockIdx.x / PAIR), PAIR * KEYS);
        const int *words = (const int *)&shared.block;
        for (int i = 0; i < (int)(sizeof shared.block / sizeof *words); i++)
            cluster_store(cluster_address(words + i, 1), (uint32_t)words[i]);
    }
    if (threadIdx.x / 32 == MULTIPLY_WARP) {
        tmem_alloc_pair<BACKWARD_TMEM_COLUMNS>(&shared.tmem);
        tmem_relinquish_pair();
    }
    tcgen05_fence_before();
    cluster_sync(); // → all threads
    tcgen05_fence_after();
}

template <typename T, int HEAD_DIM, bool CAPPED>
__global__ void __launch_bounds__(THREADS, 1)
    two_cta(const Attention a, const BackwardWorkspace w, const __grid_constant__ PairMaps maps) {
    extern __shared__ __align__(1024) uint8_t smem_start[];
    TwoCta<T, HEAD_DIM> &shared = *(TwoCta<T, HEAD_DIM> *)smem_start;
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); // uniform
    prepare(shared, a, w, maps);
    // Each role reads the rest from shared memory: what all hold, nobody has registers for.
    if (warp < COMPUTE_WARP) {
        set_registers<REDUCE_REGISTERS>();
        reduce(shared, a, w, shared.block);
    } else if (warp < MULTIPLY_WARP) {
        set_registers<COMPUTE_REGISTERS>();
        compute<T, HEAD_DIM, CAPPED>(shared, maps, a, shared.block, (warp - COMPUTE_WARP) / 4);
    } else {
        set_registers<OTHER_REGISTERS>();
        if (warp == MULTIPLY_WARP && cluster_rank() == 0 && elect_one())
            multiply(shared, shared.block);
        if (warp == LOAD_WARP && elect_one()) load(shared, maps, a, w, shared.block);
        if (warp == RELAY_WARP && elect_one()) relay(shared, shared.block);
    }
    __syncwarp();
    tcgen05_fence_before();
    cluster_sync(); // nobody reads tensor memory, or sends to the other block, any more
    tcgen05_fence_after();
    if (threadIdx.x / 32 == MULTIPLY_WARP) tmem_free_pair<BACKWARD_TMEM_COLUMNS>(shared.tmem);
}

// ---- the launch

template <typename T, int HEAD_DIM>
static cudaError_t make_pair_maps(PairMaps *maps, const Attention *a) {
    const int half = HEAD_DIM / 2;
    cudaError_t error = make_map<T, HEAD_DIM>(&maps->k_columns, "K", a->k, a, true, KEYS, half);
    maps->q_columns = maps->dout_columns = maps->k_columns; // nobody asks for them without rows
    if (error == cudaSuccess && a->seqlen_q > 0)
        error = make_map<T, HEAD_DIM>(&maps->q_columns, "Q", a->q, a, false, HALF_ROWS, half);
    if (error == cudaSuccess && a->seqlen_q > 0)
        error =
            make_map<T, HEAD_DIM>(&maps->dout_columns, "dO", a->dout, a, false, HALF_ROWS, half);
    return error;
}

template <typename T, int HEAD_DIM>
static cudaError_t launch_main(const Attention *a, const BackwardWorkspace &w,
                               const BackwardMaps &tiles) {
    const auto kernel = a->softcap > 0 ? two_cta<T, HEAD_DIM, true> : two_cta<T, HEAD_DIM, false>;
    const int64_t heads = (int64_t)a->batch * a->heads;
    const int64_t pairs = tiles_of(a->seqlen_k, PAIR * KEYS) * a->batch * a->kv_heads;
    PairMaps maps;
    maps.tiles = tiles;
    cudaError_t error = make_pair_maps<T, HEAD_DIM>(&maps, a);
    if (error == cudaSuccess) error = allow_shared_memory(kernel, sizeof(TwoCta<T, HEAD_DIM>));
    if (error == cudaSuccess && a->deterministic && a->seqlen_q > 0) // the second blocks' turns
        error = cudaMemsetAsync(w.sums.ticket + 1, 0, heads * w.sums.row_tiles * sizeof(unsigned),
                                a->stream);
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = PAIR;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = (unsigned)(pairs * PAIR);
    config.blockDim = THREADS;
    config.dynamicSmemBytes = sizeof(TwoCta<T, HEAD_DIM>);
    config.stream = a->stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, *a, w, maps);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    return launch_kernels<T, HEAD_DIM>(a, HALF_ROWS, launch_main<T, HEAD_DIM>);
}

DEFINE_BACKWARD

static size_t workspace_bytes(const Attention *a) {
    const BackwardWorkspace w = workspace_of(a);
    const int64_t heads = (int64_t)a->batch * a->heads;
    return w.bytes + (a->deterministic ? heads * w.sums.row_tiles * sizeof(unsigned) : 0);
}

const Step two_cta_step = {
    .chapter = 8,
    .name = "two-cta",
    .idea = "pairs of SMs multiply together: half of each B, half of dQ's additions",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = workspace_bytes,
    .backward = backward,
};
