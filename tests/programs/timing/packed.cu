// Pairs of floats in one instruction (sm_100 and later): issue slots saved, not FLOPs.
#include "bench.h"

enum { WARPS = 16, WIDE = 4 };

template <int COUNT> __global__ void repeat(Span *spans) {
    uint64_t x[WIDE] = {};
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        __syncthreads();
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < COUNT; k++)
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                asm volatile("fma.rn.f32x2 %0, %0, %0, %0;" : "+l"(x[i]));
        span.end = clock_now();
    }
    if (threadIdx.x % 32 == 0) spans[warp_number()] = span;
}

// Cycles of a scheduler from one to the next.
static double packed_fma_interval() {
    repeat<48><<<1, WARPS * 32>>>(spans_on_device());
    const double more = elapsed(WARPS);
    repeat<16><<<1, WARPS * 32>>>(spans_on_device());
    return (more - elapsed(WARPS)) / (32 * WIDE * WARPS / 4);
}

static const Bench benches[] = {{"packed_fma_interval", packed_fma_interval, "cycles"}};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
