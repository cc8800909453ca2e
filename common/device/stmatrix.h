// The warp's matrix store, the opposite of ldmatrix (stmatrix, PTX ISA 9.7.14.5.16).
//
// Four 8 x 8 matrices of 16-bit numbers. Lane 8 j + i gives the address of row i of matrix j: 16
// bytes in shared memory, 16-byte aligned. With group = lane / 4 and pair = 2 * (lane % 4), r[j]
// holds row group, columns pair and pair + 1 of matrix j.
#ifndef STMATRIX_H
#define STMATRIX_H

#include <stdint.h>

__device__ static inline void store_matrix_x4(void *row_smem, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(row_smem)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// The same; r[j] holds rows pair and pair + 1, column group of matrix j.
__device__ static inline void store_matrix_x4_transposed(void *row_smem, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(row_smem)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

#endif
