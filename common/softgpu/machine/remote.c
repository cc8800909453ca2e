// Asynchronous stores to CTAs of a cluster: issue and landing (remote.h).
#include "softgpu/machine/remote.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"

enum { LATENCY = 200 }; // in SM time: about that of a load from a peer's shared memory
#define ON_DEMAND UINT64_MAX

typedef struct RemoteOp RemoteOp;
struct RemoteOp {
    RemoteOp *next;
    RemoteStore store;
    Warp *issuer;
    const Insn *insn;
    int lane;
    uint64_t due;
    RaceAgent agent;
};

// ---- memory: an SM keeps what landed for what is to come

static RemoteOp *op_new(Sm *sm) {
    RemoteOp *op = sm->spare_remote;
    if (!op) return allocate(sizeof *op);
    sm->spare_remote = op->next;
    return op;
}

static void op_free(Sm *sm, RemoteOp *op) {
    op->next = sm->spare_remote;
    sm->spare_remote = op;
}

void remote_free(Sm *sm) {
    while (sm->spare_remote) {
        RemoteOp *next = sm->spare_remote->next;
        free(sm->spare_remote);
        sm->spare_remote = next;
    }
}

// ---- landing

static void check_initialised(const RemoteOp *op) {
    const RemoteStore *s = &op->store;
    if (init_shared_range(s->to, s->at, s->bytes) ||
        finding_again(op->issuer, op->insn, FINDING_UNINITIALISED))
        return;
    finding(op->issuer, op->insn, op->lane, FINDING_UNINITIALISED,
            "Give the destination a value first.",
            "reduces into %u bytes of shared memory at 0x%x, of which nothing has written some",
            s->bytes, s->at);
}

// Writes the bytes and tells the mbarrier. Frees the operation, which is in no list.
static void land(RemoteOp *op) {
    RemoteStore s = op->store;
    uint8_t *place = s.to->shared + s.at;
    Warp *w = op->issuer;
    if (s.reduces) {
        check_initialised(op);
        reduce(s.reduction, s.type, place, s.value, s.bytes);
    } else {
        memcpy(place, s.value, s.bytes);
        if (s.to->shared_written) memset(s.to->shared_written + s.at, 1, s.bytes);
    }
    s.to->sm->changes++;
    race_agent_to_mbarrier(&op->agent, s.to, s.mbarrier);
    race_agent_close(&op->agent);
    const Insn *insn = op->insn;
    int lane = op->lane;
    op_free(s.to->sm, op);
    if (!mbarrier_complete_tx(w, insn, lane, s.to, s.mbarrier, s.bytes)) s.to->sm->faulted = true;
}

// Lands what is due at `now`; of an mbarrier only, unless it is 0. Answers whether there was any.
static bool land_due(Cta *cta, uint64_t now, uint32_t mbarrier) {
    bool any = false;
    for (bool again = true; again;) {
        again = false;
        for (RemoteOp **link = &cta->remote; *link; link = &(*link)->next) {
            RemoteOp *op = *link;
            if (op->due > now || (mbarrier && op->store.mbarrier != mbarrier)) continue;
            *link = op->next;
            land(op); // may let others land: the list may be another one now
            any = again = true;
            break;
        }
    }
    return any;
}

static void arrive(Sm *sm, void *subject, uint64_t linear) {
    Cta *cta = subject;
    if (cta->linear == linear && !cta->ended) land_due(cta, sm->time, 0);
}

// ---- issue

static uint64_t due_time(Sm *sm) {
    switch (sm->gpu->settings->async) {
    case ASYNC_EARLY: return sm->time;
    case ASYNC_LATE: return ON_DEMAND;
    case ASYNC_RANDOM: return sm->time + 1 + random_below(&sm->random, 3 * LATENCY);
    case ASYNC_TIMED: break;
    }
    return sm->time + LATENCY;
}

void remote_issue(Warp *w, const Insn *i, int lane, const RemoteStore *store) {
    Cta *to = store->to;
    RemoteOp *op = op_new(to->sm);
    *op = (RemoteOp){.store = *store, .issuer = w, .insn = i, .lane = lane, .due = due_time(w->sm)};
    if (race_on(w)) {
        op->agent = race_agent_open(w, i, lane,
                                    store->async_proxy ? RACE_TMA_LOAD
                                    : store->reduces   ? RACE_RED_ASYNC
                                                       : RACE_ST_ASYNC);
        race_agent_access(&op->agent, to, store->at, store->at + store->bytes, RACE_WRITE);
    }
    if (op->due <= w->sm->time) {
        land(op);
        return;
    }
    RemoteOp **last = &to->remote;
    while (*last) last = &(*last)->next;
    *last = op;
    if (op->due != ON_DEMAND) event_add(to->sm, op->due, arrive, to, to->linear);
}

// ---- waits and ends

bool remote_demand(Cta *cta, uint32_t mbarrier) {
    return cta->remote && cta->sm->gpu->settings->async == ASYNC_LATE &&
           land_due(cta, ON_DEMAND, mbarrier);
}

bool remote_land_all(Sm *sm) {
    bool any = false;
    for (Cta *cta = sm->ctas; cta; cta = cta->next) any |= land_due(cta, ON_DEMAND, 0);
    return any;
}

void remote_cta_end(Cta *cta, bool report) {
    while (cta->remote) {
        RemoteOp *op = cta->remote;
        cta->remote = op->next;
        if (report)
            finding(op->issuer, op->insn, op->lane, FINDING_USE_AFTER_FREE,
                    "Let the CTA that it goes to wait for its mbarrier before it exits.",
                    "stores to the shared memory (0x%x) of CTA %u of its cluster, block "
                    "(%u,%u,%u), which exits before the bytes have come",
                    op->store.at, cta->cluster_rank, cta->index[0], cta->index[1], cta->index[2]);
        race_agent_close(&op->agent);
        op_free(cta->sm, op);
    }
}
