// Asynchronous copies: issue, landing, release (async.h).
//
// Each warp has a list of its operations in the order of issue. An operation leaves the list when
// all its lanes have landed and been released; that is only done where nobody walks the list
// (sweep). One event per warp is armed for the time at which the first of its operations lands.
#include "softgpu/machine/async.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/check/race_global.h"
#include "softgpu/machine/bulk.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/remote.h"
#include "softgpu/machine/tcgen05.h"
#include "softgpu/machine/tmem.h"
#include "softgpu/machine/wgmma.h"
#include "softgpu/timing/pace_parts.h"

enum { LATENCY = 600 }; // in SM time, of a copy that misses L1 and L2
#define ON_DEMAND UINT64_MAX
#define UNKNOWN   (UINT64_MAX - 1) // timed: its lines are on their way, or have not left yet

typedef struct AsyncOp AsyncOp;
struct AsyncOp {
    AsyncOp *next;
    const Insn *insn;
    Warp *warp;
    uint64_t due;              // when it lands
    uint64_t generation;       // tells an answer to an earlier use of this memory
    uint32_t flying;           // lanes that have not landed; of an arrival, not arrived
    uint32_t open;             // lanes that have not been released
    bool arrives;              // an arrival at the mbarriers copy.to
    RaceStamp stamp;           // … what it releases; a copy's reads, for race_copies_read
    uint32_t group[WARP_SIZE]; // of each lane
    Copy copy;
    uint8_t before[WARP_SIZE][COPY_BYTES]; // the source at the issue, with the sync check
};

typedef struct AsyncWarp AsyncWarp;
struct AsyncWarp {
    Warp *warp;
    AsyncOp *first, **last;
    uint32_t committed[WARP_SIZE]; // groups that each lane has closed
    uint64_t latest, floor;        // when the last copy lands; and the last of closed groups
    uint64_t armed;                // time of the event, 0 if there is none
    uint64_t generation;           // tells events of an earlier owner
    AsyncWarp *next;               // of the spare ones
};

// Memory that operations and warps hand on.
struct AsyncPool {
    AsyncOp *ops;
    AsyncWarp *warps;
};

static struct AsyncPool *pool_of(Sm *sm) {
    if (!sm->async) {
        sm->async = allocate(sizeof *sm->async);
        *sm->async = (struct AsyncPool){0};
    }
    return sm->async;
}

static AsyncWarp *async_warp(Warp *w) {
    if (w->async) return w->async;
    struct AsyncPool *pool = pool_of(w->sm);
    AsyncWarp *a = pool->warps;
    if (a) {
        pool->warps = a->next;
    } else {
        a = allocate(sizeof *a);
        memset(a, 0, sizeof *a);
    }
    a->warp = w;
    a->first = NULL;
    a->last = &a->first;
    a->armed = a->latest = a->floor = 0;
    memset(a->committed, 0, sizeof a->committed);
    w->async = a;
    return a;
}

static AsyncOp *op_new(Sm *sm) {
    struct AsyncPool *pool = pool_of(sm);
    AsyncOp *op = pool->ops;
    if (op)
        pool->ops = op->next;
    else {
        op = allocate(sizeof *op);
        op->generation = 0;
    }
    return op;
}

static void op_free(Sm *sm, AsyncOp *op) {
    op->generation++;
    op->next = sm->async->ops;
    sm->async->ops = op;
}

static void append(AsyncWarp *a, AsyncOp *op) {
    op->next = NULL;
    *a->last = op;
    a->last = &op->next;
    if (op->arrives) a->warp->cta->async_arrivals++;
}

// Takes finished operations off the list.
static void sweep(AsyncWarp *a) {
    for (AsyncOp **link = &a->first; *link;) {
        AsyncOp *op = *link;
        if (op->flying | op->open) {
            link = &op->next;
            continue;
        }
        if (op->arrives) a->warp->cta->async_arrivals--;
        *link = op->next;
        if (!*link) a->last = link;
        op_free(a->warp->sm, op);
    }
}

static bool checks_sync(const Warp *w) {
    return w->sm->gpu->settings->checks & CHECK_SYNC;
}

// Does the release of an operation matter?
static bool checks_release(const Warp *w) {
    return w->sm->gpu->settings->checks & (CHECK_SYNC | CHECK_RACE);
}

// ---- closed words

void closed_prepare(Cta *cta) {
    if (cta->closed || !(cta->sm->gpu->settings->checks & CHECK_SYNC)) return;
    size_t size = (cta->shared_size + 255) / 256 * sizeof *cta->closed;
    cta->closed = allocate(size);
    memset(cta->closed, 0, size);
}

// Opens the words of an operation's lanes.
static void open_words(Cta *cta, const AsyncOp *op, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1)
        closed_clear(cta, op->copy.to[__builtin_ctz(lanes)], op->copy.bytes);
}

// Closes words again that another operation still needs closed.
static void close_all(Cta *cta) {
    for (int k = 0; k < cta->warp_count; k++) {
        AsyncWarp *a = cta->warps[k].async;
        for (AsyncOp *op = a ? a->first : NULL; op; op = op->next)
            for (uint32_t rest = op->arrives ? 0 : op->open; rest; rest &= rest - 1)
                closed_set(cta, op->copy.to[__builtin_ctz(rest)], op->copy.bytes);
    }
}

bool async_owner(const Cta *cta, uint32_t low, uint32_t high, CopyOwner *owner) {
    for (int k = 0; k < cta->warp_count; k++) {
        const AsyncWarp *a = cta->warps[k].async;
        for (const AsyncOp *op = a ? a->first : NULL; op; op = op->next) {
            for (uint32_t rest = op->arrives ? 0 : op->open; rest; rest &= rest - 1) {
                int lane = __builtin_ctz(rest);
                uint32_t at = op->copy.to[lane];
                if (at >= high || at + op->copy.bytes <= low) continue;
                *owner = (CopyOwner){op->insn, &cta->warps[k], lane, op->group[lane],
                                     op->copy.size[lane] ? op->copy.from[lane] : NULL};
                return true;
            }
        }
    }
    return false;
}

// Records that a lane copies to where another copy is under way. Not one: a copy of the same lane
// in an earlier group, since groups complete in order; and the same bytes twice.
static void meet_owner(Warp *w, const AsyncOp *op, int lane) {
    uint32_t at = op->copy.to[lane];
    CopyOwner owner;
    w->cta->closed_overlap = true;
    if (!async_owner(w->cta, at, at + op->copy.bytes, &owner)) return; // a lane of this very copy
    if (owner.warp == w && owner.lane == lane && owner.group != op->group[lane]) return;
    if (op->copy.size[lane] && owner.from == op->copy.from[lane]) return;
    finding_pair(w, op->insn, lane, FINDING_RACE, owner.insn,
                 "Wait for the earlier copy first, or copy to another buffer.",
                 "copies to shared memory at 0x%x, where a copy of thread %d that has not been "
                 "waited for writes too: which bytes stay is left open",
                 at, owner.warp->id * WARP_SIZE + owner.lane);
}

// Closes the destinations, and keeps what the sources hold.
static void close_words(Warp *w, AsyncOp *op) {
    Cta *cta = w->cta;
    const Copy *c = &op->copy;
    closed_prepare(cta);
    uint64_t *closed = cta->closed;
    for (uint32_t rest = op->open; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t bits = closed_bits(c->to[lane], c->bytes);
        if (closed[c->to[lane] / 256] & bits) meet_owner(w, op, lane);
        closed[c->to[lane] / 256] |= bits;
        if (c->size[lane]) memcpy(op->before[lane], c->from[lane], c->size[lane]);
    }
}

// ---- landing and release

// Moves the bytes of some lanes.
static void land(AsyncWarp *a, AsyncOp *op, uint32_t lanes) {
    Warp *w = a->warp;
    Copy *c = &op->copy;
    uint8_t *shared = w->cta->shared;
    if (c->whole && c->bytes == COPY_BYTES) {
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            int lane = __builtin_ctz(rest);
            memcpy(shared + c->to[lane], c->from[lane], COPY_BYTES);
        }
    } else {
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            int lane = __builtin_ctz(rest);
            uint8_t *to = shared + c->to[lane];
            if (c->size[lane]) memcpy(to, c->from[lane], c->size[lane]);
            memset(to + c->size[lane], 0, c->bytes - c->size[lane]);
        }
    }
    op->flying &= ~lanes;
    if (w->sm->gpu->settings->checks & CHECK_INIT)
        init_shared_written(w->cta, c->to, c->bytes, lanes);
    w->sm->changes++;
}

// The wait for some lanes' copies is over: from here on the bytes are the issuing threads' writes,
// visible to them, and to others once a barrier orders them behind.
static void release(AsyncWarp *a, AsyncOp *op, uint32_t lanes) {
    Warp *w = a->warp;
    const Copy *c = &op->copy;
    lanes &= op->open;
    if (!lanes) return;
    op->open &= ~lanes;
    if (op->arrives) return;
    open_words(w->cta, op, lanes);
    if (w->cta->closed_overlap) close_all(w->cta);
    if (!checks_sync(w)) return;
    for (; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        if (!c->size[lane] || !memcmp(op->before[lane], c->from[lane], c->size[lane])) continue;
        finding(w, op->insn, lane, FINDING_RACE,
                "Let nobody write the source before the thread that copies has waited.",
                "the source of this copy was written between its issue and its wait: which bytes "
                "arrive at 0x%x is left open",
                c->to[lane]);
    }
}

static void arm(AsyncWarp *a, uint64_t time);

// Lands what is due at `now` (ON_DEMAND: everything) for these lanes, and makes the arrivals that
// no earlier copy holds up any more. Returns when the next operation is due.
static uint64_t advance(AsyncWarp *a, uint32_t lanes, uint64_t now) {
    uint64_t next = ON_DEMAND;
    uint32_t held = 0; // lanes of which an earlier copy is still flying
    for (AsyncOp *op = a->first; op; op = op->next) {
        if (!op->flying) continue;
        if (op->arrives) {
            for (uint32_t arriving = op->flying & ~held; arriving; arriving &= arriving - 1) {
                int lane = __builtin_ctz(arriving);
                op->flying &= ~(1u << lane); // each by itself: a phase may complete in between
                race_async_arrived(a->warp, a->warp->cta, op->copy.to[lane], op->stamp);
                mbarrier_async_arrived(a->warp, op->insn, lane, a->warp->cta, op->copy.to[lane]);
            }
            continue;
        }
        if (op->due <= now && op->flying & lanes) land(a, op, op->flying & lanes);
        held |= op->flying;
        if (op->flying && op->due < next) next = op->due;
    }
    return next;
}

static void land_due(Sm *sm, void *subject, uint64_t generation) {
    AsyncWarp *a = subject;
    if (a->generation != generation) return;
    if (a->armed <= sm->time) a->armed = 0;
    uint64_t next = advance(a, FULL_MASK, sm->time);
    sweep(a);
    arm(a, next);
}

// Sees to it that an event comes at `time`.
static void arm(AsyncWarp *a, uint64_t time) {
    if (time >= UNKNOWN || (a->armed && a->armed <= time)) return;
    a->armed = time;
    event_add(a->warp->sm, time, land_due, a, a->generation);
}

// ---- what instructions do

static uint64_t due_time(Sm *sm) {
    if (sm->launch->pace) return UNKNOWN;
    switch (sm->gpu->settings->async) {
    case ASYNC_EARLY: return sm->time;
    case ASYNC_LATE: return ON_DEMAND;
    case ASYNC_RANDOM: return sm->time + 1 + random_below(&sm->random, 3 * LATENCY);
    case ASYNC_TIMED: break;
    }
    return sm->time + LATENCY;
}

void async_copy(Warp *w, const Insn *i, uint32_t mask, const Copy *copy) {
    AsyncWarp *a = async_warp(w);
    Sm *sm = w->sm;
    AsyncOp *op = op_new(sm);
    op->insn = i;
    op->warp = w;
    op->due = due_time(sm);
    if (op->due < a->floor) op->due = a->floor; // groups complete in order
    if (op->due > a->latest && op->due != UNKNOWN) a->latest = op->due;
    op->flying = mask;
    op->open = checks_release(w) ? mask : 0;
    op->arrives = false;
    memcpy(op->group, a->committed, sizeof op->group);
    op->copy = *copy;
    if (checks_sync(w)) close_words(w, op);
    op->stamp.copies = race_copies(w);
    if (race_on(w)) race_shared(w, i, w->cta, copy->to, copy->bytes, mask, RACE_COPY, RACE_RELAXED);
    if (op->due <= sm->time) land(a, op, mask);
    if (!(op->flying | op->open)) {
        op_free(sm, op);
        return;
    }
    append(a, op);
    if (w->pace)
        pace_copy(w, op, op->generation);
    else if (op->flying)
        arm(a, op->due);
}

void async_copy_done(Sm *sm, void *subject, uint64_t generation, uint64_t ready) {
    AsyncOp *op = subject;
    (void)sm;
    if (op->generation != generation) return;
    op->due = ready;
    AsyncWarp *a = op->warp->async;
    arm(a, ready);
    warp_wake(op->warp, BLOCK_MEMORY, 0);
}

void async_commit(Warp *w, uint32_t mask) {
    AsyncWarp *a = w->async;
    if (!a) return; // no copy has been issued yet
    for (int l = 0; l < WARP_SIZE; l++) a->committed[l] += mask >> l & 1;
    a->floor = a->latest;
}

// Lanes whose copy belongs to a group that has to be complete.
static uint32_t awaited(const AsyncWarp *a, const AsyncOp *op, uint32_t newest) {
    if (newest == ASYNC_NONE) return FULL_MASK;
    uint32_t lanes = 0;
    for (int l = 0; l < WARP_SIZE; l++)
        lanes |= (uint32_t)(a->committed[l] - op->group[l] > newest) << l;
    return lanes;
}

bool async_wait(Warp *w, uint32_t mask, uint32_t newest) {
    AsyncWarp *a = w->async;
    if (!a || !a->first) return true;
    uint64_t now = w->sm->time, until = 0;
    bool landed = false;
    for (AsyncOp *op = a->first; op; op = op->next) {
        if (op->arrives || !(op->flying & mask)) continue;
        uint32_t lanes = op->flying & mask & awaited(a, op, newest);
        if (!lanes) continue;
        if (op->due != ON_DEMAND && op->due > now) {
            if (op->due > until) until = op->due;
            continue;
        }
        land(a, op, lanes);
        landed = true;
    }
    if (landed) advance(a, 0, now); // arrivals may have waited for it
    if (until) {
        warp_block(w, until == UNKNOWN ? BLOCK_MEMORY : BLOCK_SLEEP, 0, until);
        return false;
    }
    uint32_t copies = 0;
    for (AsyncOp *op = a->first; op; op = op->next)
        if (!op->arrives && op->open & mask) {
            uint32_t lanes = mask & op->open & awaited(a, op, newest);
            if (lanes) race_copy_landed(w, op->insn, op->copy.to, op->copy.bytes, lanes);
            if (lanes) copies = op->stamp.copies;
            release(a, op, lanes);
        }
    race_copies_read(w, mask, copies);
    sweep(a);
    return true;
}

void async_arrive(Warp *w, const Insn *i, uint32_t mask, const uint32_t address[WARP_SIZE]) {
    AsyncWarp *a = async_warp(w);
    AsyncOp *op = op_new(w->sm);
    op->insn = i;
    op->due = 0;
    op->flying = mask;
    op->open = checks_release(w) ? mask : 0;
    op->arrives = true;
    op->stamp = race_async_arrive(w, mask);
    memcpy(op->copy.to, address, sizeof op->copy.to);
    append(a, op);
    advance(a, 0, w->sm->time);
    sweep(a);
}

// ---- mbarriers

void async_phase_completed(Cta *cta, uint32_t address) {
    if (!cta->async_arrivals) return;
    for (int k = 0; k < cta->warp_count; k++) {
        AsyncWarp *a = cta->warps[k].async;
        for (AsyncOp *arrival = a ? a->first : NULL; arrival; arrival = arrival->next) {
            if (!arrival->arrives) continue;
            uint32_t lanes = 0;
            for (uint32_t rest = arrival->open & ~arrival->flying; rest; rest &= rest - 1)
                if (arrival->copy.to[__builtin_ctz(rest)] == address) lanes |= rest & -rest;
            if (!lanes) continue;
            for (AsyncOp *op = a->first; op != arrival; op = op->next)
                if (!op->arrives) release(a, op, lanes & ~op->flying);
            release(a, arrival, lanes);
        }
    }
}

bool async_demand(Cta *cta, uint32_t address) {
    bool any = bulk_demand(cta, address);
    any |= remote_demand(cta, address);
    any |= tcgen05_demand(cta, address);
    if (!cta->async_arrivals) return any;
    for (int k = 0; k < cta->warp_count; k++) {
        AsyncWarp *a = cta->warps[k].async;
        const AsyncOp *last = NULL; // the last arrival that is wanted
        uint32_t lanes = 0;
        for (AsyncOp *op = a ? a->first : NULL; op; op = op->next) {
            for (uint32_t rest = op->arrives ? op->flying : 0; rest; rest &= rest - 1) {
                if (op->copy.to[__builtin_ctz(rest)] != address) continue;
                lanes |= rest & -rest;
                last = op;
            }
        }
        if (!last) continue;
        for (AsyncOp *op = a->first; op != last; op = op->next) {
            if (op->arrives || op->due != ON_DEMAND || !(op->flying & lanes)) continue;
            land(a, op, op->flying & lanes);
            any = true;
        }
        advance(a, 0, cta->sm->time);
        sweep(a);
    }
    return any;
}

bool async_land_all(Sm *sm) {
    bool any = bulk_land_all(sm);
    any |= remote_land_all(sm);
    any |= tcgen05_land_all(sm);
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; k < cta->warp_count; k++) {
            AsyncWarp *a = cta->warps[k].async;
            for (AsyncOp *op = a ? a->first : NULL; op; op = op->next)
                any |= op->flying && op->due == ON_DEMAND;
            if (a) advance(a, FULL_MASK, ON_DEMAND);
        }
    return any;
}

// ---- the end

void async_cta_finish(Cta *cta, bool report) {
    Sm *sm = cta->sm;
    wgmma_cta_finish(cta);
    tcgen05_cta_finish(cta, report);
    bulk_cta_finish(cta, report);
    for (int k = 0; k < cta->warp_count; k++) {
        Warp *w = &cta->warps[k];
        AsyncWarp *a = w->async;
        if (!a) continue;
        while (a->first) {
            AsyncOp *op = a->first;
            if (report && op->open && !op->arrives)
                finding(w, op->insn, __builtin_ctz(op->open), FINDING_LINT,
                        "Wait for all copies before the kernel ends (cp.async.wait_all).",
                        "the block ends before this copy has been waited for");
            a->first = op->next;
            op_free(sm, op);
        }
        a->generation++;
        a->next = sm->async->warps;
        sm->async->warps = a;
        w->async = NULL;
    }
    cta->async_arrivals = 0;
    cta->closed_overlap = false;
    if (cta->closed) memset(cta->closed, 0, (cta->shared_size + 255) / 256 * sizeof *cta->closed);
    mbarriers_reset(cta);
}

void async_cta_free(Cta *cta) {
    bulk_cta_free(cta);
    free(cta->closed);
    wgmma_cta_free(cta);
    tcgen05_cta_free(cta);
    mbarriers_free(cta);
}

void async_free(Sm *sm) {
    wgmma_free(sm);
    tmem_free(sm);
    bulk_free(sm);
    struct AsyncPool *pool = sm->async;
    if (!pool) return;
    while (pool->ops) {
        AsyncOp *next = pool->ops->next;
        free(pool->ops);
        pool->ops = next;
    }
    while (pool->warps) {
        AsyncWarp *next = pool->warps->next;
        free(pool->warps);
        pool->warps = next;
    }
    free(pool);
    sm->async = NULL;
}
