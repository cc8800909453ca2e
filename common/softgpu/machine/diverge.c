// Lanes that part and meet: branches, joins, collective instructions, exits.
//
// A branch that splits a group makes a join at its immediate post-dominator; the parts come
// together there. A join is a hope, not a promise: lanes wait at it only as long as the others make
// progress. They go on alone when a collective instruction needs them, or when the lanes that they
// wait for only spin (independent thread scheduling: a lane that waits for its neighbour's store
// must get it).
#include "softgpu/machine/parts.h"

#include "softgpu/check/check.h"
#include "softgpu/check/deadlock.h"
#include "softgpu/execute/control.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/tcgen05.h"
#include "softgpu/machine/wgmma.h"
#include "softgpu/timing/traffic.h"

enum {
    TURNS_AT_MOST = 4096, // turns that lanes at a join wait for a loop that seems to get on
};

// ---- joins

static Join *join_new(Warp *w) {
    Join *j = w->sm->spare_joins;
    if (j)
        w->sm->spare_joins = j->next;
    else
        j = allocate(sizeof *j);
    j->next = w->joins;
    w->joins = j;
    return j;
}

static void join_free(Warp *w, Join *j) {
    Join **link = &w->joins;
    while (*link != j) link = &(*link)->next;
    *link = j->next;
    j->next = w->sm->spare_joins;
    w->sm->spare_joins = j;
}

Join *join_make(Warp *w, const Insn *pc) {
    Group *g = &w->groups[w->current];
    if (g->join && g->join->pc == pc && g->join->frame == g->frame) return g->join;
    Join *j = join_new(w);
    j->pc = pc;
    j->frame = g->frame;
    j->expected = w->active;
    j->arrived = 0;
    j->outer = g->join;
    j->born = w->turns;
    return j;
}

// A join that nobody comes to any more is over; the lanes that waited go on.
static void join_settle(Warp *w, Join *j) {
    if (j->arrived != j->expected) return;
    if (j->arrived) group_add(w, j->pc, j->arrived, j->outer, j->frame);
    join_free(w, j);
}

void joins_leave(Warp *w, Join *from, const Join *until, uint32_t lanes) {
    for (Join *j = from, *outer; j != until; j = outer) {
        outer = j->outer;
        j->expected &= ~lanes;
        join_settle(w, j);
    }
}

bool join_arrive(Warp *w) {
    Group *g = &w->groups[w->current];
    Join *j = g->join;
    j->arrived |= w->active;
    // Lanes meet. But a loop that only waits may part and meet them each time round, and the joins
    // of its calls, where nobody else is expected, say nothing.
    if (w->active != j->expected) {
        w->quiet_turns = 0;
        if (w->turns != j->born) w->turns = 0;
    }
    if (j->arrived == j->expected) {
        w->active = g->mask = j->arrived;
        g->join = j->outer;
        join_free(w, j);
        group_update_stop(w);
        return true;
    }
    g->mask = 0;
    w->group_count--;
    return group_next(w);
}

// Lets the lanes that wait at one join go on.
static void join_release(Warp *w, Join *j) {
    group_add(w, j->pc, j->arrived, j->outer, j->frame);
    j->expected &= ~j->arrived;
    j->arrived = 0;
    join_settle(w, j);
    w->turns = w->quiet_turns = 0;
}

bool joins_release(Warp *w) {
    bool released = false;
    for (Join *j = w->joins, *next; j; j = next) {
        next = j->next;
        if (!j->arrived) continue;
        join_release(w, j);
        released = true;
    }
    return released;
}

// ---- branches

// A group of lanes `mask` at `pc` that has split from the running one: waits at `j` if that is
// where `pc` is, else becomes a group of its own.
static void part(Warp *w, const Insn *pc, uint32_t mask, Join *j, Frame *frame) {
    if (j && j->pc == pc && j->frame == frame)
        j->arrived |= mask;
    else
        group_add(w, pc, mask, j, frame)->turns = w->groups[w->current].turns;
}

// The join of a branch that splits the running group. Lanes that only meet to leave the kernel
// needn't wait for each other.
static Join *branch_join(Warp *w, const Insn *join) {
    Group *g = &w->groups[w->current];
    if (!join || (!g->frame->caller && ends_thread(join))) return g->join;
    return join_make(w, join);
}

// The running group keeps `mask` and goes on at `pc`, towards `j`.
static Flow go_on(Warp *w, const Insn *pc, uint32_t mask, Join *j) {
    Group *g = &w->groups[w->current];
    g->join = j;
    g->mask = w->active = mask;
    w->pc = pc;
    group_update_stop(w);
    return FLOW_JUMP;
}

Flow warp_branch(Warp *w, const Insn *i, const Insn *target, const Insn *join, uint32_t taken,
                 uint32_t mask) {
    uint32_t rest = mask & ~taken;
    if (!rest || !taken || target == i + 1) {
        w->pc = taken ? target : i + 1;
        bool alone = w->active == w->live;
        return alone || !taken || !(i->flags & INSN_BACKWARD) ? FLOW_JUMP : warp_turn(w);
    }
    Frame *frame = w->groups[w->current].frame;
    Join *j = branch_join(w, join);
    // Who runs first: those that don't jump, or, from schedule 1 on, any. But not those that have
    // already come to the join.
    bool jump_first = w->sm->launch->schedule ? random_below(&w->sm->random, 2) : false;
    if (j && j->frame == frame && (j->pc == target || j->pc == i + 1)) jump_first = j->pc == i + 1;
    if (jump_first) {
        go_on(w, target, taken, j);
        part(w, i + 1, rest, j, frame);
    } else {
        go_on(w, i + 1, rest, j);
        part(w, target, taken, j, frame);
    }
    return FLOW_JUMP;
}

Flow warp_branch_table(Warp *w, const Insn *i, const Insn *const targets[32], const Insn *join,
                       uint32_t mask) {
    const Insn *first = targets[__builtin_ctz(mask)];
    uint32_t same = 0;
    for (uint32_t m = mask; m; m &= m - 1)
        if (targets[__builtin_ctz(m)] == first) same |= m & -m;
    if (same == w->active) {
        w->pc = first;
        bool alone = w->active == w->live;
        return alone || !(i->flags & INSN_BACKWARD) ? FLOW_JUMP : warp_turn(w);
    }
    Frame *frame = w->groups[w->current].frame;
    Join *j = branch_join(w, join);
    uint32_t left = mask & ~same, off = w->active & ~mask;
    go_on(w, first, same, j);
    if (off) part(w, i + 1, off, j, frame);
    while (left) {
        const Insn *target = targets[__builtin_ctz(left)];
        uint32_t lanes = 0;
        for (uint32_t m = left; m; m &= m - 1)
            if (targets[__builtin_ctz(m)] == target) lanes |= m & -m;
        left &= ~lanes;
        part(w, target, lanes, j, frame);
    }
    // The running part may have come to the join already: warp_run sees to that.
    return FLOW_JUMP;
}

Flow warp_turn(Warp *w) {
    Group *g = &w->groups[w->current];
    if (++g->turns < TURN) return FLOW_JUMP;
    g->turns = 0;
    // Are we only spinning, while lanes that could help wait at a join? Without stores, and with
    // the state of some turns ago, surely; with other signs of life, after long enough. States are
    // costly to look at: the one of turn 2, 4, 8, … is compared with the next few.
    w->quiet_turns = w->stores == w->turn_stores ? w->quiet_turns + 1 : 0;
    w->turn_stores = w->stores;
    bool release = ++w->turns >= TURNS_AT_MOST;
    uint32_t q = w->quiet_turns, groups = (uint32_t)w->group_count;
    group_save(w, w->pc);
    if (q >= 2) {
        uint32_t since = q - (1u << (31 - __builtin_clz(q)));
        if (since == 0)
            w->turn_hash = warp_hash(w);
        else if (since <= 2 * groups)
            release |= w->turn_hash == warp_hash(w);
    }
    if (groups > 1 && q >= 32 * groups) release = true; // none of them has stored for turns
    if (release) {
        joins_release(w);
        w->turns = w->quiet_turns = 0;
    }
    group_next(w);
    return FLOW_JUMP;
}

// ---- exits

Flow warp_exit(Warp *w, const Insn *i, uint32_t mask) {
    Group *g = &w->groups[w->current];
    w->live &= ~mask;
    w->active &= ~mask;
    g->mask = w->active;
    joins_leave(w, g->join, NULL, mask);
    frames_leave(w, g->frame, mask);
    w->sm->changes++;
    w->turns = w->quiet_turns = 0;
    if (!w->active) w->group_count--;
    cluster_lanes_exited(w);
    // Who was parked needs fewer lanes now.
    for (int slot = 0; slot < WARP_SIZE; slot++)
        if (w->groups[slot].mask && w->groups[slot].state == GROUP_PARKED)
            w->groups[slot].state = GROUP_RUNS;
    if (w->active) return FLOW_NEXT;
    if (!w->live) {
        w->cta->live_warps--;
        if (w->cta->warpgroups) wgmma_warp_exited(w, i);
        if (w->cta->tcgen05) tcgen05_warp_exited(w, i);
        barrier_warp_exited(w);
        return FLOW_JUMP;
    }
    group_next(w);
    return FLOW_JUMP;
}

// ---- collective instructions

// Does a parked group stand where lanes at `i` can meet it?
static bool stands_at(const Group *g, const Insn *i) {
    if (!g->mask || g->state != GROUP_PARKED) return false;
    return g->pc == i || (i->flags & g->pc->flags & INSN_ANYWHERE && g->pc->run == i->run);
}

// The running group waits at `i`; lanes that its guard switches off wait behind it.
static void park(Warp *w, const Insn *i, uint32_t mask, uint32_t need) {
    Group *g = &w->groups[w->current];
    uint32_t off = w->active & ~mask;
    if (off) {
        Join *j = join_make(w, i + 1);
        j->arrived |= off;
        go_on(w, i, mask, j);
    }
    g->state = GROUP_PARKED;
    g->need = need;
    g->here = mask;
}

// Makes the lanes of a group that stands at the same place part of the running one. What they were
// to join on different ways no longer waits for them.
static void merge(Warp *w, Group *other) {
    Group *g = &w->groups[w->current];
    Join *common = g->join;
    for (; common; common = common->outer) {
        const Join *j = other->join;
        while (j && j != common) j = j->outer;
        if (j) break;
    }
    uint32_t lanes = other->mask;
    Join *mine = g->join, *others = other->join;
    other->mask = 0;
    w->group_count--;
    uint32_t active = w->active;
    g->join = common;
    g->mask = w->active = active | lanes;
    joins_leave(w, mine, common, active);
    joins_leave(w, others, common, lanes);
    group_update_stop(w);
    w->turns = w->quiet_turns = 0;
}

bool warp_gather(Warp *w, const Insn *i, uint32_t mask, uint32_t need, uint32_t *all) {
    *all = mask;
    need &= w->live;
    if (LIKELY(w->active == w->live && !(need & ~mask))) return true;

    uint32_t there = mask;
    for (int slot = 0; slot < WARP_SIZE; slot++)
        if (slot != w->current && stands_at(&w->groups[slot], i)) there |= w->groups[slot].here;
    if (need & ~there) {
        park(w, i, mask, need);
        return false;
    }
    w->gathered = 0;
    w->gathered_at = w->sm->time + 1;
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        Group *g = &w->groups[slot];
        if (slot == w->current || !stands_at(g, i)) continue;
        if (g->need & w->live & ~there && !(g->here & need)) continue; // waits for others
        g->state = GROUP_RUNS;
        if (g->pc != i) { // a barrier elsewhere
            g->pc++;
            w->gathered |= 1u << slot;
            continue;
        }
        if (g->frame->rows != w->frame) {
            finding(w, i, __builtin_ctz(g->here), FINDING_UNSUPPORTED,
                    "make all lanes call the function at the same depth of the recursion",
                    "lanes at different depths of a recursion meet in %s; softgpu can't do that",
                    w->kernel->texts[i->index]);
            w->sm->faulted = true;
            g->state = GROUP_PARKED;
            continue;
        }
        *all |= g->here;
        w->sm->counters->lanes[i->index] += (uint64_t)__builtin_popcount(g->here);
        if (g->frame == w->groups[w->current].frame) {
            merge(w, g);
        } else { // called from elsewhere: goes on by itself
            g->pc++;
            w->gathered |= 1u << slot;
        }
    }
    return true;
}

bool joins_unstick(Warp *w) {
    if (w->sm->faulted) return false;
    const Group *only = only_group(w);
    if (only && only->state != GROUP_PARKED) return false;
    bool outside = false, released = false;
    Group *parked = NULL;
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        Group *g = &w->groups[slot];
        if (!g->mask) continue;
        if (g->state != GROUP_PARKED) {
            outside = true;
            continue;
        }
        parked = g;
        uint32_t missing = g->need & w->live;
        for (int other = 0; other < WARP_SIZE; other++)
            if (stands_at(&w->groups[other], g->pc)) missing &= ~w->groups[other].here;
        for (Join *j = w->joins, *next; j; j = next) {
            next = j->next;
            if (!(j->arrived & missing)) continue;
            join_release(w, j);
            released = true;
        }
    }
    if (released) return true;
    if (outside || !parked) return false;
    report_divergent(w);
    w->sm->faulted = true;
    return false;
}
