// e4m3: numbers of 8 bits, 1 sign, 4 exponent and 3 fraction bits (OCP 8-bit floating point).
//
// The largest is 448 = 1.75 · 2^8, the smallest normal one 2^-6; below stand multiples of 2^-9.
// There is no infinity: 0x7f and 0xff are NaN.
#ifndef E4M3_H
#define E4M3_H

#include <cuda_fp16.h>
#include <stdint.h>

#define E4M3_LARGEST 448.f

// Two numbers rounded to nearest even, `first` in the low byte; beyond ±448 they become ±448, NaN
// stays NaN. cvt.rn.satfinite.e4m3x2.f32 (PTX ISA 9.7.9.21) puts its first operand into the high
// byte.
__device__ static inline uint16_t round2_e4m3(float first, float second) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(first), "f"(second));
    return pair;
}

// A pair's two numbers, exactly: fp16 has every e4m3 number. NaN stays NaN. (PTX ISA 9.7.9.21.)
__device__ static inline __half2 unpack2_e4m3(uint16_t pair) {
    uint32_t both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(pair));
    return *(const __half2 *)&both;
}

// Two pairs side by side, `low` in the lower half.
__device__ static inline uint32_t join_pairs(uint16_t low, uint16_t high) {
    uint32_t both;
    asm("mov.b32 %0, {%1, %2};" : "=r"(both) : "h"(low), "h"(high));
    return both;
}

// Four numbers rounded and packed, the first in the lowest byte.
__device__ static inline uint32_t pack4_e4m3(float first, float second, float third, float fourth) {
    return join_pairs(round2_e4m3(first, second), round2_e4m3(third, fourth));
}

#endif
