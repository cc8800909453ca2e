// The race check of shared memory: happens-before between warps and asynchronous operations, in the
// CTA and in its cluster (PTX ISA 8, memory consistency model; proxies).
//
// Every access is stamped with who made it and when, and is compared with the earlier accesses to
// the same bytes: unless the one who comes later *knows* of the earlier one, the two race, whatever
// order this run happened to give them. Who knows what is kept as vector clocks:
//
//   threads   all warps of the cluster, each one thread of the clock; and *agents*: asynchronous
//             operations (TMA copies, wgmma operand reads, st.async) that access shared memory at
//             some time between their issue and their completion
//   clock     a thread's clock goes up whenever it releases (barrier, arrive, proxy fence)
//   knowledge seen[t]       accesses of thread t up to this clock happened before
//             published[t]  … and t has executed fence.proxy.async behind them: the async proxy
//                           sees them
//             passed[t]     … or somebody else has, on the way here: right by the letter of PTX
//                           only; strict findings, notes otherwise
//
// Accesses of agents are entered at the issue, by what the issuer knows then, and count as under
// way until somebody learns of their completion. So findings depend on no latency and no schedule.
//
// Lanes of a warp are threads, too: that they execute an instruction together puts nothing in order.
// bar.warp.sync does ("guarantees memory ordering among participating threads"), and so do barriers
// and mbarriers that all of them pass. shfl, vote, match, redux, elect, ldmatrix, mma and wgmma's
// instructions say .sync, and mean that lanes wait for each other: PTX promises no order of memory
// for them. What some lanes release is what they have done or know of; what they acquire, others
// don't know. For that a warp keeps its last accesses (race_log.c) and classes of lanes that know
// different things (race_lanes.c); most of the time there is one class, the warp.
//
// Global memory is followed by race_global.h, which builds on this. Inside the cluster scopes count
// as wide enough. What errs, errs towards no finding.
//
// How to use it. Everything is off, and costs one test, unless race_on(w).
//
//   generic accesses   place_shared (execute/memory_access.c) does all of it. Other generic
//                      accesses call race_shared themselves.
//   a TMA load         RaceAgent a = race_agent_open(w, i, lane, RACE_TMA_LOAD); at the issue
//                      race_mbarrier_use(w, i, lane, cta, address, true);
//                      race_agent_access(&a, cta, low, high, RACE_WRITE);        each range
//                      race_agent_to_mbarrier(&a, cta, address);  at the landing, just before
//                                       mbarrier_complete_tx, for each CTA that gets a complete_tx
//                      race_agent_close(&a);                                     landed everywhere
//   a TMA store        open (RACE_TMA_STORE), access RACE_READ at the issue;
//                      race_agent_to_warp(&a, w, lanes) when their wait_group covers it;
//                      close then.
//   wgmma              open (RACE_WGMMA) once for a commit group of a warpgroup; then for each
//                      mma_async and each warp race_agent_issue(&a, &w, 1, i) and the rows of A
//                      that this warp reads, as RACE_READ ranges (a warp that has written its own
//                      rows needs no barrier with the others, but its lanes must meet); and once
//                      race_agent_issue(&a, warps, 4, i) and the ranges of B, which all of them
//                      must know to be there. race_agent_to_warp for each warp whose
//                      wait_group covers the group; close when all four have.
//   st.async, red.async open (RACE_ST_ASYNC, RACE_RED_ASYNC), RACE_WRITE, to_mbarrier, close.
//   bulk reductions     RACE_TMA_REDUCE: reductions into the same bytes don't race with each other.
//   cluster barrier     race_cluster_arrive(w, release) by each warp that arrives;
//                       race_cluster_complete(cta) when a phase completes, before anyone is woken;
//                       race_cluster_wait(w) by each warp whose wait has succeeded.
//   fences              race_proxy_fence, race_mbarrier_init_fence, race_fence.
//
// An agent is a plain value: keep it in the operation. `kind` 0 (a zeroed agent) is none; all
// functions ignore it, so callers need no race_on at the completion.
#ifndef SOFTGPU_RACE_H
#define SOFTGPU_RACE_H

#include "softgpu/check/check.h"

typedef struct Race Race;       // a cluster
typedef struct RaceCta RaceCta; // a CTA's part of it; Cta.race, NULL while the check is off

static inline bool race_on(const Warp *w) {
    return w->cta->race != NULL;
}

// ---- accesses by the generic proxy

typedef enum {
    RACE_READ,
    RACE_WRITE,
    RACE_STRONG_READ, // volatile, relaxed, acquire: don't race with other strong accesses
    RACE_STRONG_WRITE,
    RACE_ATOMIC,    // a strong read and write
    RACE_COPY,      // the write of a cp.async
    RACE_TILE_READ, // ldmatrix, wmma.load: by all lanes together, which of them reads what is open
    RACE_TILE_WRITE,
} RaceAccess;

// What a strong access orders besides: that of a plain one is RACE_RELAXED.
typedef enum { RACE_RELAXED, RACE_ACQUIRE, RACE_RELEASE, RACE_ACQ_REL } RaceOrder;

// The lanes of `mask` access `size` bytes at these offsets of the shared memory of `cta`, which may
// be another one of w's cluster.
void race_shared(Warp *w, const Insn *i, Cta *cta, const uint32_t offset[WARP_SIZE], unsigned size,
                 uint32_t mask, RaceAccess access, RaceOrder order);
// A cp.async that was entered at its issue (RACE_COPY) has been waited for: from now on it counts
// as a write that has just been made.
void race_copy_landed(Warp *w, const Insn *i, const uint32_t offset[WARP_SIZE], unsigned size,
                      uint32_t mask);

// ---- asynchronous agents

typedef enum {
    RACE_NO_AGENT,
    RACE_TMA_LOAD,   // a bulk copy that writes shared memory (of this CTA, of peers)
    RACE_TMA_STORE,  // one that only reads it
    RACE_TMA_REDUCE, // a bulk reduction into shared memory
    RACE_WGMMA,      // operands of a group of wgmma.mma_async
    RACE_ST_ASYNC,   // generic proxy
    RACE_RED_ASYNC,  // generic proxy
    RACE_TCGEN05,    // operands of tcgen05.mma and .cp (check/tmem_race.h)
    RACE_CP_ASYNC,   // of global memory: the reads of cp.async
} RaceAgentKind;

typedef struct {
    RaceAgentKind kind;
    uint16_t thread; // of the clock
    uint32_t clock;
    Race *race;
    uint64_t generation; // of the cluster: an agent ends with it
    const Insn *insn;
    Warp *issuers[4]; // whose knowledge counts
    int issuer_count;
    int lane; // of the issuer; -1: the whole warp
} RaceAgent;

// An agent of this lane, or (-1) of all. Of kind RACE_NO_AGENT if the check is off.
RaceAgent race_agent_open(Warp *w, const Insn *i, int lane, RaceAgentKind kind);
// Accesses that follow belong to this instruction, and are made by what all of these warps know
// now: for further operations that complete together with the first. At most 4 warps, of one
// cluster.
void race_agent_issue(RaceAgent *agent, Warp *const *warps, int count, const Insn *i);
// The agent accesses [low, high) of the shared memory of `cta` (offsets without rank bits):
// RACE_READ or RACE_WRITE.
void race_agent_access(RaceAgent *agent, Cta *cta, uint32_t low, uint32_t high, RaceAccess access);
// Its end is released into the current phase of an mbarrier: who waits for that knows of it.
void race_agent_to_mbarrier(const RaceAgent *agent, Cta *cta, uint32_t address);
// Its end is known to these lanes, which have waited for it. (For a store, its reads are enough.)
void race_agent_to_warp(const RaceAgent *agent, Warp *w, uint32_t lanes);
// Nothing more will be told about it.
void race_agent_close(RaceAgent *agent);

// ---- synchronisation

// bar and barrier: an arrival; a warp goes on behind a use, which is one of the whole CTA if
// `whole`; the end of a use.
void race_bar_arrive(Warp *w, int number);
void race_bar_wait(Warp *w, int number, bool whole);
void race_bar_complete(Cta *cta, int number);
void race_warp_exited(Warp *w);

void race_cluster_arrive(Warp *w, bool release);
void race_cluster_complete(Cta *cta);
void race_cluster_wait(Warp *w);

// bar.warp.sync: these lanes have met.
void race_warp_sync(Warp *w, uint32_t lanes);
// shfl.sync and its like: lanes have exchanged values. Unless strict that passes on what they have
// acquired (not what they have done): CUDA's cooperative groups wait in one lane and shuffle.
void race_warp_exchange(Warp *w, uint32_t lanes);

// fence.proxy.async of a kind that covers shared memory.
void race_proxy_fence(Warp *w, uint32_t lanes);
// fence.mbarrier_init
void race_mbarrier_init_fence(Warp *w);
// … of one that covers global memory only: for shared memory it is none.
void race_proxy_fence_global(Warp *w, uint32_t lanes);
// fence.acq_rel, fence.sc, membar; with only one half, fence.acquire and fence.release. `wide`: of a
// scope that other clusters are in.
void race_fence(Warp *w, uint32_t lanes, bool acquires, bool releases, bool wide);

// mbarriers; called by machine/mbarrier.c. `object` is Mbarrier.race.
uint32_t race_mbarrier_init(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                            uint32_t object);
void race_mbarrier_end(Cta *cta, uint32_t object);
// A thread names the object: has it been initialised before, in every order of events? An
// asynchronous operation that will complete on it (to be called at its issue) needs
// fence.mbarrier_init besides.
void race_mbarrier_use(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                       bool asynchronous);
void race_mbarrier_arrive(Warp *w, uint32_t lanes, Cta *cta, uint32_t address);
// The phase number `phases` (counted from 1) has completed.
void race_mbarrier_complete(Cta *cta, uint32_t object, uint64_t phases);
// A wait has been answered: the lanes of `done` have learnt that the phase is complete.
void race_mbarrier_wait(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                        bool by_parity, uint32_t done, bool acquires);
// cp.async.mbarrier.arrive: at its issue (answers a stamp), and when the arrival comes.
typedef struct {
    uint32_t clock, copies; // of the warp: its clock, the reads of its cp.async so far
} RaceStamp;
RaceStamp race_async_arrive(Warp *w, uint32_t lanes);
void race_async_arrived(Warp *w, Cta *cta, uint32_t address, RaceStamp stamp);

// ---- for machine/: a CTA starts (its cluster and rank are set). Memory is kept for the next one
// until race_cta_free.

void race_cta_start(Cta *cta);
void race_cta_free(Cta *cta);

#endif
