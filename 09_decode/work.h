// A thread block's share of a decoding problem, and how its query rows and keys come to shared
// memory.
//
// Query rows are packed (split.h). Keys and values stand in a cache of one of three shapes. In all
// of them key j is row j % page_rows of a page:
//
//   no cache        a sequence is one page of seqlen_k rows
//   a dense cache   a sequence is one page of cache_rows rows, of which it has used the first
//   pages           of page_size rows, found in the sequence's line of the block table
//
// Invariant: nothing behind a sequence's last key is read, neither K and V nor the block table. In
// shared memory zeros stand there: 0 * NaN would be NaN.
#ifndef DECODE_WORK_H
#define DECODE_WORK_H

#include "decode_tile.h"
#include "device/cp_async.h"
#include "device/dispatch.h"
#include "split.h"

typedef struct {
    int split, batch, kv_head;
    int first_head;      // of the heads that share the tile
    int first_row, rows; // packed rows: the tile's first, and how many it has
    int seqlen_k;        // of this sequence
    SplitKeys keys;
} Work;

__device__ static inline Work work_of(const Attention &a, const Plan &plan, int tile_rows,
                                      int keys) {
    const SplitPlace place = split_place(blockIdx.x, &plan, a.heads / plan.group);
    Work work;
    work.split = place.split;
    work.batch = place.batch;
    work.first_head = place.head_group * plan.group;
    work.kv_head = kv_head_of(work.first_head, a.heads, a.kv_heads);
    work.first_row = place.tile * tile_rows;
    work.rows = min((int)a.seqlen_q * plan.group - work.first_row, tile_rows);
    work.seqlen_k = a.cache ? a.cache_seqlens[place.batch] + a.new_keys : (int)a.seqlen_k;
    const int last_row = work.first_row + work.rows - 1;
    work.keys =
        split_keys(work.first_row / plan.group, last_row / plan.group, (int)a.seqlen_q,
                   work.seqlen_k, a.window_left, a.window_right, keys, place.split, plan.splits);
    return work;
}

// Packed row `row` of the tile as an output row: where its lse stands, and, times head_dim, its q
// and o.
typedef struct {
    int64_t lse, o;
} RowPlace;

__device__ static inline RowPlace row_place(const Attention &a, const Work &work, int group,
                                            int row) {
    const int packed = work.first_row + row, token = packed / group;
    const int head = work.first_head + packed - token * group;
    RowPlace place;
    place.lse = vector_offset(work.batch, head, token, a.heads, a.seqlen_q);
    place.o = row_offset(work.batch, token, head, a.seqlen_q, a.heads, 1);
    return place;
}

// Starts copying the tile's query rows → q_smem; rows that it doesn't have become zeros.
template <typename T, int HEAD_DIM, int ROWS, int THREADS>
__device__ static inline void copy_query(T *q_smem, const Attention &a, const Work &work,
                                         int group) {
    const int SPAN = HEAD_DIM % 64 == 0 ? 64 : 32, LANES = SPAN / 8; // as copies of keys
    const int column = threadIdx.x % LANES * 8;
#pragma unroll
    for (int row = threadIdx.x / LANES; row < ROWS; row += THREADS / LANES) {
        const RowPlace place = row_place(a, work, group, min(row, work.rows - 1));
        const T *from = (const T *)a.q + place.o * HEAD_DIM + column;
        const int to = lane_row(HEAD_DIM, row, column);
#pragma unroll
        for (int right = 0; right < HEAD_DIM; right += SPAN)
            cp_async16(&q_smem[lane_row_at(HEAD_DIM, to, 0, right)], from + right,
                       row < work.rows ? 16 : 0);
    }
}

// Rows of a page, and of all that come before a sequence's.
__device__ static inline int page_rows(const Attention &a) {
    return a.page_size > 0 ? a.page_size : (int)(a.cache ? a.cache_rows : a.seqlen_k);
}

// Where keys stand that are in pages. A block's rows can be copied only when their pages are
// known, and while memory is busy a look-up takes as long as a block's copies. So it is a copy,
// too: when block i arrives, the page numbers of block i + BUFFERS - 1, which is copied next,
// arrive with it.
//
// A warp copies 32 rows at most, so each lane looks one up, in a place that nobody else uses.
typedef struct {
    int key, remainder; // of the block that is copied next: the lane's key, and its row in the page
    int ahead_key, ahead_remainder; // of the block that is looked up,
    int line;                       // and its line of the block table
    int lines, keys;                // whole pages, and keys, from a block to the next
} Row;

template <class Tile> __device__ static inline Row first_row(const Attention &a, const Work &work) {
    const int at_once = 32 / Tile::LANES, lane = threadIdx.x % 32, rows = page_rows(a);
    static_assert(at_once * Tile::THREAD_KEYS <= 32, "a lane for each row of a warp");
    Row row;
    row.key = work.keys.first + threadIdx.x / 32 * at_once + lane % at_once +
              lane / at_once % Tile::THREAD_KEYS * Tile::ROW_STEP;
    row.remainder = row.key % rows;
    row.ahead_key = row.key;
    row.ahead_remainder = row.remainder;
    row.line = row.key / rows;
    row.lines = Tile::KEYS / rows;
    row.keys = Tile::KEYS % rows;
    return row;
}

// Starts the look-up of the block ahead, and goes on to the one after. Sums: a division would take
// longer than all else here.
template <int KEYS>
__device__ static inline void look_up(int *page_smem, Row &row, const Attention &a,
                                      const Work &work) {
    if (a.page_size > 0 && row.ahead_key < work.seqlen_k)
        cp_async4(page_smem, a.block_table + (int64_t)work.batch * a.table_columns + row.line);
    row.ahead_key += KEYS;
    row.line += row.lines;
    row.ahead_remainder += row.keys;
    if (row.ahead_remainder < page_rows(a)) return;
    row.ahead_remainder -= page_rows(a);
    row.line++;
}

// The lane's row of the block that is copied next, counted from the cache's first; then on to the
// block after. Of a key that there isn't, the first: nothing of it is read.
template <int KEYS>
__device__ static inline int found_row(const int *page_smem, Row &row, const Attention &a,
                                       const Work &work) {
    const int rows = page_rows(a);
    int found = 0;
    if (row.key < work.seqlen_k)
        found = (a.page_size > 0 ? *page_smem : work.batch) * rows + row.remainder;
    row.key += KEYS;
    row.remainder += row.keys;
    if (row.remainder >= rows) row.remainder -= rows;
    return found;
}

// Starts copying a block of K and V → a buffer. `found`: found_row, if in pages.
template <class Tile>
__device__ static inline void copy_keys(uint16_t *buffer, const Attention &a, const Work &work,
                                        int key, int found) {
    if (key >= work.keys.end) return;
    const int lane = threadIdx.x % 32, column = lane % Tile::LANES * 8;
    const int first = threadIdx.x / Tile::LANES;
    const int to = lane_row(Tile::UNITS, first, column);
#pragma unroll
    for (int i = 0; i < Tile::THREAD_KEYS; i++) {
        const int down = i * Tile::ROW_STEP, j = key + first + down;
        int64_t row = (int64_t)work.batch * page_rows(a) + min(j, work.seqlen_k - 1);
        if (PAGED)
            row = __shfl_sync(0xffffffffu, found, lane / Tile::LANES + i * (32 / Tile::LANES));
        const int64_t from = (row * a.kv_heads + work.kv_head) * Tile::UNITS + column;
        const int bytes = j < work.seqlen_k ? 16 : 0;
#pragma unroll
        for (int right = 0; right < Tile::UNITS; right += Tile::SPAN) {
            uint16_t *place = &buffer[lane_row_at(Tile::UNITS, to, down, right)];
            cp_async16(place, (const uint16_t *)a.k + from + right, bytes);
            cp_async16(place + Tile::KV_UNITS, (const uint16_t *)a.v + from + right, bytes);
        }
    }
}

#endif
