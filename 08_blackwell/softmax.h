// The softmax of a row by the thread that owns it: tensor memory has the row in the thread's lane,
// and tcgen05.ld brings it as KEYS registers. No shuffles, no fragments.
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include "device/exp2.h"
#include "device/mma.h"
#include "device/packed.h"
#include "device/phase.h"
#include "device/tcgen05.h"
#include "device/tma.h"
#include "exp2_polynomial.h"
#include "work.h"

// Where exponentials are emulated: one pair of so many, of a row's first pairs. Not of the last keys,
// whose weights are waited for.
static const int EMULATED_EVERY = 4, EMULATED_PAIRS = 48;

// The thread's row of S → registers. Behind the wait for S's mbarrier and tcgen05_fence_after.
__device__ static inline void load_scores(float (&s_reg)[KEYS], uint32_t s_tmem) {
    uint32_t bits[KEYS / 32][32];
#pragma unroll
    for (int part = 0; part < KEYS / 32; part++) tmem_load(bits[part], s_tmem + part * 32);
    tmem_load_wait();
#pragma unroll
    for (int part = 0; part < KEYS / 32; part++) {
        tmem_loaded(bits[part]);
#pragma unroll
        for (int i = 0; i < 32; i++) s_reg[part * 32 + i] = __uint_as_float(bits[part][i]);
    }
}

// Scores of keys key … key + KEYS - 1 that the mask or the end of the keys forbids → -inf.
__device__ static inline void mask_scores(float (&s_reg)[KEYS], const Attention &a, int row,
                                          int key) {
    const KeyRange seen = visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
    const int begin = (int)seen.begin - key, end = (int)seen.end - key;
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (i >= end) s_reg[i] = -CUDART_INF_F;
    if (a.window_left < 0) return;
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        if (i < begin) s_reg[i] = -CUDART_INF_F;
}

// s_reg: products → what the exponent's factor multiplies, masked.
__device__ static inline void finish_scores(float (&s_reg)[KEYS], const Attention &a,
                                            const Exponent &exponent, UnmaskedKeys unmasked,
                                            int row, int key) {
    if (!exponent.plain)
#pragma unroll
        for (int i = 0; i < KEYS; i++) s_reg[i] = adjusted(s_reg[i], exponent);
    if (key < unmasked.from || key + KEYS > unmasked.to) mask_scores(s_reg, a, row, key);
}

// The largest, in four chains: the maximum of three is one instruction.
__device__ static inline float largest_of(const float (&s_reg)[KEYS]) {
    float largest[4];
#pragma unroll
    for (int i = 0; i < 4; i++) largest[i] = fmaxf(s_reg[i], s_reg[i + 4]);
#pragma unroll
    for (int i = 8; i < KEYS; i += 8)
#pragma unroll
        for (int chain = 0; chain < 4; chain++)
            largest[chain] = fmaxf(fmaxf(largest[chain], s_reg[i + chain]), s_reg[i + 4 + chain]);
    return fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
}

// Is pair k of a row's numbers computed by a polynomial, rather than by the MUFU?
__device__ static constexpr bool is_emulated(int k) {
    return k < EMULATED_PAIRS && k % EMULATED_EVERY == EMULATED_EVERY - 1;
}

// Weights are computed, packed and stored so many at a time: registers are few.
static const int PART = 32;

// Numbers from … from + PART - 1: x → 2^(factor x - base).
template <bool EMULATES>
__device__ static inline void exponentiate(float (&s_reg)[KEYS], int from, float factor,
                                           float base) {
    const Pair factors = both(factor), bases = both(-base);
#pragma unroll
    for (int i = from; i < from + PART; i += 2) {
        float x, y;
        pair_take(&x, &y, pair_fma(pair_of(s_reg[i], s_reg[i + 1]), factors, bases));
        if (EMULATES && is_emulated(i / 2)) {
            exp2_polynomial<EXP2_DEGREE>(&x, &y);
        } else {
            x = exp2_approximate(x);
            y = exp2_approximate(y);
        }
        s_reg[i] = x;
        s_reg[i + 1] = y;
    }
}

__device__ static inline float sum_of(const float (&s_reg)[KEYS]) {
    Pair sum[4];
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = pair_of(s_reg[2 * i], s_reg[2 * i + 1]);
#pragma unroll
    for (int i = 4; i < KEYS / 2; i++)
        sum[i % 4] = pair_add(sum[i % 4], pair_of(s_reg[2 * i], s_reg[2 * i + 1]));
    float even, odd;
    pair_take(&even, &odd, pair_add(pair_add(sum[0], sum[1]), pair_add(sum[2], sum[3])));
    return even + odd;
}

// PART of the row's weights, rounded, two to a register.
template <typename T>
__device__ static inline void pack_weights(uint32_t (&p_reg)[PART / 2], const float (&s_reg)[KEYS],
                                           int from) {
#pragma unroll
    for (int i = 0; i < PART / 2; i++)
        p_reg[i] = pack2<T>(s_reg[from + 2 * i], s_reg[from + 2 * i + 1]);
}

// 2 N packed numbers of a tile's row → shared memory, where TMA's swizzle has them, from column
// `column` on; all in one line. The 16-byte pieces of eight rows side by side are in different
// banks.
template <typename T, int N>
__device__ static inline void write_line(T *tile_smem, int row, int column,
                                         const uint32_t (&x)[N]) {
    T *line = tile_smem + (column / COLUMNS * ROWS + row) * COLUMNS;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *(uint4 *)(line + swizzled_place<LINE>(row, column % COLUMNS / 8 + i) * 8) =
            make_uint4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
}

// ---- O, in tensor memory

// Two numbers next to each other times a factor.
__device__ static inline void scale_pair(uint32_t *bits, Pair factors) {
    float x, y;
    pair_take(&x, &y,
              pair_multiply(pair_of(__uint_as_float(bits[0]), __uint_as_float(bits[1])), factors));
    bits[0] = __float_as_uint(x);
    bits[1] = __float_as_uint(y);
}

// O times a factor, where it lies: the thread's row, 16 columns at a time: the correction has few
// registers. To be followed by tmem_store_wait.
template <int HEAD_DIM>
__device__ static inline void rescale_output(uint32_t o_tmem, float factor) {
    PHASE("rescale");
    const Pair factors = both(factor);
#pragma unroll
    for (int column = 0; column < HEAD_DIM; column += 16) {
        uint32_t bits[16];
        tmem_load(bits, o_tmem + column);
        tmem_load_wait();
        tmem_loaded(bits);
#pragma unroll
        for (int i = 0; i < 16; i += 2) scale_pair(&bits[i], factors);
        tmem_store(o_tmem + column, bits);
    }
}

// The thread's row of O times a factor → shared memory, rounded; zeros if there is no O.
template <typename T, int HEAD_DIM>
__device__ static inline void write_output(T *o_smem, int row, uint32_t o_tmem, float factor,
                                           bool exists) {
    const Pair factors = both(factor);
#pragma unroll
    for (int column = 0; column < HEAD_DIM; column += 16) {
        uint32_t bits[16] = {}, o_pair[8];
        if (exists) {
            tmem_load(bits, o_tmem + column);
            tmem_load_wait();
            tmem_loaded(bits);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            scale_pair(&bits[2 * i], factors);
            o_pair[i] = pack2<T>(__uint_as_float(bits[2 * i]), __uint_as_float(bits[2 * i + 1]));
        }
        write_line(o_smem, row, column, o_pair);
    }
}

#endif
