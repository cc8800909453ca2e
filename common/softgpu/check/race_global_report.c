// The words of findings about global memory (race_global.h).
#include <stdio.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_global_parts.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/global.h"

// Has this pair of instructions been told for this cluster? Notes that it now is.
static bool is_told(struct GlobalRaces *g, const GlobalAccess *a, uint32_t other,
                    uint32_t verdict) {
    uint32_t insn = a->insn->index, cluster = a->node.cluster + 1;
    uint32_t k = (insn * 31 + other * 7 + verdict + cluster * 131) % GLOBAL_TOLD;
    if (g->told[k].cluster == cluster && g->told[k].insn == insn && g->told[k].other == other &&
        g->told[k].verdict == verdict)
        return true;
    g->told[k].insn = insn;
    g->told[k].other = other;
    g->told[k].cluster = cluster;
    g->told[k].verdict = verdict;
    return false;
}

void global_place(const Warp *w, uint64_t address, char *to, size_t size) {
    const Allocation *a = global_find(w->sm->gpu->memory, address);
    if (!a) {
        snprintf(to, size, "global memory at 0x%llx", (unsigned long long)address);
        return;
    }
    unsigned long long at = address - a->address, bytes = a->size;
    if (a->name)
        snprintf(to, size, "byte %llu of the variable '%s' (%llu bytes)", at, a->name, bytes);
    else
        snprintf(to, size, "byte %llu of the %llu-byte allocation #%llu", at, bytes,
                 (unsigned long long)a->serial);
}

// The lane that touches this byte; -1: unknown.
static int lane_at(const GlobalAccess *a, uint64_t at) {
    uint32_t mask = a->mask;
    if (!mask || !a->size || at < a->begin) return -1;
    for (uint64_t before = (at - a->begin) / a->size; before && mask & (mask - 1); before--)
        mask &= mask - 1;
    return __builtin_ctz(mask);
}

// "block (1,0,0)": the one with this rank in the cluster of which that block is the first.
static void name_block(const GlobalAccess *a, uint32_t number, uint32_t rank, char *to,
                       size_t size) {
    const uint32_t *grid = a->races->launch->launch->grid;
    const uint32_t *c = a->races->launch->launch->cluster;
    uint32_t x = number % grid[0], y = number / grid[0] % grid[1], z = number / grid[0] / grid[1];
    snprintf(to, size, "block (%u,%u,%u)", x + rank % c[0], y + rank / c[0] % c[1],
             z + rank / c[0] / c[1]);
}

// "warp 3 of block (1,0,0) writes", "a bulk store of block (1,0,0) writes".
static void describe(const GlobalAccess *a, const GlobalNode *n, bool writes, char *to,
                     size_t size) {
    uint32_t warps = (uint32_t)a->w->cta->warp_count;
    uint32_t rank = global_kind(n) == RACE_NO_AGENT ? n->thread / warps : 0;
    const char *of_cluster = "";
    char block[64];
    name_block(a, n->cluster, rank, block, sizeof block);
    if (global_kind(n) != RACE_NO_AGENT && a->w->cta->cluster->size > 1)
        of_cluster = "the cluster of ";
    switch (global_kind(n)) {
    case RACE_NO_AGENT:
        snprintf(to, size, "warp %u of %s %s", n->thread % warps, block,
                 writes ? "writes" : "reads");
        return;
    case RACE_TMA_STORE:
        snprintf(to, size, "a bulk store of %s%s writes", of_cluster, block);
        return;
    case RACE_TMA_REDUCE:
        snprintf(to, size, "a bulk reduction of %s%s changes", of_cluster, block);
        return;
    case RACE_CP_ASYNC:
        snprintf(to, size, "a cp.async of %s%s may still be reading", of_cluster, block);
        return;
    default:
        snprintf(to, size, "a bulk copy of %s%s may still be reading", of_cluster, block);
        return;
    }
}

static const char *mend_of(const GlobalAccess *a, const GlobalNode *n, bool other_block) {
    bool strong = n->flags & GLOBAL_STRONG, mine = a->node.flags & GLOBAL_STRONG;
    RaceAgentKind kind = global_kind(n);
    if (kind == RACE_TMA_STORE || kind == RACE_TMA_REDUCE)
        return "Let the thread that issued the bulk store wait until it has written "
               "(cp.async.bulk.wait_group 0, not .read), and only then tell the others: by a "
               "barrier in its block; across blocks by __threadfence() and a flag.";
    if (kind == RACE_CP_ASYNC)
        return "Let the warp wait for its copies (cp.async.wait_group, wait_all, or an mbarrier) "
               "before it tells others, by a barrier or a flag, that the source may change.";
    if (strong && mine)
        return "Use a scope that both blocks are in: atomicAdd, not atomicAdd_block; .gpu, not "
               ".cta.";
    if (strong != mine)
        return "Make both accesses atomic (or volatile, relaxed), or put them in order.";
    if (kind != RACE_NO_AGENT)
        return "Wait for the copy at its mbarrier first, and let that be known here by a barrier.";
    return other_block
               ? "Blocks run in any order. Let the one publish: all its threads meet "
                 "(__syncthreads), and one executes __threadfence() and sets a flag or counts an "
                 "atomic; let the other see that, execute __threadfence() and meet, too. Or make "
                 "two kernels of it."
               : "Put a barrier of both warps (__syncthreads, a named barrier) between the two.";
}

void global_report(GlobalAccess *a, uint64_t at, const GlobalNode *n, bool writes,
                   RaceVerdict verdict) {
    if (is_told(a->races, a, n->insn, (uint32_t)verdict * 2 + writes)) return;
    const Insn *earlier = &a->races->launch->launch->kernel->code[n->insn];
    bool other_block = n->cluster != a->node.cluster, some = false;
    const char *verb = !a->write                         ? "reads"
                       : a->node.kind == RACE_TMA_REDUCE ? "reduces into"
                                                         : "writes to";
    char where[200], which[160];
    global_place(a->w, at, where, sizeof where);
    describe(a, n, writes, which, sizeof which);
    if (verdict == VERDICT_UNFENCED) {
        finding_pair(
            a->w, a->insn, lane_at(a, at), FINDING_RACE, earlier,
            "Let the threads that write execute fence.proxy.async behind their writes, and "
            "then what lets this one go on.",
            "%s %s through the async proxy; %s it through the generic proxy, and no "
            "fence.proxy.async stands in between",
            verb, where, which);
        return;
    }
    if (verdict == VERDICT_FORMAL) {
        finding_pair(
            a->w, a->insn, lane_at(a, at), FINDING_LINT, earlier,
            "Put __threadfence() behind the atomic that says so, in its thread: an atomic "
            "acquires by itself only if it is written so (.acquire, memory_order_acquire).",
            "%s %s, which %s: only an atomic without a fence behind it puts the two in "
            "order",
            verb, where, which);
        return;
    }
    if (other_block) global_knows(a, n, false, &some);
    finding_pair(a->w, a->insn, lane_at(a, at), FINDING_RACE, earlier, mend_of(a, n, other_block),
                 "%s %s, which %s: nothing puts the two in order%s", verb, where, which,
                 !other_block ? ""
                 : some       ? "; what that block has released, and this one acquired, is earlier"
                              : "; this block has acquired nothing that one released");
}
