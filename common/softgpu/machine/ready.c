// The warps of an SM that can run.
//
// A list in the order in which they became ready; in a timed launch a heap, with the warp whose
// clock is hindmost on top. Invariant there: ready[k] does not go after ready[2k + 1] and
// ready[2k + 2], and each warp knows its place (WarpPace.place).
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"

// The clocks stand beside the warps (SmPace.clocks), so that comparing them touches little memory.
static inline bool before(const ReadyClock *a, const ReadyClock *b) {
    return a->now != b->now ? a->now < b->now : a->order < b->order;
}

// Sets the warp at `at` of the heap.
static inline void place(Sm *sm, int at, Warp *w, ReadyClock clock) {
    sm->ready[at] = w;
    sm->pace->clocks[at] = clock;
    w->pace->place = at;
}

static int rise(Sm *sm, int at, Warp *w, ReadyClock clock) {
    const ReadyClock *clocks = sm->pace->clocks;
    for (; at && before(&clock, &clocks[(at - 1) / 2]); at = (at - 1) / 2)
        place(sm, at, sm->ready[(at - 1) / 2], clocks[(at - 1) / 2]);
    place(sm, at, w, clock);
    return at;
}

static void sink(Sm *sm, int at, Warp *w, ReadyClock clock) {
    const ReadyClock *clocks = sm->pace->clocks;
    for (int child; (child = 2 * at + 1) < sm->ready_count; at = child) {
        if (child + 1 < sm->ready_count && before(&clocks[child + 1], &clocks[child])) child++;
        if (!before(&clocks[child], &clock)) break;
        place(sm, at, sm->ready[child], clocks[child]);
    }
    place(sm, at, w, clock);
}

static ReadyClock clock_of(const Warp *w) {
    return (ReadyClock){w->pace->now, w->pace->order};
}

void ready_moved(Warp *w) {
    ReadyClock clock = clock_of(w);
    sink(w->sm, rise(w->sm, w->pace->place, w, clock), w, clock);
}

Warp *ready_first(const Sm *sm) {
    if (!sm->ready_count) return NULL;
    Warp *first = sm->ready[0], *last = sm->pace->last[first->pace->scheduler];
    bool greedy = last && last->status == WARP_READY && last->pace->now == sm->pace->clocks[0].now;
    return greedy ? last : first;
}

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
    if (!w->pace) return;
    if (sm->ready_count > sm->pace->clock_capacity) {
        sm->pace->clock_capacity = 2 * sm->ready_count + 64;
        size_t size = (size_t)sm->pace->clock_capacity * sizeof *sm->pace->clocks;
        sm->pace->clocks = realloc(sm->pace->clocks, size);
        if (!sm->pace->clocks) abort();
    }
    rise(sm, sm->ready_count - 1, w, clock_of(w));
}

void ready_remove(Warp *w, WarpStatus status) {
    Sm *sm = w->sm;
    w->status = status;
    if (w->pace) {
        int at = w->pace->place;
        Warp *last = sm->ready[--sm->ready_count];
        if (last == w) return;
        last->pace->place = at;
        ready_moved(last);
        return;
    }
    int at = 0;
    while (sm->ready[at] != w) at++;
    memmove(&sm->ready[at], &sm->ready[at + 1],
            (size_t)(--sm->ready_count - at) * sizeof *sm->ready);
    if (at < sm->ready_next) sm->ready_next--;
}
