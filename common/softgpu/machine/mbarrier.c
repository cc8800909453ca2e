// The states of mbarrier objects and what changes them (mbarrier.h).
#include "softgpu/machine/mbarrier.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/trace.h"

// The live objects of a CTA.
struct MbarrierTable {
    uint16_t *slot; // per 8 bytes of shared memory: 1 + index in `live`, 0 if there is none
    Mbarrier *live;
    int count, capacity;
};

// ---- the word

enum { SUSPENDED = 1 << 20 }; // cycles after which a timed try_wait looks again
enum { TX_SHIFT = 40, TX_BITS = 21, PHASE_SHIFT = 61, PHASES = 8 };

MbarrierState mbarrier_unpack(uint64_t word) {
    return (MbarrierState){
        .pending = (uint32_t)word & MBARRIER_COUNT_MAX,
        .expected = (uint32_t)(word >> 20) & MBARRIER_COUNT_MAX,
        .tx = (int32_t)((int64_t)(word << (64 - TX_SHIFT - TX_BITS)) >> (64 - TX_BITS)),
        .phase = (unsigned)(word >> PHASE_SHIFT),
    };
}

uint64_t mbarrier_pack(const MbarrierState *s) {
    uint64_t tx = (uint64_t)(int64_t)s->tx & ((1u << TX_BITS) - 1);
    return s->pending | (uint64_t)s->expected << 20 | tx << TX_SHIFT |
           (uint64_t)s->phase << PHASE_SHIFT;
}

static uint64_t load(const Cta *cta, uint32_t address) {
    uint64_t word;
    memcpy(&word, cta->shared + address, 8);
    return word;
}

static void store(Cta *cta, uint32_t address, const MbarrierState *s) {
    uint64_t word = mbarrier_pack(s);
    memcpy(cta->shared + address, &word, 8);
}

MbarrierState mbarrier_state(const Cta *cta, uint32_t address) {
    return mbarrier_unpack(load(cta, address));
}

// ---- live objects

Mbarrier *mbarrier_find(const Cta *cta, uint32_t address) {
    struct MbarrierTable *t = cta->mbarriers;
    int slot = t ? t->slot[address / 8] : 0;
    return slot ? &t->live[slot - 1] : NULL;
}

const Mbarrier *mbarrier_get(const Cta *cta, int k) {
    return cta->mbarriers && k < cta->mbarriers->count ? &cta->mbarriers->live[k] : NULL;
}

static Mbarrier *add(Cta *cta, uint32_t address) {
    struct MbarrierTable *t = cta->mbarriers;
    if (!t) {
        t = cta->mbarriers = allocate(sizeof *t);
        *t = (struct MbarrierTable){0};
        size_t size = (cta->shared_size / 8 + 1) * sizeof *t->slot;
        t->slot = allocate(size);
        memset(t->slot, 0, size);
    }
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 8;
        t->live = realloc(t->live, (size_t)t->capacity * sizeof *t->live);
        if (!t->live) abort();
    }
    t->live[t->count++] = (Mbarrier){.address = address};
    t->slot[address / 8] = (uint16_t)t->count;
    closed_prepare(cta);
    closed_set(cta, address, 8);
    return &t->live[t->count - 1];
}

void mbarrier_kill(Cta *cta, uint32_t address) {
    struct MbarrierTable *t = cta->mbarriers;
    Mbarrier *b = mbarrier_find(cta, address);
    if (!b) return;
    race_mbarrier_end(cta, b->race);
    *b = t->live[--t->count]; // the last one takes its place
    t->slot[b->address / 8] = (uint16_t)(b - t->live + 1);
    t->slot[address / 8] = 0;
    closed_clear(cta, address, 8);
}

void mbarriers_reset(Cta *cta) {
    struct MbarrierTable *t = cta->mbarriers;
    if (!t) return;
    for (int k = 0; k < t->count; k++) t->slot[t->live[k].address / 8] = 0;
    t->count = 0;
}

void mbarriers_free(Cta *cta) {
    if (!cta->mbarriers) return;
    free(cta->mbarriers->slot);
    free(cta->mbarriers->live);
    free(cta->mbarriers);
    cta->mbarriers = NULL;
}

// ---- rules

static bool checks(const Warp *w) {
    return w->sm->gpu->settings->checks & CHECK_SYNC;
}

// Is there an object? Without the sync check its value is taken as it stands.
static bool is_live(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t address) {
    if (!checks(w) || mbarrier_find(cta, address)) return true;
    finding(w, i, lane, FINDING_BARRIER,
            "Initialise it first: mbarrier.init by one thread, then __syncthreads.",
            "there is no mbarrier at 0x%x: no mbarrier.init has made one, or it was invalidated or "
            "overwritten",
            address);
    return false;
}

// A timed launch: those whose try_wait has suspended them try again.
static void wake_waiters(Cta *cta, const Mbarrier *b) {
    for (int k = 0; k < cta->warp_count; k++)
        if (b->waiting >> k % 32 & 1) warp_wake(&cta->warps[k], BLOCK_MBARRIER, (int)b->address);
}

// Completes the phase if nothing is awaited any more.
static void settle(Cta *cta, uint32_t address, MbarrierState *s) {
    bool completes = s->pending == 0 && s->tx == 0;
    if (completes) {
        s->phase = (s->phase + 1) % PHASES;
        s->pending = s->expected;
    }
    store(cta, address, s);
    cta->sm->changes++;
    if (!completes) return;
    if (trace_on(cta->sm)) trace_barrier(cta, address, cta->sm->time);
    Mbarrier *b = mbarrier_find(cta, address);
    if (b) {
        b->phases++;
        b->wait = NULL;
        if (cta->launch->pace) wake_waiters(cta, b);
        b->waiting = 0;
        b->bytes_expected = b->bytes_come = 0;
        race_mbarrier_complete(cta, b->race, b->phases);
    }
    async_phase_completed(cta, address);
}

// Adds to the bytes that are owed, without completing the phase.
static bool add_tx(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, MbarrierState *s,
                   int64_t bytes) {
    int64_t tx = s->tx + bytes;
    Mbarrier *b = mbarrier_find(cta, address);
    if (b && bytes > 0) b->bytes_expected += (uint64_t)bytes;
    if (b && bytes < 0) b->bytes_come += (uint64_t)-bytes;
    if (tx < -MBARRIER_COUNT_MAX || tx > MBARRIER_COUNT_MAX) {
        finding(w, i, lane, FINDING_BARRIER, "Expect at most 1,048,575 bytes in a phase.",
                "the tx-count of the mbarrier at 0x%x would be %lld", address, (long long)tx);
        return false;
    }
    s->tx = (int32_t)tx;
    return true;
}

// Is the object as mbarrier.init with this count would make it?
static bool is_fresh(const Cta *cta, const Mbarrier *b, uint32_t count) {
    MbarrierState s = mbarrier_state(cta, b->address);
    return !b->phases && !b->asynchronous && !s.tx && s.pending == count && s.expected == count;
}

bool mbarrier_init(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, uint32_t count) {
    Mbarrier *b = mbarrier_find(cta, address);
    if (count == 0 || count > MBARRIER_COUNT_MAX) {
        finding(w, i, lane, FINDING_BARRIER, "Give the number of arrivals that end a phase.",
                "an mbarrier can't expect %u arrivals: 1 to %d are allowed", count,
                MBARRIER_COUNT_MAX);
        return false;
    }
    bool strict = w->sm->gpu->settings->strict;
    if (b && checks(w)) {
        finding(w, i, lane, strict ? FINDING_BARRIER : FINDING_LINT,
                "Invalidate it first (mbarrier.inval), or initialise it once.",
                "there is a live mbarrier at 0x%x already", address);
        if (strict) return false;
    }
    // In others' programs several threads do it, all alike, before anybody uses it.
    if (b && !strict && is_fresh(cta, b, count)) return true;
    uint32_t race = race_mbarrier_init(w, i, lane, cta, address, b ? b->race : 0);
    if (!b) b = add(cta, address);
    *b = (Mbarrier){.address = address, .init = i, .race = race};
    MbarrierState s = {.pending = count, .expected = count};
    store(cta, address, &s);
    if (cta->shared_written) memset(cta->shared_written + address, 1, 8);
    cta->sm->changes++;
    return true;
}

bool mbarrier_inval(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address) {
    if (!is_live(w, i, lane, cta, address)) return false;
    mbarrier_kill(cta, address);
    if (cta->shared_written) memset(cta->shared_written + address, 0, 8);
    cta->sm->changes++;
    return true;
}

// Are the counts of an arrival possible?
static bool may_arrive(Warp *w, const Insn *i, int lane, uint32_t address, const MbarrierState *s,
                       Arrival a) {
    if (!checks(w)) return true;
    if (a.count == 0 || a.count > MBARRIER_COUNT_MAX) {
        finding(w, i, lane, FINDING_BARRIER, NULL,
                "arrives %u times at the mbarrier at 0x%x: 1 to %d are allowed", a.count, address,
                MBARRIER_COUNT_MAX);
        return false;
    }
    if (a.count > s->pending) {
        finding(
            w, i, lane, FINDING_BARRIER,
            "Initialise the mbarrier with the number of all arrivals of a phase, and let nobody "
            "arrive for the next phase before this one has completed.",
            "arrives %u times at the mbarrier at 0x%x, which waits for %u more arrivals (of %u)",
            a.count, address, s->pending, s->expected);
        return false;
    }
    if (a.drops && a.count > s->expected) {
        finding(w, i, lane, FINDING_BARRIER, "Drop only arrivals that mbarrier.init counted.",
                "drops %u arrivals of the mbarrier at 0x%x, which expects %u", a.count, address,
                s->expected);
        return false;
    }
    if (a.no_complete && a.count == s->pending && s->tx == 0) {
        finding(w, i, lane, FINDING_BARRIER,
                "Leave the last arrival to an mbarrier.arrive without .noComplete.",
                "arrives at the mbarrier at 0x%x with .noComplete and would complete its phase",
                address);
        return false;
    }
    return true;
}

bool mbarrier_arrive(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, Arrival a,
                     uint64_t *token) {
    if (!is_live(w, i, lane, cta, address)) return false;
    *token = load(cta, address);
    MbarrierState s = mbarrier_unpack(*token);
    if (a.expect_tx && !add_tx(w, i, lane, cta, address, &s, a.expect_tx)) return false;
    if (!may_arrive(w, i, lane, address, &s, a)) return false;
    if (a.drops) s.expected = (s.expected - a.count) & MBARRIER_COUNT_MAX;
    s.pending = (s.pending - a.count) & MBARRIER_COUNT_MAX;
    Mbarrier *b = mbarrier_find(cta, address);
    if (b) b->last_arrival = i;
    if (!a.relaxed) race_mbarrier_arrive(w, a.lanes, cta, address);
    w->stores++;
    settle(cta, address, &s);
    return true;
}

bool mbarrier_expect_tx(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                        uint32_t bytes) {
    if (!is_live(w, i, lane, cta, address)) return false;
    MbarrierState s = mbarrier_state(cta, address);
    if (!add_tx(w, i, lane, cta, address, &s, bytes)) return false;
    store(cta, address, &s);
    w->stores++;
    cta->sm->changes++;
    return true;
}

bool mbarrier_complete_tx(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                          uint32_t bytes) {
    if (!is_live(w, i, lane, cta, address)) return false;
    MbarrierState s = mbarrier_state(cta, address);
    if (!add_tx(w, i, lane, cta, address, &s, -(int64_t)bytes)) return false;
    settle(cta, address, &s);
    return true;
}

bool mbarrier_expect_async(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                           bool counted) {
    if (!is_live(w, i, lane, cta, address)) return false;
    MbarrierState s = mbarrier_state(cta, address);
    Mbarrier *b = mbarrier_find(cta, address);
    if (counted) {
        if (s.pending == MBARRIER_COUNT_MAX) {
            finding(w, i, lane, FINDING_BARRIER, NULL,
                    "the mbarrier at 0x%x has no room for another pending arrival", address);
            return false;
        }
        s.pending++;
        store(cta, address, &s);
    }
    if (b) b->asynchronous++;
    return true;
}

bool mbarrier_async_arrived(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address) {
    Mbarrier *b = mbarrier_find(cta, address);
    if (b && b->asynchronous) b->asynchronous--;
    uint64_t token;
    // What it releases has been released (race_async_arrived).
    const Arrival arrival = {.count = 1, .relaxed = true};
    return mbarrier_arrive(w, i, lane, cta, address, arrival, &token);
}

// How many phases have completed since the one that a token or a parity means.
static unsigned phases_since(const MbarrierState *s, bool by_parity, uint64_t token) {
    if (by_parity) return (s->phase & 1) != (token & 1);
    return (s->phase - mbarrier_unpack(token).phase) % PHASES;
}

bool mbarrier_test(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, bool by_parity,
                   uint64_t token, bool *completed) {
    if (!is_live(w, i, lane, cta, address)) return false;
    MbarrierState s = mbarrier_state(cta, address);
    Mbarrier *b = mbarrier_find(cta, address);
    if (b && !phases_since(&s, by_parity, token) && (b->asynchronous || s.tx) &&
        s.pending == b->asynchronous && async_demand(cta, address)) {
        s = mbarrier_state(cta, address);
    }
    unsigned since = phases_since(&s, by_parity, token);
    *completed = since != 0;
    if (since > 1 && checks(w)) {
        finding(
            w, i, lane, FINDING_BARRIER,
            "Wait for a phase before the next one but one can complete.",
            "waits at the mbarrier at 0x%x with a token that is no longer valid: %u phases have "
            "completed since its arrival",
            address, since);
        return false;
    }
    if (*completed) return true;
    w->waited_at = w->sm->time;
    if (b) {
        b->wait = i;
        b->waiting |= 1u << w->id % 32;
    }
    return true;
}

// Wakes a warp that may have waited for long, so that it can be found to wait in vain.
static void wake_late(Sm *sm, void *subject, uint64_t unused) {
    Warp *w = subject;
    (void)sm, (void)unused;
    if (!w->pace) return;
    w->pace->watched = false;
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        const Group *g = &w->groups[slot];
        if (g->mask && g->state == GROUP_BLOCKED && g->block == BLOCK_MBARRIER)
            warp_wake(w, BLOCK_MBARRIER, g->number);
    }
}

void mbarrier_suspend(Warp *w, uint32_t address) {
    warp_block(w, BLOCK_MBARRIER, (int)address, 0);
    if (w->pace->watched) return;
    w->pace->watched = true;
    event_add(w->sm, w->sm->time + SUSPENDED, wake_late, w, 0);
}
