// The splits of a tile as a cluster: each leaves its rows in its own shared memory, and reads
// some of all others'. No partial results go to memory, and no second kernel waits for the
// first.
//
// Invariant: between the two meetings of the cluster nobody writes what others read, and nobody
// ends.
#ifndef CLUSTER_MERGE_H
#define CLUSTER_MERGE_H

#include "device/cluster.h"
#include "merge.h"
#include "work.h"

static const int MAX_CLUSTER = 16; // thread blocks; 8 where a GPU is to be portable

template <class Tile>
__device__ static inline Merged merge_warps(const float *o_smem, int row, int column);

// This block's rows, merged over its warps, each number where the first warp's stood: the
// thread that writes it is the only one that read it. Maxima and sums have a place of their
// own.
template <class Tile>
__device__ static inline void leave_rows(float *o_smem, float2 *rows_smem, int rows) {
    const int LANES = Tile::HEAD_DIM / 4; // of a row
    for (int i = threadIdx.x; i < rows * LANES; i += Tile::THREADS) {
        const int row = i / LANES, column = i % LANES * 4;
        const Merged merged = merge_warps<Tile>(o_smem, row, column);
        *(float4 *)&o_smem[row * Tile::OUTPUT_STRIDE + column] = merged.o;
        if (column == 0) rows_smem[row] = make_float2(merged.max, merged.sum);
    }
}

// The cluster's rows → O and lse; each block takes every splits-th piece of four columns.
template <typename T, class Tile>
__device__ static inline void merge_cluster(float *o_smem, const Attention &a, const Work &work,
                                            const Plan &plan) {
    const int LANES = Tile::HEAD_DIM / 4;
    float2 *rows_smem = (float2 *)(o_smem + Tile::ROWS_AT);
    leave_rows<Tile>(o_smem, rows_smem, work.rows);
    cluster_sync(); // all blocks' rows → all blocks
    const int first = work.split * Tile::THREADS + threadIdx.x;
    for (int i = first; i < work.rows * LANES; i += plan.splits * Tile::THREADS) {
        const int row = i / LANES, column = i % LANES * 4;
        float max = -CUDART_INF_F;
        for (int rank = 0; rank < plan.splits; rank++)
            max = fmaxf(max, cluster_load2(cluster_address(&rows_smem[row], rank)).x);
        Merged merged = begin_merge(max);
#pragma unroll 4 // as many loads on the way
        for (int rank = 0; rank < plan.splits; rank++) {
            const float2 stats = cluster_load2(cluster_address(&rows_smem[row], rank));
            const float4 o =
                cluster_load4(cluster_address(&o_smem[row * Tile::OUTPUT_STRIDE + column], rank));
            add_part(merged, part_weight(merged, stats.x), stats.y, o);
        }
        const RowPlace place = row_place(a, work, plan.group, row);
        const int head = work.first_head + (work.first_row + row) % plan.group;
        store_row<T>(a, merged, place.lse, place.o * Tile::HEAD_DIM, head, column);
    }
    cluster_sync(); // all have read: blocks may end
}

#endif
