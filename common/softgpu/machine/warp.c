// A warp's main loop, and the groups of lanes that it switches between.
//
// While the warp is together there is one group, and the loop is: guard, handler, next. A group
// gives way to another when it blocks, parks, defers, yields, comes to its join point (diverge.c),
// or has jumped backwards often enough while others wait.
#include "softgpu/machine/parts.h"

#include <string.h>

#include "softgpu/check/definedness.h"
#include "softgpu/check/in_flight.h"
#include "softgpu/machine/event.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/traffic.h"

void warp_start(Warp *w) {
    w->live = w->exists;
    w->carry = 0;
    w->current = 0;
    w->group_count = 1;
    w->joins = NULL;
    w->frames = NULL;
    w->stores = w->turn_stores = 0;
    w->turns = w->quiet_turns = 0;
    w->gathered = 0;
    w->gathered_at = w->waited_at = 0;
    memset(&w->spin, 0, sizeof w->spin);
    frames_start(w);
    definedness_start(w);
    in_flight_start(w);
    w->groups[0] = (Group){.pc = w->kernel->functions[0].entry,
                           .mask = w->exists,
                           .state = GROUP_RUNS,
                           .frame = w->frames};
    group_load(w, 0);
}

void group_save(Warp *w, const Insn *pc) {
    Group *g = &w->groups[w->current];
    g->pc = pc;
    g->mask = w->active;
    w->pc = pc;
}

void group_load(Warp *w, int slot) {
    Group *g = &w->groups[slot];
    w->current = slot;
    w->pc = g->pc;
    w->active = g->mask;
    w->frame = g->frame->rows;
    group_update_stop(w);
}

Group *group_add(Warp *w, const Insn *pc, uint32_t mask, Join *join, Frame *frame) {
    Group *g = w->groups;
    while (g->mask) g++;
    *g = (Group){.pc = pc, .mask = mask, .state = GROUP_RUNS, .join = join, .frame = frame};
    w->group_count++;
    return g;
}

// A group that can run: the next one in turn, or, from schedule 1 on, any. -1 if there is none.
static int group_choose(Warp *w) {
    const Group *only = only_group(w);
    if (only) return only->state == GROUP_RUNS ? w->current : -1;
    int found[WARP_SIZE], count = 0;
    bool in_turn = w->sm->launch->schedule == 0;
    for (int n = 1; n <= WARP_SIZE; n++) {
        int slot = (w->current + n) % WARP_SIZE;
        if (!w->groups[slot].mask || w->groups[slot].state != GROUP_RUNS) continue;
        if (in_turn) return slot;
        found[count++] = slot;
    }
    return count ? found[random_below(&w->sm->random, (uint32_t)count)] : -1;
}

bool group_next(Warp *w) {
    w->active = 0;
    int slot = w->group_count ? group_choose(w) : -1;
    if (slot < 0 && w->live && joins_unstick(w)) slot = group_choose(w);
    if (slot < 0) return false;
    group_load(w, slot);
    return true;
}

WarpStatus warp_status(const Warp *w) {
    if (w->sm->faulted) return WARP_FAULTED;
    if (!w->live) return WARP_EXITED;
    const Group *only = only_group(w);
    const Group *first = only ? only : w->groups;
    WarpStatus status = WARP_WAITS;
    for (int slot = 0; slot < (only ? 1 : WARP_SIZE); slot++) {
        const Group *g = &first[slot];
        if (!g->mask) continue;
        if (g->state == GROUP_RUNS) return WARP_READY;
        if (g->state == GROUP_DEFERRED) status = WARP_DEFERRED;
    }
    return status;
}

// What the running group does after an instruction that did not simply lead to the next one.
// Returns true if the warp goes on at w->pc.
static bool warp_flow(Warp *w, const Insn *i, Flow flow) {
    Group *g = &w->groups[w->current];
    switch (flow) {
    case FLOW_YIELD:
        g->turns += TURN_YIELD;
        group_save(w, i + 1);
        group_next(w); // who runs when the warp's turn comes again
        return false;
    case FLOW_WAIT: group_save(w, i + 1); return group_next(w);
    case FLOW_RETRY: {
        group_save(w, i);
        bool again = g->state == GROUP_RUNS; // nothing was awaited: a poll of its own kind
        return group_next(w) && !again;
    }
    case FLOW_DEFER:
        g->turns += TURN_YIELD;
        group_save(w, i);
        g->state = GROUP_DEFERRED;
        sm_defer(w);
        return group_next(w);
    case FLOW_FAULT:
        group_save(w, i);
        w->sm->faulted = true;
        return false;
    case FLOW_NEXT:
    case FLOW_JUMP: break;
    }
    __builtin_unreachable();
}

// Must registers be looked at before each instruction?
static inline bool must_follow(const Warp *w) {
    return w->undefined_rows || w->in_flight;
}

// Runs from the group that is loaded. Returns false, to go on at w->pc, when the first register
// became undefined (`follows` is false), or the last one no longer is (`follows` is true). In
// kernels with wgmma, with the sync check, it always follows.
// In a timed launch it runs a part (timing/pace.h), up to the next stop: the SM's time stands still.
static inline __attribute__((always_inline)) bool run_loop(Warp *w, uint64_t until, bool follows,
                                                           bool timed, WarpStatus *status) {
    Sm *sm = w->sm;
    uint64_t *executed = sm->counters->executed, *lanes = sm->counters->lanes;
    uint64_t time = timed ? 0 : sm->time;
    const Insn *i = w->pc;
    const uint8_t *stops = timed ? sm->launch->pace->stops : NULL;
    while (time < until) {
        if (timed) {
            if (stops[i->index] & PACE_STOP && !w->pace->fresh) break;
            w->pace->steps++;
            w->gathered_at = 0;
        }
        if (follows && !must_follow(w)) {
            w->pc = i;
            return false;
        }
        if (UNLIKELY(i == w->stop)) {
            w->pc = i;
            if (w->undefined_rows) { // definedness_load may have put `stop` here
                group_update_stop(w);
                if (!follows) return false;
                if (i != w->stop) continue;
            }
            if (!join_arrive(w)) {
                *status = warp_status(w);
                return true;
            }
            i = w->pc;
            if (timed) break;
            continue;
        }
        if (timed) w->pace->fresh = false;
        uint32_t mask = w->active;
        if (i->guard != ROW_NONE) {
            uint32_t guard = *(const uint32_t *)row(w, i->guard);
            mask &= i->guard_negated ? ~guard : guard;
            if (follows && w->undefined_rows) definedness_guard(w, i, mask);
            if (mask == 0) { // issued all the same
                executed[i->index]++;
                if (!timed) sm->time = ++time;
                i++;
                continue;
            }
        }
        if (follows && w->in_flight) in_flight_before(w, i, mask);
        if (follows && w->undefined_rows) definedness_before(w, i, mask);
        if (timed) {
            w->pace->current = i;
            if (stops[i->index] & PACE_LOAD) pace_op(w, i);
        }
        Flow flow = i->run(w, i, mask);
        if (LIKELY(flow <= FLOW_JUMP)) {
            executed[i->index]++;
            lanes[i->index] += (uint64_t)__builtin_popcount(mask);
            if (timed)
                w->pace->now += sm->launch->pace->after[i->index];
            else
                sm->time = ++time;
            if (LIKELY(flow == FLOW_NEXT)) {
                if (follows && w->undefined_rows) definedness_after(w, i, mask);
                i++;
                continue;
            }
            if (UNLIKELY(sm->watch) && i->flags & INSN_BACKWARD && w->active) spin_record(w, i);
            if (!w->active) {
                *status = warp_status(w);
                return true;
            }
            i = w->pc;
            continue;
        }
        if (flow == FLOW_WAIT || flow == FLOW_YIELD) { // done, as far as counting goes
            executed[i->index]++;
            lanes[i->index] += (uint64_t)__builtin_popcount(mask);
        }
        if (timed) {
            pace_put_off(w, i, flow);
        } else {
            sm->time = ++time;
        }
        if (!warp_flow(w, i, flow) || timed) {
            *status = warp_status(w);
            return true;
        }
        i = w->pc;
    }
    group_save(w, i);
    *status = WARP_READY;
    return true;
}

static bool run_plain(Warp *w, uint64_t until, WarpStatus *status) {
    return run_loop(w, until, false, false, status);
}
static bool run_following(Warp *w, uint64_t until, WarpStatus *status) {
    return run_loop(w, until, true, false, status);
}
static bool run_timed(Warp *w, WarpStatus *status) {
    return run_loop(w, 1, false, true, status);
}
static bool run_timed_following(Warp *w, WarpStatus *status) {
    return run_loop(w, 1, true, true, status);
}

// Runs from the group that is loaded: in the ordinary loop, and while some register is undefined in
// the one that follows undefined values.
static WarpStatus run_loaded(Warp *w, uint64_t until) {
    WarpStatus status;
    if (w->pace) {
        int from = w->current;
        w->pace->fresh = true;
        pace_begin_part(w, w->pc);
        while (!(must_follow(w) ? run_timed_following : run_timed)(w, &status)) continue;
        // Lanes that have only come to where they meet the others have executed nothing: what stands
        // there is played once, with all of them.
        if (!w->pace->fresh) pace_end_part(w, w->groups[from].mask ? w->groups[from].pc : NULL);
        return status;
    }
    while (!(must_follow(w) ? run_following : run_plain)(w, until, &status)) continue;
    return status;
}

WarpStatus warp_run(Warp *w, uint64_t until) {
    const Group *g = &w->groups[w->current];
    bool any = w->sm->launch->schedule && w->group_count > 1;
    if (g->mask && g->state == GROUP_RUNS && !any)
        group_load(w, w->current);
    else if (!group_next(w))
        return warp_status(w);
    return run_loaded(w, until);
}

WarpStatus warp_run_group(Warp *w, int slot, uint64_t until) {
    group_load(w, slot);
    return run_loaded(w, until);
}

// The end of a sleep.
static void wake_sleeper(Sm *sm, void *warp, uint64_t unused) {
    (void)sm;
    (void)unused;
    warp_wake(warp, BLOCK_SLEEP, 0);
}

void warp_block(Warp *w, BlockKind kind, int number, uint64_t until) {
    uint32_t slots = 1u << w->current;
    if (w->gathered_at == w->sm->time + 1) slots |= w->gathered;
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        if (!(slots >> slot & 1)) continue;
        Group *g = &w->groups[slot];
        g->state = GROUP_BLOCKED;
        g->block = kind;
        g->number = number;
        g->until = until;
    }
    if (kind == BLOCK_SLEEP) event_add(w->sm, until, wake_sleeper, w, 0);
    if (w->pace) pace_blocked(w);
}

void warp_wake(Warp *w, BlockKind kind, int number) {
    bool woken = false;
    Group *only = only_group(w);
    Group *first = only ? only : w->groups, *end = only ? only + 1 : w->groups + WARP_SIZE;
    for (Group *g = first; g < end; g++) {
        if (!g->mask || g->state != GROUP_BLOCKED || g->block != kind) continue;
        if (kind == BLOCK_SLEEP ? g->until > w->sm->time : g->number != number) continue;
        g->state = GROUP_RUNS;
        g->block = BLOCK_NONE;
        woken = true;
    }
    if (!woken) return;
    if (w->pace) pace_woken(w);
    sm_ready(w);
}
