// What a thread block works on: query rows of one head, and the blocks of keys that any of them
// sees, which it walks from the last down: masks cut the last blocks, and what comes after needs
// no mask. TMA's coordinates are 32-bit, so these are too.
#ifndef WORK_H
#define WORK_H

#ifndef FLEXIBLE // flexible_….cu define it (forward.h)
#define FLEXIBLE false
#endif

#include "block_mask.h"
#include "device/fused.h"
#include "forward_tile.h"

typedef struct __align__(16) {
    int batch, head, kv_head;
    int first_row;
    int blocks;   // of keys
    int last_key; // the first key of the last block
    // FLEXIBLE: the blocks stand in lists instead, the partial ones first
    int partial, capacity; // how many those are; entries of each list
    int *lists;
}
Work;

// *work: `rows` query rows from first_row on. Each number is left there at once: who finds work in
// persistent-lpt has few registers.
__device__ static inline void find_work(Work *work, const Attention &a, int batch, int head,
                                        int first_row, int rows) {
    work->batch = batch;
    work->head = head;
    work->kv_head = kv_head_of(head, a.heads, a.kv_heads);
    work->first_row = first_row;
    const int last_row = min(first_row + rows, (int)a.seqlen_q) - 1;
    const int begin = (int)visible_keys(first_row, a.seqlen_q, a.seqlen_k, a.window_left,
                                        a.window_right)
                          .begin; // both ends grow with the row
    const int end =
        (int)visible_keys(last_row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right).end;
    const int first_key = begin / KEYS * KEYS;
    const int blocks = (max(end - first_key, 0) + KEYS - 1) / KEYS;
    work->blocks = blocks;
    work->last_key = first_key + (blocks - 1) * KEYS;
}

// The work of this block, where each has one tile of `rows` rows.
__device__ static inline void find_work_of_block(Work *work, const Attention &a, int rows) {
    const BlockWork block = block_work(blockIdx.x, tiles_of((uint32_t)a.seqlen_q, rows), a.heads);
    find_work(work, a, block.batch, block.head, (int)block.tile * rows, rows);
}

// FLEXIBLE: *work from the block mask. Pairs are numbered by their work: 0 has most.
__device__ static inline void find_listed_work(Work *work, const Attention &a, int batch, int head,
                                               int pair) {
    const BlockMask mask = block_mask_of(&a);
    const int which = mask.masks > 1 ? batch : 0;
    const int first = mask.order[which * mask.pairs + pair];
    const int *counts = mask.counts + (which * mask.pairs + first) * LISTS;
    work->batch = batch;
    work->head = head;
    work->kv_head = kv_head_of(head, a.heads, a.kv_heads);
    work->first_row = first * PAIR_ROWS;
    work->blocks = counts[0] + counts[1];
    work->last_key = 0; // nobody asks, but one load may bring its neighbours and it
    work->partial = counts[0];
    work->capacity = mask.capacity;
    work->lists = block_lists(&mask, which, first);
}

// FLEXIBLE: the entry of block j.
__device__ static inline int entry_of(const Work &work, int j) {
    return work.lists[j < work.partial ? j : work.capacity + j - work.partial];
}

// FLEXIBLE: a partial block's details, for a warp of the pair's rows; of a full block anything.
__device__ static inline int details_of(const Work &work, int j, int warp) {
    return j < work.partial ? block_details(work.lists, work.capacity, j)[warp] : 0;
}

// The first key of block j of the work.
__device__ static inline int key_of(const Work &work, int j) {
    if (FLEXIBLE) return (entry_of(work, j) >> ENTRY_SHIFT) * KEYS;
    return work.last_key - j * KEYS;
}

// Keys that all of a tile's 128 rows see: from … to - 1. Blocks within them need no mask.
typedef struct {
    int from, to;
} UnmaskedKeys;

__device__ static inline UnmaskedKeys keys_without_mask(const Attention &a, int first_row) {
    const int64_t last_row = min(first_row + ROWS, (int)a.seqlen_q) - 1;
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    UnmaskedKeys keys;
    keys.from = (int)all.begin;
    keys.to = (int)all.end;
    return keys;
}

#endif
