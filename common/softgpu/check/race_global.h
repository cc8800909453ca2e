// Races in global memory: between blocks, and between the warps, lanes and bulk copies of one.
//
// It is the happens-before of race.h, in another memory. Inside a cluster knowledge is what race.h
// keeps. Between clusters it goes by words of global memory: a release (a fence and a strong write,
// or st.release, atom.release, …) leaves at the word what its lanes know; a strong read that finds
// it there, and acquires, makes it known. Only scopes that reach another block (.gpu, .sys) do so.
//
// Accesses are entered in the launch's one shadow, by one thread: those of the parallel phase are
// logged by their SM, with what their warp knew then, and entered when the round ends, SM by SM;
// what runs in the serial phase is entered at once. All that orders blocks runs there, so the order
// of entries is one that happens-before allows, and the same for any number of host threads.
//
// A launch is in order with those before and behind it.
//
// How to use it: place_global (execute/memory_access.c) does it for generic accesses,
// machine/bulk.c for bulk copies. All but global_races_… only if race_on(w).
#ifndef SOFTGPU_RACE_GLOBAL_H
#define SOFTGPU_RACE_GLOBAL_H

#include "softgpu/check/race.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/ranges.h"

// A launch begins (LaunchState.races is set if its races are checked) and ends.
void global_races_begin(LaunchState *launch);
void global_races_end(LaunchState *launch);
// Enters what SMs of the launch have logged, this one's. In the serial phase, before its findings
// are merged.
void global_races_merge(Sm *sm);
void global_races_free(Sm *sm);

// May the kernel that this launch runs write to the allocation? What it can't write (inputs,
// mostly) isn't followed.
bool race_writes(const LaunchState *launch, const Allocation *a);

// What a generic access is besides its addresses.
typedef struct {
    RaceAccess access;
    RaceOrder order;
    bool narrow;     // a strong one of a scope that no other block is in
    bool updates;    // an atomic, whether or not its result is used
    bool copies;     // a cp.async's read
    bool blind;      // red: an atomic that doesn't read
    uint8_t element; // bytes: those of a vector are accesses of their own
} GlobalKind;
// The lanes of `mask` access `size` bytes each, which `ranges` sums up. What an atomic orders is
// told by race_global_flag.
void race_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], const Ranges *ranges,
                 unsigned size, uint32_t mask, GlobalKind kind);

// The order that a strong access brings. An atomic tells it once it is known which lanes have
// written something: a cas that fails hasn't. And red doesn't read.
void race_global_flag(Warp *w, const uint64_t address[WARP_SIZE], unsigned size, uint32_t reads,
                      uint32_t writes, GlobalKind kind);
// How many reads of cp.async the warp has issued; its lanes have waited for the first `copies`.
uint32_t race_copies(const Warp *w);
void race_copies_read(Warp *w, uint32_t lanes, uint32_t copies);

// An agent reads bytes of global memory.
void race_agent_global(const RaceAgent *agent, uint64_t address, uint64_t bytes);
// A bulk store of this lane, in its group number `group`, writes (or reduces into) global memory.
void race_bulk_store(Warp *w, const Insn *i, int lane, uint32_t group, uint64_t address,
                     uint64_t bytes, bool reduces);
// A lane has waited until its groups below `group` have written all.
void race_bulk_written(Warp *w, int lane, uint32_t group);

#endif
