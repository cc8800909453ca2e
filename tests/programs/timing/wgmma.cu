// Hopper's products of a warpgroup: m64nNk16 back to back, what issuing one costs, and how long the
// last one's results take. Two warpgroups too: they share the SM's tensor cores.
#include "bench.h"

#include "device/proxy.h"
#include "device/wgmma.h"

enum { LINE_BYTES = 128, A_BYTES = WGMMA_ROWS * LINE_BYTES, SMEM = A_BYTES + 256 * LINE_BYTES };

enum Source { SHARED, REGISTERS }; // of A

// A product of fp8 numbers, as long as WGMMA_DEPTH fp16 numbers in bytes: 32 of them.
__device__ static void wgmma_fp8(float (&d)[32][4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" WGMMA_LIST_256
                 "}, %128, %129, 1, 1, 1;"
                 : WGMMA_OUT_256(d)
                 : "l"(a), "l"(b));
}

__device__ static void wgmma_tf32(float (&d)[32][4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" WGMMA_LIST_256
                 "}, %128, %129, 1, 1, 1;"
                 : WGMMA_OUT_256(d)
                 : "l"(a), "l"(b));
}

enum Kind { FP16, FP8, TF32 };

// COUNT products into one accumulator, and the wait for them.
template <int N, Source SOURCE, Kind KIND, int COUNT> __global__ void products(Span *spans) {
    extern __shared__ __align__(1024) uint8_t smem[];
    for (int k = threadIdx.x; k < SMEM / 4; k += blockDim.x) ((uint32_t *)smem)[k] = 0;
    fence_proxy_async();
    __syncthreads();
    const uint64_t a = k_major_operand<LINE_BYTES>(smem);
    const uint64_t b = k_major_operand<LINE_BYTES>(smem + A_BYTES);
    float d[N / 8][4] = {};
    uint32_t a_reg[4] = {};
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        __syncthreads();
        span.begin = clock_now();
        for (uint32_t &a : a_reg) asm volatile("" : "+r"(a)::"memory");
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            if constexpr (KIND == FP8)
                wgmma_fp8(d, a, b);
            else if constexpr (KIND == TF32)
                wgmma_tf32(d, a, b);
            else if constexpr (SOURCE == SHARED)
                wgmma_shared<__half, K_MAJOR, K_MAJOR>(d, a, b, 1);
            else
                wgmma_registers<__half, K_MAJOR>(d, a_reg, b, 1);
        }
        wgmma_commit();
        wgmma_wait<0>();
        span.end = clock_now();
        wgmma_results(d);
    }
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
}

template <int N, Source SOURCE, Kind KIND, int COUNT> static double cycles_of(int warpgroups) {
    const int threads = warpgroups * WARPGROUP_THREADS;
    CUDA(cudaFuncSetAttribute(products<N, SOURCE, KIND, COUNT>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
    products<N, SOURCE, KIND, COUNT><<<1, threads, SMEM>>>(spans_on_device());
    return elapsed(threads / 32);
}

// Cycles of the SM for a product, when each follows the one before.
template <int N, Source SOURCE, Kind KIND, int WARPGROUPS> static double interval() {
    const double more = cycles_of<N, SOURCE, KIND, 48>(WARPGROUPS);
    return (more - cycles_of<N, SOURCE, KIND, 16>(WARPGROUPS)) / (32 * WARPGROUPS);
}

// Share of the tensor cores' rate that products of 64 x 256 x 16 reach: 4096 FLOPs a clock and SM.
template <int WARPGROUPS> static double peak_share() {
    const double flops = 2.0 * WGMMA_ROWS * 256 * WGMMA_DEPTH;
    return 100 * flops / interval<256, SHARED, FP16, WARPGROUPS>() / 4096;
}

// What is left of the time when the products' own is taken out, and that of an empty group.
template <Source SOURCE> static double tail() {
    const double work = 8 * 2.0 * WGMMA_ROWS * 128 * WGMMA_DEPTH / 4096;
    return cycles_of<128, SOURCE, FP16, 8>(1) - work - cycles_of<128, SOURCE, FP16, 0>(1);
}

// ---- issue: products so small that issuing them takes longer (m64n8k16 from registers)

template <int COUNT> __global__ void small_products(Span *spans) {
    __shared__ __align__(1024) uint8_t smem[8 * LINE_BYTES];
    for (int k = threadIdx.x; k < 8 * LINE_BYTES / 4; k += blockDim.x) ((uint32_t *)smem)[k] = 0;
    fence_proxy_async();
    __syncthreads();
    const uint64_t b = k_major_operand<LINE_BYTES>(smem);
    float d[4] = {};
    uint32_t a = 0;
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        __syncthreads();
        span.begin = clock_now();
        asm volatile("" : "+r"(a)::"memory");
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, "
                         "{%4, %4, %4, %4}, %5, 1, 1, 1, 0;"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a), "l"(b));
        wgmma_commit();
        wgmma_wait<0>();
        span.end = clock_now();
        asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    }
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
}

static double wgmma_issue() {
    small_products<48><<<1, WARPGROUP_THREADS>>>(spans_on_device());
    const double more = elapsed(4);
    small_products<16><<<1, WARPGROUP_THREADS>>>(spans_on_device());
    return (more - elapsed(4)) / 32;
}

static const Bench benches[] = {
    {"wgmma_n64", interval<64, SHARED, FP16, 1>, "cycles"},
    {"wgmma_n128", interval<128, SHARED, FP16, 1>, "cycles"},
    {"wgmma_n256", interval<256, SHARED, FP16, 1>, "cycles"},
    {"wgmma_n256_registers", interval<256, REGISTERS, FP16, 1>, "cycles"},
    {"wgmma_n128_two", interval<128, SHARED, FP16, 2>, "cycles"},
    {"wgmma_n256_fp8", interval<256, SHARED, FP8, 1>, "cycles"},
    {"wgmma_n256_tf32", interval<256, SHARED, TF32, 1>, "cycles"},
    {"wgmma_peak", peak_share<1>, "%"},
    {"wgmma_peak_two", peak_share<2>, "%"},
    {"wgmma_tail", tail<SHARED>, "cycles"},
    {"wgmma_tail_registers", tail<REGISTERS>, "cycles"},
    {"wgmma_issue", wgmma_issue, "cycles"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
