// Warpgroups: issue, execution, waits (wgmma.h).
#include "softgpu/machine/wgmma.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/in_flight.h"
#include "softgpu/check/operand_reads.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/tensor_time.h"

// In SM time, until the timing model is built: from the last issue to the first result, and what
// each column of B keeps the tensor cores busy.
enum { LATENCY = 64, PER_COLUMN = 2 };
#define ON_DEMAND UINT64_MAX
#define QUEUED    (UINT64_MAX - 1) // timed: the tensor cores have not begun it

Warpgroup *wgmma_group(const Warp *w) {
    return w->cta->warpgroups ? &w->cta->warpgroups[w->id / WARPGROUP] : NULL;
}

bool wgmma_committed(const Warpgroup *g, const Warp *w, uint64_t n) {
    int me = w->id % WARPGROUP;
    uint64_t groups = g->warp[me].groups;
    return groups && n < g->warp[me].ends[(groups - 1) % GROUPS_FOLLOWED];
}

static int group_count(const Cta *cta) {
    return (cta->warp_count + WARPGROUP - 1) / WARPGROUP;
}

// The warp's group, made if it is the first; NULL after a finding if there is none.
static Warpgroup *find_group(Warp *w, const Insn *i) {
    Cta *cta = w->cta;
    int first = w->id / WARPGROUP * WARPGROUP;
    if (!cta->warpgroups) {
        size_t size = (size_t)group_count(cta) * sizeof *cta->warpgroups;
        cta->warpgroups = allocate(size);
        memset(cta->warpgroups, 0, size);
        for (int k = 0; k < group_count(cta); k++)
            cta->warpgroups[k].warps = &cta->warps[k * WARPGROUP];
    }
    bool whole = first + WARPGROUP <= cta->warp_count;
    for (int k = first; whole && k < first + WARPGROUP; k++) whole = cta->warps[k].live;
    if (whole) return wgmma_group(w);
    finding(w, i, -1, FINDING_DIVERGENT,
            "Launch blocks of a multiple of 128 threads, and let no warp of the four return before "
            "the others are done.",
            "wgmma needs the whole warpgroup, warps %d to %d; the block has %d warps%s", first,
            first + WARPGROUP - 1, cta->warp_count,
            first + WARPGROUP <= cta->warp_count ? ", and some of the four have returned" : "");
    return NULL;
}

// The first operation that not all four warps have issued.
static uint64_t complete(const Warpgroup *g) {
    uint64_t least = g->warp[0].issued;
    for (int k = 1; k < WARPGROUP; k++)
        if (g->warp[k].issued < least) least = g->warp[k].issued;
    return least;
}

// Gives up operations that all four have waited for.
static void forget(Warpgroup *g) {
    uint64_t least = g->warp[0].waited;
    for (int k = 1; k < WARPGROUP; k++)
        if (g->warp[k].waited < least) least = g->warp[k].waited;
    g->first = least;
}

// Executes all operations below `end`.
static void execute_to(Warpgroup *g, uint64_t end) {
    for (; g->executed < end; g->executed++) wgmma_execute(g, wgmma_op(g, g->executed));
}

// Makes room for another operation. False if the oldest can't be given up: not all four have issued
// it.
static bool make_room(Warpgroup *g) {
    uint64_t n = g->first;
    if (g->next - n < WGMMA_KEPT) return true;
    if (complete(g) == n) return false;
    execute_to(g, n + 1);
    for (int k = 0; k < WARPGROUP; k++) {
        if (g->warp[k].waited > n) continue;
        if (g->warps[k].in_flight) in_flight_release(&g->warps[k], g, n);
        g->warp[k].waited = n + 1;
    }
    forget(g);
    return true;
}

static WgmmaOp *append(Warpgroup *g) {
    if (g->next - g->first == g->capacity) {
        uint64_t capacity = g->capacity ? 2 * g->capacity : 16;
        WgmmaOp *ops = allocate(capacity * sizeof *ops);
        for (uint64_t n = g->first; n < g->next; n++) ops[n & (capacity - 1)] = *wgmma_op(g, n);
        free(g->ops);
        g->ops = ops;
        g->capacity = capacity;
    }
    return wgmma_op(g, g->next++);
}

// ---- execution

static void arm(Warpgroup *g);

static void wake_group(Warpgroup *g) {
    for (int k = 0; k < WARPGROUP; k++) warp_wake(&g->warps[k], BLOCK_WGMMA, 0);
}

void wgmma_begun(Warpgroup *g, WgmmaOp *op, uint64_t due) {
    op->due = due;
    arm(g);
    wake_group(g);
}

void wgmma_ended(Warpgroup *g) {
    g->ended++;
    wake_group(g);
}

bool wgmma_has_next(const Warpgroup *g) {
    return g->begun < complete(g);
}

static void execute_due(Sm *sm, void *subject, uint64_t generation) {
    Warpgroup *g = subject;
    g->events--;
    if (g->generation != generation) return;
    if (g->armed <= sm->time) g->armed = 0;
    uint64_t end = complete(g);
    while (g->executed < end && wgmma_op(g, g->executed)->due <= sm->time)
        execute_to(g, g->executed + 1);
    arm(g);
}

// Sees to it that an event comes when the next operation is due.
static void arm(Warpgroup *g) {
    if (g->executed == complete(g)) return;
    uint64_t due = wgmma_op(g, g->executed)->due;
    if (due == ON_DEMAND || due == QUEUED || (g->armed && g->armed <= due)) return;
    g->armed = due;
    g->events++;
    event_add(g->warps->sm, due, execute_due, g, g->generation);
}

// All four warps have issued an operation: when does it execute? Never before an earlier one.
static void schedule(Warpgroup *g, WgmmaOp *op) {
    Sm *sm = g->warps->sm;
    uint64_t cost = PER_COLUMN * (uint64_t)wgmma_columns(op);
    if (g->busy < sm->time) g->busy = sm->time;
    switch (sm->gpu->settings->async) {
    case ASYNC_EARLY: op->due = sm->time; break;
    case ASYNC_LATE: op->due = ON_DEMAND; return;
    case ASYNC_RANDOM:
        g->busy += random_below(&sm->random, (uint32_t)(2 * cost));
        op->due = g->busy + 1 + random_below(&sm->random, LATENCY);
        g->busy = op->due;
        return;
    case ASYNC_TIMED:
        if (g->warps->pace) {
            op->due = QUEUED;
            return;
        }
        g->busy += cost;
        op->due = g->busy + LATENCY;
        break;
    }
}

// ---- issue

// Do the warps agree on what they issue? false after a finding.
static bool agrees(Warp *w, const Insn *i, const WgmmaOp *op, uint64_t a, uint64_t b,
                   bool accumulates) {
    static const char *const MEND = "Let the four warps of a warpgroup take the same way, and make "
                                    "descriptors from values that they share.";
    if (op->insn != i) {
        finding_pair(w, i, -1, FINDING_DIVERGENT, op->insn, MEND,
                     "the warps of a warpgroup must execute the same wgmma.mma_async; another warp "
                     "has executed the other one");
        return false;
    }
    if (op->a == a && op->b == b && op->accumulates == accumulates) return true;
    if (!(w->sm->gpu->settings->checks & CHECK_SYNC)) return true;
    const char *what = op->a != a ? "descriptor of A" : op->b != b ? "descriptor of B" : "scale-d";
    finding(w, i, -1, FINDING_DIVERGENT, MEND,
            "the warps of a warpgroup pass different operands: the %s is 0x%llx here and 0x%llx in "
            "another warp",
            what,
            (unsigned long long)(op->a != a   ? a
                                 : op->b != b ? b
                                              : accumulates),
            (unsigned long long)(op->a != a   ? op->a
                                 : op->b != b ? op->b
                                              : op->accumulates));
    return false;
}

Flow wgmma_issue(Warp *w, const Insn *i, uint64_t a, uint64_t b, bool accumulates) {
    Warpgroup *g = find_group(w, i);
    if (!g) return FLOW_FAULT;
    int me = w->id % WARPGROUP;
    uint64_t n = g->warp[me].issued;
    const bool full = w->pace && n >= g->ended + (uint64_t)w->sm->launch->pace->timing->wgmma_queue;
    if (full || (n == g->next && !make_room(g))) {
        warp_block(w, BLOCK_WGMMA, 0, 0);
        return FLOW_RETRY;
    }
    if (n == g->next)
        *append(g) = (WgmmaOp){.insn = i, .a = a, .b = b, .accumulates = accumulates};
    else if (!agrees(w, i, wgmma_op(g, n), a, b, accumulates))
        return FLOW_FAULT;
    WgmmaOp *op = wgmma_op(g, n);
    op->frame[me] = (uint32_t)(w->frame - w->stack);
    if (w->in_flight) in_flight_issue(w, g, n);
    g->warp[me].issued++;
    w->sm->changes++;
    if (complete(g) <= n) return FLOW_NEXT;
    schedule(g, op);
    if (w->pace) {
        tensor_queue_push(w->sm, g);
        wake_group(g);
        return FLOW_NEXT;
    }
    if (op->due <= w->sm->time) execute_to(g, n + 1);
    arm(g);
    for (int k = 0; k < WARPGROUP; k++)
        if (&g->warps[k] != w) warp_wake(&g->warps[k], BLOCK_WGMMA, 0);
    return w->sm->faulted ? FLOW_FAULT : FLOW_NEXT;
}

void wgmma_commit(Warp *w) {
    Warpgroup *g = wgmma_group(w);
    if (!g) return; // nothing has been issued yet
    int me = w->id % WARPGROUP;
    uint64_t groups = g->warp[me].groups++, to = g->warp[me].issued;
    if (race_on(w)) {
        uint64_t from = groups ? g->warp[me].ends[(groups - 1) % GROUPS_FOLLOWED] : 0;
        if (from < g->first) from = g->first;
        operand_reads_committed(g, w, groups, from, to);
    }
    g->warp[me].ends[groups % GROUPS_FOLLOWED] = to;
}

// ---- waits

// Operations that no group holds and that a wait for all groups leaves out.
static void report_uncommitted(Warp *w, const Insn *i, const Warpgroup *g) {
    uint64_t n = g->warp[w->id % WARPGROUP].issued - 1;
    if (n < g->first) return; // no longer kept
    finding_pair(w, i, -1, FINDING_LINT, wgmma_op(g, n)->insn,
                 "Put wgmma.commit_group between them.",
                 "this wait doesn't cover the other instruction, which no wgmma.commit_group has "
                 "made part of a group");
}

bool wgmma_wait(Warp *w, const Insn *i, uint32_t newest) {
    Warpgroup *g = wgmma_group(w);
    if (!g) return true;
    int me = w->id % WARPGROUP;
    uint64_t groups = g->warp[me].groups, end = 0;
    if (groups > newest) end = g->warp[me].ends[(groups - newest - 1) % GROUPS_FOLLOWED];
    if (w->in_flight && newest == 0 && g->warp[me].issued > end &&
        !finding_again(w, i, FINDING_LINT))
        report_uncommitted(w, i, g);
    uint64_t from = g->warp[me].waited;
    if (end <= from) return true;
    if (complete(g) < end) {
        warp_block(w, BLOCK_WGMMA, 0, 0);
        return false;
    }
    uint64_t due = wgmma_op(g, end - 1)->due, now = w->sm->time;
    if (g->executed < end && due == QUEUED) {
        warp_block(w, BLOCK_WGMMA, 0, 0);
        return false;
    }
    if (g->executed < end && due != ON_DEMAND && due > now) {
        warp_block(w, BLOCK_SLEEP, 0, due);
        return false;
    }
    execute_to(g, end);
    for (uint64_t n = from; w->in_flight && n < end; n++) in_flight_release(w, g, n);
    if (g->reads)
        for (uint64_t k = groups > GROUPS_FOLLOWED ? groups - GROUPS_FOLLOWED : 0;
             k < groups - newest; k++)
            if (g->warp[me].ends[k % GROUPS_FOLLOWED] > from) operand_reads_waited(g, w, k);
    g->warp[me].waited = end;
    forget(g);
    return true;
}

// ---- ends

void wgmma_warp_exited(Warp *w, const Insn *i) {
    const Warpgroup *g = wgmma_group(w);
    if (!g || w->sm->faulted) return;
    int me = w->id % WARPGROUP;
    if (g->warp[me].issued < g->next) {
        finding_pair(w, i, -1, FINDING_DIVERGENT, wgmma_op(g, g->warp[me].issued)->insn,
                     "Let the four warps of a warpgroup take the same way.",
                     "this warp ends without the wgmma.mma_async that other warps of its warpgroup "
                     "have executed");
        w->sm->faulted = true;
    } else if (w->in_flight && g->warp[me].waited < g->warp[me].issued) {
        finding_pair(w, i, -1, FINDING_RACE, wgmma_op(g, g->warp[me].waited)->insn,
                     "Wait for all of them before the kernel ends: wgmma.commit_group, "
                     "wgmma.wait_group 0.",
                     "this warp ends while a wgmma.mma_async is in flight");
    }
}

void wgmma_cta_finish(Cta *cta) {
    for (int k = 0; cta->warpgroups && k < group_count(cta); k++) {
        Warpgroup *g = &cta->warpgroups[k];
        operand_reads_free(g);
        tensor_queue_forget(cta->sm, g);
        *g = (Warpgroup){.warps = g->warps,
                         .ops = g->ops,
                         .capacity = g->capacity,
                         .events = g->events,
                         .generation = g->generation + 1};
    }
}

void wgmma_cta_free(Cta *cta) {
    Warpgroup *groups = cta->warpgroups;
    uint64_t events = 0;
    for (int k = 0; groups && k < group_count(cta); k++) {
        operand_reads_free(&groups[k]);
        tensor_queue_forget(cta->sm, &groups[k]);
        free(groups[k].ops);
        groups[k].ops = NULL;
        groups[k].capacity = 0;
        events += groups[k].events;
    }
    cta->warpgroups = NULL;
    if (!events) {
        free(groups);
    } else { // a block ended without waiting, and the events that were to come still point here
        groups->retired = cta->sm->retired_warpgroups;
        cta->sm->retired_warpgroups = groups;
    }
}

void wgmma_free(Sm *sm) {
    while (sm->retired_warpgroups) {
        Warpgroup *next = sm->retired_warpgroups->retired;
        free(sm->retired_warpgroups);
        sm->retired_warpgroups = next;
    }
}
