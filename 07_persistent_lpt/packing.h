// Grouped queries side by side (GQA packing): where several query heads share one head of K and V
// and queries are few, a tile of one head would be mostly empty rows. A tile that is PACKED takes
// all of a group's heads instead, and K and V come and are multiplied once for all of them.
//
// A warpgroup's 64 rows are then `tokens` tokens of the group's heads, tokens = 64 / group:
//
//   row R of the warpgroup   token R / group, head R % group       R < tokens * group
//   the rows after these     nobody's, where group doesn't divide 64
//
// In memory that is no more than another order of the same rows, and TMA brings it as it brings any
// box: `group` heads wide, `tokens` tokens high.
//
// PACKED is a switch of a .cu file (forward.h): without it all of this is constants, and the kernels
// of one head a tile stay what they are.
#ifndef PACKING_H
#define PACKING_H

#include "device/fragments.h"
#include "device/proxy.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "forward_tile.h"
#include "work.h"

// ---- rows of a tile

// The token of this thread's fragments, within its sequence; none, if it isn't below seqlen_q.
__device__ static inline int token_of_fragment(const Attention &a, const Work &work, int half) {
    if (!PACKED) return work.first_row + fragment_row(half);
    const int group = group_of(a), tokens = tokens_of(a), r = fragment_row(half) % WGMMA_ROWS;
    if (r >= tokens * group) return work.seqlen_q; // nobody's
    return work.first_row + threadIdx.x / WARPGROUP_THREADS * tokens + r / group;
}

// Their query head.
__device__ static inline int head_of_fragment(const Attention &a, const Work &work, int half) {
    return work.head + (PACKED ? fragment_row(half) % WGMMA_ROWS % group_of(a) : 0);
}

// Row r of a warpgroup, if PACKED, comes so many rows of one head after its row 0 in memory.
__device__ static inline int64_t rows_from_first(const Attention &a, int r) {
    return (int64_t)(r / group_of(a)) * a.heads + r % group_of(a);
}

// ---- Q in shared memory

// Starts copying Q's rows of a tile, a box for each warpgroup that has any.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void load_groups(T *to_smem, const CUtensorMap *map, uint64_t *full,
                                          const Attention &a, const Work &work) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const int tokens = tokens_of(a), left = work.seqlen_q - work.first_row;
    const int boxes = min((left + tokens - 1) / tokens, Tile::WARPGROUPS);
    mbarrier_arrive_expect(full, boxes * tokens * group_of(a) * HEAD_DIM * 2);
    for (int warpgroup = 0; warpgroup < boxes; warpgroup++)
#pragma unroll
        for (int box = 0; box < Tile::BOXES; box++)
            tma_load_4d(to_smem + (box * Tile::ROWS + warpgroup * WGMMA_ROWS) * Tile::COLUMNS, map,
                        full, box * Tile::COLUMNS, work.head,
                        work.q_start + work.first_row + warpgroup * tokens, work.batch);
}

// Rows of Q for which no query ever comes: the tensor cores read them too, so before all else there
// are zeros.
template <typename T, int HEAD_DIM, int KEYS> __device__ static inline void clear_query(T *q_smem) {
    for (int i = threadIdx.x; i < ForwardTile<HEAD_DIM, KEYS>::Q_BYTES / 16; i += blockDim.x)
        ((uint4 *)q_smem)[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async(); // → TMA, and wgmma
}

// ---- host

// Does a step that can do both take the heads of a group together? FlashAttention-3's rule: if that
// takes less than 9/10 of the tiles, because more of their rows are somebody's. Sequences of several
// lengths count as if all were of the average. `rows`: of a tile.
static inline bool pays_to_pack(const Attention *a, int rows) {
    const int group = a->heads / a->kv_heads;
    if (group == 1 || group > WGMMA_ROWS) return false;
    const int64_t tokens = a->varlen ? tiles_of(a->total_q, a->batch) : a->seqlen_q;
    const int64_t apart = group * tiles_of(tokens, rows);
    const int64_t packed = tiles_of(tokens, rows / WGMMA_ROWS * (WGMMA_ROWS / group));
    return 10 * packed < 9 * apart;
}

// make_head_map's tensor with dimensions 1 and 2 exchanged: head_dim, heads, seqlen, batch.
// A box is `group` heads wide, WGMMA_ROWS / group tokens high.
static inline cudaError_t make_group_map(CUtensorMap *map, const char *name, const void *first,
                                         CUtensorMapDataType type, int number_bytes, int64_t batch,
                                         int64_t seqlen, int64_t heads, int64_t head_dim, int group,
                                         int columns) {
    const TensorBox apart = head_box(name, first, type, number_bytes, batch, seqlen, heads,
                                     head_dim, WGMMA_ROWS / group, columns);
    TensorBox tensor = apart;
    tensor.size[1] = apart.size[2];
    tensor.size[2] = apart.size[1];
    tensor.stride[0] = apart.stride[1];
    tensor.stride[1] = apart.stride[0];
    tensor.box[1] = (uint32_t)group;
    tensor.box[2] = apart.box[1];
    return make_tensor_map(map, &tensor, swizzle_of((uint32_t)(columns * number_bytes)));
}

#endif
