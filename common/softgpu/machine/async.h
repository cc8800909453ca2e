// What goes on while its threads compute. This file has cp.async (PTX ISA 9.7.9.25.3), with the
// arrivals at mbarriers that wait for it, and what all kinds share: async_demand, async_land_all
// and the end of a CTA. The others have files of their own:
//
//     bulk.h     bulk copies and TMA
//     remote.h   st.async, red.async
//     wgmma.h    wgmma.mma_async
//
// An operation has three moments. At its *issue* addresses are checked and traffic is counted. When
// it *lands*, its source is read and its destination written, in one step. It is *released* when a
// wait has told the issuing thread that it has landed, or, for a copy that an mbarrier tracks, when
// that mbarrier's phase completes. From issue to release its destination is closed: no other access
// may touch it, wherever between the two it lands. When that is, is the setting `async`:
//
//   timed    after a fixed latency in SM time
//   early    at the issue
//   late     not before a wait asks for it; the source is read then
//   random   after a latency drawn from the SM's random numbers
//
// So a right program computes the same under all four. Waits and groups are per thread: lanes of a
// warp that act alike share an operation, and each lane has its group number.
//
// Closed words are only kept track of with the sync check (Cta.closed is NULL without it).
#ifndef SOFTGPU_ASYNC_H
#define SOFTGPU_ASYNC_H

#include "softgpu/machine/machine.h"

enum { COPY_BYTES = 16 }; // at most, of one lane

// A copy of a warp, to its own CTA's shared memory.
typedef struct {
    uint32_t to[WARP_SIZE];         // shared addresses without rank bits, checked
    const uint8_t *from[WARP_SIZE]; // host addresses; only where `size` isn't 0
    uint8_t size[WARP_SIZE];        // bytes that are read; the rest becomes zero
    bool whole;                     // all of them are `bytes`
    uint8_t bytes;                  // that are written: 4, 8, 16
} Copy;

void async_copy(Warp *w, const Insn *i, uint32_t mask, const Copy *copy);
// Closes the lanes' current group.
void async_commit(Warp *w, uint32_t mask);
// Have all but the `newest` last groups of each lane landed? Then releases them; else the running
// group is blocked until they can have, and the handler returns FLOW_RETRY. `newest` = ASYNC_NONE:
// copies that are in no group yet count too.
#define ASYNC_NONE UINT32_MAX
bool async_wait(Warp *w, uint32_t mask, uint32_t newest);
// Once all copies that the lane has issued so far have landed, arrives at the mbarrier at address[]
// (which has counted the arrival as pending, mbarrier_expect_async).
void async_arrive(Warp *w, const Insn *i, uint32_t mask, const uint32_t address[WARP_SIZE]);

// An mbarrier's phase has completed: releases the copies whose arrivals it counted.
void async_phase_completed(Cta *cta, uint32_t address);
// Someone waits at this mbarrier and only asynchronous arrivals are missing: lands what they wait
// for, where nothing else will (late). False if there is nothing of the kind.
bool async_demand(Cta *cta, uint32_t address);
// Nobody gets on: lands everything that only a wait would have (wgmma aside, whose waits ask for it
// themselves). False if there is nothing.
bool async_land_all(Sm *sm);

// The instruction that copies to a byte in [low, high) of shared memory and has not been released,
// and who issued it; NULL if there is none. `except`: a group of a lane that doesn't count.
typedef struct {
    const Insn *insn;
    const Warp *warp;
    int lane;
    uint32_t group;
    const uint8_t *from;
} CopyOwner;
bool async_owner(const Cta *cta, uint32_t low, uint32_t high, CopyOwner *owner);

// The CTA is finished: forgets its operations. Those not waited for are a lint, if `report`.
void async_cta_finish(Cta *cta, bool report);
void async_cta_free(Cta *cta);
void async_free(Sm *sm);

// ---- closed words: one bit for every 4 bytes of the CTA's shared memory

// Makes sure that Cta.closed exists, if the sync check is on.
void closed_prepare(Cta *cta);

static inline uint64_t closed_bits(uint32_t at, uint32_t bytes) {
    return ((1ull << bytes / 4) - 1) << at / 4 % 64;
}
static inline void closed_set(Cta *cta, uint32_t at, uint32_t bytes) {
    if (cta->closed) cta->closed[at / 256] |= closed_bits(at, bytes);
}
static inline void closed_clear(Cta *cta, uint32_t at, uint32_t bytes) {
    if (cta->closed) cta->closed[at / 256] &= ~closed_bits(at, bytes);
}
// Is a word closed that [low, high) touches?
static inline bool closed_any(const uint64_t *closed, uint32_t low, uint32_t high) {
    uint32_t first = low / 256, last = (high - 1) / 256;
    uint64_t from = ~0ull << low / 4 % 64, to = ~0ull >> (63 - (high - 1) / 4 % 64);
    if (first == last) return closed[first] & from & to;
    uint64_t any = (closed[first] & from) | (closed[last] & to);
    for (uint32_t k = first + 1; k < last; k++) any |= closed[k];
    return any;
}

#endif
