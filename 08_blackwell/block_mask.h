// Which blocks of keys a pair of tiles has to visit: the block mask. A kernel asks the mask of every
// (row, key) once (block_mask.cu), and leaves for each pair of tiles, 256 query rows, two lists of
// blocks of 128 keys, from the last block down:
//
//   partial   some row of the pair doesn't see some key: the mask is asked again
//   full      all rows see all keys: no mask
//
// Blocks that are in neither list are not loaded, not multiplied, not known to exist. In an entry, a
// block's number times 4, its lowest bits say of which of the two tiles the block is partial. Beside
// an entry of the partial list stands, for each warp of 32 rows, a byte of details: of each 32 keys
// whether any row sees any (bits 0-3), and whether all see all (bits 4-7). Most of a partial block
// is one or the other, and the mask needn't be asked there.
//
// The blocks' sizes are the forward's own: whoever reads the lists steps in the same blocks.
//
//   workspace │ Counters, WarpCounts │ counts: 2 a pair │ lists of each pair │ order: 1 a pair │
//   lists     │ capacity entries: partial │ as many: full │ as many times 8 bytes: details │
#ifndef BLOCK_MASK_H
#define BLOCK_MASK_H

#include "counters.h"
#include "device/index.h"
#include "forward_tile.h"

static const int PAIR_ROWS = 2 * ROWS;
static const int LISTS = 2;       // partial, full
static const int ENTRY_SHIFT = 2; // an entry's low bits: is the block partial for tile 0, tile 1
static const int PAIR_WARPS = PAIR_ROWS / 32;
static const int DETAIL_INTS = PAIR_WARPS / (int)sizeof(int); // of an entry
static const int PAIR_INTS = LISTS + DETAIL_INTS;             // of a pair's lists, for each block
static_assert(PAIR_ROWS == 256 && KEYS == 128, "the mask's blocks are the forward's");

typedef struct {
    int pairs;    // of one sequence
    int capacity; // entries of a list: blocks of keys of a sequence
    int masks;    // one for each sequence of the batch, or one for all of them
    int *counts;  // (masks, pairs, LISTS): entries that there are
    int *lists;   // (masks, pairs, PAIR_INTS, capacity)
    int *order;   // (masks, pairs): pairs, those with most blocks first
} BlockMask;

HOST_DEVICE static inline int64_t block_mask_pairs(const Attention *a) {
    return tiles_of(a->seqlen_q, PAIR_ROWS);
}

// A batch's sequences differ only in their documents.
HOST_DEVICE static inline int block_masks(const Attention *a) {
    return a->mask_mod == MASK_DOCUMENT ? a->batch : 1;
}

// Bytes of the workspace in front of the mask.
HOST_DEVICE static inline size_t block_mask_at(const Attention *a) {
    return COUNTERS_BYTES(block_mask_pairs(a) * a->batch * a->heads);
}

HOST_DEVICE static inline size_t block_mask_bytes(const Attention *a) {
    const int64_t capacity = tiles_of(a->seqlen_k, KEYS);
    return block_masks(a) * block_mask_pairs(a) * (LISTS + 1 + PAIR_INTS * capacity) * sizeof(int);
}

HOST_DEVICE static inline BlockMask block_mask_of(const Attention *a) {
    BlockMask mask;
    mask.pairs = (int)block_mask_pairs(a);
    mask.capacity = (int)tiles_of(a->seqlen_k, KEYS);
    mask.masks = block_masks(a);
    mask.counts = (int *)((char *)a->workspace + block_mask_at(a));
    mask.lists = mask.counts + (int64_t)mask.masks * mask.pairs * LISTS; // at a multiple of 8 bytes
    mask.order = mask.lists + (int64_t)mask.masks * mask.pairs * PAIR_INTS * mask.capacity;
    return mask;
}

// Where a pair's lists begin: the partial one, the full one, the details.
HOST_DEVICE static inline int *block_lists(const BlockMask *mask, int which, int pair) {
    return mask->lists + ((int64_t)which * mask->pairs + pair) * PAIR_INTS * mask->capacity;
}

// The details of entry j of the partial list: a byte for each warp.
HOST_DEVICE static inline uint8_t *block_details(int *lists, int capacity, int j) {
    return (uint8_t *)(lists + LISTS * capacity + DETAIL_INTS * j);
}

#ifdef __cplusplus
extern "C" {
#endif

// Starts the kernels that fill the mask in a->workspace.
cudaError_t make_block_mask(const Attention *a);

#ifdef __cplusplus
}
#endif

#endif
