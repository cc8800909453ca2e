// Which query rows and keys a thread block of chapter 9 takes, as integers: no CUDA is needed.
//
// Packing. The `group` query heads of one K/V head read the same keys, so their query tokens
// can share a tile. Row r of the packed rows is token r / group of the group's head r % group;
// group = 1 packs nothing. Tokens follow each other, so that a tile's first and last row say
// what a mask leaves of it.
//
// clang-format off
//   group = 4:   row      0   1   2   3 │ 4   5   6   7 │ 8 …
//                token    0   0   0   0 │ 1   1   1   1 │ 2
//                head     0   1   2   3 │ 0   1   2   3 │ 0
// clang-format on
//
// Splitting. The blocks of keys that a tile's rows see are shared out among `splits` thread
// blocks, as evenly as whole blocks can be: no split has two more than another. With more
// splits than blocks some get none.
//
// Invariant: the splits of a tile cover its blocks of keys, each exactly once; the tiles of a
// K/V head cover its packed rows.
#ifndef SPLIT_H
#define SPLIT_H

#include "device/index.h"
#include "device/mask.h"

// How a launch shares out its work. Blocks count splits fastest, then tiles, groups of heads, and
// sequences: the splits of a tile are neighbours.
typedef struct {
    int group;  // query heads that share a tile: heads / kv_heads, or 1
    int tiles;  // of the packed rows of a group of heads
    int splits; // of the keys
} Plan;

static const int MAX_SPLITS = 128;

// Rows of the tiles for so many packed rows: those of one mma.sync, or of four.
HOST_DEVICE static inline int decode_rows(int64_t packed_rows) {
    return packed_rows <= 16 ? 16 : 64;
}

// The tiles of `rows` rows that `tokens` query tokens of a group of heads fill.
HOST_DEVICE static inline int64_t packed_tiles(int64_t tokens, int group, int rows) {
    return tiles_of(tokens * group, rows);
}

// A block's place.
typedef struct {
    int split, tile, head_group, batch;
} SplitPlace;

HOST_DEVICE static inline SplitPlace split_place(uint32_t block, const Plan *plan,
                                                 int head_groups) {
    const uint32_t tile_index = block / (uint32_t)plan->splits;
    const uint32_t group_index = tile_index / (uint32_t)plan->tiles;
    SplitPlace place;
    place.split = (int)(block % (uint32_t)plan->splits);
    place.tile = (int)(tile_index % (uint32_t)plan->tiles);
    place.head_group = (int)(group_index % (uint32_t)head_groups);
    place.batch = (int)(group_index / (uint32_t)head_groups);
    return place;
}

// Split `split` of `splits` of `blocks` blocks: from the first on, before the end.
typedef struct {
    int first, end;
} BlockRange;

HOST_DEVICE static inline BlockRange split_blocks(int blocks, int split, int splits) {
    // exercise 1: begin
    const int each = blocks / splits, longer = blocks % splits; // the first `longer` have one more
    BlockRange range;
    range.first = split * each + (split < longer ? split : longer);
    range.end = range.first + each + (split < longer);
    return range;
    // exercise 1: end
}

// Keys in 32 bits: a block that reaches past the last key must not overflow.
static const int64_t MAX_DECODE_SEQLEN = INT32_MAX - 256;

// The keys that a split of a tile takes, in blocks of `keys` keys that start at multiples of it.
typedef struct {
    int first, end;                 // first == end: none
    int unmasked_from, unmasked_to; // what all rows of the tile see
} SplitKeys;

HOST_DEVICE static inline SplitKeys split_keys(int first_token, int last_token, int seqlen_q,
                                               int seqlen_k, int64_t window_left,
                                               int64_t window_right, int keys, int split,
                                               int splits) {
    const KeyRange first = visible_keys(first_token, seqlen_q, seqlen_k, window_left, window_right);
    const KeyRange last = visible_keys(last_token, seqlen_q, seqlen_k, window_left, window_right);
    const int start = (int)first.begin / keys * keys, seen_end = (int)last.end;
    const int blocks = seen_end > (int)first.begin ? (seen_end - start + keys - 1) / keys : 0;
    const BlockRange range = split_blocks(blocks, split, splits);
    SplitKeys k;
    k.first = start + range.first * keys;
    k.end = start + range.end * keys;  // of the last split this may lie behind the last key
    k.unmasked_from = (int)last.begin; // both ends grow with the row
    k.unmasked_to = (int)first.end;
    return k;
}

#endif
