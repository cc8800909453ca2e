// The second kernel of chapter 9's splits: each row's partial results, merged (merge.h), become
// O and lse. A thread block takes a row. Each four columns belong to a lane of several groups
// of lanes, and group g takes splits g, g + groups, …: a row is little to add up and long to
// wait for.
//
// Invariant: the partial O of a split without keys is never read. Nobody wrote it.
#ifndef COMBINE_H
#define COMBINE_H

#include "merge.h"

static const int COMBINE_THREADS = 256;

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(COMBINE_THREADS)
    combine(const Attention a, int splits, const Partials partials) {
    const int LANES = HEAD_DIM / 4, GROUPS = COMBINE_THREADS / LANES;
    __shared__ float2 part_smem[MAX_SPLITS];
    __shared__ float4 o_smem[GROUPS][LANES];
    __shared__ float sum_smem[GROUPS];
    const uint32_t r = blockIdx.x; // batch, heads, seqlen_q, as lse
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (threadIdx.x < splits)
        part_smem[threadIdx.x] = partials.sums[(int64_t)r * splits + threadIdx.x];
    __syncthreads(); // all parts' sums → all threads

    float max = -CUDART_INF_F;
    for (int split = 0; split < splits; split++) max = fmaxf(max, part_smem[split].x);
    Merged merged = begin_merge(max);
    if (group < GROUPS) {
        const float *o = partials.o + (int64_t)r * splits * HEAD_DIM + lane * 4;
#pragma unroll 4 // as many loads on the way
        for (int split = group; split < splits; split += GROUPS) {
            // exercise 5: begin
            const float2 sums = part_smem[split];
            const bool empty = sums.y == 0; // a NaN is not
            float4 part = make_float4(0, 0, 0, 0);
            if (!empty) part = *(const float4 *)(o + (int64_t)split * HEAD_DIM);
            add_part(merged, part_weight(merged, sums.x) * sums.y, 1, part);
            // exercise 5: end
        }
        o_smem[group][lane] = merged.o;
        if (lane == 0) sum_smem[group] = merged.sum;
    }
    __syncthreads(); // the groups' sums → the first group
    if (group > 0) return;
    for (int g = 1; g < GROUPS; g++) add_part(merged, 1, sum_smem[g], o_smem[g][lane]);

    const uint32_t head_index = r / (uint32_t)a.seqlen_q, head = head_index % (uint32_t)a.heads;
    const int64_t o = row_offset(head_index / (uint32_t)a.heads, r % (uint32_t)a.seqlen_q, head,
                                 a.seqlen_q, a.heads, HEAD_DIM);
    store_row<T>(a, merged, r, o, (int)head, lane * 4);
}

template <typename T, int HEAD_DIM>
static cudaError_t launch_combine(const Attention *a, int splits) {
    static_assert(MAX_SPLITS <= COMBINE_THREADS, "a thread fetches a split's sums");
    combine<T, HEAD_DIM><<<(unsigned)output_rows(a), COMBINE_THREADS, 0, a->stream>>>(
        *a, splits, partials_of(a, splits));
    return cudaGetLastError();
}

#endif
