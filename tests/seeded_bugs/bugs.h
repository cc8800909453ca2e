// The corpus of seeded bugs: which lines of right kernels go wrong how, and what softgpu must say.
//
// seed.c puts the bugs into copies of the sources, each to be switched on by its number (from 1, in
// this order); test_seeded_bugs.c runs them. A bug is found when the first finding is of one of its
// kinds and names one of its lines: of `where`, by their text ("text#2": the second such line). By
// which of several lines a missing barrier shows, and whether as a race or as a read of what isn't
// there yet, depends on the order of warps.
#ifndef SEEDED_BUGS_H
#define SEEDED_BUGS_H

#include <stdio.h>

enum { KINDS_MAX = 4, PLACES_MAX = 4 };

// A program: the chapter's, or the unit alone.
typedef struct {
    const char *name; // of the file that is compiled, without .cu
    const char *environment, *arguments;
} SeededUnit;

typedef struct {
    const char *unit;
    const char *file, *line; // the line of `file` that holds this text; "…$": that ends so
    const char *instead;     // statements
    const char *kinds[KINDS_MAX];
    const char *where, *at[PLACES_MAX];
} SeededBug;

// The path of a unit's own file, or of another one.
static inline const char *seeded_path(const char *unit, const char *file) {
    static char path[200];
    if (file) return file;
    snprintf(path, sizeof path, "%s.cu", unit);
    return path;
}

static const SeededUnit units[] = {
    {"02_tiled/two_pass", "", "--steps two-pass --batch 1"},
    {"02_tiled/tiled_matmul", "", "--steps tiled-matmul --batch 1"},
    {"03_online_softmax/cp_async", "", "--steps cp-async --batch 1"},
    {"03_online_softmax/mma_sync", "", "--steps mma-sync --batch 1"},
    {"04_recompute_backward/recompute_tensor_cores", "",
     "--steps recompute-tensor-cores --backward --batch 1"},
    {"05_hopper_async/warp_specialised", "", "--steps warp-specialised --batch 1"},
    {"05_hopper_async/backward", "", "--steps intra-warpgroup --backward --batch 1"},
    {"06_fp8_hadamard/quantise", "", "--steps hadamard --batch 1"},
    {"06_fp8_hadamard/fp8_attention", "", "--steps per-tensor --batch 1"},
    {"07_persistent_lpt/lpt", "SOFTGPU_SMS=2", "--steps lpt --causal --batch 4"},
    {"tests/seeded_bugs/small", "", ""},
    {"tests/programs/tcgen05_attention", "", ""},
    {"tests/programs/tcgen05_pair", "", ""},
};
enum { UNITS = sizeof units / sizeof *units };

#define TWO_PASS  "02_tiled/two_pass"
#define TILED     "02_tiled/tiled_matmul"
#define CP_ASYNC  "03_online_softmax/cp_async"
#define MMA_SYNC  "03_online_softmax/mma_sync"
#define RECOMPUTE "04_recompute_backward/recompute_tensor_cores"
#define WARPS     "05_hopper_async/warp_specialised"
#define BACKWARD  "05_hopper_async/backward"
#define QUANTISE  "06_fp8_hadamard/quantise"
#define FP8       "06_fp8_hadamard/fp8_attention"
#define LPT       "07_persistent_lpt/lpt"
#define SMALL     "tests/seeded_bugs/small"

#define TENSOR "tests/programs/tcgen05_attention"
#define PAIR   "tests/programs/tcgen05_pair"

#define OWN NULL // the unit itself

// Lines of tcgen05_attention: its products, and the loads of S, of O to be scaled and of O; and of
// tcgen05_pair.
#define TENSOR_QK                                                                                  \
    "tensor_multiply(tmem + S_COLUMN, a + (x * 2 >> 4), b + (x * 2 >> 4), first, x > 0);"
#define TENSOR_PV     "tensor_multiply_from(tmem + O_COLUMN,"
#define TENSOR_S      "tmem_load(bits, own + S_COLUMN + x);"
#define TENSOR_O      "tmem_load(bits, own + O_COLUMN + x);#1"
#define TENSOR_LAST   "tmem_load(bits, own + O_COLUMN + x);#2"
#define PAIR_A        "load_for_pair(a_smem + stage * A_BYTES,"
#define PAIR_MULTIPLY "multiply_pair(d, a + (k * 2 >> 4),"
#define MISUSED       "misused tensor memory"

// clang-format off
static const SeededBug bugs[] = {
    // ---- 02_tiled/two_pass
    {TWO_PASS, OWN, "part of K (at first of Q too) → all", "", {"race"}, OWN,
     {"multiply_query_key<HEAD_DIM>(s_reg, q_smem,#1"}},
    {TWO_PASS, OWN, "all threads have read K: the next block", "", {"race"}, OWN,
     {"load_tile<T, HEAD_DIM>(kv_smem, work.k, key,#1"}},
    {TWO_PASS, OWN, "part of K → all threads", "", {"race"}, OWN,
     {"multiply_query_key<HEAD_DIM>(s_reg, q_smem,#2"}},
    {TWO_PASS, OWN, "all threads have read K: V may", "", {"race"}, OWN,
     {"load_tile<T, HEAD_DIM>(kv_smem, work.v, key,"}},
    {TWO_PASS, OWN, "part of V → all threads", "", {"race"}, OWN,
     {"add_weighted_values<HEAD_DIM>(o_reg, p_smem,",
      "load_tile<T, HEAD_DIM>(kv_smem, work.v, key,"}},
    {TWO_PASS, OWN, "all threads have read V: the next", "", {"race"}, OWN,
     {"load_tile<T, HEAD_DIM>(kv_smem, work.k, key,#2"}},
    // ---- 02_tiled/tiled_matmul
    {TILED, OWN, "part of Q and K → all", "", {"race"}, OWN,
     {"multiply_query_key<HEAD_DIM>(s_reg, q_smem,"}},
    {TILED, OWN, "part of P and V → all", "", {"race", "uninitialised read"}, OWN,
     {"add_weighted_values<HEAD_DIM>(o_reg, p_smem,"}},
    {TILED, OWN, "all threads have read them: the next block", "", {"race"}, OWN,
     {"p_smem[row * Tile::P_STRIDE + key] = weight;"}},
    // ---- 03_online_softmax/cp_async
    {CP_ASYNC, OWN, "cp_async_wait<1>(); // this thread's part of Q", "cp_async_wait<2>();",
     {"race"}, OWN, {"load_matrix_x4(q_reg[strip],"}},
    {CP_ASYNC, OWN, "all threads' parts of Q → all threads", "", {"race", "uninitialised read"},
     OWN, {"load_matrix_x4(q_reg[strip],"}},
    {CP_ASYNC, OWN, "cp_async_wait<0>(); // this thread's part of K (with",
     "cp_async_wait<1>();", {"race"}, OWN, {"load_matrix_x4(k_reg, &k_smem[lane_row_at(HE"}},
    {CP_ASYNC, OWN, "all threads' parts → all; and all have read the block before", "", {"race"},
     OWN, {"load_matrix_x4(k_reg, &k_smem[lane_row_at(HE"}},
    // ---- 03_online_softmax/mma_sync
    {MMA_SYNC, OWN, "part of K and V (at first of Q too) → all", "",
     {"race", "uninitialised read"}, OWN, {"return *(const uint32_t *)numbers;"}},
    {MMA_SYNC, OWN, "all threads have read K and V: the next", "", {"race"}, OWN,
     {"*(uint4 *)&tile_smem[row * HEAD_DIM + column"}},
    // ---- 04_recompute_backward/recompute_tensor_cores
    {RECOMPUTE, OWN, "__syncthreads(); // every warp's keys → all threads", "", {"race"},
     "04_recompute_backward/tensor_tile.h",
     {"if (row < rows) *(uint4 *)to = *(const uint4",
      "store2(lower, factor * c.number[n][2], facto"}},
    {RECOMPUTE, OWN, "__syncthreads(); // every thread's copies of this step", "", {"race"}, OWN,
     {"load_matrix_x4(a[strip], &key_smem[lane_row_a"}},
    {RECOMPUTE, OWN, "__syncthreads(); // every warp's keys of dSᵀ → all warps", "",
     {"race", "uninitialised read"}, OWN, {"load_matrix_x4_transposed(a[strip],"}},
    {RECOMPUTE, OWN, "__syncthreads(); // all warps have read K (V: a step ago)", "", {"race"},
     "04_recompute_backward/tensor_tile.h", {"store2(upper, factor * c.number[n][0], facto"}},
    // ---- 05_hopper_async/warp_specialised
    {WARPS, "05_hopper_async/forward.h",
     "mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM * 2);",
     "mbarrier_arrive_expect(full, TILE_ROWS * HEAD_DIM);", {"deadlock"},
     "05_hopper_async/forward.h", {"if (j == 0) mbarrier_wait(&tiles.barriers->q"}},
    {WARPS, "05_hopper_async/forward.h",
     "mbarrier_wait(&ring->empty[stage], j / STAGES % 2 ^ 1);", "", {"misused barrier", "race"},
     "05_hopper_async/forward.h",
     {"mbarrier_arrive_expect(full, TILE_ROWS * HEA",
      "tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {WARPS, "05_hopper_async/forward.h",
     "if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring->empty[j % STAGES]);", "", {"deadlock"},
     "05_hopper_async/forward.h", {"mbarrier_wait(&ring->full[j % STAGES], j / S"}},
    {WARPS, "05_hopper_async/forward.h",
     "mbarrier_wait(&ring->full[j % STAGES], j / STAGES % 2);", "", {"race"},
     "05_hopper_async/forward.h", {"wgmma_shared<T, K_MAJOR, K_MAJOR>(s_reg,"}},
    {WARPS, "05_hopper_async/forward.h", "fence_proxy_async(); // this thread's part of O", "",
     {"race"}, "05_hopper_async/forward.h", {"tma_store_4d(&maps.o, o_smem + box * Tile::R"}},
    {WARPS, "05_hopper_async/forward.h",
     "named_barrier_sync(barrier, WARPGROUP_THREADS); // all threads' parts → the one", "",
     {"race"}, "05_hopper_async/forward.h", {"tma_store_4d(&maps.o, o_smem + box * Tile::R"}},
    {WARPS, "05_hopper_async/forward.h", "mbarrier_init(&barriers->k.full[stage], 1);",
     "mbarrier_init(&barriers->k.full[stage], 2);", {"deadlock"}, "05_hopper_async/forward.h",
     {"mbarrier_wait(&ring->full[j % STAGES], j / S"}},
    {WARPS, "05_hopper_async/forward.h", "mbarrier_init(&barriers->v.empty[stage], WARPS);",
     "mbarrier_init(&barriers->v.empty[stage], WARPS / 3);", {"race"},
     "05_hopper_async/forward.h", {"mbarrier_wait(&ring->empty[stage], j / STAGE"}},
    {WARPS, "05_hopper_async/forward.h", "fence_mbarrier_init(); // → TMA", "", {"race"},
     "05_hopper_async/forward.h", {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {WARPS, "05_hopper_async/forward.h", "__syncthreads(); // → all threads", "",
     {"race", "misused barrier"}, "05_hopper_async/forward.h",
     {"mbarrier_wait(&ring->empty[stage], j / STAGE",
      "if (j == 0) mbarrier_wait(&tiles.barriers->q"}},
    // ---- 05_hopper_async/backward
    {BACKWARD, OWN, "mbarrier_wait(&shared.q_empty[at.stage], at.parity ^ 1);", "",
     {"misused barrier", "race"}, OWN,
     {"mbarrier_arrive_expect(full, Tile::ROW_BYTES#1",
      "tma_load_4d(tile_smem + block * ROWS * 64, m"}},
    {BACKWARD, OWN, "named_barrier_sync(DQ_FULL + share, 128 + 32); // the warpgroup's stores",
     "", {"uninitialised read"}, OWN, {"bulk_add_fp32(sums + share * Tile::SHARE, sh"}},
    {BACKWARD, OWN, "if (elected) tma_wait_read<1>();", "", {"race"}, OWN,
     {"*(float4 *)&dq_smem[n * 512 + threadIdx.x %"}},
    {BACKWARD, OWN, "if (elected) tma_wait_read<0>();$", "", {"race"}, OWN,
     {"*(float4 *)&dq_smem[n * 512 + threadIdx.x %"}},
    {BACKWARD, OWN, "if (!first) named_barrier_sync(DQ_EMPTY + share, 128 + 32);", "", {"race"},
     OWN, {"*(float4 *)&dq_smem[n * 512 + threadIdx.x %"}},
    {BACKWARD, OWN, "fence_proxy_async(); // these stores → TMA", "", {"race"}, OWN,
     {"bulk_add_fp32(sums + share * Tile::SHARE, sh"}},
    {BACKWARD, OWN, "if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);", "", {"deadlock"}, OWN,
     {"mbarrier_wait(&shared.q_empty[at.stage], at."}},
    {BACKWARD, OWN, "fence_proxy_async();$", "", {"race"}, OWN,
     {"tma_store_4d(map, tile_smem + column * KEYS"}},
    {BACKWARD, OWN,
     "named_barrier_sync(KEYS_READY + share, 128); // the warpgroup's stores → TMA", "",
     {"race"}, OWN, {"tma_store_4d(map, tile_smem + column * KEYS"}},
    {BACKWARD, OWN, "mbarrier_wait(&shared.kv_full, 0);", "", {"race"},
     "05_hopper_async/backward_products.h", {"wgmma_shared<T, K_MAJOR, K_MAJOR>(c, operand"}},
    {BACKWARD, OWN, "fence_proxy_async(); // dS, lse and D", "", {"race"},
     "05_hopper_async/backward_products.h", {"wgmma_shared<T, MN_MAJOR, MN_MAJOR>(dq, oper"}},
    {BACKWARD, OWN, "        named_barrier_sync(DS_READY, 256);$", "", {"race"},
     "05_hopper_async/backward_products.h", {"wgmma_shared<T, MN_MAJOR, MN_MAJOR>(dq, oper"}},
    // ---- 06_fp8_hadamard/quantise
    {QUANTISE, OWN, "cp_async_wait<1>(); // this thread's pieces", "cp_async_wait<2>();",
     {"race"}, OWN, {"take_piece<T, TRANSFORM>(&x[i * 8], row[i /"}},
    {QUANTISE, OWN, "__syncwarp(); // → the other lanes of its row", "", {"race"}, OWN,
     {"take_piece<T, TRANSFORM>(&x[i * 8], row[i /"}},
    // ---- 06_fp8_hadamard/fp8_attention
    {FP8, "06_fp8_hadamard/attention.h",
     "mbarrier_wait(&ring->empty[j % STAGES], j / STAGES % 2 ^ 1);", "", {"race"},
     "06_fp8_hadamard/attention.h", {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {FP8, "06_fp8_hadamard/attention.h", "fence_proxy_async(); // this thread's lines → wgmma",
     "", {"race"}, "06_fp8_hadamard/attention.h",
     {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {FP8, "06_fp8_hadamard/attention.h", "__syncwarp(); // all lanes' → the one that arrives",
     "", {"race"}, "06_fp8_hadamard/attention.h",
     {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {FP8, "06_fp8_hadamard/attention.h",
     "if (threadIdx.x % 32 == 0) mbarrier_arrive(&to->full[stage]);", "", {"deadlock"},
     "06_fp8_hadamard/attention.h", {"mbarrier_wait(&ring->full[j % STAGES], j / S"}},
    {FP8, "06_fp8_hadamard/attention.h", "release(from, j);", "", {"deadlock"},
     "06_fp8_hadamard/attention.h", {"mbarrier_wait(&ring->full[j % STAGES], j / S"}},
    // ---- 07_persistent_lpt/lpt
    {LPT, "07_persistent_lpt/forward.h", "mbarrier_wait(&barriers->q_empty, n % 2 ^ 1);", "",
     {"race"}, "07_persistent_lpt/forward.h", {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    {LPT, "07_persistent_lpt/forward.h",
     "if (OVERLAPPED && threadIdx.x % 32 == 0) mbarrier_arrive(&barriers->q_empty);", "",
     {"deadlock"}, "07_persistent_lpt/forward.h", {"mbarrier_wait(&barriers->q_full, n % 2);"}},
    {LPT, "07_persistent_lpt/work.h", "mbarrier_wait(&mailbox->full[slot], n / MAILS % 2);", "",
     {"uninitialised read"}, "07_persistent_lpt/forward.h",
     {"if (work.blocks < 0) break;#2", "if (work.blocks < 0) break;#1"}},
    {LPT, "07_persistent_lpt/forward.h", "fence_proxy_async(); // this thread's part of O → TMA",
     "", {"race"}, "07_persistent_lpt/forward.h",
     {"tma_store_4d(&maps.o, o_smem + box * output_"}},
    {LPT, "07_persistent_lpt/forward.h", "fence_mbarrier_init(); // → TMA", "", {"race"},
     "07_persistent_lpt/forward.h", {"tma_load_4d(to_smem + box * TILE_ROWS * Tile"}},
    // ---- tests/seeded_bugs/small
    {SMALL, OWN, "__syncthreads(); // all values → all threads", "",
     {"race", "uninitialised read"}, OWN, {"if (t < half) s[t] += s[t + half];"}},
    {SMALL, OWN, "__syncthreads(); // this level → the next", "", {"race"}, OWN,
     {"if (t < half) s[t] += s[t + half];"}},
    {SMALL, OWN, "__syncwarp(); // the warp's values → its lanes", "", {"race"}, OWN,
     {"out[t] = s[t ^ 31];"}},
    {SMALL, OWN, "__syncwarp(tile); // eight values → their lanes", "", {"race"}, OWN,
     {"for (int k = 0; k < 8; k++) sum += s[(t & ~7"}},
    {SMALL, OWN, "if (threadIdx.x == 0) count = 0; // before anybody counts", "",
     {"uninitialised read"}, OWN, {"if (in[threadIdx.x] % 2) atomicAdd(&count, 1"}},
    {SMALL, OWN, "if (in[threadIdx.x] % 2) atomicAdd(&count, 1);",
     "if (in[threadIdx.x] % 2) count += 1;", {"race"}, OWN,
     {"if (in[threadIdx.x] % 2) atomicAdd(&count, 1"}},
    {SMALL, OWN, "__syncthreads(); // all counts → thread 0", "", {"race"}, OWN,
     {"if (threadIdx.x == 0) *out = count;"}},
    {SMALL, OWN, "cp_async_wait<1>(); // this thread's piece of the tile", "cp_async_wait<2>();",
     {"race"}, OWN, {"out[tile * THREADS + t] = ring[tile % 2][THR"}},
    {SMALL, OWN, "__syncthreads(); // all pieces → all threads", "",
     {"race", "uninitialised read"}, OWN, {"out[tile * THREADS + t] = ring[tile % 2][THR"}},
    {SMALL, OWN, "__syncthreads(); // the stage has been read", "", {"race"}, OWN,
     {"if (tile + 2 < tiles) cp_async16(&ring[tile",
      "out[tile * THREADS + t] = ring[tile % 2][THR"}},
    {SMALL, OWN, "named_barrier_sync(2, THREADS);", "", {"race"}, OWN,
     {"out[round * 64 + t] = s[63 - t];"}},
    {SMALL, OWN, "named_barrier_arrive(1, THREADS);", "", {"deadlock"}, OWN,
     {"if (round > 0) named_barrier_sync(2, THREADS"}},
    {SMALL, OWN, "named_barrier_sync(1, THREADS);", "named_barrier_sync(1, 64);",
     {"race", "misused barrier", "uninitialised read"}, OWN,
     {"out[round * 64 + t] = s[63 - t];", "named_barrier_sync(1, THREADS);",
      "named_barrier_arrive(1, THREADS);"}},
    {SMALL, OWN, "named_barrier_arrive(2, THREADS);", "named_barrier_arrive(3, THREADS);",
     {"deadlock"}, OWN, {"if (round > 0) named_barrier_sync(2, THREADS"}},
    {SMALL, OWN, "mbarrier_init(&full[k], 1);", "mbarrier_init(&full[k], 2);", {"deadlock"}, OWN,
     {"mbarrier_wait(&full[k], parity);"}},
    {SMALL, OWN, "mbarrier_init(&empty[k], WARPS);", "mbarrier_init(&empty[k], WARPS - 1);",
     {"race"}, OWN, {"bulk_load(stage[k], in + tile * THREADS, byt"}},
    {SMALL, OWN, "fence_mbarrier_init(); // → the copies", "", {"race"}, OWN,
     {"bulk_load(stage[k], in + tile * THREADS, byt"}},
    {SMALL, OWN, "__syncthreads(); // the barriers → all threads", "", {"race"}, OWN,
     {"mbarrier_wait(&full[k], parity);"}},
    {SMALL, OWN, "mbarrier_wait(&empty[k], parity ^ 1);", "mbarrier_wait(&empty[k], parity);",
     {"deadlock"}, OWN, {"mbarrier_wait(&empty[k], parity ^ 1);"}},
    {SMALL, OWN, "mbarrier_arrive_expect(&full[k], bytes);",
     "mbarrier_arrive_expect(&full[k], bytes / 4);", {"deadlock"}, OWN,
     {"mbarrier_wait(&full[k], parity);"}},
    {SMALL, OWN, "bulk_load(stage[k], in + tile * THREADS, bytes, &full[k]);",
     "bulk_load(stage[k], in + tile * THREADS + 1, bytes, &full[k]);", {"misaligned access"},
     OWN, {"bulk_load(stage[k], in + tile * THREADS, byt"}},
    {SMALL, OWN, "mbarrier_wait(&full[k], parity); // the tile → this thread", "",
     {"uninitialised read"}, OWN, {"out[tile * THREADS + t] = stage[k][t] + stag"}},
    {SMALL, OWN, "fence_proxy_async(); // this thread's reads → the next copy", "", {"race"},
     OWN, {"bulk_load(stage[k], in + tile * THREADS, byt"}},
    {SMALL, OWN, "__syncwarp(); // the warp's reads → the lane that arrives", "", {"race"}, OWN,
     {"bulk_load(stage[k], in + tile * THREADS, byt"}},
    {SMALL, OWN, "if (t % 32 == 0) mbarrier_arrive(&empty[k]);", "mbarrier_arrive(&empty[k]);",
     {"deadlock", "race"}, OWN, {"mbarrier_wait(&empty[k], parity ^ 1);"}},
    {SMALL, OWN, "fence_proxy_async(); // this thread's number → TMA", "", {"race"}, OWN,
     {"bulk_add_fp32(sums, s, sizeof s);"}},
    {SMALL, OWN, "__syncthreads(); // all numbers → the thread that stores", "", {"race"}, OWN,
     {"bulk_add_fp32(sums, s, sizeof s);"}},
    {SMALL, OWN, "tma_commit();", "", {"race"}, OWN, {"s[t] = 0;"}},
    {SMALL, OWN, "tma_wait_read<0>(); // the numbers have been read", "", {"race"}, OWN,
     {"s[t] = 0;"}},
    {SMALL, OWN, "__syncthreads(); // their place is free", "", {"race"}, OWN,
     {"s[t] = 0;", "bulk_add_fp32(sums, s, sizeof s);"}},
    {SMALL, OWN, "cluster_sync(); // the other block has begun", "", {"race"}, OWN,
     {"\"r\"(blockIdx.x ^ 1), \"r\"(in[at])"}},
    {SMALL, OWN, "cluster_sync(); // both blocks' values → both", "",
     {"race", "use after free", "uninitialised read"}, OWN,
     {"out[at] = s[t];", "\"r\"(blockIdx.x ^ 1), \"r\"(in[at])"}},
    {SMALL, OWN, "cluster_sync(); // no block ends while the other reads", "",
     {"race", "use after free"}, OWN, {": \"r\"(shared_address(&s[t])), \"r\"(blockIdx.x"}},
    {SMALL, OWN, "if (i < count) out[i] = in[i];", "out[i] = in[i];", {"access out of bounds"},
     OWN, {"if (i < count) out[i] = in[i];"}},
    {SMALL, OWN, "*(int2 *)&out[2 * t] = *(const int2 *)&in[2 * t];",
     "*(int2 *)&out[2 * t + 1] = *(const int2 *)&in[2 * t];", {"misaligned access"}, OWN,
     {"*(int2 *)&out[2 * t] = *(const int2 *)&in[2"}},
    {SMALL, OWN, "scratch[t] = t; // before it is read", "", {"uninitialised read"}, OWN,
     {"out[t] = scratch[t];"}},
    {SMALL, OWN, "s[t] = in[t]; // a place for each thread", "s[t + 1] = in[t];",
     {"uninitialised read", "access out of bounds"}, OWN, {"out[t] = s[t];", "s[t] = in[t];#5"}},
    {SMALL, OWN, "__syncthreads(); // everybody", "if (t < 48) __syncthreads();",
     {"relies on what PTX does not promise"}, OWN, {"__syncthreads();#10"}},
    {SMALL, OWN, "sum += __shfl_xor_sync(0xffffffffu, sum, mask);",
     "if (threadIdx.x % 32 < 31) sum += __shfl_xor_sync(0xffffffffu, sum, mask);",
     {"divergent threads"}, OWN, {"sum += __shfl_xor_sync(0xffffffffu, sum, mas"}},
    {SMALL, OWN, "*flag = 1; // it is there", "", {"deadlock"}, OWN,
     {"while (*flag == 0) continue;"}},
    // ---- tests/programs/tcgen05_attention
    {TENSOR, OWN, "mbarrier_init(&shared.scores, 1);", "mbarrier_init(&shared.scores, 2);",
     {"deadlock"}, OWN, {"mbarrier_wait(&shared->scores, j % 2);"}},
    {TENSOR, OWN, "mbarrier_init(&shared.weights, QUERIES);",
     "mbarrier_init(&shared.weights, QUERIES / 2);", {"race", "deadlock"}, OWN,
     {TENSOR_PV, TENSOR_QK, "mbarrier_wait(&shared->weights, j % 2);"}},
    {TENSOR, OWN, "if (warp == MULTIPLY_WARP) tmem_alloc<COLUMNS>(&shared.columns);",
     "if (warp == MULTIPLY_WARP) tmem_alloc<COLUMNS / 2>(&shared.columns);",
     {"access out of bounds"}, OWN, {TENSOR_PV}},
    {TENSOR, OWN, "copy_rows(smem, q, QUERIES);", "", {"uninitialised read"}, OWN, {TENSOR_QK}},
    {TENSOR, OWN, "copy_rows(v_smem, v, BLOCKS * KEYS);", "", {"uninitialised read"}, OWN,
     {TENSOR_PV}},
    {TENSOR, OWN, "fence_proxy_async();$", "", {"race"}, OWN, {TENSOR_QK}},
    {TENSOR, OWN, "__syncthreads(); // barriers, tiles, columns", "",
     {"race", "misused barrier", "uninitialised read"}, OWN,
     {"const uint32_t tmem = shared.columns;", "mbarrier_wait(&shared->scores, j % 2);",
      TENSOR_QK}},
    {TENSOR, OWN, "soften(&shared, tmem, out, scale);",
     "soften(&shared, tmem + (1 << 21), out, scale);", {MISUSED}, OWN, {TENSOR_S}},
    {TENSOR, OWN, "multiply(smem, k_smem, v_smem, &shared, tmem);",
     "multiply(smem, k_smem, v_smem, &shared, tmem + (1 << 16));", {MISUSED}, OWN,
     {TENSOR_QK}},
    {TENSOR, OWN, "__syncthreads(); // all are done → the warp", "", {"race"}, OWN,
     {"if (warp == MULTIPLY_WARP) tmem_free<COLUMNS>(tmem);"}},
    {TENSOR, OWN, "if (warp == MULTIPLY_WARP) tmem_free<COLUMNS>(tmem);", "", {MISUSED}, OWN,
     {"if (warp == MULTIPLY_WARP) tmem_alloc<COLUMNS>(&shared.columns);"}},
    {TENSOR, OWN, TENSOR_QK,
     "tensor_multiply(tmem + S_COLUMN, a + (x * 2 >> 4), b + (x * 2 >> 4), first, true);",
     {"uninitialised read"}, OWN, {TENSOR_QK}},
    {TENSOR, OWN, "tcgen05_commit(&shared->scores);", "mbarrier_arrive(&shared->scores);",
     {"race", "uninitialised read"}, OWN, {TENSOR_S}},
    {TENSOR, OWN, "mbarrier_wait(&shared->weights, j % 2);", "", {"race", "uninitialised read"},
     OWN, {TENSOR_PV, TENSOR_QK, TENSOR_S}},
    {TENSOR, OWN, "tcgen05_fence_after(); // P → the product", "", {"race"}, OWN, {TENSOR_PV}},
    {TENSOR, OWN, "tcgen05_commit(&shared->output);", "mbarrier_arrive(&shared->output);",
     {"race", "uninitialised read"}, OWN, {TENSOR_O, TENSOR_LAST}},
    {TENSOR, OWN, "tmem_load_wait(); // O → its registers", "", {"race"}, OWN,
     {"for (int i = 0; i < 32; i++) bits[i] = __float_as_uint"}},
    {TENSOR, OWN, "mbarrier_wait(&shared->scores, j % 2);", "", {"race", "uninitialised read"},
     OWN, {TENSOR_S}},
    {TENSOR, OWN, "tcgen05_fence_after(); // S → the loads", "", {"race"}, OWN, {TENSOR_S}},
    {TENSOR, OWN, "tmem_load_wait(); // S → its registers", "", {"race"}, OWN,
     {"for (int i = 0; i < 32; i++) s[x + i] = "}},
    {TENSOR, OWN, "tmem_store(own + P_COLUMN + x, pairs);",
     "tmem_store(own + COLUMNS + x, pairs);", {"access out of bounds"}, OWN,
     {"tmem_store(own + P_COLUMN + x, pairs);"}},
    {TENSOR, OWN, "tmem_store_wait();", "", {"race"}, OWN, {TENSOR_PV}},
    {TENSOR, OWN, "tcgen05_fence_before(); // P → the thread", "", {"race"}, OWN, {TENSOR_PV}},
    {TENSOR, OWN, "mbarrier_arrive(&shared->weights);",
     "if (threadIdx.x != 5) mbarrier_arrive(&shared->weights);", {"deadlock"}, OWN,
     {"mbarrier_wait(&shared->weights, j % 2);"}},
    {TENSOR, OWN, "mbarrier_wait(&shared->output, (BLOCKS - 1) % 2);", "",
     {"race", "uninitialised read"}, OWN, {TENSOR_LAST}},
    {TENSOR, OWN, "tcgen05_fence_after(); // the last O → the loads", "", {"race"}, OWN,
     {TENSOR_LAST}},
    {TENSOR, OWN, "tmem_load_wait(); // the last O → its registers", "", {"race"}, OWN,
     {"out[threadIdx.x * DEPTH + x + i] = "}},
    // ---- tests/programs/tcgen05_pair
    {PAIR, OWN, "fence_mbarrier_init();", "", {"race"}, OWN, {PAIR_A}},
    {PAIR, OWN, "mbarrier_init(&shared->read, S == OWN_READERS ? READERS : 2 * READERS);",
     "mbarrier_init(&shared->read, READERS);", {"race"}, OWN, {PAIR_MULTIPLY}},
    {PAIR, OWN, "wait_for_pair(&shared->empty[stage], j / STAGES % 2 ^ 1);", "",
     {"race", "misused barrier"}, OWN, {PAIR_A, "mbarrier_arrive_expect(&shared->full[stage],"}},
    {PAIR, OWN, "wait_for_pair(&shared->read, (tile - 1) % 2);", "", {"race"}, OWN,
     {PAIR_MULTIPLY, "tmem_load(bits, tmem_quarter(d, warp) + x);"}},
    {PAIR, OWN, "wait_for_pair(&shared->full[stage], j / STAGES % 2);", "",
     {"race", "uninitialised read"}, OWN, {PAIR_MULTIPLY}},
    {PAIR, OWN, "commit_pair(&shared->empty[stage], S == FREES_ITSELF ? 1 : 3);", "",
     {"deadlock"}, OWN, {"wait_for_pair(&shared->empty[stage], j / STAGES % 2 ^ 1);"}},
    {PAIR, OWN, "wait_for_pair(&shared->result, tile % 2);", "", {"race", "uninitialised read"},
     OWN, {"tmem_load(bits, tmem_quarter(d, warp) + x);"}},
    {PAIR, OWN, "tcgen05_fence_after(); // the result → the loads", "", {"race"}, OWN,
     {"tmem_load(bits, tmem_quarter(d, warp) + x);"}},
    {PAIR, OWN, "tmem_load_wait(); // → the registers", "", {"race"}, OWN,
     {"for (int i = 0; i < 32; i++) c[row * n + x + i]"}},
    {PAIR, OWN, "if (warp == MULTIPLY_WARP) free_pair(d);", "", {MISUSED}, OWN,
     {"alloc_pair(&shared->columns);"}},
};
// clang-format on
enum { BUGS = sizeof bugs / sizeof *bugs };

#endif
