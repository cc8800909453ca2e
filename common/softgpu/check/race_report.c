// The words of the race check's findings.
//
// A finding is about the later access, and names the line of the earlier one. The same pair of
// lines is told once a cluster.
#include <stdio.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_global_parts.h"

static bool is_strict(const Warp *w) {
    return w->sm->gpu->settings->strict;
}

// Has this been told? Notes that it now is.
static bool is_told(Race *r, const Insn *i, uint32_t other, uint32_t verdict) {
    uint32_t k = (i->index * 31 + other * 7 + verdict) % RACE_REPORTED;
    if (r->reported[k].insn == i && r->reported[k].other == other &&
        r->reported[k].verdict == verdict)
        return true;
    r->reported[k].insn = i;
    r->reported[k].other = other;
    r->reported[k].verdict = verdict;
    return false;
}

// The lane that touches this byte; -1 for agents.
static int lane_at(const RacePass *p, uint32_t at) {
    for (uint32_t rest = p->offset ? p->mask : 0; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (at - p->offset[l] < p->size) return l;
    }
    return -1;
}

static const char *verb(const RacePass *p) {
    if (!p->write) return "reads";
    return p->node.flags & NODE_COPY ? "copies to" : "writes to";
}

// "warp 3", or "warp 3 of the block with rank 1".
static void name_warp(const Race *r, const RaceNode *n, char *to, size_t size) {
    int warps = r->ctas[0]->cta->warp_count;
    if (r->cta_count > 1)
        snprintf(to, size, "warp %d of block rank %d", n->thread % warps, n->thread / warps);
    else
        snprintf(to, size, "warp %d", n->thread);
}

// What the earlier access does, as "which …".
static void describe(const Race *r, const RaceNode *n, bool writes, char *to, size_t size) {
    char warp[48];
    switch ((RaceAgentKind)n->kind) {
    case RACE_NO_AGENT:
        name_warp(r, n, warp, sizeof warp);
        snprintf(to, size, "which %s %s", warp, writes ? "writes" : "reads");
        return;
    case RACE_WGMMA: snprintf(to, size, "which a wgmma may still be reading"); return;
    case RACE_TCGEN05:
        snprintf(to, size, "which a tcgen05.mma or .cp may still be reading");
        return;
    case RACE_TMA_STORE: snprintf(to, size, "which a bulk store may still be reading"); return;
    case RACE_TMA_LOAD:
        snprintf(to, size, "which a bulk copy %s", writes ? "writes" : "may still be reading");
        return;
    case RACE_TMA_REDUCE:
        snprintf(to, size, "which a bulk reduction %s", writes ? "writes" : "may still be reading");
        return;
    case RACE_ST_ASYNC: snprintf(to, size, "which an st.async writes"); return;
    case RACE_RED_ASYNC: snprintf(to, size, "which a red.async changes"); return;
    case RACE_CP_ASYNC: return; // global memory's (race_global_report.c)
    }
}

// Does this agent's issuer find what other lanes of its own warp have done?
static bool is_same_warp(const RacePass *p, const RaceNode *n) {
    return p->alone && n->kind == RACE_NO_AGENT && n->thread == race_thread(p->w);
}

// One sentence on what to do.
static const char *mend_of(const RacePass *p, const RaceNode *n, bool writes) {
    switch ((RaceAgentKind)n->kind) {
    case RACE_WGMMA:
        return "Wait for the wgmma first (wgmma.wait_group with a count that covers it, in all its "
               "warps); only then arrive at the barrier that lets others reuse the bytes.";
    case RACE_TCGEN05:
        return "Let its thread commit it (tcgen05.commit) to the mbarrier that lets others reuse "
               "the bytes, and wait there.";
    case RACE_TMA_STORE:
        return "Let the thread that issued the store wait (cp.async.bulk.wait_group.read), then "
               "put "
               "a barrier between that and this access.";
    case RACE_TMA_LOAD:
    case RACE_TMA_REDUCE:
    case RACE_ST_ASYNC:
    case RACE_RED_ASYNC:
        return "Wait for it at its mbarrier (mbarrier.try_wait) in every warp that goes on to the "
               "bytes, or in one that the others then meet at a barrier.";
    case RACE_CP_ASYNC:
    case RACE_NO_AGENT: break;
    }
    if (p->node.kind != RACE_NO_AGENT && is_same_warp(p, n))
        return "Let the lanes of the warp meet (__syncwarp, bar.warp.sync, or a barrier) between "
               "the "
               "two: that they execute together orders nothing in memory.";
    if (p->node.kind != RACE_NO_AGENT)
        return writes
                   ? "Let the writers arrive at a barrier behind their writes, and the thread "
                     "that issues this wait for it."
                   : "Let the readers arrive at a barrier (the stage's \"empty\" mbarrier) behind "
                     "their reads, and the thread that issues this wait for it.";
    return p->write && !writes ? "Let the writer wait for the readers: a barrier (__syncthreads, a "
                                 "named barrier) between the reads and this write."
                               : "Put a barrier of both warps (__syncthreads, a named barrier) "
                                 "between the two.";
}

static void report_proxy(RacePass *p, uint32_t at, const RaceNode *n, bool writes,
                         RaceVerdict verdict) {
    // Missing before an operand is read, it has been seen to fail; the rest is the letter of PTX,
    // which known kernels rely on not mattering.
    bool grave = verdict == VERDICT_UNFENCED && !p->write && !(n->flags & NODE_COPY);
    FindingKind kind = grave || is_strict(p->w) ? FINDING_RACE : FINDING_LINT;
    char earlier[64], which[128];
    name_warp(p->race, n, earlier, sizeof earlier);
    snprintf(which, sizeof which, "%s %s it through the generic proxy", earlier,
             !writes                ? "has read"
             : n->flags & NODE_COPY ? "has copied to"
                                    : "has written");
    finding_pair(p->w, p->insn, -1, kind, &p->race->kernel->code[n->insn],
                 writes ? "Let the threads that write execute fence.proxy.async.shared::cta behind "
                          "their writes, and then the barrier that lets this one go on."
                        : "Let the threads that read execute fence.proxy.async.shared::cta behind "
                          "their reads, and then arrive at the barrier that lets this one go on.",
                 "%s shared memory at 0x%x through the async proxy; %s, and %s", verb(p), at, which,
                 verdict == VERDICT_UNFENCED
                     ? "no fence.proxy.async stands in between"
                     : "the only fence.proxy.async in between is another thread's");
}

void report_race(RacePass *p, uint32_t at, const RaceNode *n, bool writes, RaceVerdict verdict) {
    Race *r = p->race;
    if (is_told(r, p->insn, n->insn, (uint32_t)verdict * 2 + writes)) return;
    if (verdict != VERDICT_RACE) {
        report_proxy(p, at, n, writes, verdict);
        return;
    }
    char which[120];
    if (p->node.kind != RACE_NO_AGENT && is_same_warp(p, n))
        snprintf(which, sizeof which, "which other lanes of its warp %s",
                 writes ? "write" : "read");
    else
        describe(r, n, writes, which, sizeof which);
    finding_pair(p->w, p->insn, lane_at(p, at), FINDING_RACE, &r->kernel->code[n->insn],
                 mend_of(p, n, writes),
                 "%s shared memory at 0x%x, %s: nothing puts the two in order", verb(p), at, which);
}

// "lane 3", "lanes of the warp together".
static void name_lane(int lane, const char *open, char *to, size_t size) {
    if (lane < 0)
        snprintf(to, size, "%s", open);
    else
        snprintf(to, size, "lane %d", lane);
}

void report_lanes(RacePass *p, uint32_t at, int lane, int other, const LaneAccess *earlier) {
    if (is_told(p->race, p->insn, earlier->insn->index, 2 * VERDICT_RACE + 2)) return;
    char who[40], where[200];
    name_lane(other, "other lanes", who, sizeof who);
    if (p->cta->cta)
        snprintf(where, sizeof where, "shared memory at 0x%x", at);
    else
        global_place(p->w, p->cta->base + at, where, sizeof where);
    finding_pair(
        p->w, p->insn, lane, FINDING_RACE, earlier->insn,
        earlier->copy
            ? "Put __syncwarp() (bar.warp.sync), or a barrier, behind the wait for the "
              "copy: the wait makes known to each lane only what it has copied itself."
            : "Put __syncwarp() (bar.warp.sync), or a barrier, between the two: that lanes "
              "execute together, or shuffle, orders nothing in memory.",
        "%s %s, which %s of the same warp %s: nothing puts the two in order", verb(p), where, who,
        earlier->copy    ? "has copied to"
        : earlier->write ? other < 0 ? "write" : "writes"
        : other < 0      ? "read"
                         : "reads");
}

void report_init(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t address,
                 const RaceMbarrier *b, bool fence) {
    if (fence) {
        finding_pair(
            w, i, lane, is_strict(w) ? FINDING_RACE : FINDING_LINT, b->init,
            "Let the thread that initialises it execute fence.mbarrier_init.release.cluster "
            "before the barrier.",
            "%s the mbarrier at 0x%x, and no fence.mbarrier_init stands behind its "
            "initialisation",
            cta == w->cta ? "hands an asynchronous operation" : "uses another block's", address);
        return;
    }
    finding_pair(
        w, i, lane, FINDING_RACE, b->init,
        "Put a barrier (__syncthreads; of the cluster, if blocks use each other's) between "
        "mbarrier.init and the first use.",
        "uses the mbarrier at 0x%x, and nothing puts that behind its initialisation by "
        "another thread",
        address);
}

void report_skipped(Warp *w, const Insn *i, int lane, uint32_t address, uint64_t known,
                    uint64_t completed) {
    finding(w, i, lane, FINDING_RACE,
            "Wait for every phase, and let the phase after the next one need an arrival that comes "
            "behind this wait.",
            "waits by parity at the mbarrier at 0x%x, of which %llu phases have completed, while "
            "this warp can only know of %llu: a parity does not tell phase %llu from phase %llu",
            address, (unsigned long long)completed, (unsigned long long)known,
            (unsigned long long)known, (unsigned long long)(known + 2));
}
