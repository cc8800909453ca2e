// Two fp32 numbers in a pair of registers, and one instruction for both (f32x2, PTX ISA 9.7.3,
// sm_100 and later). An FMA unit takes as long for a pair as for two numbers: what is saved are
// issue slots, and those the exponentials need, too.
#ifndef PACKED_H
#define PACKED_H

#include <stdint.h>

typedef uint64_t Pair; // the first number in the low half

__device__ static inline Pair pair_of(float first, float second) {
    Pair pair;
    asm("mov.b64 %0, {%1, %2};" : "=l"(pair) : "f"(first), "f"(second));
    return pair;
}

__device__ static inline void pair_take(float *first, float *second, Pair pair) {
    asm("mov.b64 {%0, %1}, %2;" : "=f"(*first), "=f"(*second) : "l"(pair));
}

__device__ static inline Pair both(float x) {
    return pair_of(x, x);
}

// fma.rn.f32x2: a b + c.
__device__ static inline Pair pair_fma(Pair a, Pair b, Pair c) {
    Pair result;
    asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(result) : "l"(a), "l"(b), "l"(c));
    return result;
}

// add.rn.f32x2, mul.rn.f32x2.
__device__ static inline Pair pair_add(Pair a, Pair b) {
    Pair result;
    asm("add.rn.f32x2 %0, %1, %2;" : "=l"(result) : "l"(a), "l"(b));
    return result;
}
__device__ static inline Pair pair_multiply(Pair a, Pair b) {
    Pair result;
    asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(result) : "l"(a), "l"(b));
    return result;
}

// sub.rn.f32x2: a - b.
__device__ static inline Pair pair_subtract(Pair a, Pair b) {
    Pair result;
    asm("sub.rn.f32x2 %0, %1, %2;" : "=l"(result) : "l"(a), "l"(b));
    return result;
}

// add.rm.f32x2: rounded down.
__device__ static inline Pair pair_add_down(Pair a, Pair b) {
    Pair result;
    asm("add.rm.f32x2 %0, %1, %2;" : "=l"(result) : "l"(a), "l"(b));
    return result;
}

#endif
