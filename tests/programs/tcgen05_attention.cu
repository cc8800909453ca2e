// Attention of 128 queries, head_dim 64, as FlashAttention-4 has it, at its smallest: S and O in
// tensor memory; the weights P go back into tensor memory, on top of half of S, and are the A
// operand of the second product; O is rescaled where it lies. One thread issues all products, a
// warpgroup does the rest, a row to a thread. Must have no finding, under any order; what stands
// behind statements, tests/seeded_bugs/bugs.h goes by.
#include <cuda_bf16.h>

#include <cmath>

#include "check.h"

#include "device/proxy.h"
#include "device/tcgen05.h"

static const int QUERIES = 128, KEYS = 128, DEPTH = 64, BLOCKS = 3; // of keys
static const int LINE = 128, TILE = KEYS * LINE;                    // bytes
static const int MULTIPLY_WARP = 4, THREADS = 160;
static const int S_COLUMN = 0, P_COLUMN = 64, O_COLUMN = 128, COLUMNS = 256;
static const int SHARED_BYTES = (1 + 2 * BLOCKS) * TILE + 1024;

typedef struct {
    uint64_t scores, weights, output;
    uint32_t columns;
} Shared;

// Puts rows of 64 numbers into shared memory as TMA's swizzle would.
__device__ static void copy_rows(uint8_t *to, const __nv_bfloat16 *from, int rows) {
    for (int i = threadIdx.x; i < rows * 8; i += THREADS) {
        const int row = i / 8, piece = i % 8;
        *(uint4 *)(to + row * LINE + (piece ^ row % 8) * 16) =
            *(const uint4 *)(from + row * DEPTH + piece * 8);
    }
}

__device__ static void multiply(const uint8_t *q, const uint8_t *k, const uint8_t *v,
                                Shared *shared, uint32_t tmem) {
    const uint32_t first = instruction_f16(true, QUERIES, KEYS, false, false);
    const uint32_t second = instruction_f16(true, QUERIES, DEPTH, false, true);
    for (int j = 0; j < BLOCKS; j++) {
        // S = Q K^T. In order behind the product before, which reads P there.
        const uint64_t a = tensor_descriptor<LINE>(q, 16, 8 * LINE);
        const uint64_t b = tensor_descriptor<LINE>(k + j * TILE, 16, 8 * LINE);
        for (int x = 0; x < DEPTH; x += 16)
            tensor_multiply(tmem + S_COLUMN, a + (x * 2 >> 4), b + (x * 2 >> 4), first, x > 0);
        tcgen05_commit(&shared->scores);
        mbarrier_wait(&shared->weights, j % 2);
        tcgen05_fence_after(); // P → the product
        // O += P V
        const uint64_t c = tensor_descriptor<LINE>(v + j * TILE, TILE, 8 * LINE);
        for (int x = 0; x < KEYS; x += 16)
            tensor_multiply_from(tmem + O_COLUMN, tmem + P_COLUMN + x / 2, c + (x * LINE >> 4),
                                 second, j > 0 || x > 0);
        tcgen05_commit(&shared->output);
    }
}

__device__ static void scale_output(uint32_t own, float by) {
    for (int x = 0; x < DEPTH; x += 32) {
        uint32_t bits[32];
        tmem_load(bits, own + O_COLUMN + x);
        tmem_load_wait(); // O → its registers
        tmem_loaded(bits);
        for (int i = 0; i < 32; i++) bits[i] = __float_as_uint(__uint_as_float(bits[i]) * by);
        tmem_store(own + O_COLUMN + x, bits);
    }
}

__device__ static void soften(Shared *shared, uint32_t tmem, float *out, float scale) {
    const uint32_t own = tmem_quarter(tmem, threadIdx.x / 32);
    float most = -INFINITY, sum = 0;
    for (int j = 0; j < BLOCKS; j++) {
        mbarrier_wait(&shared->scores, j % 2);
        tcgen05_fence_after(); // S → the loads
        float s[KEYS];
#pragma unroll
        for (int x = 0; x < KEYS; x += 32) {
            uint32_t bits[32];
            tmem_load(bits, own + S_COLUMN + x);
            tmem_load_wait(); // S → its registers
            tmem_loaded(bits);
#pragma unroll
            for (int i = 0; i < 32; i++) s[x + i] = __uint_as_float(bits[i]) * scale;
        }
        float now = most;
        for (int i = 0; i < KEYS; i++) now = fmaxf(now, s[i]);
        const float shrink = __expf(most - now);
        most = now;
        sum *= shrink;
        for (int i = 0; i < KEYS; i++) sum += s[i] = __expf(s[i] - now);
        if (j > 0) {
            mbarrier_wait(&shared->output, (j - 1) % 2);
            tcgen05_fence_after();
            scale_output(own, shrink);
        }
#pragma unroll
        for (int x = 0; x < KEYS / 2; x += 32) {
            uint32_t pairs[32];
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const __nv_bfloat162 two =
                    __floats2bfloat162_rn(s[2 * (x + i)], s[2 * (x + i) + 1]);
                pairs[i] = *(const uint32_t *)&two;
            }
            tmem_store(own + P_COLUMN + x, pairs);
        }
        tmem_store_wait();
        tcgen05_fence_before(); // P → the thread that multiplies
        mbarrier_arrive(&shared->weights);
    }
    mbarrier_wait(&shared->output, (BLOCKS - 1) % 2);
    tcgen05_fence_after(); // the last O → the loads
    for (int x = 0; x < DEPTH; x += 32) {
        uint32_t bits[32];
        tmem_load(bits, own + O_COLUMN + x);
        tmem_load_wait(); // the last O → its registers
        tmem_loaded(bits);
        for (int i = 0; i < 32; i++)
            out[threadIdx.x * DEPTH + x + i] = __uint_as_float(bits[i]) / sum;
    }
}

__global__ void __launch_bounds__(THREADS, 1)
    attention(const __nv_bfloat16 *q, const __nv_bfloat16 *k, const __nv_bfloat16 *v, float *out,
              float scale) {
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ Shared shared;
    uint8_t *k_smem = smem + TILE, *v_smem = k_smem + BLOCKS * TILE;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.scores, 1);
        mbarrier_init(&shared.weights, QUERIES);
        mbarrier_init(&shared.output, 1);
        fence_mbarrier_init();
    }
    if (warp == MULTIPLY_WARP) tmem_alloc<COLUMNS>(&shared.columns);
    copy_rows(smem, q, QUERIES);
    copy_rows(k_smem, k, BLOCKS * KEYS);
    copy_rows(v_smem, v, BLOCKS * KEYS);
    fence_proxy_async();
    tcgen05_fence_before();
    __syncthreads(); // barriers, tiles, columns → all threads
    tcgen05_fence_after();
    const uint32_t tmem = shared.columns;
    if (warp < MULTIPLY_WARP)
        soften(&shared, tmem, out, scale);
    else if (threadIdx.x % 32 == 0)
        multiply(smem, k_smem, v_smem, &shared, tmem);
    __syncthreads(); // all are done → the warp that frees
    if (warp == MULTIPLY_WARP) tmem_free<COLUMNS>(tmem);
}

static float number(int matrix, int row, int column) {
    return (float)((row * 37 + column * 11 + row * column + matrix * 5) % 17 - 8) / 8;
}

int main() {
    const int keys = BLOCKS * KEYS;
    const float scale = 1 / sqrtf((float)DEPTH) * 2;
    __nv_bfloat16 *q, *k, *v;
    float *out;
    CUDA(cudaMallocManaged(&q, QUERIES * DEPTH * sizeof *q));
    CUDA(cudaMallocManaged(&k, keys * DEPTH * sizeof *k));
    CUDA(cudaMallocManaged(&v, keys * DEPTH * sizeof *v));
    CUDA(cudaMallocManaged(&out, QUERIES * DEPTH * sizeof *out));
    for (int i = 0; i < QUERIES * DEPTH; i++) q[i] = number(0, i / DEPTH, i % DEPTH);
    for (int i = 0; i < keys * DEPTH; i++) k[i] = number(1, i / DEPTH, i % DEPTH);
    for (int i = 0; i < keys * DEPTH; i++) v[i] = number(2, i / DEPTH, i % DEPTH);
    CUDA(
        cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
    attention<<<1, THREADS, SHARED_BYTES>>>(q, k, v, out, scale);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < QUERIES; i++) {
        static double weight[BLOCKS * KEYS];
        double sum = 0, want[DEPTH] = {0};
        for (int j = 0; j < keys; j++) {
            double s = 0;
            for (int x = 0; x < DEPTH; x++) s += (double)number(0, i, x) * number(1, j, x);
            sum += weight[j] = exp(s * scale);
            for (int x = 0; x < DEPTH; x++) want[x] += weight[j] * number(2, j, x);
        }
        // P has 8 bits.
        for (int x = 0; x < DEPTH; x++) EXPECT(fabs(out[i * DEPTH + x] - want[x] / sum) < 4e-3);
    }
    printf("ok\n");
    return 0;
}
