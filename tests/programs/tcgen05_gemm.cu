// C (m x n, fp32) = A (m x k) B^T (n x k), fp16, on Blackwell: a warp loads by TMA, a thread of
// another multiplies by tcgen05 into tensor memory, and a warpgroup takes the results from there.
// Each block makes two tiles, one after the other in the same columns.
//
// The first argument names a sabotage: one line that is missing or wrong. RIGHT has none.
// tests/softgpu/test_sabotage_tcgen05.c runs them all; a comment "caught:" names the sabotages
// whose finding must be about the line that follows it (or, if the numbers are wrong, the check in
// main). Whole numbers, so that every way of summing gives the same.
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
    X(NO_ALLOC_SYNC)      /* between the allocation and the reading of its address */              \
    X(NO_FREE)            /* of the columns */                                                     \
    X(EARLY_FREE)         /* before the readers are done */                                        \
    X(ALLOC_TOO_FEW)      /* columns */                                                            \
    X(NO_FULL_WAIT)       /* for a stage to be full */                                             \
    X(EARLY_RELEASE)      /* of a stage: an arrival, not a commit */                               \
    X(FIRST_ACCUMULATES)  /* on what nothing has written */                                        \
    X(RESULT_UNCOMMITTED) /* an arrival, not a commit */                                           \
    X(NO_RESULT_WAIT)     /* of the readers */                                                     \
    X(NO_FENCE_AFTER)     /* that wait */                                                          \
    X(NO_LOAD_WAIT)       /* before the registers are used */                                      \
    X(NO_FENCE_BEFORE)    /* the readers let the next tile in */                                   \
    X(NO_READ_WAIT)       /* for the readers, before the next tile */                              \
    X(OTHERS_QUARTER)     /* of the lanes */                                                       \
    X(HOPPER_DESCRIPTOR)  /* without bit 46 */                                                     \
    X(WRONG_SWIZZLE)      /* 128B, but with atoms of 32B */                                        \
    X(WRONG_STRIDE)       /* from 8 rows to the next */                                            \
    X(WRONG_STEP)         /* along k: numbers, not bytes */                                        \
    X(WRONG_M)            /* 64 in the instruction descriptor */                                   \
    X(WRONG_N)            /* 64 in it */                                                           \
    X(WRONG_TYPE)         /* bf16 in it */                                                         \
    X(WRONG_MAJOR)        /* B MN-major in it */                                                   \
    X(TWO_ISSUERS)        /* of each product */

#define NAMED(name) name,
enum Sabotage { SABOTAGES(NAMED) SABOTAGE_COUNT };

static const int TILE = 128, STEP = 64, STEP_OF_K = 16; // fp16 numbers
static const int LINE = 128, STAGES = 2, TILES = 2, COLUMNS = 128;
static const int READER_WARPS = 4, LOAD_WARP = 4, MULTIPLY_WARP = 5, BLOCK = 192;
static const int TILE_BYTES = TILE * STEP * 2;

typedef struct {
    uint64_t full[STAGES], empty[STAGES], result, read;
    uint32_t columns;
} Shared;

static const int SHARED_BYTES = 2 * STAGES * TILE_BYTES + (int)sizeof(Shared) + 1024;

typedef struct {
    CUtensorMap a, b;
} Maps;

// One thread's work: starts all copies.
template <Sabotage S>
__device__ static void load(uint8_t *a_smem, uint8_t *b_smem, Shared *shared, const Maps &maps,
                            int steps) {
    for (int j = 0; j < TILES * steps; j++) {
        const int stage = j % STAGES, row = (blockIdx.x * TILES + j / steps) * TILE;
        // caught: EARLY_RELEASE
        mbarrier_wait(&shared->empty[stage], j / STAGES % 2 ^ 1);
        mbarrier_arrive_expect(&shared->full[stage], 2 * TILE_BYTES);
        // caught: EARLY_RELEASE
        tma_load_4d(a_smem + stage * TILE_BYTES, &maps.a, &shared->full[stage], j % steps * STEP,
                    row, 0, 0);
        // caught: EARLY_RELEASE
        tma_load_4d(b_smem + stage * TILE_BYTES, &maps.b, &shared->full[stage], j % steps * STEP,
                    blockIdx.y * TILE, 0, 0);
    }
}

template <Sabotage S> __device__ static uint64_t describe(const uint8_t *tile) {
    uint64_t bits = tensor_descriptor<LINE>(tile, 16, S == WRONG_STRIDE ? 4 * LINE : 8 * LINE);
    if (S == HOPPER_DESCRIPTOR) bits &= ~(1ull << 46);
    if (S == WRONG_SWIZZLE) bits = (bits & ~(7ull << 61)) | 1ull << 61;
    return bits;
}

// One thread's work: issues all products.
template <Sabotage S>
__device__ static void multiply(const uint8_t *a_smem, const uint8_t *b_smem, Shared *shared,
                                uint32_t d, int steps) {
    const uint32_t instruction = instruction_f16(S == WRONG_TYPE, S == WRONG_M ? 64 : TILE,
                                                 S == WRONG_N ? 64 : TILE, false, S == WRONG_MAJOR);
    for (int j = 0; j < TILES * steps; j++) {
        const int stage = j % STAGES, tile = j / steps;
        if (j % steps == 0 && tile > 0 && S != NO_READ_WAIT) {
            // caught: NO_RESULT_WAIT
            mbarrier_wait(&shared->read, (tile - 1) % 2);
            tcgen05_fence_after();
        }
        if (S != NO_FULL_WAIT) mbarrier_wait(&shared->full[stage], j / STAGES % 2);
        const uint64_t a = describe<S>(a_smem + stage * TILE_BYTES);
        const uint64_t b = describe<S>(b_smem + stage * TILE_BYTES);
        for (int k = 0; k < STEP; k += STEP_OF_K) {
            const int step = S == WRONG_STEP ? k : k * 2;
            // caught: NO_FULL_WAIT FIRST_ACCUMULATES NO_LOAD_WAIT NO_FENCE_BEFORE NO_READ_WAIT
            // ALLOC_TOO_FEW HOPPER_DESCRIPTOR WRONG_SWIZZLE TWO_ISSUERS
            tensor_multiply(d, a + (step >> 4), b + (step >> 4), instruction,
                            S == FIRST_ACCUMULATES || j % steps > 0 || k > 0);
        }
        if (S == EARLY_RELEASE)
            mbarrier_arrive(&shared->empty[stage]);
        else
            tcgen05_commit(&shared->empty[stage]);
        if (j % steps != steps - 1) continue;
        if (S == RESULT_UNCOMMITTED)
            mbarrier_arrive(&shared->result);
        else
            tcgen05_commit(&shared->result);
    }
}

// Takes the results, a row to a thread.
template <Sabotage S> __device__ static void read(Shared *shared, uint32_t d, float *c, int n) {
    const int warp = threadIdx.x / 32;
    const uint32_t own = tmem_quarter(d, S == OTHERS_QUARTER ? warp + 1 : warp);
    for (int tile = 0; tile < TILES; tile++) {
        if (S != NO_RESULT_WAIT) mbarrier_wait(&shared->result, tile % 2);
        if (S != NO_FENCE_AFTER) tcgen05_fence_after();
        float *row = c + ((blockIdx.x * TILES + tile) * TILE + threadIdx.x) * n + blockIdx.y * TILE;
        for (int x = 0; x < TILE; x += 32) {
            uint32_t bits[32];
            // caught: RESULT_UNCOMMITTED NO_RESULT_WAIT NO_FENCE_AFTER OTHERS_QUARTER NO_READ_WAIT
            // WRONG_N WRONG_M
            tmem_load(bits, own + x);
            if (S != NO_LOAD_WAIT) {
                tmem_load_wait();
                tmem_loaded(bits);
            }
            // caught: NO_LOAD_WAIT
            for (int i = 0; i < 32; i++) row[x + i] = __uint_as_float(bits[i]);
        }
        if (S == NO_LOAD_WAIT) tmem_load_wait();
        if (S != NO_FENCE_BEFORE) tcgen05_fence_before();
        mbarrier_arrive(&shared->read);
    }
}

template <Sabotage S>
__global__ void __launch_bounds__(BLOCK, 1)
    gemm(const __grid_constant__ Maps maps, float *c, int n, int steps) {
    extern __shared__ __align__(1024) uint8_t smem[];
    uint8_t *a_smem = smem, *b_smem = smem + STAGES * TILE_BYTES;
    Shared *shared = (Shared *)(b_smem + STAGES * TILE_BYTES);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            mbarrier_init(&shared->full[stage], 1);
            mbarrier_init(&shared->empty[stage], 1);
        }
        mbarrier_init(&shared->result, 1);
        mbarrier_init(&shared->read, READER_WARPS * 32);
        fence_mbarrier_init();
    }
    if (S == NO_ALLOC_SYNC) __syncthreads();
    const int columns = S == ALLOC_TOO_FEW ? COLUMNS / 2 : COLUMNS;
    // caught: NO_FREE
    if (warp == MULTIPLY_WARP) tmem_alloc<columns>(&shared->columns);
    if (S != NO_ALLOC_SYNC) {
        tcgen05_fence_before();
        __syncthreads();
        tcgen05_fence_after();
    }
    // caught: NO_ALLOC_SYNC
    const uint32_t d = *(volatile uint32_t *)&shared->columns;
    if (warp == LOAD_WARP) {
        if (elect_one()) load<S>(a_smem, b_smem, shared, maps, steps);
    } else if (warp == MULTIPLY_WARP) {
        if (S == TWO_ISSUERS ? threadIdx.x % 32 < 2 : elect_one())
            multiply<S>(a_smem, b_smem, shared, d, steps);
    } else {
        read<S>(shared, d, c, n);
    }
    __syncwarp();
    if (S != EARLY_FREE) __syncthreads();
    // caught: EARLY_FREE
    if (S != NO_FREE && warp == MULTIPLY_WARP) tmem_free<COLUMNS>(d);
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
    const int m = 2 * TILES * TILE, n = TILE, k = 5 * STEP;
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
    make_matrix_map(&maps.a, "A", a, m, k, TILE, STEP, CU_TENSOR_MAP_SWIZZLE_128B);
    make_matrix_map(&maps.b, "B", b, n, k, TILE, STEP, CU_TENSOR_MAP_SWIZZLE_128B);
    Kernel kernel = variants[s].kernel;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    kernel<<<dim3(m / TILE / TILES, n / TILE), BLOCK, SHARED_BYTES>>>(maps, c, n, k / STEP);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < m * n; i++) {
        int sum = 0;
        for (int x = 0; x < k; x++) sum += a_number[i / n * k + x] * b_number[i % n * k + x];
        // caught: WRONG_STRIDE WRONG_STEP WRONG_TYPE WRONG_MAJOR
        EXPECT(c[i] == (float)sum);
    }
    printf("%s: ok\n", variants[s].name);
    return 0;
}
