// The kernels that make a block mask (block_mask.h): once for all heads, all launches, all layers.
#include "block_mask.h"

#include <stdlib.h>

#include "mods.h"

static const int CHUNK = PAIR_ROWS; // a thread a row; later, a block of keys

// What the warps found of each block of the chunk: an entry's details.
typedef struct {
    uint8_t details[CHUNK][PAIR_WARPS];
} Seen;

// A thread's row and each block of the chunk; a warp's 32 rows together. Rows behind the last don't
// mind what they see.
__device__ static inline void look(Seen *seen, const Attention &a, int batch, int row,
                                   int first_block, int blocks) {
    const MaskRow own = mask_row(a, batch, row);
    const bool exists = row < a.seqlen_q;
    for (int b = 0; b < blocks; b++) {
        int details = 0;
#pragma unroll 1
        for (int w = 0; w < KEYS / 32; w++) {
            const uint32_t word = mask_word(a.mask_mod, own, (first_block + b) * KEYS + w * 32);
            if (__any_sync(0xffffffffu, exists && word != 0)) details |= 1 << w;
            if (__all_sync(0xffffffffu, !exists || word == 0xffffffffu)) details |= 16 << w;
        }
        if (threadIdx.x % 32 == 0) seen->details[b][threadIdx.x / 32] = (uint8_t)details;
    }
}

// Of a block, from what the warps found: is it visited, and an entry's low bits.
__device__ static inline bool is_visited(const Seen *seen, int b, int *partial) {
    bool any = false;
    *partial = 0;
    for (int warp = 0; warp < PAIR_WARPS; warp++) {
        const int details = seen->details[b][warp];
        any = any || (details & 15) != 0;
        if (details >> 4 != 15) *partial |= 1 << warp / (PAIR_WARPS / 2);
    }
    return any;
}

// A thread block for each pair of tiles of each mask. Chunks of blocks from the last down, and in a
// chunk thread t has the t-th from its end: so both lists come out in the order that they are read.
static __global__ void __launch_bounds__(PAIR_ROWS) fill_lists(const Attention a) {
    __shared__ __align__(8) Seen seen;
    __shared__ int in_warp[LISTS][PAIR_WARPS];
    const BlockMask mask = block_mask_of(&a);
    const int which = blockIdx.x / mask.pairs, pair = blockIdx.x % mask.pairs;
    const int thread = threadIdx.x, warp = thread / 32;
    int *lists = block_lists(&mask, which, pair);
    int used[LISTS] = {0, 0};
    for (int end = mask.capacity; end > 0; end -= CHUNK) {
        const int first = max(end - CHUNK, 0), blocks = end - first;
        look(&seen, a, which, pair * PAIR_ROWS + thread, first, blocks);
        __syncthreads(); // all warps' rows → a thread a block
        const int b = blocks - 1 - thread;
        int partial = 0;
        const bool visited = b >= 0 && is_visited(&seen, b, &partial);
        const bool listed[LISTS] = {visited && partial != 0, visited && partial == 0};
        uint32_t lanes[LISTS];
        for (int l = 0; l < LISTS; l++) {
            lanes[l] = __ballot_sync(0xffffffffu, listed[l]);
            if (thread % 32 == 0) in_warp[l][warp] = __popc(lanes[l]);
        }
        __syncthreads(); // what each warp lists → all
        for (int l = 0; l < LISTS; l++) {
            int at = used[l] + __popc(lanes[l] & ((1u << thread % 32) - 1));
            for (int w = 0; w < PAIR_WARPS; w++) {
                if (w < warp) at += in_warp[l][w];
                used[l] += in_warp[l][w];
            }
            if (!listed[l]) continue;
            lists[l * mask.capacity + at] = (first + b) << ENTRY_SHIFT | partial;
            if (l == 0)
                *(uint2 *)block_details(lists, mask.capacity, at) = *(uint2 *)seen.details[b];
        }
        __syncthreads(); // all has been read
    }
    if (thread == 0)
        for (int l = 0; l < LISTS; l++) mask.counts[blockIdx.x * LISTS + l] = used[l];
}

// Pairs in the order of their work, the longest first: a pair's place is how many come before it.
static __global__ void __launch_bounds__(256) sort_pairs(const Attention a) {
    const BlockMask mask = block_mask_of(&a);
    const int *counts = mask.counts + (int64_t)blockIdx.x * mask.pairs * LISTS;
    for (int pair = threadIdx.x; pair < mask.pairs; pair += blockDim.x) {
        const int own = counts[LISTS * pair] + counts[LISTS * pair + 1];
        int before = 0;
        for (int other = 0; other < mask.pairs; other++) {
            const int blocks = counts[LISTS * other] + counts[LISTS * other + 1];
            before += blocks > own || (blocks == own && other < pair);
        }
        mask.order[blockIdx.x * mask.pairs + before] = pair;
    }
}

cudaError_t make_block_mask(const Attention *a) {
    const BlockMask mask = block_mask_of(a);
    if (mask.pairs == 0) return cudaSuccess;
    fill_lists<<<(unsigned)(mask.masks * mask.pairs), PAIR_ROWS, 0, a->stream>>>(*a);
    sort_pairs<<<(unsigned)mask.masks, 256, 0, a->stream>>>(*a);
    return cudaGetLastError();
}

cudaError_t count_block_mask(const Attention *a, BlockCounts *counts) {
    const BlockMask mask = block_mask_of(a);
    const size_t pairs = (size_t)mask.masks * mask.pairs, bytes = pairs * LISTS * sizeof(int);
    int *listed = (int *)malloc(bytes);
    if (listed == NULL) return cudaErrorMemoryAllocation;
    const cudaError_t error = cudaMemcpy(listed, mask.counts, bytes, cudaMemcpyDeviceToHost);
    *counts = {(int64_t)pairs * mask.capacity, 0, 0};
    for (size_t pair = 0; pair < pairs && error == cudaSuccess; pair++) {
        counts->partial += listed[LISTS * pair];
        counts->visited += listed[LISTS * pair] + listed[LISTS * pair + 1];
    }
    free(listed);
    return error;
}
