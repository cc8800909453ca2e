// The warp's matrix instructions of Ampere and later, one wrapper each.
//
// All 32 lanes execute them together. With group = lane / 4 and pair = 2 * (lane % 4), a lane holds
//   a[0], a[1]  rows group, group + 8 of A, columns pair and pair + 1 (the first in the low half)
//   a[2], a[3]  the same rows, columns pair + 8 and pair + 9
//   b[0], b[1]  rows pair, pair + 1 and rows pair + 8, pair + 9 of B; column group
//   d[0], d[1]  row group of D, columns pair and pair + 1;  d[2], d[3]  row group + 8
#ifndef MMA_H
#define MMA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// D += A B: A 16 x 16, B 16 x 8 of type T (__half or __nv_bfloat16), D 16 x 8 of fp32.
template <typename T>
__device__ static inline void mma_m16n8k16(float d[4], const uint32_t a[4], const uint32_t b[2]);

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
template <>
__device__ inline void mma_m16n8k16<__half>(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ inline void mma_m16n8k16<__nv_bfloat16>(float d[4], const uint32_t a[4],
                                                   const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit numbers. Lane 8 j + i gives the address of row i of matrix j: 16
// bytes in shared memory, 16-byte aligned. r[j] holds row group, columns pair and pair + 1 of
// matrix j. PTX ISA, "Warp-level matrix load instruction: ldmatrix".
__device__ static inline void load_matrix_x4(uint32_t r[4], const void *row_smem) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row_smem))
                 : "memory");
}

// The same; r[j] holds rows pair and pair + 1, column group of matrix j.
__device__ static inline void load_matrix_x4_transposed(uint32_t r[4], const void *row_smem) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row_smem))
                 : "memory");
}

// Two numbers rounded to nearest even and packed, `low` in the low half: a pair of A or B.
template <typename T> __device__ static inline uint32_t pack2(float low, float high);

template <> __device__ inline uint32_t pack2<__half>(float low, float high) {
    const __half2 packed = __floats2half2_rn(low, high);
    return *(const uint32_t *)&packed;
}

template <> __device__ inline uint32_t pack2<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 packed = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&packed;
}

#endif
