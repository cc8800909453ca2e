// wgmma with e4m3 operands: D (64 x N, fp32, registers) = A (64 x 32) B (32 x N) + D, twice the
// numbers in the time of the 16-bit one (wgmma.h, whose rules hold here too).
//
// Both operands are K-major; there is no bit for the other order. What is multiplied is exact; what
// is summed over, D with it, is cut to 13 bits behind the point of the largest term.
//
// A from registers: with group = lane / 4 and four = 4 * (lane % 4), and 16 w the warp's first row,
//   a[0], a[1]   rows 16 w + group and + 8, k = four … four + 3, the first in the lowest byte
//   a[2], a[3]   the same rows, k = 16 + four … 16 + four + 3
// (PTX ISA 9.7.15.5.1; D is held as in wgmma.h.)
#ifndef WGMMA_FP8_H
#define WGMMA_FP8_H

#include "device/wgmma.h"

static const int WGMMA_FP8_DEPTH = 32; // numbers that one instruction sums over

// wgmma.mma_async (9.7.15.5.2), one pair of functions for each N, chosen by the size of d. With ADD
// 0, D = A B, and what d held is not read.
//
// P, Q, R, … : the numbers of the operands after D, N / 2 and up.
#define WGMMA_FP8_SHARED_ASM(N, P, Q, R)                                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_LIST_##N       \
                 "}, %" #P ", %" #Q ", %" #R ", 1, 1;"                                             \
                 : WGMMA_OUT_##N(d)                                                                \
                 : "l"(a), "l"(b), "n"(ADD))

#define WGMMA_FP8_REGISTERS_ASM(N, P, Q, R, S, U, V)                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_LIST_##N       \
                 "}, {%" #P ", %" #Q ", %" #R ", %" #S "}, %" #U ", %" #V ", 1, 1;"                \
                 : WGMMA_OUT_##N(d)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD))

#define DEFINE_WGMMA_FP8(N, P, Q, R, S, U, V)                                                      \
    template <int ADD>                                                                             \
    __device__ static inline void wgmma_fp8_shared(float(&d)[N / 8][4], uint64_t a, uint64_t b) {  \
        WGMMA_FP8_SHARED_ASM(N, P, Q, R);                                                          \
    }                                                                                              \
    template <int ADD>                                                                             \
    __device__ static inline void wgmma_fp8_registers(float(&d)[N / 8][4], const uint32_t(&a)[4],  \
                                                      uint64_t b) {                                \
        WGMMA_FP8_REGISTERS_ASM(N, P, Q, R, S, U, V);                                              \
    }

DEFINE_WGMMA_FP8(64, 32, 33, 34, 35, 36, 37)
DEFINE_WGMMA_FP8(96, 48, 49, 50, 51, 52, 53)
DEFINE_WGMMA_FP8(128, 64, 65, 66, 67, 68, 69)
DEFINE_WGMMA_FP8(160, 80, 81, 82, 83, 84, 85)
DEFINE_WGMMA_FP8(192, 96, 97, 98, 99, 100, 101)
DEFINE_WGMMA_FP8(224, 112, 113, 114, 115, 116, 117)
DEFINE_WGMMA_FP8(256, 128, 129, 130, 131, 132, 133)

#endif
