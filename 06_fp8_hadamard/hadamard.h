// The random-sign Hadamard transform of rows: y = x D H, by butterflies in registers and between
// lanes, head_dim · log2(head_dim) additions a row. H is Sylvester's: H_1 = (1), and
//
//     H_2n = ( H_n   H_n )     so that a butterfly (u, v) → (u + v, u - v) of all pairs of columns
//            ( H_n  -H_n )     that differ in one bit, once for each bit, multiplies with H.
//
// H is symmetric, and H H = head_dim · I: twice the transform without D gives head_dim times x.
//
// A row stands in LANES neighbouring lanes, 16 columns of each in turn: number n of lane l is
// column (n / 16 · LANES + l) · 16 + n % 16. The bits of a column's number are then
//
//     │ n / 16 │ lane │ n % 16 │    and those of n cost an addition, those of the lane a shuffle too.
#ifndef HADAMARD_H
#define HADAMARD_H

#include <stdint.h>

#include "device/index.h"

// Lanes of a row: few, for few shuffles; a lane then has 32 or 64 numbers.
#define HADAMARD_LANES(head_dim) ((head_dim) <= 128 ? 2 : 4)

// D: the signs of the numbers 32 word … 32 word + 31 of a lane, the same for every row, Q and K, and
// every run, as good as random. The pair of numbers 2 p and 2 p + 1 of them has bits 15 - p and
// 31 - p; a set bit turns the sign. (Multiply and shift: the finish of MurmurHash3, Appleby.)
HOST_DEVICE static inline uint32_t sign_bits(int lane, int word) {
    uint32_t bits = (uint32_t)(lane * 2 + word + 1) * 0x9e3779b9u;
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

// The sign of a column: what a CPU needs for the same transform.
HOST_DEVICE static inline int sign_of_column(int head_dim, int column) {
    const int lanes = HADAMARD_LANES(head_dim), lane = column / 16 % lanes;
    const int n = column / 16 / lanes * 16 + column % 16, pair = n % 32 / 2;
    return sign_bits(lane, n / 32) >> ((n % 2 ? 31 : 15) - pair) & 1 ? -1 : 1;
}

#ifdef __CUDACC__

// Turns the signs of a pair of 16-bit numbers, number 2 pair in the lower half: numbers ^ (signs &
// mask) is one instruction (PTX ISA 9.7.8.7, lop3; 0x78 is the table of a ^ (b & c)).
__device__ static inline uint32_t signed_pair(uint32_t numbers, uint32_t signs, int pair) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, 0x80008000, 0x78;" : "=r"(result) : "r"(numbers), "r"(signs << pair));
    return result;
}

// x = x H, for the rows that LANES lanes each hold VALUES columns of.
template <int VALUES, int LANES>
__device__ static inline void multiply_hadamard(float (&x)[VALUES]) {
    // exercise 1: begin
#pragma unroll
    for (int stride = 1; stride < VALUES; stride *= 2)
#pragma unroll
        for (int n = 0; n < VALUES; n++) {
            if (n & stride) continue;
            const float u = x[n], v = x[n + stride];
            x[n] = u + v;
            x[n + stride] = u - v;
        }
        // exercise 1: end
        // exercise 2: begin
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
        const float sign = threadIdx.x & lanes ? -1 : 1; // of this lane's own number
#pragma unroll
        for (int n = 0; n < VALUES; n++)
            x[n] = fmaf(sign, x[n], __shfl_xor_sync(0xffffffffu, x[n], lanes));
    }
    // exercise 2: end
}

#endif

#endif
