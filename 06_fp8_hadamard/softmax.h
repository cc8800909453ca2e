// Scores, weights and scales of chapter 6's attention kernel: what is chapter 5's, and what e4m3 asks
// for besides.
//
// A block of keys is one block of the quantisation, and a warpgroup's 64 rows are one too, so the
// scales of a block of scores are two numbers, and V's is one:
//
//   score   = (q_scale k_scale) · Q Kᵀ      folded into the exponent's factor
//   O       = Σ v_scale(j) · P(j) V(j)      o_reg is in units of the newest block's v_scale: the
//                                           factor that a new maximum asks for takes O there, too
//   P       = 2^8 · 2^(exponent - maximum)  at most 256: e4m3 has 448, and its smallest number is
//                                           2^-17 of 256. row_max is 8 less than the largest
//                                           exponent, and then row_sum has the 2^8, O has it, and
//                                           neither O / row_sum nor lse does.
//   row_sum = Σ P as rounded                O / row_sum is an average of V's rows, whose weights
//                                           sum to 1: what rounding takes from P V it takes from
//                                           both
#ifndef FP8_SOFTMAX_H
#define FP8_SOFTMAX_H

#include <float.h>

#include "attention_tile.h"
#include "device/e4m3.h"
#include "device/fragments.h"
#include "device/phase.h"

static const float WEIGHT_BITS = 8;

// ---- scales

// A warpgroup's scales: its rows', and where those of block 0, the last of the keys, stand.
struct Scales {
    Exponent exponent; // of scores whose q_scale and k_scale are 1
    float q;
    const float *k, *v; // block j's stands j before
};

__device__ static inline Scales scales_of(const Attention &a, const Quantised &x,
                                          const Tiles &tiles, int keys) {
    const int64_t q_blocks = tiles_of(a.seqlen_q, QUERY_BLOCK);
    const int64_t k_blocks = tiles_of(a.seqlen_k, keys), last = tiles.last_key / keys;
    // A warpgroup without rows reads the last block's.
    const int64_t row_block =
        min(tiles.first_row / QUERY_BLOCK + tiles.warpgroup, (int)q_blocks - 1);
    Scales scales;
    scales.exponent = exponent_of(a.softmax_scale, a.softcap);
    scales.q = x.q_scale[scale_offset(tiles.batch, tiles.head, row_block, a.heads, q_blocks)];
    scales.k = x.k_scale + scale_offset(tiles.batch, tiles.kv_head, last, a.kv_heads, k_blocks);
    scales.v = x.v_scale + scale_offset(tiles.batch, tiles.kv_head, last, a.kv_heads, k_blocks);
    return scales;
}

struct BlockScales {
    float k, v;
};

__device__ static inline BlockScales load_scales(const Scales &scales, uint32_t j) {
    BlockScales block;
    block.k = *(scales.k - j);
    block.v = *(scales.v - j);
    return block;
}

// How a block's products become exponents: chapter 3's, times both scales, of which a cap's tanh
// takes them and else the factor. (Kept away from 0 and inf, which make NaN of -inf and 0.)
__device__ static inline Exponent block_exponent(const Scales &scales, float k_scale) {
    Exponent exponent = scales.exponent;
    const float scale = scales.q * k_scale;
    const float factor = exponent.factor * (exponent.capped ? 1 : scale);
    exponent.adjust *= exponent.capped ? scale : 1;
    exponent.factor = fminf(fmaxf(factor, FLT_MIN), FLT_MAX);
    return exponent;
}

// ---- softmax

// Scores of keys key … that the mask or the end of the keys forbids → -inf.
template <int PIECES>
__device__ static inline void mask_block(float (&s_reg)[PIECES][4], const Attention &a,
                                         const Tiles &tiles, int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen = visible_keys(tiles.first_row + fragment_row(half), a.seqlen_q,
                                           a.seqlen_k, a.window_left, a.window_right);
        // Counted from this lane's first column.
        const int begin = (int)seen.begin - key - fragment_column(0);
        const int end = (int)seen.end - key - fragment_column(0);
#pragma unroll
        for (int t = 0; t < PIECES; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (t * 8 + i < begin || t * 8 + i >= end) s_reg[t][2 * half + i] = -CUDART_INF_F;
    }
}

// s_reg: products → what the exponent's factor multiplies, or -inf. Nearly always the two are the
// same for all of a block, and one branch says so.
template <int PIECES>
__device__ static inline void finish_scores(float (&s_reg)[PIECES][4], const Attention &a,
                                            const Exponent &exponent, const Tiles &tiles,
                                            uint32_t j) {
    const int KEYS = PIECES * 8, key = key_of<KEYS>(tiles, j);
    const bool masked = (key < tiles.unmasked_from) | (key + KEYS > tiles.unmasked_to);
    if (masked | !exponent.plain) {
        if (!exponent.plain) adjust_fragments<KEYS>(s_reg, exponent);
        if (masked) mask_block(s_reg, a, tiles, key);
    }
}

// A row's part of the softmax, before and after its maximum is known.
struct RowSoftmax {
    float max, sum;      // less 8, in powers of 2; of this lane's weights, as rounded
    float base, rescale; // of the newest block: what is subtracted; the factor of older weights
};

// The largest of this lane's scores of a row in pieces from … to - 1, and so_far.
template <int PIECES>
__device__ static inline float lane_max(float so_far, const float (&s_reg)[PIECES][4], int half,
                                        int from, int to) {
#pragma unroll
    for (int t = 0; t < PIECES; t++)
        if (t >= from && t < to)
            so_far = fmaxf(so_far, fmaxf(s_reg[t][2 * half], s_reg[t][2 * half + 1]));
    return so_far;
}

// The row's maximum with the block's scores, of which largest is this lane's largest.
__device__ static inline void update_max(RowSoftmax *row, float largest, const Exponent &exponent) {
    const float new_max = fmaxf(row->max, fmaf(quad_max(largest), exponent.factor, -WEIGHT_BITS));
    row->base = finite_max(new_max);
    row->rescale = exp2_approximate(row->max - row->base);
    row->sum *= row->rescale;
    row->max = new_max;
}

// The row's scores → weights. (Their sum is that of the rounded ones, round_weights's.)
template <int PIECES>
__device__ static inline void exponentiate(const RowSoftmax &row, float (&s_reg)[PIECES][4],
                                           int half, const Exponent &exponent) {
    exponentiate_fragments_base_2<PIECES * 8>(s_reg, half, exponent.factor, row.base);
}

template <int PIECES>
__device__ static inline void update_softmax(RowSoftmax (&rows)[2], float (&s_reg)[PIECES][4],
                                             const Attention &a, const Exponent &exponent,
                                             const Tiles &tiles, uint32_t j) {
    PHASE("softmax");
    finish_scores(s_reg, a, exponent, tiles, j);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        update_max(&rows[half], lane_max(-CUDART_INF_F, s_reg, half, 0, PIECES), exponent);
        exponentiate(rows[half], s_reg, half, exponent);
    }
}

// The sum of a row's rounded weights. Eight numbers of 4 bits are added in fp16, whose 11 bits hardly
// ever round that, and then in fp32.
template <int PIECES>
__device__ static inline float sum_weights(const uint16_t (&pair_reg)[PIECES][2], int half) {
    static_assert(PIECES % 4 == 0, "four pairs at a time");
    float sum = 0;
#pragma unroll
    for (int t = 0; t < PIECES; t += 4) {
        const __half2 left =
            __hadd2(unpack2_e4m3(pair_reg[t][half]), unpack2_e4m3(pair_reg[t + 1][half]));
        const __half2 right =
            __hadd2(unpack2_e4m3(pair_reg[t + 2][half]), unpack2_e4m3(pair_reg[t + 3][half]));
        const float2 both = __half22float2(__hadd2(left, right));
        sum += both.x + both.y;
    }
    return sum;
}

// s_reg rounded, and added to the rows' sums: pair_reg[t][half] holds the pair s_reg[t][2 half],
// s_reg[t][2 half + 1].
template <int PIECES>
__device__ static inline void round_weights(uint16_t (&pair_reg)[PIECES][2], RowSoftmax (&rows)[2],
                                            const float (&s_reg)[PIECES][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int t = 0; t < PIECES; t++)
            pair_reg[t][half] = round2_e4m3(s_reg[t][2 * half], s_reg[t][2 * half + 1]);
        rows[half].sum += sum_weights(pair_reg, half);
    }
}

// p_reg[step] = keys 32 step … 32 step + 31 of P as wgmma's left operand. Of pieces 4 step and
// 4 step + 1 a lane holds keys 2t, 2t + 1, 8 + 2t, 8 + 2t + 1 (t = lane % 4); they go where
// k = 4t … 4t + 3 belongs, as the same keys of V did.
template <int PIECES, int KEY_STEPS>
__device__ static inline void take_weights(uint32_t (&p_reg)[KEY_STEPS][4],
                                           const uint16_t (&pair_reg)[PIECES][2]) {
#pragma unroll
    for (int step = 0; step < KEY_STEPS; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int piece = 4 * step + i / 2 * 2, half = i % 2;
            p_reg[step][i] = join_pairs(pair_reg[piece][half], pair_reg[piece + 1][half]);
        }
}

// o_reg to the rows' new maxima, and from units of one v_scale to units of the next.
template <int HEAD_DIM>
__device__ static inline void rescale_output(float (&o_reg)[HEAD_DIM / 8][4],
                                             const RowSoftmax (&rows)[2], float units) {
#pragma unroll
    for (int half = 0; half < 2; half++)
        scale_output<HEAD_DIM>(o_reg, half, rows[half].rescale * units);
}

// Units of one scale in units of another. Equal ones, as per-tensor's are, give exactly 1.
__device__ static inline float units_of(float scale, float next) {
    return scale == next ? 1 : scale * reciprocal_approximate(next);
}

#endif
