// Parts of a softmax, and how they become one.
//
// A row's keys are shared out: to warps, to thread blocks. Each takes its own maximum, so its
// sums are relative to that. With m = max m_p, in base 2:
//
//   l = Σ l_p 2^(m_p - m)        O = Σ O_p 2^(m_p - m) / l        lse = (m + log2 l) ln 2
//
// A part without keys has m_p = -inf and l_p = 0: its weight is 0, and its O_p, which may be
// memory that nobody wrote, must not even be multiplied with it. Normalised parts, O_p / l_p,
// are merged by the same formula, with l_p 2^(m_p - m) for their weight. And a sink is a part, too:
// m_p = sink log2(e), l_p = 1, O_p = 0.
//
// One number could stand for m_p and l_p, lse_p = m_p + log2 l_p; but beside an m_p of -300,000 an
// fp32 has no room for log2 l_p.
#ifndef MERGE_H
#define MERGE_H

#include "device/exp2.h"
#include "device/mma.h"
#include "device/number.h"
#include "plan.h"

// What a split leaves for the merge, in the workspace: of output row r (an index of lse), split s,
//   o      [(r * splits + s) * head_dim]   normalised, fp32; not written if there was no key
//   sums   [r * splits + s]                m in base 2 (.x), and l (.y), 0 if there was no key
typedef struct {
    float *o;
    float2 *sums;
} Partials;

static inline Partials partials_of(const Attention *a, int splits) {
    Partials partials;
    partials.o = (float *)a->workspace;
    partials.sums = (float2 *)(partials.o + output_rows(a) * splits * a->head_dim);
    return partials;
}

// Four columns of a row that is being merged.
typedef struct {
    float max, sum; // base 2; relative to max, 0 for a row without keys so far
    float4 o;
} Merged;

// Takes in o, a part's four columns with the weight that its sums have relative to the maximum.
__device__ static inline void add_part(Merged &row, float weight, float sum, float4 o) {
    row.sum = fmaf(weight, sum, row.sum);
    row.o.x = fmaf(weight, o.x, row.o.x);
    row.o.y = fmaf(weight, o.y, row.o.y);
    row.o.z = fmaf(weight, o.z, row.o.z);
    row.o.w = fmaf(weight, o.w, row.o.w);
}

__device__ static inline Merged begin_merge(float max) {
    Merged row;
    row.max = max;
    row.sum = 0;
    row.o = make_float4(0, 0, 0, 0);
    return row;
}

__device__ static inline float part_weight(const Merged &row, float part_max) {
    return exp2_approximate(part_max - finite_max(row.max));
}

// o / l, four columns.
__device__ static inline float4 normalised(const Merged &row) {
    const float factor = row.sum == 0 ? 0 : 1 / row.sum; // asked so, a NaN stays one
    return make_float4(row.o.x * factor, row.o.y * factor, row.o.z * factor, row.o.w * factor);
}

// The end of a row: its head's sink, if any, then O and lse. Of the row's lanes, the one of
// column 0 writes lse.
template <typename T>
__device__ static inline void store_row(const Attention &a, Merged row, int64_t lse_at,
                                        int64_t o_at, int head, int column) {
    const float sink = a.has_sink ? a.sink[head] : 0;
    if (a.has_sink) {
        const float max = fmaxf(row.max, sink * CUDART_L2E_F);
        Merged both = begin_merge(max);
        add_part(both, part_weight(both, row.max), row.sum, row.o);
        add_part(both, part_weight(both, sink * CUDART_L2E_F), 1, make_float4(0, 0, 0, 0));
        row = both;
    }
    const float4 o = normalised(row);
    *(uint2 *)((T *)a.o + o_at + column) = make_uint2(pack2<T>(o.x, o.y), pack2<T>(o.z, o.w));
    if (column == 0)
        a.lse[lse_at] = a.has_sink ? log_sum_exp_of_sink(row.max, row.sum, sink)
                                   : log_sum_exp_base_2(row.max, row.sum);
}

#endif
