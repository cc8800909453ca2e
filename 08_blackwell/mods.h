// Score mods and mask mods: what makes attention flexible, as functions of a score, and of a query
// row and a key. To add one: its function here, a line where it is called, its name in
// harness/mods.c, and for a score mod a .cu file like flexible_alibi.cu.
//
// A score mod is compiled into a kernel of its own: it is computed for every score. Mask mods stand
// in the kernel side by side, since few blocks of keys need one (block_mask.h): a branch that all
// threads take alike, once a block, chooses among them.
//
// A row's position is where it stands among the keys: row + seqlen_k - seqlen_q.
#ifndef MODS_DEVICE_H
#define MODS_DEVICE_H

#include "device/exp2.h"
#include "device/mask.h"
#include "device/packed.h"
#include "harness/attention.h"

// ---- score mods

// What they know of the head.
typedef struct {
    float slope;       // ALiBi's
    float cap, adjust; // softcap: the cap, and what it divides by
} ScoreHead;

__device__ static inline ScoreHead score_head(const Attention &a, int head) {
    ScoreHead known;
    known.slope = exp2_approximate(-8.f * (head + 1) / a.heads);
    known.cap = a.score_number;
    known.adjust = 1 / a.score_number;
    return known;
}

// ALiBi: keys that are farther away count less. distance = position - key.
__device__ static inline float alibi(float score, float distance, const ScoreHead &head) {
    return fmaf(-head.slope, fabsf(distance), score);
}

// A block of products q·k → scores, where all keys are on one side of the row: the bias changes by
// `step` from key to key, from `first` on. Four sums side by side, each eight keys a step.
template <int N>
__device__ static inline void alibi_on_one_side(float (&s_reg)[N], float scale, float first,
                                                float step) {
    const Pair scales = both(scale), eight_keys = both(8 * step);
    Pair bias[4];
#pragma unroll
    for (int chain = 0; chain < 4; chain++)
        bias[chain] = pair_of(fmaf(step, 2 * chain, first), fmaf(step, 2 * chain + 1, first));
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        Pair *own = &bias[i / 2 % 4];
        pair_take(&s_reg[i], &s_reg[i + 1],
                  pair_fma(pair_of(s_reg[i], s_reg[i + 1]), scales, *own));
        *own = pair_add(*own, eight_keys);
    }
}

// No score is larger than the cap.
__device__ static inline float softcap(float score, const ScoreHead &head) {
    return head.cap * tanh_approximate(score * head.adjust);
}

// Near 0 the tanh is a polynomial, by the FMA units alone: of the MUFU, which is busy with the
// softmax's exponentials, tanh_approximate takes two results a score. Up to SOFTCAP_NEAR
// tanh(x) / x = c0 + c1 x² + c2 x⁴ to 5e-7: the minimax polynomial. SOFTCAP_NEAR is a result: of
// |x| = 0.25, and as the polynomial grows all the way, larger |x| have larger ones.
static const float SOFTCAP_NEAR = 0.2449f;

// A block of products q·k → scores, right where they are no farther from 0 than SOFTCAP_NEAR caps.
template <int N>
__device__ static inline void softcap_near(float (&s_reg)[N], float scale, const ScoreHead &head) {
    const float k = scale * head.adjust;
    const Pair c0 = both(0.9999996f * scale), c1 = both(-0.33321908f * scale * k * k),
               c2 = both(0.12841614f * scale * k * k * k * k);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const Pair product = pair_of(s_reg[i], s_reg[i + 1]);
        const Pair square = pair_multiply(product, product);
        const Pair slope = pair_fma(pair_fma(c2, square, c1), square, c0);
        pair_take(&s_reg[i], &s_reg[i + 1], pair_multiply(product, slope));
    }
}

// The score mod that this kernel is compiled with.
template <int SCORE>
__device__ static inline float score_mod(float score, float distance, const ScoreHead &head) {
    if (SCORE == SCORE_ALIBI) return alibi(score, distance, head);
    if (SCORE == SCORE_SOFTCAP) return softcap(score, head);
    return score;
}

// ---- mask mods: does the row see the key?

// What they know of the row.
typedef struct {
    int position;
    int number;           // of --mask-mod NAME:NUMBER
    int last_key;         // of the sequence
    const int *documents; // of its keys, or NULL
    int document;         // the row's own, or -1
    int begin, end;       // the keys that --causal and --window leave it
} MaskRow;

__device__ static inline MaskRow mask_row(const Attention &a, int batch, int row) {
    const KeyRange seen = visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
    MaskRow known;
    known.position = row + (int)(a.seqlen_k - a.seqlen_q);
    known.number = a.mask_number;
    known.last_key = (int)a.seqlen_k - 1;
    known.documents = NULL;
    known.document = -1;
    known.begin = (int)seen.begin;
    known.end = (int)seen.end;
    if (a.mask_mod != MASK_DOCUMENT) return known;
    known.documents = a.documents + batch * a.seqlen_k;
    if (known.position >= 0 && known.position <= known.last_key)
        known.document = known.documents[known.position];
    return known;
}

__device__ static inline bool causal(const MaskRow &row, int key) {
    return key <= row.position;
}

__device__ static inline bool sliding_window(const MaskRow &row, int key) {
    return key <= row.position && row.position - key <= row.number;
}

// Packed sequences: each sees itself.
__device__ static inline bool same_document(const MaskRow &row, int key) {
    return row.documents[min(key, row.last_key)] == row.document;
}

// A prompt whose parts all see each other, and what follows it.
__device__ static inline bool prefix_lm(const MaskRow &row, int key) {
    return key <= row.position || key < row.number;
}

template <int MASK> __device__ static inline bool mask_mod(const MaskRow &row, int key) {
    if (MASK == MASK_CAUSAL) return causal(row, key);
    if (MASK == MASK_WINDOW) return sliding_window(row, key);
    if (MASK == MASK_DOCUMENT) return same_document(row, key);
    if (MASK == MASK_PREFIX_LM) return prefix_lm(row, key);
    return true;
}

// ---- 32 keys at a time: bit i says whether the row sees key + i

template <int MASK> __device__ static inline uint32_t mask_mod_word(const MaskRow &row, int key) {
    uint32_t part[4] = {}; // each key waits for the fourth before it, not for the one before it
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (mask_mod<MASK>(row, key + i)) part[i % 4] |= 1u << i;
    return part[0] | part[1] | (part[2] | part[3]);
}

// Bits from … 31; none from 32 on.
__device__ static inline uint32_t bits_from(int from) {
    return from >= 32 ? 0 : 0xffffffffu << max(from, 0);
}

// What the mask mod leaves of the keys that --causal and --window leave.
__device__ static inline uint32_t mask_word(int mask, const MaskRow &row, int key) {
    const uint32_t seen = bits_from(row.begin - key) & ~bits_from(row.end - key);
    if (seen == 0) return 0;
    switch (mask) {
    case MASK_CAUSAL: return seen & mask_mod_word<MASK_CAUSAL>(row, key);
    case MASK_WINDOW: return seen & mask_mod_word<MASK_WINDOW>(row, key);
    case MASK_DOCUMENT: return seen & mask_mod_word<MASK_DOCUMENT>(row, key);
    case MASK_PREFIX_LM: return seen & mask_mod_word<MASK_PREFIX_LM>(row, key);
    default: return seen;
    }
}

#endif
