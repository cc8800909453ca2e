// How many splits: enough thread blocks to fill the GPU, and no more than that takes. Plain C.
//
// A GPU has room for `slots` blocks at a time, so blocks come in waves, and the last wave is seldom
// full. Of `waves` waves of work, `ceil(waves)` waves of time: their quotient is the efficiency.
//
//   tiles 8, slots 132     splits  8     64 blocks    0.48 waves    efficiency 0.48
//                                  15   120           0.91                     0.91  ← the rule's
//                                  16   128           0.97                     0.97  ← taken
//                                  17   136           1.03                     0.52
//                                  33   264           2                        1
//
// More splits are more partial results to write, read and merge, so it is the smallest number that
// comes within 15% of the best. This is FlashAttention-3's rule (hopper/heuristics.h). Ours is what
// follows it: no split longer than need be, and no merge that saves less than it takes (splits_for).
#ifndef HEURISTIC_H
#define HEURISTIC_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t tiles;          // of query rows, of all heads and sequences: blocks without splits
    int64_t tiles_per_head; // of one K/V head of one sequence
    int64_t key_blocks;     // that the longest sequence's tiles walk over
    int64_t kv_head_bytes;  // K and V of one head of the longest sequence
    int slots;              // blocks that the GPU has room for at a time
    int max_splits;
    bool masked; // a mask takes keys from many tiles
} SplitShape;

static const double FULL_ENOUGH = 0.8;    // of the slots: no splits
static const double NEAR_THE_BEST = 0.85; // of the best efficiency
static const int64_t FEW_KEY_BLOCKS = 4;  // not worth splitting
static const double MERGE_BLOCKS = 4;     // a second kernel takes about as long as so many
static const double SLOT_TIME = 0.75;     // for a block of keys, of the time that HBM takes
static const int64_t SPLIT_L2_BYTES = 50 << 20;

// The keys that matter to a tile of `rows` query tokens under a window: no more than it shows.
static inline int64_t keys_to_split(int64_t seqlen_k, int64_t window_left, int64_t window_right,
                                    int64_t rows) {
    if (window_left < 0 || window_right < 0) return seqlen_k;
    if (window_left >= seqlen_k || window_right >= seqlen_k) return seqlen_k;
    const int64_t shown = window_left + window_right + 1 + rows;
    return shown < seqlen_k ? shown : seqlen_k;
}

// Of the time that the waves take, the part that all slots work. 0 < result <= 1 for tiles > 0.
static inline double wave_efficiency(int64_t tiles, int splits, int slots) {
    const int64_t blocks = tiles * splits;
    const int64_t waves = (blocks + slots - 1) / slots;
    return waves == 0 ? 0 : (double)blocks / ((double)waves * slots);
}

// The number of splits, 1 … max_splits.
static inline int choose_splits(const SplitShape *shape) {
    const int64_t tiles = shape->tiles;
    int max = shape->max_splits;
    if (tiles <= 0) return 1;
    if ((double)tiles >= FULL_ENOUGH * shape->slots) {
        // The GPU is full. But if many tiles walk over a head that the L2 doesn't hold, each
        // fetches it from memory again: in splits that it holds they share.
        if (shape->kv_head_bytes > SPLIT_L2_BYTES && !shape->masked &&
            shape->tiles_per_head >= 2 * (int64_t)shape->slots) {
            const int64_t parts = (shape->kv_head_bytes + SPLIT_L2_BYTES - 1) / SPLIT_L2_BYTES;
            return (int)(parts < max ? parts : max);
        }
        return 1;
    }
    if (shape->key_blocks <= FEW_KEY_BLOCKS) return 1;
    if (shape->slots < max) max = shape->slots;
    if (shape->key_blocks < max) max = (int)shape->key_blocks;
    double best = 0;
    for (int splits = 1; splits <= max; splits++) {
        const double efficiency = wave_efficiency(tiles, splits, shape->slots);
        if (efficiency > best) best = efficiency;
    }
    for (int splits = 1; splits < max; splits++)
        if (wave_efficiency(tiles, splits, shape->slots) >= NEAR_THE_BEST * best) return splits;
    return max;
}

// Blocks of keys that a slot walks over, one after the other, in all waves.
static inline int64_t blocks_walked(const SplitShape *shape, int splits) {
    const int64_t waves = (shape->tiles * splits + shape->slots - 1) / shape->slots;
    return waves * ((shape->key_blocks + splits - 1) / splits);
}

// Keys are cut between their blocks: of 32 blocks 28 splits have two or one each, and end no sooner
// than 16. So it is the first number whose longest split is as short as any's that takes no wave more.
// The efficiency only rises. (FlashAttention-3 doesn't ask.)
static inline int shorten_longest(const SplitShape *shape, int splits) {
    if (splits <= 1) return splits;
    const int64_t waves = (shape->tiles * splits + shape->slots - 1) / shape->slots;
    int64_t most = waves * shape->slots / shape->tiles;
    if (most > shape->max_splits) most = shape->max_splits;
    if (most > shape->key_blocks) most = shape->key_blocks;
    if (most <= splits) return splits;
    const int64_t longest = (shape->key_blocks + most - 1) / most;
    const int64_t fewest = (shape->key_blocks + longest - 1) / longest;
    return fewest > splits ? (int)fewest : splits;
}

// The time that it takes, in blocks of keys as HBM brings them when all slots ask. A slot can take
// them faster than that, so three quarters of the slots ask for all that there is.
static inline double time_in_blocks(const SplitShape *shape, int splits) {
    const double brought = (double)(shape->tiles * shape->key_blocks) / shape->slots;
    const double worked = SLOT_TIME * (double)blocks_walked(shape, splits);
    return worked > brought ? worked : brought;
}

// Is the merge worth its time? Where the tiles alone fill much of the GPU, or keys are few, splits
// save less than their merge takes. (FlashAttention-3 doesn't ask.)
static inline bool worth_merging(const SplitShape *shape, int splits) {
    return time_in_blocks(shape, 1) - time_in_blocks(shape, splits) > MERGE_BLOCKS;
}

// What the steps take: the rule, and what is ours.
static inline int splits_for(const SplitShape *shape) {
    const int chosen = choose_splits(shape);
    if (shape->tiles >= shape->slots) return chosen;
    const int splits = shorten_longest(shape, chosen);
    return worth_merging(shape, splits) ? splits : 1;
}

#endif
