// Barriers of a CTA and fences (PTX ISA 9.7.13.1, 9.7.13.4): bar, barrier, membar, fence.
//
// A barrier counts warps: each arrival is of a whole warp and adds 32, whatever lanes of it exist,
// after all live lanes of the warp have come. A use of a barrier begins with its first arrival and
// ends, and the barrier with it, when the expected number of threads has arrived.
//
// Invariant: Barrier.expected is 0 exactly while no use is under way, and `waiting` warps have a
// group that is blocked on it.
#include "softgpu/check/race.h"
#include "softgpu/execute/control.h"
#include "softgpu/execute/execute.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/trace.h"

typedef enum { ARRIVE, SYNC, REDUCE } BarrierUse;

// The value of an operand that has to be the same in all lanes.
static bool uniform(Warp *w, const Insn *i, uint32_t all, Row r, const char *what,
                    uint32_t *value) {
    const Lane32 *lanes = row(w, r);
    *value = lanes[__builtin_ctz(all)];
    for (uint32_t rest = all; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (lanes[l] == *value) continue;
        finding(w, i, l, FINDING_BARRIER, "give every lane of the warp the same one",
                "lanes of one warp come with different %s, %u and %u", what, *value, lanes[l]);
        return false;
    }
    return true;
}

// Writes the result of bar.red for lanes of a warp whose rows begin at `frame`.
static void put_reduction(const Barrier *b, const Insn *i, uint8_t *frame, uint32_t lanes) {
    uint32_t value = i->choice[0] == 1 ? b->red_popc : i->choice[0] == 2 ? b->red_and : b->red_or;
    if (i->choice[0] == 1) {
        Lane32 *d = (Lane32 *)(frame + i->d);
        for (int l = 0; l < WARP_SIZE; l++)
            if (lanes >> l & 1) d[l] = value;
    } else {
        Lane32 *p = (Lane32 *)(frame + i->d);
        *p = value ? *p | lanes : *p & ~lanes;
    }
}

// Ends a use: gives those that wait their results and wakes them.
static void complete(Cta *cta, int number) {
    Barrier *b = &cta->barriers[number];
    for (int k = 0; k < cta->warp_count && b->waiting; k++) {
        Warp *w = &cta->warps[k];
        bool waits = false;
        for (int slot = 0; slot < WARP_SIZE; slot++) {
            const Group *g = &w->groups[slot];
            if (!g->mask || g->state != GROUP_BLOCKED || g->block != BLOCK_BARRIER ||
                g->number != number)
                continue;
            waits = true;
            // the instruction has been carried out: it is the one before the group's pc
            if (b->reduces) put_reduction(b, g->pc - 1, g->frame->rows, g->mask);
        }
        if (!waits) continue;
        race_bar_wait(w, number, b->whole);
        warp_wake(w, BLOCK_BARRIER, number);
    }
    race_bar_complete(cta, number);
    if (trace_on(cta->sm)) trace_barrier(cta, (uint32_t)number, cta->sm->time);
    uint64_t generation = b->generation + 1;
    memset(b, 0, sizeof *b);
    b->generation = generation;
    cta->sm->changes++;
}

// How many threads this instruction waits for; 0 after a finding.
static uint32_t expected_threads(Warp *w, const Insn *i, uint32_t all) {
    uint32_t count, most = (uint32_t)w->cta->warp_count * WARP_SIZE;
    if (i->b == ROW_NONE) return (uint32_t)w->cta->live_warps * WARP_SIZE;
    if (!uniform(w, i, all, i->b, "thread counts", &count)) return 0;
    if (count == 0 || count % WARP_SIZE) {
        finding(w, i, -1, FINDING_BARRIER, "round the count up to whole warps",
                "the barrier's thread count %u is not a multiple of 32 (above 0)", count);
        return 0;
    }
    if (count > most) {
        finding(w, i, -1, FINDING_BARRIER, "count the threads of the warps that take part",
                "the barrier waits for %u threads, but the block has %u in its warps", count, most);
        return 0;
    }
    return count;
}

// Opens a use, or checks that this instruction fits the one that opened it.
static bool join_use(Warp *w, const Insn *i, Barrier *b, uint32_t number, uint32_t expected,
                     BarrierUse use) {
    if (!b->expected) {
        b->expected = expected;
        b->whole = i->b == ROW_NONE;
        b->reduces = use == REDUCE;
        b->red_and = 1;
        b->first = i;
        return true;
    }
    if (b->expected != expected) {
        finding(w, i, -1, FINDING_BARRIER,
                "give all participants of one use of a barrier the same count: that of the threads "
                "that wait and of those that only arrive",
                "barrier %u is used with a count of %u threads here, with %u by a warp that came "
                "earlier",
                number, expected, b->expected);
        return false;
    }
    if (b->reduces == (use == REDUCE)) return true;
    finding(w, i, -1, FINDING_BARRIER, "use another barrier number for one of them",
            "barrier %u is used by bar.red and by bar.sync or bar.arrive at the same time", number);
    return false;
}

// A lane's value of an operand, in the frame of another group.
static uint32_t frame_value(const Warp *w, const Group *g, Row r, int lane) {
    const uint8_t *base = r & ROW_CONSTANT ? w->constants : g->frame->rows;
    return ((const Lane32 *)(base + (r & ~ROW_CONSTANT)))[lane];
}

// .aligned asks for all threads of the warp. The chip counts threads that have exited as arrived,
// and much code in the wild returns early before a barrier; the letter of PTX forbids it.
void note_exited(Warp *w, const Insn *i, uint32_t all) {
    uint32_t exited = w->exists & ~all;
    if (!exited || !(i->flags & INSN_ALIGNED) || !(w->sm->gpu->settings->checks & CHECK_SYNC))
        return;
    finding(w, i, __builtin_ctz(exited), FINDING_LINT,
            "let threads without work skip the work, not the barrier: no return before it",
            "%d lanes of the warp have exited, and this barrier asks for all of them (.aligned)",
            __builtin_popcount(exited));
}

// The lanes of a warp may have come to different instructions (barrier.sync without .aligned): do
// they all mean the same barrier?
static bool same_barrier(Warp *w, const Insn *i, uint32_t number, uint32_t expected) {
    if (!(i->flags & INSN_ANYWHERE) || w->gathered_at != w->sm->time + 1) return true;
    for (uint32_t slots = w->gathered; slots; slots &= slots - 1) {
        const Group *g = &w->groups[__builtin_ctz(slots)];
        const Insn *other = g->pc - 1; // carried out
        if (other == i || other->run != i->run) continue;
        int lane = __builtin_ctz(g->here);
        uint32_t n = frame_value(w, g, other->a, lane);
        uint32_t count = other->b == ROW_NONE ? (uint32_t)w->cta->live_warps * WARP_SIZE
                                              : frame_value(w, g, other->b, lane);
        if (n == number && count == expected) continue;
        finding(w, other, lane, FINDING_BARRIER,
                "let all lanes of a warp name the same barrier and count",
                "lanes of one warp come to barrier %u for %u threads here, and to barrier %u for "
                "%u threads elsewhere",
                n, count, number, expected);
        return false;
    }
    return true;
}

static Flow use_barrier(Warp *w, const Insn *i, uint32_t mask, BarrierUse use) {
    uint32_t all, number;
    if (!warp_gather(w, i, mask, w->live, &all)) return FLOW_RETRY;
    note_exited(w, i, all);
    if (!uniform(w, i, all, i->a, "barrier numbers", &number)) return FLOW_FAULT;
    if (number >= NAMED_BARRIERS) {
        finding(w, i, -1, FINDING_BARRIER, "a block has barriers 0 to 15", "there is no barrier %u",
                number);
        return FLOW_FAULT;
    }
    uint32_t expected = expected_threads(w, i, all);
    if (!expected || !same_barrier(w, i, number, expected)) return FLOW_FAULT;
    Cta *cta = w->cta;
    Barrier *b = &cta->barriers[number];
    if (!join_use(w, i, b, number, expected, use)) return FLOW_FAULT;

    if (use == REDUCE) {
        uint32_t yes = predicate(w, i->c) & all;
        b->red_popc += (uint32_t)__builtin_popcount(yes);
        b->red_or |= yes != 0;
        b->red_and &= yes == all;
    }
    b->arrived += WARP_SIZE;
    if (w->pace) b->admitted = pace_admit(w, b->admitted);
    w->stores++;
    cta->sm->changes++;
    race_bar_arrive(w, (int)number);
    if (b->arrived >= b->expected) {
        if (use != ARRIVE) race_bar_wait(w, (int)number, b->whole);
        if (use == REDUCE) put_reduction(b, i, w->frame, all);
        complete(cta, (int)number);
        return FLOW_NEXT;
    }
    if (use == ARRIVE) return FLOW_NEXT;
    b->waiting++;
    warp_block(w, BLOCK_BARRIER, (int)number, 0);
    return FLOW_WAIT;
}
static Flow bar_sync(Warp *w, const Insn *i, uint32_t mask) {
    return use_barrier(w, i, mask, SYNC);
}
static Flow bar_arrive(Warp *w, const Insn *i, uint32_t mask) {
    return use_barrier(w, i, mask, ARRIVE);
}
static Flow bar_red(Warp *w, const Insn *i, uint32_t mask) {
    return use_barrier(w, i, mask, REDUCE);
}

// A warp has exited: barriers that wait for all warps wait for one less.
void barrier_warp_exited(Warp *w) {
    Cta *cta = w->cta;
    race_warp_exited(w);
    for (int number = 0; number < NAMED_BARRIERS; number++) {
        Barrier *b = &cta->barriers[number];
        if (!b->expected || !b->whole) continue;
        b->expected = (uint32_t)cta->live_warps * WARP_SIZE;
        if (b->arrived >= b->expected) complete(cta, number);
    }
}

// ---- lowering: bar.red's optional count stands in the middle

static const char *lower_reduction(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    int count = m->ptx->operand_count;
    if (count != 3 && count != 4) return "bar.red takes d, a barrier, a count if you like, and c";
    const char *why = NULL;
    i->d = destination_row(l, &o[0], m->choice[0] == 1 ? 32 : 1, &why);
    i->a = source_row(l, &o[1], 32, &why);
    if (count == 4) i->b = source_row(l, &o[2], 32, &why);
    i->c = source_row(l, &o[count - 1], 1, &why);
    i->run = bar_red;
    return why;
}

// ---- fences: memory is sequentially consistent between the points where SMs meet, so a fence has
// nothing left to order. It only tells the race check.

static Flow fence(Warp *w, const Insn *i, uint32_t mask) {
    (void)w, (void)i, (void)mask;
    return FLOW_NEXT;
}
// membar, and fence with its semantics in group 0 (none, sc, acq_rel, acquire, release) and its
// scope in group 1 (cta, cluster, gpu, sys).
static Flow fence_memory(Warp *w, const Insn *i, uint32_t mask) {
    race_fence(w, mask, i->choice[0] != 4, i->choice[0] != 3, i->choice[1] > 2);
    return FLOW_NEXT;
}
static Flow fence_membar(Warp *w, const Insn *i, uint32_t mask) {
    race_fence(w, mask, true, true, i->choice[0] > 1);
    return FLOW_NEXT;
}
// Semantics in group 0: acquire, release.
static Flow fence_restricted(Warp *w, const Insn *i, uint32_t mask) {
    race_fence(w, mask, i->choice[0] == 1, i->choice[0] == 2, false);
    return FLOW_NEXT;
}
static Flow fence_mbarrier_init(Warp *w, const Insn *i, uint32_t mask) {
    (void)i, (void)mask;
    race_mbarrier_init_fence(w);
    return FLOW_NEXT;
}
// The space is group 2: none, global, or shared.
static Flow fence_proxy(Warp *w, const Insn *i, uint32_t mask) {
    if (i->choice[2] == 1)
        race_proxy_fence_global(w, mask);
    else
        race_proxy_fence(w, mask);
    return FLOW_NEXT;
}
static Flow fence_proxy_restricted(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    race_proxy_fence(w, mask);
    return FLOW_NEXT;
}

#define ALIGNED INSN_ALIGNED
#define SCOPES  "cta|cluster|gpu|sys"

const Form barrier_forms[] = {
    {"bar", "sync cta?", "a32 b32?", bar_sync, PIPE_CONTROL, 0, ALIGNED},
    {"bar", "arrive cta?", "a32 b32", bar_arrive, PIPE_CONTROL, 0, ALIGNED},
    {"bar", "popc red cta? u32", NULL, NULL, PIPE_CONTROL, 0, ALIGNED, lower_reduction},
    {"bar", "_|and|or red cta? pred", NULL, NULL, PIPE_CONTROL, 0, ALIGNED, lower_reduction},
    {"barrier", "sync aligned cta?", "a32 b32?", bar_sync, PIPE_CONTROL, 0, ALIGNED},
    {"barrier", "sync cta?", "a32 b32?", bar_sync, PIPE_CONTROL, 0, INSN_ANYWHERE},
    {"barrier", "arrive aligned cta?", "a32 b32", bar_arrive, PIPE_CONTROL, 0, ALIGNED},
    {"barrier", "arrive cta?", "a32 b32", bar_arrive, PIPE_CONTROL},
    {"barrier", "popc red aligned cta? u32", NULL, NULL, PIPE_CONTROL, 0, ALIGNED, lower_reduction},
    {"barrier", "popc red cta? u32", NULL, NULL, PIPE_CONTROL, 0, 0, lower_reduction},
    {"barrier", "_|and|or red aligned cta? pred", NULL, NULL, PIPE_CONTROL, 0, ALIGNED,
     lower_reduction},
    {"barrier", "_|and|or red cta? pred", NULL, NULL, PIPE_CONTROL, 0, 0, lower_reduction},

    {"membar", "cta|gl|sys", "", fence_membar, PIPE_CONTROL},
    {"membar", "proxy alias", "", fence, PIPE_CONTROL},
    {"fence", "sc|acq_rel|acquire|release? " SCOPES, "", fence_memory, PIPE_CONTROL},
    {"fence",
     "acquire|release sync_restrict::shared::cta|sync_restrict::shared::cluster "
     "cta|cluster",
     "", fence_restricted, PIPE_CONTROL},
    {"fence", "mbarrier_init release cluster", "", fence_mbarrier_init, PIPE_CONTROL},
    {"fence", "proxy alias", "", fence, PIPE_CONTROL},
    {"fence", "proxy async|async::generic global|shared::cta|shared::cluster|shared?", "",
     fence_proxy, PIPE_CONTROL},
    {"fence",
     "proxy async::generic acquire|release sync_restrict::shared::cta|"
     "sync_restrict::shared::cluster cluster",
     "", fence_proxy_restricted, PIPE_CONTROL},
    {0},
};
