// C (m x n, fp16) = A (m x k, rows) B (k x n, rows): a producer warp fills a ring of stages by TMA,
// a warpgroup multiplies by wgmma and stores through shared memory by TMA. In the PAIR variants two
// blocks of a cluster share the tiles of B, half of which each one loads for both.
//
// The first argument names a sabotage: one line that is missing or wrong. RIGHT and PAIR_RIGHT have
// none. tests/softgpu/test_sabotage.c runs them all; a comment "caught:" names the sabotages whose
// finding must be about the line that follows it (or, if the numbers are wrong, the check in main).
// Whole numbers, so that every way of summing gives the same.
#include <cstring>

#include "check.h"
#include "matrix_map.h"

#include "device/elect.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/stmatrix.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "device/wgmma.h"

#define SABOTAGES(X)                                                                               \
    X(RIGHT)                                                                                       \
    X(NO_WAIT)              /* for a stage to be full */                                           \
    X(WRONG_PARITY)         /* of that wait */                                                     \
    X(EXPECT_TOO_FEW)       /* bytes announced to the full barrier */                              \
    X(EXPECT_TOO_MANY)      /* */                                                                  \
    X(ARRIVALS_TOO_MANY)    /* that the empty barrier is made for */                               \
    X(ARRIVALS_TOO_FEW)     /* */                                                                  \
    X(WRONG_LEADING_OFFSET) /* in the descriptor of B */                                           \
    X(WRONG_STRIDE_OFFSET)  /* in that of A */                                                     \
    X(WRONG_SWIZZLE)        /* in that of A */                                                     \
    X(MISALIGNED_STAGE)     /* swizzled tiles start in the middle of a pattern */                  \
    X(WRONG_BOX)            /* of B: four boxes of 64-byte lines, read as two of 128 */            \
    X(UNSWIZZLED_BOX)       /* of A, read as if swizzled */                                        \
    X(NO_WGMMA_FENCE)       /* between the registers' use and the products */                      \
    X(NO_WGMMA_COMMIT)      /* */                                                                  \
    X(NO_WGMMA_WAIT)        /* before the products' registers are read */                          \
    X(EARLY_RELEASE)        /* of a stage that products still read */                              \
    X(NO_EMPTY_WAIT)        /* of the producer */                                                  \
    X(NO_INIT)              /* of one mbarrier */                                                  \
    X(NO_INIT_FENCE)        /* */                                                                  \
    X(NO_INIT_SYNC)         /* */                                                                  \
    X(NO_PROXY_FENCE)       /* before the store by TMA */                                          \
    X(NO_STORE_SYNC)        /* between the threads' parts of C and that store */                   \
    X(NO_STORE_WAIT)        /* before the block ends */                                            \
    X(PAIR_RIGHT)                                                                                  \
    X(PAIR_EXPECTS_HALF)    /* the bytes that a block loads itself */                              \
    X(PAIR_RELEASES_ITSELF) /* a stage is given back to the own producer alone */                  \
    X(PAIR_NO_START_SYNC)   /* of the cluster, behind the mbarriers' making */                     \
    X(PAIR_NO_END_SYNC)     /* of the cluster, before a block ends */

#define NAMED(name) name,
enum Sabotage { SABOTAGES(NAMED) SABOTAGE_COUNT };

static const int ROWS = 64, COLUMNS = 128, STEP = 64; // a block's tile, and a step of the sum
static const int LINE = 128, BOX = LINE / 2;          // bytes, and fp16 numbers, of a swizzled line
static const int STAGES = 2, CONSUMER_WARPS = 4, BLOCK = 160;
static const int A_BYTES = ROWS * STEP * 2, B_BYTES = STEP * COLUMNS * 2, BOX_BYTES = STEP * LINE;
static const int C_BYTES = ROWS * COLUMNS * 2;

typedef struct {
    uint64_t full[STAGES], empty[STAGES];
} Ring;

static const int SHARED_BYTES = STAGES * (A_BYTES + B_BYTES) + C_BYTES + (int)sizeof(Ring) + 1024;

typedef struct {
    CUtensorMap a, b, c;
} Maps;

__host__ __device__ static constexpr bool is_pair(Sabotage s) {
    return s >= PAIR_RIGHT;
}

__device__ static uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ static void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A wait behind which also what the cluster's other block did is visible.
__device__ static void wait_for_cluster(uint64_t *barrier, uint32_t parity) {
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n\t.reg .pred over;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, over;\n\t}"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

// Arrives at the mbarrier that stands there in the cluster's block `rank`.
__device__ static void arrive_at(uint64_t *barrier, uint32_t rank) {
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n\t}" ::"r"(
                     shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}

// The box comes to the same place in both blocks, and its bytes to both mbarriers.
__device__ static void load_for_both(void *to_smem, const CUtensorMap *map, uint64_t *barrier,
                                     int x, int y) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5, %5}], [%2], %6;" ::"r"(
                     shared_address(to_smem)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(0), "h"((short)3)
                 : "memory");
}

template <Sabotage S> __device__ static void make_barriers(Ring *ring) {
    const int blocks = is_pair(S) && S != PAIR_RELEASES_ITSELF ? 2 : 1;
    int arrivals = CONSUMER_WARPS * blocks;
    if (S == ARRIVALS_TOO_MANY) arrivals++;
    if (S == ARRIVALS_TOO_FEW) arrivals--;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&ring->full[stage], 1);
            if (S != NO_INIT || stage == 0) mbarrier_init(&ring->empty[stage], arrivals);
        }
        if (S != NO_INIT_FENCE) fence_mbarrier_init();
    }
    if (is_pair(S) && S != PAIR_NO_START_SYNC)
        cluster_sync();
    else if (S != NO_INIT_SYNC)
        __syncthreads();
}

// One thread's work: starts all copies.
template <Sabotage S>
__device__ static void produce(uint8_t *a_smem, uint8_t *b_smem, Ring *ring, const Maps &maps,
                               int row, int column, int steps) {
    int bytes = A_BYTES + B_BYTES;
    if (S == EXPECT_TOO_FEW) bytes = A_BYTES;
    if (S == EXPECT_TOO_MANY) bytes += LINE;
    if (S == PAIR_EXPECTS_HALF) bytes = A_BYTES + BOX_BYTES;
    for (int j = 0; j < steps; j++) {
        const int stage = j % STAGES, k = j * STEP;
        uint8_t *b_stage = b_smem + stage * B_BYTES;
        uint64_t *full = &ring->full[stage], *empty = &ring->empty[stage];
        if (S != NO_EMPTY_WAIT)
            // caught: ARRIVALS_TOO_MANY ARRIVALS_TOO_FEW NO_INIT NO_INIT_SYNC
            wait_for_cluster(empty, j / STAGES % 2 ^ 1);
        // caught: ARRIVALS_TOO_FEW NO_EMPTY_WAIT
        mbarrier_arrive_expect(full, bytes);
        // caught: ARRIVALS_TOO_FEW NO_WGMMA_WAIT EARLY_RELEASE NO_EMPTY_WAIT NO_INIT_FENCE
        tma_load_4d(a_smem + stage * A_BYTES, &maps.a, full, k, row, 0, 0);
        if (is_pair(S)) {
            const int box = (int)cluster_rank();
            // caught: PAIR_EXPECTS_HALF PAIR_RELEASES_ITSELF PAIR_NO_START_SYNC
            load_for_both(b_stage + box * BOX_BYTES, &maps.b, full, column + box * BOX, k);
            continue;
        }
        const int box_columns = S == WRONG_BOX ? BOX / 2 : BOX;
        for (int x = 0; x < COLUMNS; x += box_columns)
            tma_load_4d(b_stage + x * STEP * 2, &maps.b, full, column + x, k, 0, 0);
    }
}

// d += A B of one step.
template <Sabotage S>
__device__ static void multiply(float (&d)[COLUMNS / 8][4], const uint8_t *a_smem,
                                const uint8_t *b_smem) {
    const int a_line = S == WRONG_SWIZZLE ? LINE / 2 : LINE;
    const int a_stride = S == WRONG_STRIDE_OFFSET ? 4 * LINE : 8 * LINE;
    const uint64_t a = operand_descriptor<a_line>(a_smem, 16, a_stride);
    const uint64_t b = operand_descriptor<LINE>(
        b_smem, S == WRONG_LEADING_OFFSET ? BOX_BYTES / 2 : BOX_BYTES, 8 * LINE);
    if (S != NO_WGMMA_FENCE) wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEP; k += WGMMA_DEPTH)
        // caught: NO_WAIT WRONG_PARITY EXPECT_TOO_FEW WRONG_SWIZZLE MISALIGNED_STAGE WRONG_BOX
        // UNSWIZZLED_BOX NO_WGMMA_FENCE PAIR_EXPECTS_HALF PAIR_RELEASES_ITSELF
        wgmma_shared<__half, K_MAJOR, MN_MAJOR>(d, operand_at(a, k * 2), operand_at(b, k * LINE),
                                                1);
    if (S != NO_WGMMA_COMMIT) wgmma_commit();
}

// A warp gives a stage back to the producers that fill it.
template <Sabotage S> __device__ static void release(uint64_t *empty) {
    if (threadIdx.x % 32 != 0) return;
    if (!is_pair(S)) mbarrier_arrive(empty);
    for (uint32_t rank = 0; is_pair(S) && rank < 2; rank++)
        // caught: PAIR_NO_END_SYNC
        if (S != PAIR_RELEASES_ITSELF || rank == cluster_rank()) arrive_at(empty, rank);
}

template <Sabotage S>
__device__ static void consume(const uint8_t *a_smem, const uint8_t *b_smem, uint8_t *c_smem,
                               Ring *ring, const Maps &maps, int row, int column, int steps) {
    float d[COLUMNS / 8][4] = {};
    for (int j = 0; j < steps; j++) {
        const int stage = j % STAGES;
        if (S != NO_WAIT)
            // caught: WRONG_PARITY EXPECT_TOO_MANY NO_INIT_SYNC
            wait_for_cluster(&ring->full[stage], j / STAGES % 2 ^ (S == WRONG_PARITY));
        multiply<S>(d, a_smem + stage * A_BYTES, b_smem + stage * B_BYTES);
        if (S == EARLY_RELEASE) release<S>(&ring->empty[stage]);
        if (S == NO_WGMMA_WAIT)
            wgmma_wait<1>();
        else
            // caught: NO_WGMMA_COMMIT
            wgmma_wait<0>();
        wgmma_results(d);
        if (S != EARLY_RELEASE) release<S>(&ring->empty[stage]);
    }
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
    for (int x = 0; x < COLUMNS; x += 16) {
        uint32_t pair[4];
        for (int i = 0; i < 4; i++) {
            const float *two = &d[x / 8 + i / 2][i % 2 * 2];
            const __half2 packed = __floats2half2_rn(two[0], two[1]);
            memcpy(&pair[i], &packed, 4);
        }
        const int piece = swizzled_place<LINE>(line, x % BOX / 8 + lane / 16);
        store_matrix_x4(c_smem + x / BOX * (ROWS * LINE) + line * LINE + piece * 16, pair);
    }
    if (S != NO_PROXY_FENCE) fence_proxy_async();
    if (S != NO_STORE_SYNC) named_barrier_sync(1, WARPGROUP_THREADS);
    if (threadIdx.x != 0) return;
    for (int x = 0; x < COLUMNS; x += BOX)
        // caught: NO_PROXY_FENCE NO_STORE_SYNC NO_STORE_WAIT
        tma_store_4d(&maps.c, c_smem + x / BOX * (ROWS * LINE), column + x, row, 0, 0);
    tma_commit();
    if (S != NO_STORE_WAIT) tma_wait_read<0>();
}

template <Sabotage S>
__global__ void __launch_bounds__(BLOCK, 1) pipeline(const __grid_constant__ Maps maps, int steps) {
    extern __shared__ __align__(1024) uint8_t smem[];
    uint8_t *a_smem = smem + (S == MISALIGNED_STAGE ? 512 : 0);
    uint8_t *b_smem = a_smem + STAGES * A_BYTES, *c_smem = b_smem + STAGES * B_BYTES;
    Ring *ring = (Ring *)(c_smem + C_BYTES);
    const int row = blockIdx.x * ROWS, column = blockIdx.y * COLUMNS;
    make_barriers<S>(ring);
    if (threadIdx.x >= WARPGROUP_THREADS) {
        if (elect_one()) produce<S>(a_smem, b_smem, ring, maps, row, column, steps);
        __syncwarp();
    } else {
        consume<S>(a_smem, b_smem, c_smem, ring, maps, row, column, steps);
        __syncwarp();
    }
    if (is_pair(S) && S != PAIR_NO_END_SYNC) cluster_sync();
}

static int number(int matrix, int row, int column) {
    return (row * 7 + column * 5 + row * column + matrix * 3) % 5 - 2;
}

typedef void (*Kernel)(Maps, int);

#define KERNEL(name) {#name, pipeline<name>},
static const struct {
    const char *name;
    Kernel kernel;
} variants[] = {SABOTAGES(KERNEL)};

int main(int argc, char **argv) {
    const int m = 2 * ROWS, n = COLUMNS, k = 10 * STEP;
    int s = argc > 1 ? 0 : RIGHT;
    while (argc > 1 && s < SABOTAGE_COUNT && strcmp(variants[s].name, argv[1]) != 0) s++;
    EXPECT(s < SABOTAGE_COUNT);

    __half *a, *b, *c;
    CUDA(cudaMallocManaged(&a, m * k * sizeof *a));
    CUDA(cudaMallocManaged(&b, n * k * sizeof *b));
    CUDA(cudaMallocManaged(&c, m * n * sizeof *c));
    static int a_number[m * k], b_number[k * n];
    for (int i = 0; i < m * k; i++) a_number[i] = number(0, i / k, i % k);
    for (int i = 0; i < k * n; i++) b_number[i] = number(1, i / n, i % n);
    for (int i = 0; i < m * k; i++) a[i] = __float2half((float)a_number[i]);
    for (int i = 0; i < k * n; i++) b[i] = __float2half((float)b_number[i]);
    Maps maps;
    make_matrix_map(&maps.a, "A", a, m, k, ROWS, BOX,
                    s == UNSWIZZLED_BOX ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B);
    make_matrix_map(&maps.b, "B", b, k, n, STEP, s == WRONG_BOX ? BOX / 2 : BOX,
                    s == WRONG_BOX ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B);
    make_matrix_map(&maps.c, "C", c, m, n, ROWS, BOX, CU_TENSOR_MAP_SWIZZLE_128B);

    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = is_pair((Sabotage)s) ? 2 : 1;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(m / ROWS, n / COLUMNS);
    config.blockDim = dim3(BLOCK);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.attrs = &cluster;
    config.numAttrs = 1;
    Kernel kernel = variants[s].kernel;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    CUDA(cudaLaunchKernelEx(&config, kernel, maps, k / STEP));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < m * n; i++) {
        int sum = 0;
        for (int x = 0; x < k; x++) sum += a_number[i / n * k + x] * b_number[x * n + i % n];
        // caught: WRONG_LEADING_OFFSET WRONG_STRIDE_OFFSET
        EXPECT(__half2float(c[i]) == (float)sum);
    }
    printf("%s: ok\n", variants[s].name);
    return 0;
}
