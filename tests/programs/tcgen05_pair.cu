// C (m x n, fp32) = A (m x k) B^T (n x k), fp16, by pairs of blocks (.cta_group::2): each block of
// a pair loads half of A's rows and half of B's, a thread of the first one multiplies for both, and
// each reads its half of the rows from its own tensor memory. tcgen05_gemm.cu is the same for
// single blocks.
//
// The first argument names a sabotage: one line that is missing or wrong. RIGHT has none.
// tests/softgpu/test_sabotage.c runs them all; for "caught:" see there.
#include <cuda_fp16.h>

#include <cstring>

#include "check.h"
#include "matrix_map.h"

#include "device/elect.h"
#include "device/proxy.h"
#include "device/tcgen05.h"
#include "device/tensor_map.h"
#include "device/tma.h"

#define SABOTAGES(X)                                                                               \
    X(RIGHT)                                                                                       \
    X(EXPECTS_HALF)    /* the bytes of the first block alone */                                    \
    X(FREES_ITSELF)    /* a stage is given back to the first block's loader alone */               \
    X(TELLS_ITSELF)    /* the result is told to the first block's readers alone */                 \
    X(BOTH_ISSUE)      /* the products */                                                          \
    X(SAME_HALF)       /* of B in both blocks */                                                   \
    X(OWN_READERS)     /* the next tile waits for the first block's alone */                       \
    X(NO_START_SYNC)   /* of the pair, in front of the allocation */                               \
    X(NO_END_SYNC)     /* of the pair, before a block ends */                                      \
    X(NO_FENCE_BEFORE) /* the readers let the next tile in */                                      \
    X(WRONG_M)         /* 128 in the instruction descriptor */

#define NAMED(name) name,
enum Sabotage { SABOTAGES(NAMED) SABOTAGE_COUNT };

static const int ROWS = 128, COLUMNS = 128, STEP = 64, STEP_OF_K = 16; // of a block; fp16 numbers
static const int LINE = 128, STAGES = 2, TILES = 2;
static const int READERS = 128, LOAD_WARP = 4, MULTIPLY_WARP = 5, BLOCK = 192;
static const int A_BYTES = ROWS * STEP * 2, B_BYTES = COLUMNS / 2 * STEP * 2;

typedef struct {
    uint64_t full[STAGES], empty[STAGES], result, read;
    uint32_t columns;
} Shared;

static const int SHARED_BYTES = STAGES * (A_BYTES + B_BYTES) + (int)sizeof(Shared) + 1024;

typedef struct {
    CUtensorMap a, b;
} Maps;

__device__ static uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ static void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of something as it stands in the first block.
__device__ static uint32_t in_first(const void *smem) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(shared_address(smem)));
    return there;
}

// A wait behind which also what the other block did is visible.
__device__ static void wait_for_pair(uint64_t *barrier, uint32_t parity) {
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n\t.reg .pred over;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, over;\n\t}"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

// The box comes to this block, its bytes are counted by the first block's barrier.
__device__ static void load_for_pair(void *to_smem, const CUtensorMap *map, uint64_t *barrier,
                                     int x, int y) {
    asm volatile("cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.tile."
                 "mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %5}], [%2];" ::"r"(
                     shared_address(to_smem)),
                 "l"(map), "r"(in_first(barrier)), "r"(x), "r"(y), "r"(0)
                 : "memory");
}

__device__ static void arrive_in_first(uint64_t *barrier) {
    asm volatile(
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_first(barrier))
        : "memory");
}

__device__ static void alloc_pair(uint32_t *address_smem) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(
                     shared_address(address_smem))
                 : "memory");
}

__device__ static void free_pair(uint32_t address) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 128;" ::"r"(address)
                 : "memory");
}

__device__ static void multiply_pair(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction,
                                     bool accumulates) {
    asm volatile("{\n\t"
                 ".reg .pred accumulates;\n\t"
                 "setp.ne.b32 accumulates, %4, 0;\n\t"
                 "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, accumulates;\n\t"
                 "}" ::"r"(d),
                 "l"(a), "l"(b), "r"(instruction), "r"((uint32_t)accumulates)
                 : "memory");
}

// Arrives at the barrier in each block of the mask.
__device__ static void commit_pair(uint64_t *barrier, uint16_t blocks) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster."
                 "multicast::cluster.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "h"(blocks)
                 : "memory");
}

template <Sabotage S>
__device__ static void load(uint8_t *a_smem, uint8_t *b_smem, Shared *shared, const Maps &maps,
                            int steps) {
    const int rank = (int)cluster_rank(), pair = blockIdx.x / 2;
    const int half = S == SAME_HALF ? 0 : rank;
    for (int j = 0; j < TILES * steps; j++) {
        const int stage = j % STAGES, tile = pair * TILES + j / steps;
        // caught: FREES_ITSELF
        wait_for_pair(&shared->empty[stage], j / STAGES % 2 ^ 1);
        // caught: EXPECTS_HALF
        if (rank == 0)
            mbarrier_arrive_expect(&shared->full[stage],
                                   (S == EXPECTS_HALF ? 1 : 2) * (A_BYTES + B_BYTES));
        // caught: EXPECTS_HALF BOTH_ISSUE NO_START_SYNC
        load_for_pair(a_smem + stage * A_BYTES, &maps.a, &shared->full[stage], j % steps * STEP,
                      (tile * 2 + rank) * ROWS);
        // caught: EXPECTS_HALF BOTH_ISSUE NO_START_SYNC
        load_for_pair(b_smem + stage * B_BYTES, &maps.b, &shared->full[stage], j % steps * STEP,
                      half * (COLUMNS / 2));
    }
}

template <Sabotage S>
__device__ static void multiply(const uint8_t *a_smem, const uint8_t *b_smem, Shared *shared,
                                uint32_t d, int steps) {
    const uint32_t instruction =
        instruction_f16(false, S == WRONG_M ? ROWS : 2 * ROWS, COLUMNS, false, false);
    for (int j = 0; j < TILES * steps; j++) {
        const int stage = j % STAGES, tile = j / steps;
        if (j % steps == 0 && tile > 0) {
            wait_for_pair(&shared->read, (tile - 1) % 2);
            tcgen05_fence_after();
        }
        // caught: BOTH_ISSUE
        wait_for_pair(&shared->full[stage], j / STAGES % 2);
        const uint64_t a = tensor_descriptor<LINE>(a_smem + stage * A_BYTES, 16, 8 * LINE);
        const uint64_t b = tensor_descriptor<LINE>(b_smem + stage * B_BYTES, 16, 8 * LINE);
        for (int k = 0; k < STEP; k += STEP_OF_K)
            // caught: EXPECTS_HALF BOTH_ISSUE OWN_READERS NO_FENCE_BEFORE
            multiply_pair(d, a + (k * 2 >> 4), b + (k * 2 >> 4), instruction,
                          j % steps > 0 || k > 0);
        commit_pair(&shared->empty[stage], S == FREES_ITSELF ? 1 : 3);
        if (j % steps == steps - 1) commit_pair(&shared->result, S == TELLS_ITSELF ? 1 : 3);
    }
}

template <Sabotage S> __device__ static void read(Shared *shared, uint32_t d, float *c, int n) {
    const int warp = threadIdx.x / 32, pair = blockIdx.x / 2;
    for (int tile = 0; tile < TILES; tile++) {
        // caught: TELLS_ITSELF EXPECTS_HALF FREES_ITSELF
        wait_for_pair(&shared->result, tile % 2);
        tcgen05_fence_after(); // the result → the loads
        const int row = ((pair * TILES + tile) * 2 + (int)cluster_rank()) * ROWS + threadIdx.x;
        for (int x = 0; x < COLUMNS; x += 32) {
            uint32_t bits[32];
            // caught: OWN_READERS WRONG_M
            tmem_load(bits, tmem_quarter(d, warp) + x);
            tmem_load_wait(); // → the registers
            tmem_loaded(bits);
            for (int i = 0; i < 32; i++) c[row * n + x + i] = __uint_as_float(bits[i]);
        }
        if (S != NO_FENCE_BEFORE) tcgen05_fence_before();
        // caught: NO_END_SYNC
        if (S != OWN_READERS || cluster_rank() == 0) arrive_in_first(&shared->read);
    }
}

template <Sabotage S>
__global__ void __launch_bounds__(BLOCK, 1)
    gemm(const __grid_constant__ Maps maps, float *c, int n, int steps) {
    extern __shared__ __align__(1024) uint8_t smem[];
    uint8_t *a_smem = smem, *b_smem = smem + STAGES * A_BYTES;
    Shared *shared = (Shared *)(b_smem + STAGES * B_BYTES);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&shared->full[stage], 1);
            mbarrier_init(&shared->empty[stage], 1);
        }
        mbarrier_init(&shared->result, 1);
        mbarrier_init(&shared->read, S == OWN_READERS ? READERS : 2 * READERS);
        fence_mbarrier_init();
    }
    if (S == NO_START_SYNC)
        __syncthreads();
    else
        cluster_sync();
    if (warp == MULTIPLY_WARP)
        // caught: NO_START_SYNC
        alloc_pair(&shared->columns);
    tcgen05_fence_before();
    __syncthreads();
    tcgen05_fence_after();
    const uint32_t d = *(volatile uint32_t *)&shared->columns;
    if (warp == LOAD_WARP) {
        if (elect_one()) load<S>(a_smem, b_smem, shared, maps, steps);
    } else if (warp == MULTIPLY_WARP) {
        if ((cluster_rank() == 0 || S == BOTH_ISSUE) && elect_one())
            multiply<S>(a_smem, b_smem, shared, d, steps);
    } else {
        read<S>(shared, d, c, n);
    }
    __syncwarp();
    if (S == NO_END_SYNC)
        __syncthreads();
    else
        // caught: BOTH_ISSUE
        cluster_sync();
    if (warp == MULTIPLY_WARP) free_pair(d);
}

static int number(int matrix, int row, int column) {
    return (row * 7 + column * (column / 3 + 1) + row * column + matrix * 3) % 5 - 2;
}

typedef void (*Kernel)(Maps, float *, int, int);

#define KERNEL(name) {#name, gemm<name>},
static const struct {
    const char *name;
    Kernel kernel;
} variants[] = {SABOTAGES(KERNEL)};

int main(int argc, char **argv) {
    const int m = 2 * TILES * 2 * ROWS, n = COLUMNS, k = 5 * STEP;
    int s = argc > 1 ? 0 : RIGHT;
    while (argc > 1 && s < SABOTAGE_COUNT && strcmp(variants[s].name, argv[1]) != 0) s++;
    EXPECT(s < SABOTAGE_COUNT);

    __half *a, *b;
    float *c;
    CUDA(cudaMallocManaged(&a, m * k * sizeof *a));
    CUDA(cudaMallocManaged(&b, n * k * sizeof *b));
    CUDA(cudaMallocManaged(&c, m * n * sizeof *c));
    static int a_number[m * k], b_number[n * k];
    for (int i = 0; i < m * k; i++) a_number[i] = number(0, i / k, i % k);
    for (int i = 0; i < n * k; i++) b_number[i] = number(1, i / k, i % k);
    for (int i = 0; i < m * k; i++) a[i] = __float2half((float)a_number[i]);
    for (int i = 0; i < n * k; i++) b[i] = __float2half((float)b_number[i]);
    Maps maps;
    make_matrix_map(&maps.a, "A", a, m, k, ROWS, STEP, CU_TENSOR_MAP_SWIZZLE_128B);
    make_matrix_map(&maps.b, "B", b, n, k, COLUMNS / 2, STEP, CU_TENSOR_MAP_SWIZZLE_128B);

    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(m / ROWS / TILES);
    config.blockDim = dim3(BLOCK);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.attrs = &cluster;
    config.numAttrs = 1;
    Kernel kernel = variants[s].kernel;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    CUDA(cudaLaunchKernelEx(&config, kernel, maps, c, n, k / STEP));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < m * n; i++) {
        int sum = 0;
        for (int x = 0; x < k; x++) sum += a_number[i / n * k + x] * b_number[i % n * k + x];
        // caught: SAME_HALF
        EXPECT(c[i] == (float)sum);
    }
    printf("%s: ok\n", variants[s].name);
    return 0;
}
