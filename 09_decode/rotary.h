// The rotary embedding of queries and new keys.
//
// A pair of columns (x, y) turns by the angles of its row's position: (x cos - y sin, x sin + y
// cos).
#ifndef ROTARY_H
#define ROTARY_H

#include "work.h"

// Columns of pair `pair`, and where its angles stand in the tables.
typedef struct {
    int first, second;
    int64_t angle;
} Pair;

__device__ static inline Pair pair_of(const Attention &a, int pair, int64_t position) {
    const int pairs = a.rotary_dim / 2;
    Pair p;
    p.first = a.rotary_interleaved ? 2 * pair : pair;
    p.second = a.rotary_interleaved ? 2 * pair + 1 : pair + pairs;
    p.angle = position * pairs + pair;
    return p;
}

// Turns the numbers at *x and *y.
template <typename T>
__device__ static inline void turn_pair(T *x, T *y, const Attention &a, const Pair &pair) {
    const float cosine = a.rotary_cos[pair.angle], sine = a.rotary_sin[pair.angle];
    const float first = to_float(*x), second = to_float(*y);
    store(x, first * cosine - second * sine);
    store(y, first * sine + second * cosine);
}

// Turns the tile's queries where they stand in shared memory. Each token of a causal problem,
// or of one with a window, has its own position; else all have that of the first new key. All
// threads call it after a barrier, and meet again afterwards.
template <typename T, int HEAD_DIM, int THREADS>
__device__ static inline void turn_query(T *q_smem, const Attention &a, const Work &work,
                                         int group) {
    const int pairs = a.rotary_dim / 2;
    const bool own = a.window_left >= 0 || a.window_right >= 0;
    const int cached = work.seqlen_k - a.new_keys;
    for (int i = threadIdx.x; i < work.rows * pairs; i += THREADS) {
        const int row = i / pairs, token = (work.first_row + row) / group;
        const Pair pair = pair_of(a, i % pairs, cached + (own ? token : 0));
        turn_pair(&q_smem[swizzled_offset(HEAD_DIM, row, pair.first) + pair.first % 8],
                  &q_smem[swizzled_offset(HEAD_DIM, row, pair.second) + pair.second % 8], a, pair);
    }
}

#endif
