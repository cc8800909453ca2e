// What stands between the backward's products, for a thread that has one key and SHARE query rows
// of a tile: Pᵀ from Sᵀ, dSᵀ from dPᵀ. lse and D belong to query rows, so all threads read the same
// ones at the same time.
#ifndef BLACKWELL_BACKWARD_MATH_H
#define BLACKWELL_BACKWARD_MATH_H

#include "backward_tile.h"
#include "device/tcgen05.h"
#include "softmax.h"

// N columns of the thread's lane → registers. Behind the wait for the products and
// tcgen05_fence_after.
template <int N> __device__ static inline void load_lane(float *x, uint32_t tmem) {
    constexpr int WIDTH = N < 32 ? N : 32; // of one load
    uint32_t bits[N / WIDTH][WIDTH];
#pragma unroll
    for (int part = 0; part < N / WIDTH; part++) tmem_load(bits[part], tmem + part * WIDTH);
    tmem_load_wait();
#pragma unroll
    for (int part = 0; part < N / WIDTH; part++) {
        tmem_loaded(bits[part]);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) x[part * WIDTH + i] = __uint_as_float(bits[part][i]);
    }
}

// Which rows of a share see the thread's key: begin … end - 1, counted from the share's first.
typedef struct {
    int begin, end;
    bool masked; // not all rows of the share see all keys of the block
} VisibleRows;

__device__ static inline VisibleRows visible_rows(const Attention &a, int first_row,
                                                  int first_key) {
    const int64_t last_row = min((int64_t)first_row + SHARE, a.seqlen_q) - 1;
    const int key = first_key + threadIdx.x % WARPGROUP;
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    VisibleRows rows = {0, SHARE, first_key < all.begin || first_key + KEYS > all.end};
    if (!rows.masked) return rows;
    KeyRange seeing = {0, 0}; // nobody sees a key behind the last
    if (key < a.seqlen_k)
        seeing = seeing_rows(key, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
    rows.begin = (int)min(max(seeing.begin - first_row, (int64_t)0), (int64_t)SHARE);
    rows.end = (int)min(max(seeing.end - first_row, (int64_t)0), (int64_t)SHARE);
    return rows;
}

// N products → what the exponent's factor multiplies.
template <int N> __device__ static inline void adjust_rows(float *s_reg, const Exponent &exponent) {
#pragma unroll
    for (int i = 0; i < N; i++) s_reg[i] = adjusted(s_reg[i], exponent);
}

// N rows of the share, from `from` on: S → P = e^(S - lse), in base 2. What the mask, or the end of
// the keys, forbids had no part in the forward: -inf as a score.
template <int N>
__device__ static inline void exponentiate_rows(float *s_reg, const float *lse_smem, float factor,
                                                const VisibleRows &rows, int from) {
    if (rows.masked) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (from + i < rows.begin || from + i >= rows.end) s_reg[i] = -CUDART_INF_F;
    }
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 lse = *(const float4 *)(lse_smem + i);
        s_reg[i] = exp2_approximate(fmaf(s_reg[i], factor, -lse.x));
        s_reg[i + 1] = exp2_approximate(fmaf(s_reg[i + 1], factor, -lse.y));
        s_reg[i + 2] = exp2_approximate(fmaf(s_reg[i + 2], factor, -lse.z));
        s_reg[i + 3] = exp2_approximate(fmaf(s_reg[i + 3], factor, -lse.w));
    }
}

// dp_reg → dS = P ∘ (dP - D).
template <int N>
__device__ static inline void differentiate(float *dp_reg, const float *p_reg,
                                            const float *dots_smem) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 dots = *(const float4 *)(dots_smem + i);
        const Pair low = pair_subtract(pair_of(dp_reg[i], dp_reg[i + 1]), pair_of(dots.x, dots.y));
        const Pair high =
            pair_subtract(pair_of(dp_reg[i + 2], dp_reg[i + 3]), pair_of(dots.z, dots.w));
        pair_take(&dp_reg[i], &dp_reg[i + 1], pair_multiply(low, pair_of(p_reg[i], p_reg[i + 1])));
        pair_take(&dp_reg[i + 2], &dp_reg[i + 3],
                  pair_multiply(high, pair_of(p_reg[i + 2], p_reg[i + 3])));
    }
}

// With a cap dS has one more factor, the cap's slope 1 - tanh², and s_reg holds the tanh as long as
// it is no weight yet. It goes into dP - D: dP → D + (dP - D)(1 - s²).
template <int N>
__device__ static inline void apply_cap_slope(float *dp_reg, const float *s_reg,
                                              const float *dots_smem) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float dot = dots_smem[i];
        dp_reg[i] = fmaf(dp_reg[i] - dot, fmaf(-s_reg[i], s_reg[i], 1), dot);
    }
}

// N numbers, rounded, two to a register.
template <typename T, int N>
__device__ static inline void pack_numbers(uint32_t *packed, const float *x) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) packed[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
}

// dS of the share, packed, from dP and P: PART rows at a time.
template <typename T>
__device__ static inline void differentiate_share(uint32_t (&ds_packed)[SHARE / 2],
                                                  uint32_t dp_tmem, const float (&p_reg)[SHARE],
                                                  const float *dots_smem) {
#pragma unroll
    for (int from = 0; from < SHARE; from += PART) {
        float ds_reg[PART];
        load_lane<PART>(ds_reg, dp_tmem + from);
        differentiate<PART>(ds_reg, p_reg + from, dots_smem + from);
        pack_numbers<T, PART>(ds_packed + from / 2, ds_reg);
    }
}

// With a cap: P and dS of the share, packed, from S and dP. Few rows at a time, since both are
// there.
template <typename T>
__device__ static inline void weigh_capped(uint32_t (&p_packed)[SHARE / 2],
                                           uint32_t (&ds_packed)[SHARE / 2], uint32_t s_tmem,
                                           uint32_t dp_tmem, const float *lse_smem,
                                           const float *dots_smem, const Exponent &exponent,
                                           const VisibleRows &rows) {
    const int FEW = 16;
#pragma unroll
    for (int from = 0; from < SHARE; from += FEW) {
        float p_reg[FEW], ds_reg[FEW];
        load_lane<FEW>(p_reg, s_tmem + from);
        load_lane<FEW>(ds_reg, dp_tmem + from);
        adjust_rows<FEW>(p_reg, exponent);
        apply_cap_slope<FEW>(ds_reg, p_reg, dots_smem + from);
        exponentiate_rows<FEW>(p_reg, lse_smem + from, exponent.factor, rows, from);
        differentiate<FEW>(ds_reg, p_reg, dots_smem + from);
        pack_numbers<T, FEW>(p_packed + from / 2, p_reg);
        pack_numbers<T, FEW>(ds_packed + from / 2, ds_reg);
    }
}

#endif
