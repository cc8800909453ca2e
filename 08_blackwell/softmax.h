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
#include "mods.h"
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

// s_reg: products → what the exponent's factor multiplies.
__device__ static inline void adjust_scores(float (&s_reg)[KEYS], const Exponent &exponent) {
#pragma unroll
    for (int i = 0; i < KEYS; i++) s_reg[i] = adjusted(s_reg[i], exponent);
}

// The same, masked.
__device__ static inline void finish_scores(float (&s_reg)[KEYS], const Attention &a,
                                            const Exponent &exponent, UnmaskedKeys unmasked,
                                            int row, int key) {
    if (!exponent.plain) adjust_scores(s_reg, exponent);
    if (key < unmasked.from || key + KEYS > unmasked.to) mask_scores(s_reg, a, row, key);
}

// FLEXIBLE: scores of a partial block's keys that the row doesn't see → -inf. The mask is asked for
// 32 keys at a time, each by the same few instructions (the first keys' bits end up in words[0]),
// and only where the warp's details say neither "none" nor "all".
__device__ static inline void mask_partial(float (&s_reg)[KEYS], int mask, const MaskRow &row,
                                           int key, int details) {
    uint32_t words[KEYS / 32] = {};
#pragma unroll 1
    for (int i = 0; i < KEYS; i += 32) {
#pragma unroll
        for (int w = 1; w < KEYS / 32; w++) words[w - 1] = words[w];
        const bool any = details >> i / 32 & 1, all = details >> (i / 32 + 4) & 1;
        words[KEYS / 32 - 1] = all ? 0xffffffffu : any ? mask_word(mask, row, key + i) : 0;
    }
#pragma unroll
    for (int from = 0; from < KEYS; from += 32) {
        const uint32_t word = words[from / 32];
        if (details >> (from / 32 + 4) & 1) continue;
#pragma unroll
        for (int i = 0; i < 32; i++)
            if ((word & 1u << i) == 0) s_reg[from + i] = -CUDART_INF_F;
    }
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

// The smallest, as largest_of.
__device__ static inline float smallest_of(const float (&s_reg)[KEYS]) {
    float smallest[4];
#pragma unroll
    for (int i = 0; i < 4; i++) smallest[i] = fminf(s_reg[i], s_reg[i + 4]);
#pragma unroll
    for (int i = 8; i < KEYS; i += 8)
#pragma unroll
        for (int chain = 0; chain < 4; chain++)
            smallest[chain] = fminf(fminf(smallest[chain], s_reg[i + chain]), s_reg[i + 4 + chain]);
    return fminf(fminf(smallest[0], smallest[1]), fminf(smallest[2], smallest[3]));
}

// FLEXIBLE: s_reg: products → scores, scaled and modified; returns the largest, found in the same
// stretch of code as the scores: it costs less there. Where the whole warp can it goes a shorter way.
template <int SCORE>
__device__ static inline float modify_scores(float (&s_reg)[KEYS], const Attention &a,
                                             const ScoreHead &head, int position, int key,
                                             uint32_t s_tmem) {
    const uint32_t warp = 0xffffffffu;
    const float scale = a.softmax_scale;
    const float distance = (float)(position - key); // whole numbers, exact below 2^24
    if (SCORE == SCORE_SOFTCAP) {
        // The short way first: where it was right, its results are as near 0 as it asks for. (They
        // grow with the products.) If not, S still stands in tensor memory.
        softcap_near(s_reg, scale, head);
        const float largest = largest_of(s_reg);
        const float farthest = fmaxf(largest, -smallest_of(s_reg));
        if (__all_sync(warp, farthest <= head.cap * SOFTCAP_NEAR)) return largest;
        load_scores(s_reg, s_tmem);
    }
    if (SCORE == SCORE_ALIBI) {
        const bool before = __all_sync(warp, distance >= KEYS - 1); // the keys, the row
        if (before || __all_sync(warp, distance <= 0)) {
            alibi_on_one_side(s_reg, scale, -head.slope * fabsf(distance),
                              before ? head.slope : -head.slope);
            return largest_of(s_reg);
        }
    }
    const Pair scales = both(scale);
#pragma unroll
    for (int i = 0; i < KEYS; i += 2) {
        float x, y;
        pair_take(&x, &y, pair_multiply(pair_of(s_reg[i], s_reg[i + 1]), scales));
        s_reg[i] = score_mod<SCORE>(x, distance - i, head);
        s_reg[i + 1] = score_mod<SCORE>(y, distance - (i + 1), head);
    }
    return largest_of(s_reg);
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
