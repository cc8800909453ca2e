// Steps that both chains and throughputs repeat: each needs the result of the step before.
// EACH: instructions in a step, which is also results of a lane.
#ifndef TIMING_STEPS_H
#define TIMING_STEPS_H

#include "bench.h"

struct Fma {
    static const int EACH = 1;
    float x = 1;
    __device__ void step() { asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x)); }
};

struct DoubleFma {
    static const int EACH = 1;
    double x = 1;
    __device__ void step() { asm volatile("fma.rn.f64 %0, %0, %0, %0;" : "+d"(x)); }
};

struct HalfFma {
    static const int EACH = 1;
    uint32_t x = 0;
    __device__ void step() { asm volatile("fma.rn.f16x2 %0, %0, %0, %0;" : "+r"(x)); }
};

// An addition and a bitwise operation in turn: two additions would become one of three numbers.
struct Integer {
    static const int EACH = 2;
    uint32_t x = threadIdx.x, y = blockDim.x;
    __device__ void step() {
        asm volatile("add.u32 %0, %0, %1;\n\txor.b32 %0, %0, %1;" : "+r"(x) : "r"(y));
    }
};

struct IntegerMultiply {
    static const int EACH = 1;
    uint32_t x = threadIdx.x;
    __device__ void step() { asm volatile("mad.lo.u32 %0, %0, %0, %0;" : "+r"(x)); }
};

struct Exp2 {
    static const int EACH = 1;
    float x = 1;
    __device__ void step() { asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); }
};

struct Shuffle {
    static const int EACH = 1;
    uint32_t x = threadIdx.x;
    __device__ void step() {
        asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;" : "+r"(x));
    }
};

#endif
