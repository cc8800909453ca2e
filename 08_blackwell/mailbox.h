// What a thread block does next, and how its warps learn of it. In the steps before persistent-lpt a
// block has one piece of work, which thread 0 leaves here before all begin. A PERSISTENT block takes
// one after the other: the thread that loads chooses it, since it needs it first, and leaves a
// record; all other warps only read. There are MAILS records, so that the next pair's is there, with
// its Q, K and V under way, while warps still work on this one.
//
//   full    load → all others   one arrival
//   empty   all others → load   one of each warp that reads
//
// Work n of this block (n = 0, 1, …) uses record n % MAILS, as its use n / MAILS. A record with
// blocks < 0 says that there is nothing more to do.
#ifndef MAILBOX_H
#define MAILBOX_H

#include "../07_persistent_lpt/schedule.h"
#include "device/mbarrier.h"
#include "work.h"

static const int MAILS = 2;

typedef struct {
    Work work[MAILS];
    uint64_t full[MAILS], empty[MAILS];
} Mailbox;

__device__ static inline void mailbox_init(Mailbox *mailbox, int readers) {
    for (int i = 0; i < MAILS; i++) {
        mbarrier_init(&mailbox->full[i], 1);
        mbarrier_init(&mailbox->empty[i], readers);
    }
}

// ---- load's side

// The place after this: the next that nobody has taken.
__device__ static inline uint32_t next_place(uint32_t *taken) {
    return atomicAdd(taken, 1u) + gridDim.x;
}

// Leaves record n once all have read what stood there: the work at a place of the order, or the end.
__device__ static inline void send_work(Mailbox *mailbox, uint32_t n, const Attention &a,
                                        const TileOrder &order, uint32_t place, int rows) {
    const int slot = n % MAILS;
    mbarrier_wait(&mailbox->empty[slot], n / MAILS % 2 ^ 1); // a new mailbox is empty
    if (place < (uint32_t)order.places) {
        const TileWork tile = tile_of(&order, place);
        if (FLEXIBLE)
            find_listed_work(&mailbox->work[slot], a, tile.batch, tile.head, tile.tile);
        else
            find_work(&mailbox->work[slot], a, tile.batch, tile.head, tile.tile * rows, rows);
    } else {
        mailbox->work[slot].blocks = -1;
    }
    mbarrier_arrive(&mailbox->full[slot]);
}

// ---- the others' side

// Is there a piece of work n? Its record stands in *work until it is released.
__device__ static inline bool receive_work(const Work **work, Mailbox *mailbox, uint32_t n) {
    const int slot = n % MAILS;
    if (PERSISTENT) mbarrier_wait(&mailbox->full[slot], n / MAILS % 2);
    *work = &mailbox->work[slot];
    return PERSISTENT ? mailbox->work[slot].blocks >= 0 : n == 0;
}

// One thread stands for its warp; or the whole warp has read record n for the last time.
__device__ static inline void release_work_alone(Mailbox *mailbox, uint32_t n) {
    if (PERSISTENT) mbarrier_arrive(&mailbox->empty[n % MAILS]);
}
__device__ static inline void release_work(Mailbox *mailbox, uint32_t n) {
    __syncwarp(); // all lanes' reads → the one that arrives
    if (threadIdx.x % 32 == 0) release_work_alone(mailbox, n);
}

#endif
