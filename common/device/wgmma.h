// wgmma: matrix products of a warpgroup, 128 threads, whose operands stand in shared memory
// (PTX ISA 9.7.15, sm_90a). D (64 x N, fp32, registers) = A (64 x 16) B (16 x N) + D.
//
// The instruction is asynchronous. It is issued and runs on while the threads go on:
//
//   wgmma_fence()     before the first of a batch, when threads have touched D's or A's registers
//   wgmma_…           any number; those on the same D run one after the other
//   wgmma_commit()    closes a group of them
//   wgmma_wait<N>()   until at most the N newest groups run; only then may D's and A's registers
//                     and the operands in shared memory be touched
//   wgmma_results(d)  after the wait, for each D: from here on the compiler may read it
//
// Rules: all four warps execute all of it together. Operands in shared memory were written by TMA
// and waited for, or by threads that called fence_proxy_async before a barrier.
//
// Registers. Warp w (of 4) holds rows 16 w … 16 w + 15 of D, in the fragments of mma.sync: with
// group = lane / 4 and pair = 2 * (lane % 4),
//   d[t][0], d[t][1]   row group, columns 8 t + pair and 8 t + pair + 1
//   d[t][2], d[t][3]   row group + 8, the same columns
// and A, if it comes from registers, in those of mma.sync's A (mma.h).
//
// Operands in shared memory are named by a 64-bit descriptor: where the operand starts, and how far
// apart its pieces stand. They stand as TMA writes them with a swizzle: lines of LINE bytes (128, 64
// or 32), 8 of which are one pattern of the swizzle (PTX ISA 9.7.15.5.1).
//
// clang-format off
//   K-major: the numbers that are summed over lie side by side (Q and K in Q Kᵀ)
//     line = one row (of A) or column (of B), LINE bytes of it        8 lines = one pattern
//     next 16 of the sum: + 32 bytes, and + a whole box of lines after LINE bytes
//
//   MN-major: the other way round (V in P V: a line is one key, along it are O's columns)
//     line = one k, LINE / 2 rows or columns of it                    8 lines = one pattern
//     next 16 of the sum: + 16 lines;  the next LINE / 2 columns: + a whole box of lines
// clang-format on
#ifndef WGMMA_H
#define WGMMA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/mbarrier.h"

static const int WARPGROUP_THREADS = 128;
static const int WGMMA_ROWS = 64;  // of A and D
static const int WGMMA_DEPTH = 16; // numbers that one instruction sums over (16-bit types)

enum OperandMajor { K_MAJOR = 0, MN_MAJOR = 1 };

// The descriptor: bits 0-13 start, 16-29 leading offset, 32-45 stride offset, all three in units of
// 16 bytes, 62-63 the swizzle.
template <int LINE>
__device__ static inline uint64_t operand_descriptor(const void *smem, uint32_t leading_bytes,
                                                     uint32_t stride_bytes) {
    static_assert(LINE == 128 || LINE == 64 || LINE == 32, "a line is what a swizzle spans");
    const uint64_t swizzle = LINE == 128 ? 1 : LINE == 64 ? 2 : 3;
    return swizzle << 62 | (uint64_t)(stride_bytes >> 4) << 32 |
           (uint64_t)(leading_bytes >> 4) << 16 | (shared_address(smem) & 0x3ffff) >> 4;
}

// An operand whose sum runs along the lines, at smem: a multiple of 8 LINE bytes. (The leading
// offset has no meaning here.)
template <int LINE> __device__ static inline uint64_t k_major_operand(const void *smem) {
    return operand_descriptor<LINE>(smem, 16, 8 * LINE);
}

// An operand whose sum runs across the lines; box_bytes from a column to the one LINE / 2 further
// on.
template <int LINE>
__device__ static inline uint64_t mn_major_operand(const void *smem, uint32_t box_bytes) {
    return operand_descriptor<LINE>(smem, box_bytes, 8 * LINE);
}

// The same operand `bytes` further on.
__device__ static inline uint64_t operand_at(uint64_t descriptor, uint32_t bytes) {
    return descriptor + (bytes >> 4);
}

// wgmma.fence (9.7.15.7.1).
__device__ static inline void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// wgmma.commit_group (9.7.15.7.2).
__device__ static inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// wgmma.wait_group (9.7.15.7.3).
template <int N> __device__ static inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// No instruction. Tells the compiler that the numbers change here, which it can't know: without it,
// it might move uses of D up across the wait.
template <int PIECES> __device__ static inline void wgmma_results(float (&d)[PIECES][4]) {
#pragma unroll
    for (int t = 0; t < PIECES; t++)
        asm volatile("" : "+f"(d[t][0]), "+f"(d[t][1]), "+f"(d[t][2]), "+f"(d[t][3])::"memory");
}

template <typename T> struct IsHalf { static constexpr bool VALUE = false; };
template <> struct IsHalf<__half> { static constexpr bool VALUE = true; };

// wgmma.mma_async (9.7.15.5.2), one pair of functions for each N, chosen by the size of d:
//
//   wgmma_shared<T, A_MAJOR, B_MAJOR>(d, a, b, accumulate)   A and B in shared memory
//   wgmma_registers<T, B_MAJOR>(d, a, b, accumulate)         A in registers
//
// With accumulate 0, D = A B, and what d held is not read. T is __half or __nv_bfloat16.
//
// The asm lists all of D's registers, N / 2 of them; the macros below spell the list, 8 at a time.
#define WGMMA_PIECE(d, t)  "+f"((d)[t][0]), "+f"((d)[t][1]), "+f"((d)[t][2]), "+f"((d)[t][3])
#define WGMMA_PIECES(d, t) WGMMA_PIECE(d, t), WGMMA_PIECE(d, t + 1)

// clang-format off
#define WGMMA_OUT_16(d) WGMMA_PIECES(d, 0)
#define WGMMA_OUT_32(d) WGMMA_OUT_16(d), WGMMA_PIECES(d, 2)
#define WGMMA_OUT_48(d) WGMMA_OUT_32(d), WGMMA_PIECES(d, 4)
#define WGMMA_OUT_64(d) WGMMA_OUT_48(d), WGMMA_PIECES(d, 6)
#define WGMMA_OUT_80(d) WGMMA_OUT_64(d), WGMMA_PIECES(d, 8)
#define WGMMA_OUT_96(d) WGMMA_OUT_80(d), WGMMA_PIECES(d, 10)
#define WGMMA_OUT_112(d) WGMMA_OUT_96(d), WGMMA_PIECES(d, 12)
#define WGMMA_OUT_128(d) WGMMA_OUT_112(d), WGMMA_PIECES(d, 14)
#define WGMMA_OUT_144(d) WGMMA_OUT_128(d), WGMMA_PIECES(d, 16)
#define WGMMA_OUT_160(d) WGMMA_OUT_144(d), WGMMA_PIECES(d, 18)
#define WGMMA_OUT_176(d) WGMMA_OUT_160(d), WGMMA_PIECES(d, 20)
#define WGMMA_OUT_192(d) WGMMA_OUT_176(d), WGMMA_PIECES(d, 22)
#define WGMMA_OUT_208(d) WGMMA_OUT_192(d), WGMMA_PIECES(d, 24)
#define WGMMA_OUT_224(d) WGMMA_OUT_208(d), WGMMA_PIECES(d, 26)
#define WGMMA_OUT_240(d) WGMMA_OUT_224(d), WGMMA_PIECES(d, 28)
#define WGMMA_OUT_256(d) WGMMA_OUT_240(d), WGMMA_PIECES(d, 30)

#define WGMMA_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_LIST_32 WGMMA_LIST_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_LIST_48 WGMMA_LIST_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_LIST_64 WGMMA_LIST_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_LIST_80 WGMMA_LIST_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_LIST_96 WGMMA_LIST_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_LIST_112 WGMMA_LIST_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_LIST_128 WGMMA_LIST_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_LIST_144 WGMMA_LIST_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_LIST_160 WGMMA_LIST_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_LIST_176 WGMMA_LIST_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_LIST_192 WGMMA_LIST_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_LIST_208 WGMMA_LIST_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_LIST_224 WGMMA_LIST_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_LIST_240 WGMMA_LIST_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_LIST_256 WGMMA_LIST_240 ", %120, %121, %122, %123, %124, %125, %126, %127"

// P, Q, R, … : the numbers of the operands after D, N / 2 and up.
#define WGMMA_SHARED_ASM(N, TYPE, P, Q, R, S, U)                                                   \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #R ", 0;\n\t"                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WGMMA_LIST_##N "}, %" #P ", %" #Q ", add, 1, 1, %" #S ", %" #U ";\n\t}"           \
                 : WGMMA_OUT_##N(d) : "l"(a), "l"(b), "r"(accumulate), "n"(A_MAJOR), "n"(B_MAJOR))

#define WGMMA_REGISTERS_ASM(N, TYPE, P, Q, R, S, U, V, W)                                          \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #V ", 0;\n\t"                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WGMMA_LIST_##N "}, {%" #P ", %" #Q ", %" #R ", %" #S "}, %" #U                    \
                 ", add, 1, 1, %" #W ";\n\t}"                                                      \
                 : WGMMA_OUT_##N(d)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),            \
                   "n"(B_MAJOR))

#define DEFINE_WGMMA(N, P, Q, R, S, U, V, W)                                                       \
    template <typename T, int A_MAJOR, int B_MAJOR>                                                \
    __device__ static inline void wgmma_shared(float (&d)[N / 8][4], uint64_t a, uint64_t b,       \
                                               int accumulate) {                                   \
        if constexpr (IsHalf<T>::VALUE)                                                            \
            WGMMA_SHARED_ASM(N, "f16", P, Q, R, S, U);                                             \
        else                                                                                       \
            WGMMA_SHARED_ASM(N, "bf16", P, Q, R, S, U);                                            \
    }                                                                                              \
    template <typename T, int B_MAJOR>                                                             \
    __device__ static inline void wgmma_registers(float (&d)[N / 8][4], const uint32_t (&a)[4],    \
                                                  uint64_t b, int accumulate) {                    \
        if constexpr (IsHalf<T>::VALUE)                                                            \
            WGMMA_REGISTERS_ASM(N, "f16", P, Q, R, S, U, V, W);                                    \
        else                                                                                       \
            WGMMA_REGISTERS_ASM(N, "bf16", P, Q, R, S, U, V, W);                                   \
    }

DEFINE_WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
DEFINE_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
DEFINE_WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
DEFINE_WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
DEFINE_WGMMA(112, 56, 57, 58, 59, 60, 61, 62)
DEFINE_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
DEFINE_WGMMA(144, 72, 73, 74, 75, 76, 77, 78)
DEFINE_WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
DEFINE_WGMMA(176, 88, 89, 90, 91, 92, 93, 94)
DEFINE_WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
DEFINE_WGMMA(208, 104, 105, 106, 107, 108, 109, 110)
DEFINE_WGMMA(224, 112, 113, 114, 115, 116, 117, 118)
DEFINE_WGMMA(240, 120, 121, 122, 123, 124, 125, 126)
DEFINE_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)
// clang-format on

#endif
