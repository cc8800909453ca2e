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
#include "softgpu/timing/pace.h"
#include "softgpu/timing/trace.h"

enum {
    SLICE = 256,          // instructions of a warp's turn
    DEFERRED_RUN = 256,   // instructions that one warp may run in the serial phase in one go
    LOOK_AHEAD = 3,       // … and how near the next one that belongs there must be;
    LOOK_AHEAD_POLL = 16, // behind a poll, that is, behind its loop
    PLAYED_AHEAD = 8,     // cycles that a warp's playback may be ahead of the hindmost warp
};

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
    if (w->status == WARP_READY) ready_remove(w, status);
    w->status = status;
    if (status == WARP_EXITED && trace_on(sm)) trace_phase(w, NULL, sm->time);
    if (status == WARP_EXITED && w->cta->live_warps == 0) cluster_cta_ended(w->cta);
}

uint64_t sm_next_time(const Sm *sm) {
    const Warp *w = ready_first(sm);
    uint64_t event = events_next(sm);
    return w && w->pace->now < event ? w->pace->now : event;
}

// The clock of the hindmost of the other warps, for one that is on top.
static uint64_t second(const Sm *sm, const Warp *w) {
    uint64_t least = UINT64_MAX / 2;
    const ReadyClock *clocks = sm->pace->clocks;
    if (sm->ready[0] != w) return clocks[0].now;
    for (int k = 1; k < 3 && k < sm->ready_count; k++)
        if (clocks[k].now < least) least = clocks[k].now;
    return least;
}

// A timed launch: what is first in time is first.
static void run_timed(Sm *sm, uint64_t until) {
    while (!sm->faulted) {
        Warp *w = ready_first(sm);
        uint64_t event = events_next(sm);
        if (event < until && (!w || event <= w->pace->now)) {
            if (event > sm->time) sm->time = event;
            events_run(sm);
            continue;
        }
        if (!w || w->pace->now >= until) return;
        sm->time = w->pace->now;
        if (w->pace->playing) {
            // As long as no other warp and no event is due: what is played has been executed, so a
            // few cycles more or less only change who comes first at a unit.
            uint64_t next = until < event ? until : event;
            pace_play(w);
            uint64_t others = second(sm, w) + PLAYED_AHEAD;
            if (others < next) next = others;
            while (w->pace->playing && !w->pace->parked && w->pace->now < next) pace_play(w);
            if (w->pace->parked)
                ready_remove(w, WARP_WAITS);
            else
                ready_moved(w);
            continue;
        }
        uint64_t before = w->pace->steps;
        WarpStatus status = warp_run(w, 0);
        w->cta->work += w->pace->steps - before;
        settle(sm, w, status);
        if (w->status == WARP_READY) ready_moved(w);
    }
}

void sm_run(Sm *sm, uint64_t until) {
    if (sm->launch->pace) {
        run_timed(sm, until);
        return;
    }
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
    if (w->pace) sm->time = d->time;
    WarpStatus status = WARP_READY;
    // Chains of such instructions (a flag seen, a value read, the next flag set) would take a round
    // for each link; so what comes soon behind is run now. A loop's next turn is not: others first.
    int way = 1, most = g->pc->flags & INSN_POLL ? LOOK_AHEAD_POLL : LOOK_AHEAD;
    for (int n = 0; n < (w->pace ? 1 : DEFERRED_RUN) && way; n++) {
        const Insn *from = g->pc;
        status = warp_run_group(w, d->group, sm->time + 1);
        if (status != WARP_READY || w->current != d->group) break;
        if (!g->mask || g->state != GROUP_RUNS || g->pc <= from) break;
        way = g->pc == from + 1 && way > 1 ? way - 1 : way_to_deferred(sm, g->pc, most);
    }
    sm->serial = false;
    settle(sm, w, status == WARP_FAULTED ? status : warp_status(w));
}
