// The softmax between the two products, chapter 5's: a block of keys is masked, exponentiated
// relative to the rows' new maxima, and rounded as wgmma's left operand.
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include "device/fragments.h"
#include "device/phase.h"
#include "packing.h"

// What a warpgroup must know of its tile for every block of keys. The rest it reads where it stands,
// in shared memory: registers are few.
typedef struct {
    int last_key, blocks, unmasked_from, unmasked_to; // as in Work
} Keys;

__device__ static inline Keys keys_of(const Work &work) {
    Keys keys;
    keys.last_key = work.last_key;
    keys.blocks = work.blocks;
    keys.unmasked_from = work.unmasked_from;
    keys.unmasked_to = work.unmasked_to;
    return keys;
}

// Scores of keys key … key + KEYS - 1 that the mask or the end of the keys forbids → -inf.
template <int KEYS>
__device__ static inline void mask_block(float (&s_reg)[KEYS / 8][4], const Attention &a,
                                         const Work &work, int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen = visible_keys(token_of_fragment(a, work, half), work.seqlen_q,
                                           work.seqlen_k, a.window_left, a.window_right);
        // Counted from this lane's first column. Few masks have a left side: mostly half of the
        // comparisons do.
        const int begin = (int)seen.begin - key - fragment_column(0);
        const int end = (int)seen.end - key - fragment_column(0);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (t * 8 + i >= end) s_reg[t][2 * half + i] = -CUDART_INF_F;
        if (a.window_left < 0) continue;
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (t * 8 + i < begin) s_reg[t][2 * half + i] = -CUDART_INF_F;
    }
}

// Before the first block: nothing, or the head's sink, which is a key of this score and no value. One
// of the row's four lanes counts it.
__device__ static inline void begin_softmax(float (&row_max)[2], float (&row_sum)[2],
                                            const Attention &a, const Work &work) {
    row_max[0] = row_max[1] =
        a.has_sink ? a.sink[head_of_fragment(a, work, 0)] * CUDART_L2E_F : -CUDART_INF_F;
    if (PACKED && a.has_sink) row_max[1] = a.sink[head_of_fragment(a, work, 1)] * CUDART_L2E_F;
    row_sum[0] = row_sum[1] = a.has_sink && threadIdx.x % 4 == 0 ? 1 : 0;
}

// lse of a row of a head, after the last block.
__device__ static inline float row_lse(float row_max, float row_sum, const Attention &a, int head) {
    if (!a.has_sink) return log_sum_exp_base_2(row_max, row_sum);
    return log_sum_exp_of_sink(row_max, row_sum, a.sink[head]);
}

// s_reg: products → weights, relative to the new maximum. Returns in rescale what the rows' older
// weights are to be multiplied with.
template <int KEYS>
__device__ static inline void update_softmax(float (&s_reg)[KEYS / 8][4], float (&row_max)[2],
                                             float (&row_sum)[2], float (&rescale)[2],
                                             const Attention &a, const Exponent &exponent,
                                             const Work &work, const Keys &keys, int j) {
    PHASE("softmax");
    if (!exponent.plain) adjust_fragments<KEYS>(s_reg, exponent);
    const int key = keys.last_key - j * KEYS; // they are taken from the last down
    if (key < keys.unmasked_from || key + KEYS > keys.unmasked_to)
        mask_block<KEYS>(s_reg, a, work, key);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float block_max = fragment_row_max<KEYS>(s_reg, half) * exponent.factor;
        const float new_max = fmaxf(row_max[half], block_max);
        const float base = finite_max(new_max);
        const float block_sum =
            exponentiate_fragments_base_2<KEYS>(s_reg, half, exponent.factor, base);
        rescale[half] = exp2_approximate(row_max[half] - base);
        row_sum[half] = row_sum[half] * rescale[half] + block_sum;
        row_max[half] = new_max;
    }
}

// p_reg = P, rounded and packed as wgmma's left operand; o_reg times rescale.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void take_weights(uint32_t (&p_reg)[KEYS / 16][4],
                                           float (&o_reg)[HEAD_DIM / 8][4],
                                           const float (&s_reg)[KEYS / 8][4],
                                           const float (&rescale)[2]) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) weights_operand<T, KEYS>(p_reg[step], s_reg, step);
#pragma unroll
    for (int half = 0; half < 2; half++) scale_output<HEAD_DIM>(o_reg, half, rescale[half]);
}

#endif
