// mbarrier objects (PTX ISA 9.7.13.15): barriers in shared memory that count arrivals, and bytes
// that asynchronous copies still owe.
//
// The object is an opaque 64-bit value in shared memory:
//
//   bits   0-19  pending arrivals of the current phase
//         20-39  expected arrivals of the phases to come
//         40-60  bytes still to come (tx-count), two's complement
//         61-63  the phase, modulo 8: parity is the lowest bit; the rest tells stale tokens
//
// A phase completes when nothing is pending and no byte is owed. What memory can't hold, who made
// the object, who waits, is in a record per live object, which is also how a use of memory that is
// no mbarrier is known. Functions take the CTA in whose memory the object lies, which need not be
// the warp's own, and the warp and instruction that a finding is about.
#ifndef SOFTGPU_MBARRIER_H
#define SOFTGPU_MBARRIER_H

#include "softgpu/machine/machine.h"

enum { MBARRIER_COUNT_MAX = (1 << 20) - 1 };

typedef struct {
    uint32_t pending, expected;
    int32_t tx;
    unsigned phase; // modulo 8
} MbarrierState;

typedef struct Mbarrier {
    uint32_t address;
    uint64_t phases;                     // completed since mbarrier.init
    uint32_t asynchronous;               // arrivals of cp.async that have been counted and not come
    uint64_t bytes_expected, bytes_come; // in the current phase
    const Insn *init, *last_arrival;
    const Insn *wait; // one that found the current phase incomplete, or NULL
    uint32_t waiting; // the warps that did, a bit each
    uint32_t race;    // check/race.h
} Mbarrier;

MbarrierState mbarrier_unpack(uint64_t word);
uint64_t mbarrier_pack(const MbarrierState *state);
MbarrierState mbarrier_state(const Cta *cta, uint32_t address);

// All return false after a finding that ends the launch.
bool mbarrier_init(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, uint32_t count);
bool mbarrier_inval(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address);

typedef struct {
    uint32_t count;
    uint32_t expect_tx; // bytes, before the arrival
    bool drops, no_complete;
    bool relaxed;   // releases nothing
    uint32_t lanes; // that execute the instruction: what they release is one
} Arrival;
// *token: the object's value before the arrival.
bool mbarrier_arrive(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, Arrival arrival,
                     uint64_t *token);
bool mbarrier_expect_tx(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                        uint32_t bytes);
// Bytes have come.
bool mbarrier_complete_tx(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                          uint32_t bytes);
// cp.async.mbarrier.arrive: an arrival is to come. Without .noinc (`counted`) it is added to what
// is pending. And its coming.
bool mbarrier_expect_async(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                           bool counted);
bool mbarrier_async_arrived(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address);

// Has the phase completed that a token names, or the one of this parity? Those who find it has not
// are remembered for the report of a deadlock.
bool mbarrier_test(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, bool by_parity,
                   uint64_t token, bool *completed);

// A timed launch: blocks the running group until the object's phase completes; the handler returns
// FLOW_RETRY.
void mbarrier_suspend(Warp *w, uint32_t address);

// The live object at this address of shared memory, or NULL.
Mbarrier *mbarrier_find(const Cta *cta, uint32_t address);
// The live objects of a CTA: number k, NULL past the end.
const Mbarrier *mbarrier_get(const Cta *cta, int k);
// A plain access has overwritten it.
void mbarrier_kill(Cta *cta, uint32_t address);
void mbarriers_reset(Cta *cta);
void mbarriers_free(Cta *cta);

#endif
