// What chapter 8's kernels count in their workspace while they run. Plain C.
#ifndef COUNTERS_H
#define COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COUNTING_WARPS = 4 }; // of a thread block: the correction's

// How often a warp might have rescaled its rows of O, and how often it has.
typedef struct {
    uint32_t decisions, rescales;
} WarpCount;

// The beginning of a launch's workspace. Behind it come COUNTING_WARPS WarpCounts of each block.
typedef struct {
    uint32_t taken;  // places of the order that blocks have taken; zero at the beginning
    uint32_t blocks; // of the launch
    uint32_t padding[2];
} Counters;

// The bytes for so many blocks.
#define COUNTERS_BYTES(blocks)                                                                     \
    (sizeof(Counters) + (size_t)(blocks)*COUNTING_WARPS * sizeof(WarpCount))

// What a block mask says (block_mask.h), of all pairs of tiles together.
typedef struct {
    int64_t blocks, visited, partial; // of keys: all, in either list, in the partial one
} BlockCounts;

// Copies the counts of the mask in a->workspace to the host and adds them up.
cudaError_t count_block_mask(const Attention *a, BlockCounts *counts);

// How often the step that has run on `a` has let O be, and what it has not visited at all, as a
// sentence; nothing if it doesn't count.
void say_counts(const Step *step, const Attention *a, char *sentence, size_t size);

#ifdef __cplusplus
}
#endif

#endif
