// What the backward keeps in HBM beside inputs and outputs, and the kernels before and after the
// main one. It is chapter 4's workspace but for one thing: rows come in whole tiles.
//
//   lse_base_2   log2 Σ e^score, +inf for rows past the last and rows without keys
//   row_dots     D_i = dO_i · O_i (less dlse_i), 0 for rows past the last
//   dq_sums      dQ before the last rounding
//   turns, ticket   for the deterministic order
//
// lse and D of a tile are copied to shared memory with its Q and dO, in one piece, as TMA likes it.
// P = 2^(s - inf) = 0 takes the place of a bounds check on every score.
#ifndef BACKWARD_WORKSPACE_H
#define BACKWARD_WORKSPACE_H

#include "../04_recompute_backward/recompute_workspace.h"

typedef struct {
    float *lse_base_2;
    RecomputeWorkspace sums; // row_dots, dq_sums, turns, ticket: what chapter 4's helpers need
    size_t bytes;
} BackwardWorkspace;

// Lays the parts out one after the other, for tiles of `tile_rows` query rows.
static inline BackwardWorkspace backward_workspace(const Attention *a, int tile_rows) {
    const int64_t heads = (int64_t)a->batch * a->heads;
    BackwardWorkspace w = {};
    w.sums.row_tiles = tiles_of(a->seqlen_q, tile_rows);
    w.sums.padded_rows = w.sums.row_tiles * tile_rows;
    const size_t rows = heads * w.sums.padded_rows;
    const size_t sums = padded_to_256(rows * a->head_dim * sizeof(float));
    const size_t vector = padded_to_256(rows * sizeof(float));
    const size_t turns = a->deterministic ? (heads * w.sums.row_tiles + 1) * sizeof(unsigned) : 0;
    char *at = (char *)a->workspace;
    w.sums.dq_sums = (float *)at;
    w.lse_base_2 = (float *)(at + sums);
    w.sums.row_dots = (float *)(at + sums + vector);
    w.sums.turns = (unsigned *)(at + sums + 2 * vector);
    w.sums.ticket = w.sums.turns + heads * w.sums.row_tiles;
    w.bytes = sums + 2 * vector + turns;
    return w;
}

// A thread takes a padded row for lse and D; the block together zeroes its rows of dq_sums and its
// share of the turns.
template <typename T, int HEAD_DIM, int TILE_ROWS>
__global__ void __launch_bounds__(TILE_ROWS)
    prepare_hopper_backward(const Attention a, const BackwardWorkspace w) {
    const BlockWork work = block_work(blockIdx.x, w.sums.row_tiles, a.heads);
    const int64_t head_index = (int64_t)work.batch * a.heads + work.head;
    const int64_t first_row = work.tile * TILE_ROWS, row = first_row + threadIdx.x;

    float lse = -CUDART_INF_F, dot = 0;
    if (row < a.seqlen_q) {
        const int64_t offset =
            row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
        const int64_t at = vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q);
        lse = a.lse[at];
        dot = row_dot<T, HEAD_DIM>((const T *)a.dout + offset, (const T *)a.o + offset);
        if (a.dlse != NULL) dot -= a.dlse[at]; // dS = P ∘ (dP - D + dlse)
    }
    const int64_t at = head_index * w.sums.padded_rows + row;
    w.lse_base_2[at] = lse == -CUDART_INF_F ? CUDART_INF_F : lse * CUDART_L2E_F;
    w.sums.row_dots[at] = dot;

    float *sums = w.sums.dq_sums + (head_index * w.sums.padded_rows + first_row) * HEAD_DIM;
    for (int i = threadIdx.x * 4; i < TILE_ROWS * HEAD_DIM; i += TILE_ROWS * 4)
        *(float4 *)&sums[i] = make_float4(0, 0, 0, 0);

    if (!a.deterministic) return;
    if (threadIdx.x == 0) w.sums.turns[head_index * w.sums.row_tiles + work.tile] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) *w.sums.ticket = 0;
}

// Where dq_sums holds a number of dQ: as the warpgroups hold their results of wgmma, 64 rows by 64
// columns each, so that a warpgroup's share is one piece of 16 KB, which TMA adds at once. Of a
// share, four numbers of thread 0 come first, then four of thread 1, and so on: the 16-byte stores
// of a warp fall into all banks alike.
template <int HEAD_DIM> struct WarpgroupLayout {
    __device__ static inline int position(int row, int column) {
        const int share = row / 64 * (HEAD_DIM / 64) + column / 64;
        const int thread = row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        const int number = row % 16 / 8 * 2 + column % 2;
        return share * (64 * 64) + column % 64 / 8 * 512 + thread * 4 + number;
    }
};

#endif
