// Latencies: chains of dependent instructions, by one warp that has an SM for itself.
#include "steps.h"

// ---- what is chained: `step` needs the result of the step before. EACH: instructions in a step.

struct FloatAdd {
    static const int EACH = 1;
    float x = 1;
    __device__ void step() { asm volatile("add.rn.f32 %0, %0, %0;" : "+f"(x)); }
};

struct FloatMultiply {
    static const int EACH = 1;
    float x = 1;
    __device__ void step() { asm volatile("mul.rn.f32 %0, %0, %0;" : "+f"(x)); }
};

// A comparison, and a choice by its result.
struct CompareSelect {
    static const int EACH = 2;
    uint32_t x = threadIdx.x, y = blockDim.x;
    __device__ void step() {
        asm volatile("{\n\t.reg .pred less;\n\tsetp.lt.u32 less, %0, %1;\n\t"
                     "selp.b32 %0, %1, %0, less;\n\t}"
                     : "+r"(x)
                     : "r"(y));
    }
};

struct Reciprocal {
    static const int EACH = 1;
    float x = 1;
    __device__ void step() { asm volatile("rcp.approx.ftz.f32 %0, %0;" : "+f"(x)); }
};

// m16n8k16, the accumulator handed on.
struct Product {
    static const int EACH = 1;
    float d[4] = {};
    uint32_t a = 0, b = 0;
    __device__ void step() {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a), "r"(b));
    }
};

// A word of shared memory that holds its own address.
struct SharedLoad {
    static const int EACH = 1;
    uint32_t x;
    __device__ SharedLoad() {
        __shared__ uint32_t word;
        x = (uint32_t)__cvta_generic_to_shared(&word);
        asm volatile("st.shared.u32 [%0], %0;" ::"r"(x) : "memory");
        __syncthreads();
    }
    __device__ void step() { asm volatile("ld.shared.u32 %0, [%0];" : "+r"(x)::"memory"); }
};

struct SharedAtomic {
    static const int EACH = 1;
    uint32_t x = 0, word_at;
    __device__ SharedAtomic() {
        __shared__ uint32_t words[32];
        word_at = (uint32_t)__cvta_generic_to_shared(&words[threadIdx.x % 32]);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(word_at), "r"(x) : "memory");
        __syncthreads();
    }
    __device__ void step() {
        asm volatile("atom.shared.add.u32 %0, [%1], %0;" : "+r"(x) : "r"(word_at) : "memory");
    }
};

// A block's barrier, of one warp.
struct Barrier {
    static const int EACH = 1;
    __device__ void step() { asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x) : "memory"); }
};

// Copies of 16 bytes a thread: what starting one costs its warp.
struct CopyIssue {
    static const int EACH = 1;
    uint32_t to;
    uint64_t from;
    __device__ CopyIssue() {
        extern __shared__ __align__(16) uint8_t smem[];
        to = (uint32_t)__cvta_generic_to_shared(smem + 16 * threadIdx.x);
    }
    __device__ void step() {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    }
};

struct CopyCommit {
    static const int EACH = 1;
    __device__ void step() { asm volatile("cp.async.commit_group;" ::: "memory"); }
};

// With no copy under way.
struct CopyWait {
    static const int EACH = 1;
    __device__ void step() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
};

template <typename Op> __device__ static void prepare(Op &, void *) {}
__device__ static void prepare(CopyIssue &op, void *from) {
    op.from = (uint64_t)__cvta_generic_to_global(from) + 16 * threadIdx.x;
}

// ---- chains

template <typename Op, int COUNT> __global__ void chain(Span *spans, void *global) {
    Op op;
    prepare(op, global);
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < COUNT; k++) op.step();
        span.end = clock_now();
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
}

template <typename Op, int COUNT> static double chain_cycles(int threads) {
    static void *global;
    if (!global) CUDA(cudaMalloc(&global, 16 * 1024));
    CUDA(cudaMemset(global, 0, 16 * 1024));
    chain<Op, COUNT><<<1, threads, 16 * threads>>>(spans_on_device(), global);
    return elapsed(threads / 32);
}

// Cycles from an instruction to the next, by one warp.
template <typename Op> static double latency() {
    const double more = chain_cycles<Op, 192>(32), less = chain_cycles<Op, 64>(32);
    return (more - less) / 128 / Op::EACH;
}

// What one more warp costs a block's barrier.
static double barrier_interval() {
    const double many = chain_cycles<Barrier, 192>(1024) - chain_cycles<Barrier, 64>(1024);
    const double one = chain_cycles<Barrier, 192>(32) - chain_cycles<Barrier, 64>(32);
    return (many - one) / 128 / 31;
}

// ---- loads that find their line in L1

__global__ void chase_l1(Span *spans, void **word) {
    void *x = word;
    if (threadIdx.x == 0) *word = word;
    __syncthreads();
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < 128; k++)
            asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(x)::"memory");
        asm volatile("" ::"l"(x) : "memory");
        span.end = clock_now();
    }
    if (x != word) span.end = 0;
    if (threadIdx.x == 0) spans[0] = span;
}

static double l1_latency() {
    void **word;
    CUDA(cudaMalloc(&word, sizeof *word));
    chase_l1<<<1, 32>>>(spans_on_device(), word);
    return elapsed(1) / 128;
}

// ---- branches

__global__ void turns(Span *spans, int count) {
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        span.begin = clock_now();
#pragma unroll 1
        for (int k = 0; k < count; k++) asm volatile("" ::: "memory");
        span.end = clock_now();
    }
    if (threadIdx.x == 0) spans[0] = span;
}

static double loop_turn() {
    turns<<<1, 32>>>(spans_on_device(), 300);
    const double more = elapsed(1);
    turns<<<1, 32>>>(spans_on_device(), 100);
    return (more - elapsed(1)) / 200;
}

static const Bench benches[] = {
    {"fma_latency", latency<Fma>, "cycles"},
    {"float_add_latency", latency<FloatAdd>, "cycles"},
    {"float_multiply_latency", latency<FloatMultiply>, "cycles"},
    {"integer_latency", latency<Integer>, "cycles"},
    {"integer_multiply_latency", latency<IntegerMultiply>, "cycles"},
    {"half_fma_latency", latency<HalfFma>, "cycles"},
    {"double_fma_latency", latency<DoubleFma>, "cycles"},
    {"compare_select_latency", latency<CompareSelect>, "cycles"},
    {"exp2_latency", latency<Exp2>, "cycles"},
    {"reciprocal_latency", latency<Reciprocal>, "cycles"},
    {"shuffle_latency", latency<Shuffle>, "cycles"},
    {"mma_latency", latency<Product>, "cycles"},
    {"shared_latency", latency<SharedLoad>, "cycles"},
    {"shared_atomic_latency", latency<SharedAtomic>, "cycles"},
    {"l1_latency", l1_latency, "cycles"},
    {"barrier_release", latency<Barrier>, "cycles"},
    {"barrier_interval", barrier_interval, "cycles"},
    {"copy_issue", latency<CopyIssue>, "cycles"},
    {"copy_commit", latency<CopyCommit>, "cycles"},
    {"copy_wait", latency<CopyWait>, "cycles"},
    {"loop_turn", loop_turn, "cycles"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
