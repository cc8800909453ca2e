// C (m x n) = A (m x k, rows) B (k x n, rows) by wgmma, the tiles written by ordinary stores: two
// warpgroups share a tile of B, one has its A in shared memory, the other in registers. Small whole
// numbers, so that every way of summing gives the same.
#include <cstdint>
#include <cuda_bf16.h>

#include "check.h"

// A block's tile; a step of the sum; the width of a swizzled line in numbers.
static const int TILE_M = 128, TILE_N = 64, STEP = 64, LINE = 64, STAGES = 2;

static int number(int matrix, int row, int column) {
    return (row * 7 + column * 5 + row * column + matrix * 3) % 9 - 4;
}

// Where number x of line y stands in a tile of 128-byte lines: chunks of 8 numbers are exchanged by
// the line's number modulo 8.
__device__ static int swizzled(int y, int x) {
    return y * LINE + ((x / 8) ^ (y % 8)) * 8 + x % 8;
}

// A descriptor: 128-byte swizzle, 1024 bytes from eight lines to the next eight.
__device__ static uint64_t descriptor(const void *tile) {
    uint32_t address = (uint32_t)__cvta_generic_to_shared(tile);
    return (uint64_t)(address >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define LIST                                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "  \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ALL     FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28)

// d += A B, 16 deep: A K-major, B MN-major.
__device__ static void multiply_shared(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LIST
                 ", %32, %33, 1, 1, 1, 0, 1;"
                 : ALL
                 : "l"(a), "l"(b));
}
__device__ static void multiply_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LIST
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : ALL
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Orders the uses of d's and a's registers before what follows, for the compiler too.
__device__ static void fence(float (&d)[32], uint32_t (&a)[STEP / 16][4]) {
    asm volatile("" : ALL::"memory");
    for (int s = 0; s < STEP / 16; s++)
        asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__global__ void __launch_bounds__(256)
    multiply(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int k) {
    __shared__ __align__(1024) __nv_bfloat16 a_tile[STAGES][64 * STEP],
        b_tile[STAGES][STEP * TILE_N];
    int thread = threadIdx.x, group = thread / 128, row0 = blockIdx.y * TILE_M;
    int column0 = blockIdx.x * TILE_N, lane = thread % 32;
    int row = row0 + thread / 32 * 16 + lane / 4; // of the thread's registers, and row + 8
    float d[32] = {};
    uint32_t a_reg[STEP / 16][4] = {};
    for (int k0 = 0, stage = 0; k0 < k; k0 += STEP, stage ^= 1) {
        for (int i = thread; i < 64 * STEP; i += 256) {
            int y = i / STEP, x = i % STEP;
            a_tile[stage][swizzled(y, x)] = a[(row0 + y) * k + k0 + x];
            b_tile[stage][swizzled(y, x)] = b[(k0 + y) * n + column0 + x];
        }
        for (int s = 0; s < STEP / 16 && group == 1; s++)
            for (int r = 0; r < 4; r++)
                a_reg[s][r] = *(const uint32_t *)&a[(row + r % 2 * 8) * k + k0 + 16 * s +
                                                    r / 2 * 8 + lane % 4 * 2];
        // Each thread shows its stores to the async proxy, then all know that all have.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        fence(d, a_reg);
        for (int s = 0; s < STEP / 16; s++) {
            uint64_t b_here = descriptor(b_tile[stage]) + s * (16 * 128 >> 4);
            if (group == 0)
                multiply_shared(d, descriptor(a_tile[stage]) + s * (32 >> 4), b_here);
            else
                multiply_registers(d, a_reg[s], b_here);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // Before a stage is written again all warps have waited here and met at the barrier of the
        // stage in between.
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("" : ALL::"memory");
    }
    for (int i = 0; i < 32; i++)
        c[(row + i / 2 % 2 * 8) * n + column0 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

int main() {
    const int m = 256, n = 192, k = 320;
    __nv_bfloat16 *a, *b;
    float *c;
    CUDA(cudaMallocManaged(&a, m * k * sizeof *a));
    CUDA(cudaMallocManaged(&b, n * k * sizeof *b));
    CUDA(cudaMallocManaged(&c, m * n * sizeof *c));
    for (int i = 0; i < m * k; i++) a[i] = __float2bfloat16((float)number(0, i / k, i % k));
    for (int i = 0; i < n * k; i++) b[i] = __float2bfloat16((float)number(1, i / n, i % n));
    multiply<<<dim3(n / TILE_N, m / TILE_M), 256>>>(a, b, c, n, k);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < m * n; i++) {
        int sum = 0;
        for (int x = 0; x < k; x++) sum += number(0, i / n, x) * number(1, x, i % n);
        EXPECT(c[i] == (float)sum);
    }
    printf("wgmma_gemm: ok\n");
    return 0;
}
