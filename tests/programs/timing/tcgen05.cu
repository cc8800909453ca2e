// Blackwell's products (tcgen05.mma) back to back and alone, by where A lies, by one SM and by a
// pair; loads from tensor memory; and what copies to shared memory and loads from it take from
// products.
#include "bench.h"

#include "device/proxy.h"
#include "device/tcgen05.h"

enum {
    LINE_BYTES = 128,
    TILE_BYTES = 256 * LINE_BYTES,
    SMEM = 2 * TILE_BYTES + 1024,
    A_COLUMN = 256,
    MULTIPLY_WARP = 4,
    THREADS = 160
};

enum Source { SHARED, TENSOR }; // of A
enum Kind { F16, F8, TF32 };

// COUNT products into one accumulator, from the issue of the first one to the mbarrier. GROUP
// blocks work together.
template <int M, int N, Source SOURCE, Kind KIND, int GROUP>
__device__ static void multiply(uint64_t a, uint64_t b, uint32_t tmem) {
    // fp16 and fp32; e4m3; tf32. fp32 sums.
    const uint32_t type = KIND == TF32 ? 2u << 7 | 2u << 10 : 0;
    const uint32_t instruction = instruction_f16(false, M, N, false, false) | type;
#define PRODUCT(group, kind)                                                                       \
    if (SOURCE == SHARED)                                                                          \
        asm volatile("{.reg .pred p;\n\tsetp.eq.b32 p, 0, 0;\n\t"                                  \
                     "tcgen05.mma.cta_group::" #group ".kind::" #kind                              \
                     " [%0], %1, %2, %3, p;}" ::"r"(tmem),                                         \
                     "l"(a), "l"(b), "r"(instruction)                                              \
                     : "memory");                                                                  \
    else                                                                                           \
        asm volatile("{.reg .pred p;\n\tsetp.eq.b32 p, 0, 0;\n\t"                                  \
                     "tcgen05.mma.cta_group::" #group ".kind::" #kind                              \
                     " [%0], [%1], %2, %3, p;}" ::"r"(tmem),                                       \
                     "r"(tmem + A_COLUMN), "l"(b), "r"(instruction)                                \
                     : "memory");
    if constexpr (GROUP == 2) {
        PRODUCT(2, f16)
    } else if constexpr (KIND == F8) {
        PRODUCT(1, f8f6f4)
    } else if constexpr (KIND == TF32) {
        PRODUCT(1, tf32)
    } else {
        PRODUCT(1, f16)
    }
}

template <int GROUP> __device__ static uint32_t allocate(uint32_t *address) {
    if (threadIdx.x / 32 == MULTIPLY_WARP) {
        if constexpr (GROUP == 2)
            asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(
                             shared_address(address))
                         : "memory");
        else
            tmem_alloc<512>(address);
    }
    tcgen05_fence_before();
    __syncthreads();
    tcgen05_fence_after();
    return *address;
}

template <int GROUP> __device__ static void release(uint32_t tmem) {
    __syncthreads();
    if (threadIdx.x / 32 != MULTIPLY_WARP) return;
    if constexpr (GROUP == 2)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 512;" ::"r"(tmem)
                     : "memory");
    else
        tmem_free<512>(tmem);
}

template <int GROUP> __device__ static void meet() {
    if constexpr (GROUP == 2) {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else {
        __syncthreads();
    }
}

// Zeros all of tensor memory; by warps 0 to 3.
__device__ static void clear(uint32_t tmem) {
    const uint32_t zeros[32] = {};
    if (threadIdx.x / 32 < MULTIPLY_WARP)
        for (int x = 0; x < 512; x += 32)
            tmem_store(tmem_quarter(tmem, threadIdx.x / 32) + x, zeros);
    tmem_store_wait();
    tcgen05_fence_before();
}

// The first block of the pair issues and takes the time.
template <int M, int N, Source SOURCE, Kind KIND, int GROUP, int COUNT>
__global__ void __launch_bounds__(THREADS) products(Span *spans) {
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t done;
    __shared__ uint32_t columns;
    for (int k = threadIdx.x; k < SMEM / 4; k += THREADS) ((uint32_t *)smem)[k] = 0;
    if (threadIdx.x == 0) mbarrier_init(&done, 1);
    fence_mbarrier_init();
    fence_proxy_async();
    meet<GROUP>();
    const uint32_t tmem = allocate<GROUP>(&columns);
    clear(tmem);
    meet<GROUP>();
    tcgen05_fence_after();
    const uint64_t a = tensor_descriptor<LINE_BYTES>(smem, 16, 8 * LINE_BYTES);
    const uint64_t b = tensor_descriptor<LINE_BYTES>(smem + TILE_BYTES, 16, 8 * LINE_BYTES);
    if (threadIdx.x == MULTIPLY_WARP * 32 && blockIdx.x == 0) {
        Span span = {};
#pragma unroll 1
        for (int round = 0; round < 2; round++) {
            span.begin = clock_now();
#pragma unroll
            for (int k = 0; k < COUNT; k++) multiply<M, N, SOURCE, KIND, GROUP>(a, b, tmem);
            if constexpr (GROUP == 2)
                asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster."
                             "b64 [%0];" ::"r"(shared_address(&done))
                             : "memory");
            else
                tcgen05_commit(&done);
            mbarrier_wait(&done, round);
            span.end = clock_now();
        }
        tcgen05_fence_after();
        tcgen05_fence_before();
        spans[0] = span;
    }
    __syncwarp();
    meet<GROUP>();
    tcgen05_fence_after();
    release<GROUP>(tmem);
}

template <int M, int N, Source SOURCE, Kind KIND, int GROUP, int COUNT> static double cycles_of() {
    void (*const kernel)(Span *) = products<M, N, SOURCE, KIND, GROUP, COUNT>;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = GROUP;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(GROUP);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SMEM;
    config.attrs = &cluster;
    config.numAttrs = 1;
    CUDA(cudaLaunchKernelEx(&config, kernel, spans_on_device()));
    return elapsed(1);
}

// Cycles from one product to the next.
template <int M, int N, Source SOURCE, Kind KIND = F16, int GROUP = 1> static double interval() {
    const double more = cycles_of<M, N, SOURCE, KIND, GROUP, 48>();
    return (more - cycles_of<M, N, SOURCE, KIND, GROUP, 16>()) / 32;
}

// Cycles from the issue of one to behind the wait for it.
template <int M, int N, Source SOURCE, int GROUP = 1> static double latency() {
    return cycles_of<M, N, SOURCE, F16, GROUP, 1>();
}

// FLOPs a clock, of the SM or the pair.
template <int M, int N, Source SOURCE, Kind KIND = F16, int GROUP = 1> static double rate() {
    const int depth = KIND == F8 ? 32 : KIND == TF32 ? 8 : 16;
    return 2.0 * M * N * depth / interval<M, N, SOURCE, KIND, GROUP>();
}

// ---- loads and stores of tensor memory

#define X4(k)   "=r"(x[k]), "=r"(x[k + 1]), "=r"(x[k + 2]), "=r"(x[k + 3])
#define FROM(s) "tcgen05.ld.sync.aligned.32x32b." s

template <int COLUMNS> __device__ static void load(uint32_t *x, uint32_t from) {
    if constexpr (COLUMNS == 1)
        asm volatile(FROM("x1.b32 {%0}, [%1];") : "=r"(x[0]) : "r"(from));
    else if constexpr (COLUMNS == 4)
        asm volatile(FROM("x4.b32 {%0, %1, %2, %3}, [%4];") : X4(0) : "r"(from));
    else if constexpr (COLUMNS == 8)
        asm volatile(FROM("x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];")
                     : X4(0), X4(4)
                     : "r"(from));
    else
        asm volatile(FROM("x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
                          "%14, %15}, [%16];")
                     : X4(0), X4(4), X4(8), X4(12)
                     : "r"(from));
}

template <int COLUMNS, int BATCH, int ROUNDS> __global__ void loads(Span *spans) {
    __shared__ uint32_t columns;
    const int warp = threadIdx.x / 32;
    if (warp == 0) tmem_alloc<512>(&columns);
    tcgen05_fence_before();
    __syncthreads();
    tcgen05_fence_after();
    const uint32_t own = tmem_quarter(columns, warp), zeros[32] = {};
    for (int c = 0; warp < 4 && c < 512; c += 32) tmem_store(own + c, zeros);
    tmem_store_wait();
    tcgen05_fence_before();
    __syncthreads();
    tcgen05_fence_after();
    Span span = {};
    uint32_t used[BATCH] = {}; // loads that nobody uses wouldn't be there
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        __syncthreads();
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < ROUNDS; k++) {
            uint32_t x[BATCH][COLUMNS];
#pragma unroll
            for (int n = 0; n < BATCH; n++) load<COLUMNS>(x[n], own + n * COLUMNS);
            tmem_load_wait();
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                tmem_loaded(x[n]);
                used[n] |= x[n][0];
            }
        }
        span.end = clock_now();
    }
    for (int n = 0; n < BATCH; n++) span.end += used[n]; // 0
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
    tcgen05_fence_before();
    __syncthreads();
    if (warp == 0) tmem_free<512>(columns);
}

// Cycles of a warp for a load, in batches with a wait behind each.
template <int COLUMNS, int BATCH, int WARPS = 1> static double load_cycles() {
    loads<COLUMNS, BATCH, 24><<<1, 32 * WARPS>>>(spans_on_device());
    const double more = elapsed(WARPS);
    loads<COLUMNS, BATCH, 8><<<1, 32 * WARPS>>>(spans_on_device());
    return (more - elapsed(WARPS)) / (16 * BATCH);
}

// Bytes a clock of an SM.
template <int WARPS> static double load_rate() {
    return WARPS * 16 * 128 / load_cycles<16, 8, WARPS>();
}

static const Bench benches[] = {
    {"tcgen05_n64", interval<128, 64, SHARED>, "cycles"},
    {"tcgen05_n128", interval<128, 128, SHARED>, "cycles"},
    {"tcgen05_n256", interval<128, 256, SHARED>, "cycles"},
    {"tcgen05_m64_n128", interval<64, 128, SHARED>, "cycles"},
    {"tcgen05_n64_tensor", interval<128, 64, TENSOR>, "cycles"},
    {"tcgen05_n128_tensor", interval<128, 128, TENSOR>, "cycles"},
    {"tcgen05_n256_fp8", interval<128, 256, SHARED, F8>, "cycles"},
    {"tcgen05_n256_tf32", interval<128, 256, SHARED, TF32>, "cycles"},
    {"tcgen05_pair_m256_n64", interval<256, 64, SHARED, F16, 2>, "cycles"},
    {"tcgen05_pair_m256_n128", interval<256, 128, SHARED, F16, 2>, "cycles"},
    {"tcgen05_pair_m256_n256", interval<256, 256, SHARED, F16, 2>, "cycles"},
    {"tcgen05_pair_m128_n64", interval<128, 64, SHARED, F16, 2>, "cycles"},
    {"tcgen05_pair_m128_n256", interval<128, 256, SHARED, F16, 2>, "cycles"},
    {"tcgen05_pair_m128_n128_tensor", interval<128, 128, TENSOR, F16, 2>, "cycles"},
    {"tcgen05_rate", rate<128, 256, SHARED>, "FLOP/clk/SM"},
    {"tcgen05_rate_fp8", rate<128, 256, SHARED, F8>, "FLOP/clk/SM"},
    {"tcgen05_rate_n64", rate<128, 64, SHARED>, "FLOP/clk/SM"},
    {"tcgen05_rate_n64_tensor", rate<128, 64, TENSOR>, "FLOP/clk/SM"},
    {"tcgen05_rate_pair", rate<256, 256, SHARED, F16, 2>, "FLOP/clk"},
    {"tcgen05_latency_n64", latency<128, 64, SHARED>, "cycles"},
    {"tcgen05_latency_n128", latency<128, 128, SHARED>, "cycles"},
    {"tcgen05_latency_n256", latency<128, 256, SHARED>, "cycles"},
    {"tcgen05_latency_m64_n128", latency<64, 128, SHARED>, "cycles"},
    {"tcgen05_latency_n128_tensor", latency<128, 128, TENSOR>, "cycles"},
    {"tcgen05_latency_pair_m256_n256", latency<256, 256, SHARED, 2>, "cycles"},
    {"tcgen05_latency_pair_m128_n128", latency<128, 128, SHARED, 2>, "cycles"},
    {"tcgen05_latency_pair_m128_n256", latency<128, 256, SHARED, 2>, "cycles"},
    {"tcgen05_latency_pair_m128_tensor", latency<128, 128, TENSOR, 2>, "cycles"},
    {"tmem_load_x1", load_cycles<1, 4>, "cycles"},
    {"tmem_load_x4", load_cycles<4, 4>, "cycles"},
    {"tmem_load_x8", load_cycles<8, 4>, "cycles"},
    {"tmem_load_x16", load_cycles<16, 4>, "cycles"},
    {"tmem_load_x16_by_8", load_cycles<16, 8>, "cycles"},
    {"tmem_load_rate", load_rate<8>, "B/clk/SM"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
