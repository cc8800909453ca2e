// The report of a deadlock: who waits, where, for what, and who could end the waiting.
//
// One block is described in full: the first one that is stuck. Warps that wait at the same place
// for the same thing share a line; other blocks are only counted.
#include "softgpu/check/deadlock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/tmem.h"

enum { TEXT_MAX = 6000, PLACES_MAX = 64 };

typedef struct {
    char text[TEXT_MAX];
    size_t length;
} Text;

static void say(Text *t, const char *what, ...) __attribute__((format(printf, 2, 3)));
static void say(Text *t, const char *what, ...) {
    va_list arguments;
    va_start(arguments, what);
    size_t room = sizeof t->text - t->length;
    int wrote = vsnprintf(t->text + t->length, room, what, arguments);
    va_end(arguments);
    if (wrote > 0) t->length += (size_t)wrote < room ? (size_t)wrote : room - 1;
}

// "bar.sync at kernel.cu:12 (called at kernel.cu:40)": the innermost line outside the wrappers of
// instructions, and those from where it was inlined.
static void say_place(Text *t, const Kernel *kernel, const Insn *i) {
    const char *name = kernel->texts ? kernel->texts[i->index] : NULL;
    const PtxLocation *place = kernel->locations ? kernel->locations[i->index] : NULL;
    const PtxLocation *line = first_frame(place);
    say(t, "%s", name ? name : "an instruction");
    if (!line || !line->file) {
        if (place && place->ptx_line) say(t, " (PTX line %u)", place->ptx_line);
        return;
    }
    say(t, " at %s:%u", short_path(line->file), line->line);
    const char *comma = " (called at ";
    for (line = line->inlined_at; line; line = line->inlined_at) {
        if (!line->file) continue;
        say(t, "%s%s:%u", comma, short_path(line->file), line->line);
        comma = ", ";
    }
    if (*comma == ',') say(t, ")");
}

// "lanes 0-3, 8 and 12-15"
static void say_set(Text *t, const char *one, const char *many, uint32_t set, int base) {
    say(t, "%s ", set & (set - 1) ? many : one);
    for (const char *comma = ""; set; comma = ", ") {
        int first = __builtin_ctz(set), end = first;
        while (end < 32 && set >> end & 1) set &= ~(1u << end++);
        say(t, end - first > 1 ? "%s%d-%d" : "%s%d", comma, base + first, base + end - 1);
    }
}

static void say_lanes(Text *t, uint32_t lanes) {
    say_set(t, "lane", "lanes", lanes, 0);
}

// ---- one warp

// Where a group has stopped: the instruction that it waits in. What blocks it has been carried out,
// but for those that are tried again.
static const Insn *group_place(const Group *g) {
    bool again = g->block == BLOCK_WGMMA || g->block == BLOCK_MBARRIER ||
                 g->block == BLOCK_MEMORY || g->block == BLOCK_TMEM;
    return g->state == GROUP_BLOCKED && !again ? g->pc - 1 : g->pc;
}

// Does it go round a loop, or sleep in one?
static bool is_going(const Group *g) {
    if (g->state == GROUP_BLOCKED) return g->block == BLOCK_SLEEP;
    return g->state == GROUP_RUNS || g->state == GROUP_DEFERRED;
}

// The shortest loop that holds both instructions, or the first if there is no second: a branch that
// goes back across them. NULL: none.
static const Insn *loop_around(const Kernel *kernel, const Insn *a, const Insn *b) {
    const Insn *best = NULL;
    ptrdiff_t shortest = 0;
    for (uint32_t k = 0; k < kernel->code_count; k++) {
        const Insn *end = &kernel->code[k];
        const Branch *branch = end->extra;
        if (!(end->flags & INSN_BACKWARD) || !branch || !branch->target) continue;
        const Insn *begin = branch->target;
        if (a < begin || a > end || (b && (b < begin || b > end))) continue;
        if (best && end - begin >= shortest) continue;
        best = end;
        shortest = end - begin;
    }
    return best;
}

// The mbarrier that a group of warp `warp` waits at, or NULL: one that has suspended it, or one that
// a loop asks, in which the group is.
static const Mbarrier *awaited(const Cta *cta, int warp, const Group *g) {
    const Kernel *kernel = cta->warps[warp].kernel;
    if (g->state == GROUP_BLOCKED && g->block == BLOCK_MBARRIER)
        return mbarrier_find(cta, (uint32_t)g->number);
    const Mbarrier *b;
    for (int k = 0; is_going(g) && (b = mbarrier_get(cta, k)); k++)
        if (b->wait && b->waiting >> warp & 1 && loop_around(kernel, g->pc, b->wait)) return b;
    return NULL;
}

// What a loop asks for without end, if that can be told; otherwise where the group is in it.
static const Insn *asked_in_loop(const Kernel *kernel, const Group *g) {
    const Insn *end = loop_around(kernel, g->pc, NULL);
    for (const Insn *i = end ? ((const Branch *)end->extra)->target : NULL; end && i <= end; i++)
        if (i->flags & INSN_POLL) return i;
    return group_place(g);
}

void report_divergent(Warp *w) {
    Text t = {.length = 0};
    const Group *first = NULL;
    uint32_t gone = w->exists & ~w->live, wanted = 0;
    for (int lane = 0; lane < WARP_SIZE; lane++) { // in the order of their first lanes
        for (int slot = 0; slot < WARP_SIZE; slot++) {
            const Group *g = &w->groups[slot];
            if (!g->mask || __builtin_ctz(g->here) != lane) continue;
            if (first) say(&t, "\n");
            if (!first) first = g;
            wanted |= g->need;
            say_lanes(&t, g->here);
            say(&t, " wait%s in ", g->here & (g->here - 1) ? "" : "s");
            say_place(&t, w->kernel, g->pc);
            say(&t, " for ");
            say_lanes(&t, g->need & w->live & ~g->here);
        }
    }
    if (gone & wanted) {
        say(&t, "\n");
        say_lanes(&t, gone);
        say(&t, gone & (gone - 1) ? " have exited" : " has exited");
    }
    if (!first) return;
    finding(
        w, first->pc, __builtin_ctz(first->here), FINDING_DIVERGENT,
        "let all lanes of the warp reach the same instruction: move it out of the condition, or "
        "name only the lanes that come in its mask",
        "%s", t.text);
}

// ---- a block

// Warps that do the same thing: a line of the report.
typedef struct {
    const Insn *place;
    GroupState state;
    BlockKind block;
    int number;
    const Mbarrier *mbarrier; // that it waits at; NULL: it doesn't
    uint64_t warps;           // bit per warp
    uint32_t lanes;           // of the first of them
    uint32_t live;
} Place;

// Warps are numbered up to 31 in a block of 1,024 threads.
static void say_warps(Text *t, uint64_t warps) {
    say_set(t, "warp", "warps", (uint32_t)warps, 0);
}

static void add_place(Place *places, int *count, Place p, int warp) {
    for (int k = 0; k < *count; k++) {
        Place *q = &places[k];
        if (q->place != p.place || q->state != p.state || q->block != p.block ||
            q->number != p.number || q->mbarrier != p.mbarrier || q->lanes != p.lanes)
            continue;
        q->warps |= 1ull << warp;
        return;
    }
    if (*count == PLACES_MAX) return;
    p.warps = 1ull << warp;
    places[(*count)++] = p;
}

static int find_places(const Cta *cta, Place *places) {
    int count = 0;
    for (int k = 0; k < cta->warp_count; k++) {
        const Warp *w = &cta->warps[k];
        for (int slot = 0; w->live && slot < WARP_SIZE; slot++) {
            const Group *g = &w->groups[slot];
            if (!g->mask) continue;
            Place p = {
                .place = group_place(g), .state = g->state, .lanes = g->mask, .live = w->live};
            if (g->state == GROUP_BLOCKED) {
                p.block = g->block;
                p.number = g->block == BLOCK_BARRIER ? g->number : 0;
            }
            p.mbarrier = awaited(cta, k, g);
            if (p.mbarrier && p.mbarrier->wait) {
                p.place = p.mbarrier->wait;
                p.state = GROUP_BLOCKED; // in effect
                p.block = BLOCK_MBARRIER;
            } else if (is_going(g)) {
                p.place = asked_in_loop(w->kernel, g);
            }
            add_place(places, &count, p, k);
        }
    }
    return count;
}

// Whether a barrier is what all waiting for it lack, and who could still come.
static void say_barrier(Text *t, const Cta *cta, int number) {
    const Barrier *b = &cta->barriers[number];
    if (!b->expected) return;
    say(t, "\n    barrier %d: %u of %u threads have arrived", number, b->arrived, b->expected);
    uint64_t missing = 0;
    for (int k = 0; k < cta->warp_count; k++) {
        const Warp *w = &cta->warps[k];
        bool here = !w->live;
        for (int slot = 0; slot < WARP_SIZE && !here; slot++) {
            const Group *g = &w->groups[slot];
            here = g->mask && g->state == GROUP_BLOCKED && g->block == BLOCK_BARRIER &&
                   g->number == number;
        }
        if (!here) missing |= 1ull << k;
    }
    if (missing) {
        say(t, "; ");
        say_warps(t, missing);
        say(t, missing & (missing - 1) ? " do not wait there" : " does not wait there");
    }
    if (cta->live_warps < cta->warp_count)
        say(t, "; %d of the block's %d warps have exited", cta->warp_count - cta->live_warps,
            cta->warp_count);
}

// Who of the cluster has not come to its barrier. Threads that have exited count as arrived.
static void say_cluster(Text *t, const Cta *of) {
    const Cluster *cluster = of->cluster;
    uint32_t arrived = 0, live = 0;
    for (int k = 0; k < cluster->size; k++)
        for (int n = 0; n < cluster->ctas[k]->warp_count; n++) {
            const Warp *w = &cluster->ctas[k]->warps[n];
            live += (uint32_t)__builtin_popcount(w->live);
            arrived += (uint32_t)__builtin_popcount(w->live & w->cluster_arrived);
        }
    say(t, "\n    the cluster's barrier: %u of the %u threads that run have arrived", arrived,
        live);
    for (int k = 0; k < cluster->size; k++) {
        const Cta *cta = cluster->ctas[k];
        uint64_t missing = 0;
        for (int n = 0; n < cta->warp_count; n++)
            if (cta->warps[n].live & ~cta->warps[n].cluster_arrived) missing |= 1ull << n;
        if (!missing) continue;
        say(t, "\n      block (%u,%u,%u), rank %d: ", cta->index[0], cta->index[1], cta->index[2],
            k);
        say_warps(t, missing);
        say(t, missing & (missing - 1) ? " have not" : " has not");
    }
}

// The arithmetic of the block's registers.
static void say_registers(Text *t, const Cta *cta, const Place *p) {
    const Warp *first = &cta->warps[__builtin_ctzll(p->warps)];
    uint32_t all = cta->launch->registers;
    say(t,
        " for %u registers a thread (%s %u)\n    the block began with %u a thread, %u in all; "
        "%u are free, and %u more are wanted for each warp",
        first->registers_wanted, p->warps & (p->warps - 1) ? "the first has" : "it has",
        first->registers, all, all * (uint32_t)cta->warp_count * WARP_SIZE, cta->pool.free,
        (first->registers_wanted - first->registers) * WARP_SIZE);
    for (int k = 0; k < cta->warp_count;) { // runs of warps that have the same number
        int end = k;
        while (end < cta->warp_count && cta->warps[end].registers == cta->warps[k].registers) end++;
        say(t, "%s", k ? ", " : "\n    now: ");
        say_warps(t, ((1ull << end) - 1) & ~((1ull << k) - 1));
        say(t, " ha%s %u", end - k > 1 ? "ve" : "s", cta->warps[k].registers);
        k = end;
    }
}

static void say_mbarrier(Text *t, const Kernel *kernel, const Cta *cta, const Mbarrier *b) {
    MbarrierState s = mbarrier_state(cta, b->address);
    say(t, "\n    mbarrier at 0x%x, phase %llu (parity %u): %u of %u arrivals are missing",
        b->address, (unsigned long long)b->phases, s.phase & 1, s.pending, s.expected);
    if (b->bytes_expected || b->bytes_come)
        say(t, "\n    it expects %llu bytes, and %llu have come",
            (unsigned long long)b->bytes_expected, (unsigned long long)b->bytes_come);
    if (b->last_arrival) {
        say(t, "\n    the last arrival was ");
        say_place(t, kernel, b->last_arrival);
    } else {
        say(t, "\n    nobody has arrived yet");
    }
}

// The mbarriers at which somebody waits, apart from those that `places` name.
static void say_other_mbarriers(Text *t, const Kernel *kernel, const Cta *cta, const Place *places,
                                int count) {
    const Mbarrier *b;
    for (int k = 0; (b = mbarrier_get(cta, k)); k++) {
        bool named = !b->wait;
        for (int n = 0; n < count; n++) named |= places[n].mbarrier == b;
        if (named) continue;
        say(t, "\n  ");
        say_warps(t, b->waiting);
        say(t, " wait%s in ", b->waiting & (b->waiting - 1) ? "" : "s");
        say_place(t, kernel, b->wait);
        say_mbarrier(t, kernel, cta, b);
    }
}

static void say_block(Text *t, const Kernel *kernel, const Cta *cta) {
    Place places[PLACES_MAX];
    int count = find_places(cta, places);
    say(t, "block (%u,%u,%u):", cta->index[0], cta->index[1], cta->index[2]);
    for (int k = 0; k < count; k++) {
        const Place *p = &places[k];
        say(t, "\n  ");
        if (p->lanes != p->live) {
            say_lanes(t, p->lanes);
            say(t, " of ");
        }
        say_warps(t, p->warps);
        bool spins = p->state == GROUP_RUNS || p->state == GROUP_DEFERRED;
        bool many = p->warps & (p->warps - 1) || (p->lanes != p->live && p->lanes & (p->lanes - 1));
        say(t, spins ? " keep%s going round a loop at " : " wait%s in ", many ? "" : "s");
        say_place(t, kernel, p->place);
        if (p->mbarrier) say_mbarrier(t, kernel, cta, p->mbarrier);
        if (p->block == BLOCK_BARRIER) say_barrier(t, cta, p->number);
        if (p->block == BLOCK_CLUSTER) say_cluster(t, cta);
        if (p->block == BLOCK_REGISTERS) say_registers(t, cta, p);
        if (p->block == BLOCK_TMEM)
            say(t,
                " for columns of tensor memory, of which the SM has %u free (or for the other "
                "block of the pair)",
                tmem_free_columns(cta->sm));
        if (p->state == GROUP_PARKED) say(t, " for other lanes of the warp");
        if (p->block == BLOCK_WGMMA)
            say(t, " for the other warps of the warpgroup, which have not issued the wgmma that it "
                   "waits for");
    }
    say_other_mbarriers(t, kernel, cta, places, count);
}

static void report(LaunchState *launch, const char *what, const char *mend) {
    const Kernel *kernel = launch->launch->kernel;
    Text *t = malloc(sizeof *t);
    if (!t) abort();
    t->length = 0;
    t->text[0] = 0;
    uint64_t others = 0;
    bool described = false;
    for (int s = 0; s < launch->gpu->figures.sms; s++) {
        // The list has the latest block first; the report wants the first one.
        const Cta *first = NULL;
        for (const Cta *cta = launch->gpu->sm[s].ctas; cta; cta = cta->next) {
            if (cta->ended) continue; // waits for its cluster
            others++;
            first = cta;
        }
        if (first && !described) {
            if (*what) say(t, "%s\n", what);
            say_block(t, kernel, first);
            described = true;
        }
    }
    if (others > 1)
        say(t, "\n%llu more block%s can't go on either", (unsigned long long)(others - 1),
            others > 2 ? "s" : "");
    uint64_t waiting = launch->grid_size - launch->started;
    if (waiting)
        say(t, "\n%llu block%s of the grid have not started: %s", (unsigned long long)waiting,
            waiting > 1 ? "s" : "",
            launch->sampled ? "only a sample of its blocks runs, and these may wait for others; "
                              "run the whole grid (--sample 0)"
                            : "there is no room for them yet");
    finding_global(FINDING_DEADLOCK, kernel->name, mend, "%s", t->text);
    free(t);
}

void report_deadlock(LaunchState *launch) {
    report(launch, "", "let every warp that a barrier counts reach it, or lower its count");
}

void report_spinning(LaunchState *launch) {
    report(launch, "the warps that still run only go round loops in which nothing changes any more",
           "find what should end each loop: who should have written what it waits for, and whether "
           "that block or warp can run at all");
}
