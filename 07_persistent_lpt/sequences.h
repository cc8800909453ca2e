// A batch of sequences of several lengths: before the attention itself, one thread block sorts the
// sequences, longest first, and counts their tiles. Lengths are on the device, and stay there.
//
// The workspace of a launch:
//
//   taken      places that blocks have taken from the counter       4 bytes, and 12 of padding
//   entries    of several lengths only: batch + 1 SequenceEntry     schedule.h
#ifndef VARLEN_SEQUENCES_H
#define VARLEN_SEQUENCES_H

#include "device/fused.h"
#include "schedule.h"

static const int TAKEN_BYTES = 16;

static inline SequenceEntry *entries_of(const Attention *a) {
    return (SequenceEntry *)((char *)a->workspace + TAKEN_BYTES);
}

static inline size_t places_workspace(const Attention *a, bool dynamic) {
    if (a->varlen) return TAKEN_BYTES + ((size_t)a->batch + 1) * sizeof(SequenceEntry);
    return dynamic ? TAKEN_BYTES : 0;
}

// What sorting needs to know beside the lengths.
typedef struct {
    OrderKind kind;
    LongestTile longest;
    int heads;              // that have tiles of their own
    int rows;               // of a tile, of each head
    int64_t key_bytes;      // of K and V of one head
    int64_t l2_bytes;       // that they may take
    SequenceEntry *entries; // → the order
} SortedBy;

// One block of SORTED_SEQUENCES threads, a chunk of as many sequences at a time.
static __global__ void __launch_bounds__(SORTED_SEQUENCES)
    sort_sequences(const Attention a, const SortedBy by) {
    __shared__ SequenceSize sizes[SORTED_SEQUENCES];
    const int i = threadIdx.x;
    int64_t tiles = 0; // of the chunks before
    for (int chunk = 0; chunk < a.batch; chunk += SORTED_SEQUENCES) {
        const int count = min(a.batch - chunk, (int)SORTED_SEQUENCES), sequence = chunk + i;
        int64_t seqlen_k = 0;
        if (i < count) {
            seqlen_k = a.cu_seqlens_k[sequence + 1] - a.cu_seqlens_k[sequence];
            sizes[i] =
                size_of_sequence(by.rows, a.cu_seqlens_q[sequence + 1] - a.cu_seqlens_q[sequence],
                                 seqlen_k, a.window_left, a.window_right);
        }
        __syncthreads(); // all sizes → all threads
        const SequencePlace place =
            place_of_sequence(sizes, count, min(i, count - 1), by.kind != ORDER_AS_IT_COMES);
        if (i < count) {
            SequenceEntry entry;
            entry.first_tile = tiles + place.tiles;
            entry.sequence = sequence;
            entry.section = section_of_sequence(by.kind, by.heads, a.kv_heads,
                                                seqlen_k * by.key_bytes, by.l2_bytes, by.longest);
            by.entries[chunk + place.before] = entry;
        }
        tiles += place.all_tiles;
        __syncthreads(); // sizes have been read
    }
    if (i == 0) {
        const SequenceEntry end = {tiles, 0, 1};
        by.entries[a.batch] = end;
    }
}

// The order of the tiles, from the lengths on the device. *most is no less than its places.
static inline cudaError_t make_sequences_order(TileOrder *order, int64_t *most, const Attention *a,
                                               SortedBy by) {
    by.entries = entries_of(a);
    *order = make_entries_order(by.kind, a->batch, by.heads, by.entries, by.longest);
    *most = (a->total_q / by.rows + a->batch) * by.heads;
    sort_sequences<<<1, SORTED_SEQUENCES, 0, a->stream>>>(*a, by);
    return cudaGetLastError();
}

#endif
