// What a persistent thread block does next, and how its warps learn of it.
//
// One thread, the producer's, chooses the tile and reckons what it consists of: it is the first who
// needs to know, and while it waits for buffers it has time. It leaves a record in a mailbox in
// shared memory; all other warps only read it. There are MAILS records, so the next tile's stands
// there, with its K and Q under way, while the warps still work on this one.
//
//   full    the producer → all others.   One arrival.
//   empty   all others → the producer.   One arrival of each warp that reads.
//
// Tile n of this block (n = 0, 1, …) uses record n % MAILS, as its use n / MAILS. A record with
// blocks < 0 says that there is nothing more to do.
#ifndef WORK_H
#define WORK_H

#ifndef CACHED // chapter 9 defines it (forward.h)
#define CACHED false
#endif

#include "device/fused.h"
#include "device/mbarrier.h"
#include "device/wgmma.h"
#include "schedule.h"

static const int MAILS = 2;

// Query heads that a tile takes at a time, and how many rows of each a warpgroup does (packing.h).
__device__ static inline int group_of(const Attention &a) {
    return PACKED ? a.heads / a.kv_heads : 1;
}
__device__ static inline int tokens_of(const Attention &a) {
    return WGMMA_ROWS / group_of(a);
}

// A tile of query rows. Rows and keys count from the sequence's first. TMA's coordinates are 32-bit,
// so these are too.
typedef struct __align__(16) {
    int batch, head, kv_head; // TMA's: of several lengths there is one batch; of a group, the first
    int q_start, k_start;     // rows of the tensors before the sequence's first
    int seqlen_q, seqlen_k;
    int first_row;
    int blocks;                     // of keys that its rows see; -1: no tile, the end
    int last_key;                   // the first key of the last of them
    int unmasked_from, unmasked_to; // keys that all rows see
}
Work;

typedef struct {
    Work work[MAILS];
    uint64_t full[MAILS], empty[MAILS];
} Mailbox;

// *work: the tile at a place of the order, `rows` rows of each of its heads. Each number is left
// there at once: the producer has few registers.
__device__ static inline void find_work(Work *work, const Attention &a, const TileOrder &order,
                                        uint32_t place, int rows, int keys) {
    const TileWork tile = tile_of(&order, place);
    const int first_row = tile.tile * rows;
    int seqlen_q = (int)a.seqlen_q, seqlen_k = (int)a.seqlen_k, q_start = 0, k_start = 0;
    if (a.varlen) {
        q_start = a.cu_seqlens_q[tile.batch];
        k_start = a.cu_seqlens_k[tile.batch];
        seqlen_q = a.cu_seqlens_q[tile.batch + 1] - q_start;
        seqlen_k = a.cu_seqlens_k[tile.batch + 1] - k_start;
    }
    if (CACHED && a.cache) seqlen_k = a.cache_seqlens[tile.batch];
    work->batch = a.varlen ? 0 : tile.batch;
    work->head = tile.head * group_of(a);
    work->kv_head = PACKED ? tile.head : kv_head_of(tile.head, a.heads, a.kv_heads);
    work->q_start = q_start;
    work->k_start = k_start;
    work->seqlen_q = seqlen_q;
    work->seqlen_k = seqlen_k;
    work->first_row = first_row;

    const int last_row = min(first_row + rows, seqlen_q) - 1;
    const KeyRange first =
        visible_keys(first_row, seqlen_q, seqlen_k, a.window_left, a.window_right);
    const KeyRange last = visible_keys(last_row, seqlen_q, seqlen_k, a.window_left, a.window_right);
    const int first_key = (int)first.begin / keys * keys, end_key = (int)last.end;
    const int blocks = (max(end_key - first_key, 0) + keys - 1) / keys;
    work->blocks = blocks;
    work->last_key = first_key + (blocks - 1) * keys;
    work->unmasked_from = (int)last.begin; // both ends grow with the row
    work->unmasked_to = (int)first.end;
}

// ---- the producer's side

// The place after the first, which is the block's number: the next one that nobody has taken, or
// the one as many places on as there are blocks.
__device__ static inline uint32_t next_place(bool dynamic, uint32_t place, uint32_t *taken) {
    return (dynamic ? atomicAdd(taken, 1u) : place) + gridDim.x;
}

// Leaves record n once all have read the one that stood there: the tile at a place, or the end.
__device__ static inline void send_work(Mailbox *mailbox, uint32_t n, const Attention &a,
                                        const TileOrder &order, uint32_t place, uint32_t places,
                                        int rows, int keys) {
    const int slot = n % MAILS;
    mbarrier_wait(&mailbox->empty[slot], n / MAILS % 2 ^ 1); // a new mailbox is empty
    if (place < places)
        find_work(&mailbox->work[slot], a, order, place, rows, keys);
    else
        mailbox->work[slot].blocks = -1;
    mbarrier_arrive(&mailbox->full[slot]);
}

// ---- the others'

// Tile n's record; it stays there until release_work.
__device__ static inline const Work &receive_work(Mailbox *mailbox, uint32_t n) {
    const int slot = n % MAILS;
    mbarrier_wait(&mailbox->full[slot], n / MAILS % 2);
    return mailbox->work[slot];
}

// This warp has read tile n's record for the last time.
__device__ static inline void release_work(Mailbox *mailbox, uint32_t n) {
    __syncwarp(); // all lanes' reads → the one that arrives
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&mailbox->empty[n % MAILS]);
}

#endif
