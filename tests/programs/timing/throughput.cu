// Throughputs of an SM: 16 warps, each with several instructions under way that don't need each
// other. Rates are per clock and SM; what ends in _cycles is the time of one warp's instruction.
#include "steps.h"

enum { WARPS = 16, WIDE = 4 }; // WIDE: independent instructions of a warp

// ---- what is repeated. EACH: results a lane gets from a step, all instructions together.

struct HalfFmaPairs : HalfFma {
    static const int EACH = 2;
};

// Minimum and maximum in turn: two of a kind would become one of three numbers.
struct MinMax {
    static const int EACH = 2;
    float x = 1, y = 2;
    __device__ void step() {
        asm volatile("max.f32 %0, %0, %1;\n\tmin.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
    }
};

// Two floats rounded and packed.
struct PackHalf {
    static const int EACH = 1;
    float x = 1;
    uint32_t packed;
    __device__ void step() { asm volatile("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(packed) : "f"(x)); }
};

struct FloatToInteger {
    static const int EACH = 1;
    float x = 1;
    int rounded;
    __device__ void step() { asm volatile("cvt.rni.s32.f32 %0, %1;" : "=r"(rounded) : "f"(x)); }
};

struct PopulationCount {
    static const int EACH = 1;
    uint32_t x = threadIdx.x;
    __device__ void step() { asm volatile("popc.b32 %0, %0;" : "+r"(x)); }
};

// As many of FMA as of ALU: what the four schedulers issue together.
struct Mixed {
    static const int EACH = 2;
    float x = 1;
    uint32_t y = threadIdx.x, z = blockDim.x;
    __device__ void step() {
        asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
        asm volatile("lop3.b32 %0, %0, %1, %1, 0x96;" : "+r"(y) : "r"(z));
    }
};

// m16n8k16 of fp16 or bf16 into fp32: 2 * 16 * 8 * 16 FLOPs a warp, 128 a lane.
struct Product {
    static const int EACH = 128;
    float d[4] = {};
    uint32_t a = 0, b = 0;
    __device__ void step() {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a), "r"(b));
    }
};

// Lanes read words STRIDE words apart: as many of them in one bank as STRIDE (a power of two) says.
template <int STRIDE> struct SharedLoad {
    static const int EACH = 1;
    uint32_t at, loaded, sum = 0;
    __device__ SharedLoad() {
        extern __shared__ __align__(16) uint8_t smem[];
        at = (uint32_t)__cvta_generic_to_shared(smem) + threadIdx.x % 32 * STRIDE * 4;
    }
    __device__ void step() {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(loaded) : "r"(at) : "memory");
        asm volatile("xor.b32 %0, %0, %1;" : "+r"(sum) : "r"(loaded));
    }
};

struct SharedLoad16 {
    static const int EACH = 16; // bytes
    uint32_t at, a, b, c, d, sum = 0;
    __device__ SharedLoad16() {
        extern __shared__ __align__(16) uint8_t smem[];
        at = (uint32_t)__cvta_generic_to_shared(smem) + threadIdx.x % 32 * 16;
    }
    __device__ void step() {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
        asm volatile("xor.b32 %0, %0, %1;" : "+r"(sum) : "r"(a));
    }
};

struct SharedStore {
    static const int EACH = 4; // bytes
    uint32_t at;
    __device__ SharedStore() {
        extern __shared__ __align__(16) uint8_t smem[];
        at = (uint32_t)__cvta_generic_to_shared(smem) + threadIdx.x * 4;
    }
    __device__ void step() { asm volatile("st.shared.u32 [%0], %0;" ::"r"(at) : "memory"); }
};

// Four matrices of 8 x 8 numbers of 16 bits.
struct MatrixLoad {
    static const int EACH = 16; // bytes
    uint32_t at, a, b, c, d, sum = 0;
    __device__ MatrixLoad() {
        extern __shared__ __align__(16) uint8_t smem[];
        at = (uint32_t)__cvta_generic_to_shared(smem) + threadIdx.x % 32 * 16;
    }
    __device__ void step() {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
        asm volatile("xor.b32 %0, %0, %1;" : "+r"(sum) : "r"(a));
    }
};

// ---- rates

static const int SMEM_BYTES = 32 * 32 * 4;

template <typename Op, int COUNT> __global__ void repeat(Span *spans) {
    extern __shared__ __align__(16) uint8_t smem[];
    for (int k = threadIdx.x; k < SMEM_BYTES / 4; k += blockDim.x) ((uint32_t *)smem)[k] = 0;
    __syncthreads();
    Op op[WIDE];
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        __syncthreads();
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < COUNT; k++)
#pragma unroll
            for (int i = 0; i < WIDE; i++) op[i].step();
        span.end = clock_now();
    }
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
}

// Cycles of an SM for a step of one warp.
template <typename Op> static double warp_cycles() {
    repeat<Op, 48><<<1, WARPS * 32, SMEM_BYTES>>>(spans_on_device());
    const double more = elapsed(WARPS);
    repeat<Op, 16><<<1, WARPS * 32, SMEM_BYTES>>>(spans_on_device());
    return (more - elapsed(WARPS)) / (32 * WIDE * WARPS);
}

// What all lanes together get in a clock.
template <typename Op> static double rate() {
    return 32 * Op::EACH / warp_cycles<Op>();
}

static const Bench benches[] = {
    {"fma_rate", rate<Fma>, "lanes/clk/SM"},
    {"half_fma_rate", rate<HalfFmaPairs>, "results/clk/SM"},
    {"double_fma_rate", rate<DoubleFma>, "lanes/clk/SM"},
    {"integer_rate", rate<Integer>, "lanes/clk/SM"},
    {"integer_multiply_rate", rate<IntegerMultiply>, "lanes/clk/SM"},
    {"min_max_rate", rate<MinMax>, "lanes/clk/SM"},
    {"exp2_rate", rate<Exp2>, "lanes/clk/SM"},
    {"pack_half_rate", rate<PackHalf>, "lanes/clk/SM"},
    {"float_to_integer_rate", rate<FloatToInteger>, "lanes/clk/SM"},
    {"population_count_rate", rate<PopulationCount>, "lanes/clk/SM"},
    {"shuffle_rate", rate<Shuffle>, "lanes/clk/SM"},
    {"issue_rate", rate<Mixed>, "lanes/clk/SM"},
    {"mma_rate", rate<Product>, "FLOP/clk/SM"},
    {"shared_conflict_1_cycles", warp_cycles<SharedLoad<1>>, "cycles"},
    {"shared_conflict_2_cycles", warp_cycles<SharedLoad<2>>, "cycles"},
    {"shared_conflict_4_cycles", warp_cycles<SharedLoad<4>>, "cycles"},
    {"shared_conflict_8_cycles", warp_cycles<SharedLoad<8>>, "cycles"},
    {"shared_conflict_16_cycles", warp_cycles<SharedLoad<16>>, "cycles"},
    {"shared_conflict_32_cycles", warp_cycles<SharedLoad<32>>, "cycles"},
    {"shared_odd_stride_cycles", warp_cycles<SharedLoad<3>>, "cycles"},
    {"shared_load_rate", rate<SharedLoad16>, "B/clk/SM"},
    {"shared_store_rate", rate<SharedStore>, "B/clk/SM"},
    {"matrix_load_rate", rate<MatrixLoad>, "B/clk/SM"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
