// One SM: its ready warps take turns.
//
// Schedule 0 is a round-robin with fixed slices. From schedule 1 on, the next warp and the length
// of its slice are drawn from the SM's random numbers, which depend on the schedule, the launch and
// the SM only. In both cases the order is the same for any number of host threads.
#include "softgpu/machine/parts.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/cluster.h"
#include "softgpu/machine/event.h"

enum {
    SLICE = 256,          // instructions of a warp's turn
    DEFERRED_RUN = 256,   // instructions that one warp may run in the serial phase in one go
    LOOK_AHEAD = 3,       // … and how near the next one that belongs there must be;
    LOOK_AHEAD_POLL = 16, // behind a poll, that is, behind its loop
};

void sm_ready(Warp *w) {
    Sm *sm = w->sm;
    if (w->status == WARP_READY) return;
    if (sm->ready_count == sm->ready_capacity) {
        sm->ready_capacity = sm->ready_capacity ? 2 * sm->ready_capacity : 64;
        sm->ready = realloc(sm->ready, (size_t)sm->ready_capacity * sizeof *sm->ready);
        if (!sm->ready) abort();
    }
    w->status = WARP_READY;
    sm->ready[sm->ready_count++] = w;
}

void sm_defer(Warp *w) {
    Sm *sm = w->sm;
    if (sm->deferred_count == sm->deferred_capacity) {
        sm->deferred_capacity = sm->deferred_capacity ? 2 * sm->deferred_capacity : 64;
        sm->deferred = realloc(sm->deferred, (size_t)sm->deferred_capacity * sizeof *sm->deferred);
        if (!sm->deferred) abort();
    }
    sm->deferred[sm->deferred_count++] = (struct Deferred){sm->time, w, w->current};
    const Insn *i = w->groups[w->current].pc;
    atomic_store_explicit(&sm->launch->defers[i->index], 1, memory_order_relaxed);
}

uint64_t sm_next_event(const Sm *sm) {
    return events_next(sm);
}

// What a warp's turn leaves to do: a warp that can't go on leaves the ready list.
static void settle(Sm *sm, Warp *w, WarpStatus status) {
    if (status == WARP_FAULTED) sm->faulted = true;
    if (status == WARP_READY) {
        sm_ready(w);
        return;
    }
    if (w->status == WARP_READY) {
        int at = 0;
        while (sm->ready[at] != w) at++;
        memmove(&sm->ready[at], &sm->ready[at + 1],
                (size_t)(--sm->ready_count - at) * sizeof *sm->ready);
        if (at < sm->ready_next) sm->ready_next--;
    }
    w->status = status;
    if (status == WARP_EXITED && w->cta->live_warps == 0) cluster_cta_ended(w->cta);
}

void sm_run(Sm *sm, uint64_t until) {
    bool random = sm->launch->schedule != 0;
    while (sm->time < until && !sm->faulted) {
        events_run(sm);
        if (sm->ready_count == 0) {
            uint64_t next = events_next(sm);
            if (next >= until) break;
            sm->time = next;
            continue;
        }
        uint64_t slice = SLICE;
        int at = sm->ready_next < sm->ready_count ? sm->ready_next : 0;
        if (random) {
            at = (int)random_below(&sm->random, (uint32_t)sm->ready_count);
            slice = 1 + random_below(&sm->random, 2 * SLICE);
        }
        Warp *w = sm->ready[at];
        sm->ready_next = at + 1;
        uint64_t begin = sm->time, end = begin + slice;
        WarpStatus status = warp_run(w, end < until ? end : until);
        w->cta->work += sm->time - begin;
        settle(sm, w, status);
    }
}

// How many instructions from `i` on, as they stand in the code, lead to one that is put off too: to
// it and past it. 0 if there is none near.
static int way_to_deferred(const Sm *sm, const Insn *i, int most) {
    const Kernel *kernel = sm->launch->launch->kernel;
    for (int n = 0; n < most && i->index + (uint32_t)n < kernel->code_count; n++)
        if (atomic_load_explicit(&sm->launch->defers[i[n].index], memory_order_relaxed))
            return n + 1;
    return 0;
}

void sm_run_deferred(Sm *sm, const struct Deferred *d) {
    Warp *w = d->warp;
    Group *g = &w->groups[d->group];
    g->state = GROUP_RUNS;
    sm->serial = true;
    WarpStatus status = WARP_READY;
    // Chains of such instructions (a flag seen, a value read, the next flag set) would take a round
    // for each link; so what comes soon behind is run now. A loop's next turn is not: others first.
    int way = 1, most = g->pc->flags & INSN_POLL ? LOOK_AHEAD_POLL : LOOK_AHEAD;
    for (int n = 0; n < DEFERRED_RUN && way; n++) {
        const Insn *from = g->pc;
        status = warp_run_group(w, d->group, sm->time + 1);
        if (status != WARP_READY || w->current != d->group) break;
        if (!g->mask || g->state != GROUP_RUNS || g->pc <= from) break;
        way = g->pc == from + 1 && way > 1 ? way - 1 : way_to_deferred(sm, g->pc, most);
    }
    sm->serial = false;
    settle(sm, w, status == WARP_FAULTED ? status : warp_status(w));
}
