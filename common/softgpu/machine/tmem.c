// Tensor memory: allocation (tmem.h).
#include "softgpu/machine/tmem.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/tcgen05.h"

enum { POISON = 0xff };

Tmem *tmem_of(Sm *sm) {
    if (sm->tmem) return sm->tmem;
    sm->tmem = allocate(sizeof *sm->tmem);
    memset(sm->tmem, 0, sizeof *sm->tmem);
    return sm->tmem;
}

void tmem_free(Sm *sm) {
    if (!sm->tmem) return;
    tmem_shadow_free(sm->tmem);
    free(sm->tmem);
    sm->tmem = NULL;
}

bool tmem_owned(const Cta *cta, uint32_t column, uint32_t columns) {
    const Tcgen05 *t = cta->tcgen05;
    if (!t || column >= TMEM_COLUMNS || columns > TMEM_COLUMNS - column) return false;
    for (uint32_t u = column / TMEM_UNIT; u <= (column + columns - 1) / TMEM_UNIT; u++)
        if (!(t->units >> u & 1)) return false;
    return true;
}

uint32_t tmem_free_columns(const Sm *sm) {
    uint32_t free = TMEM_COLUMNS;
    for (int u = 0; sm->tmem && u < TMEM_UNITS; u++)
        if (sm->tmem->owner[u]) free -= TMEM_UNIT;
    return free;
}

// ---- finding room

static bool is_free(const Sm *sm, int unit, int units) {
    for (int u = unit; sm->tmem && u < unit + units; u++)
        if (sm->tmem->owner[u]) return false;
    return true;
}

// A unit at which so many are free, on the SMs of all of these CTAs; -1 if there is none. PTX
// promises no more than the granule, so from schedule 1 on it is any such place.
static int find_units(Cta *const *ctas, int count, int units) {
    int places[TMEM_UNITS], found = 0;
    for (int unit = 0; unit + units <= TMEM_UNITS; unit++) {
        bool fits = true;
        for (int k = 0; k < count; k++) fits &= is_free(ctas[k]->sm, unit, units);
        if (fits) places[found++] = unit;
    }
    if (!found) return -1;
    Sm *sm = ctas[0]->sm;
    return places[ctas[0]->launch->schedule ? random_below(&sm->random, (uint32_t)found) : 0];
}

static void take(Cta *cta, int unit, int units) {
    Tmem *m = tmem_of(cta->sm);
    for (int u = unit; u < unit + units; u++) {
        m->owner[u] = cta;
        cta->tcgen05->units |= (uint16_t)(1u << u);
    }
    m->length[unit] = (uint8_t)units;
    size_t first = (size_t)unit * TMEM_UNIT, columns = (size_t)units * TMEM_UNIT;
    memset(m->cell[first], POISON, columns * sizeof *m->cell);
    memset(m->written[first], 0, columns * sizeof *m->written);
    tmem_shadow_clear(m, (uint32_t)first, (uint32_t)columns);
}

// Warps of the SM that wait for columns try again.
static void wake_waiters(Sm *sm) {
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; cta->tcgen05 && k < cta->warp_count; k++)
            warp_wake(&cta->warps[k], BLOCK_TMEM, 0);
}

// ---- allocation

static bool checks(const Warp *w) {
    return w->sm->gpu->settings->checks & CHECK_SYNC;
}

static bool may_allocate(Warp *w, const Insn *i, uint32_t columns) {
    Tcgen05 *t = w->cta->tcgen05;
    if (columns < 32 || columns > TMEM_COLUMNS || columns & (columns - 1)) {
        finding(w, i, -1, FINDING_TENSOR, "Round it up to a power of two from 32 to 512.",
                "allocates %u columns of tensor memory", columns);
        return false;
    }
    if (t->relinquished && checks(w)) {
        finding_pair(w, i, -1, FINDING_TENSOR, t->relinquished,
                     "Allocate all that the block needs first.",
                     "allocates tensor memory after the block has given up its permit to "
                     "(tcgen05.relinquish_alloc_permit)");
        return false;
    }
    if (t->last_columns && columns > t->last_columns && checks(w))
        finding_pair(w, i, -1, FINDING_LINT, t->alloc, "Allocate the larger part first.",
                     "allocates %u columns of tensor memory after an allocation of %u: within a "
                     "block they must not grow",
                     columns, t->last_columns);
    return true;
}

// The other CTA of the pair; NULL after a finding if there is none.
Cta *tcgen05_peer(Warp *w, const Insn *i) {
    const Cluster *cluster = w->cta->cluster;
    uint32_t rank = w->cta->cluster_rank ^ 1;
    if ((int)rank >= cluster->size) {
        finding(w, i, -1, FINDING_TENSOR,
                "Launch clusters of an even number of blocks, or use .cta_group::1.",
                ".cta_group::2 means the blocks of a cluster whose ranks differ in bit 0; the "
                "cluster has %d and this one's rank is %u",
                cluster->size, w->cta->cluster_rank);
        return NULL;
    }
    Cta *peer = cluster->ctas[rank];
    if (peer->sm != w->cta->sm) return peer;
    finding(w, i, -1, FINDING_UNSUPPORTED, "Model more SMs (SOFTGPU_SMS).",
            "the two blocks of a pair have been placed on one SM, whose tensor memory can't be "
            "that of both");
    return NULL;
}

// The pair's allocation: the CTA that comes second makes it for both.
static Flow allocate_pair(Warp *w, const Insn *i, uint32_t columns, uint32_t *column) {
    Cta *cta = w->cta, *peer = tcgen05_peer(w, i);
    if (!peer) return FLOW_FAULT;
    Tcgen05 *mine = cta->tcgen05, *theirs = tcgen05_of(peer);
    if (!mine->pair.warp && !cta->met && checks(w))
        finding(w, i, -1, FINDING_LINT,
                "Put a barrier of the cluster (barrier.cluster) in front of the allocation.",
                "allocates tensor memory for a pair of blocks without knowing that the other one "
                "has started");
    if (mine->pair.granted) {
        *column = mine->pair.column;
        mine->pair.granted = false;
        mine->pair.warp = NULL;
        return FLOW_NEXT;
    }
    mine->pair.warp = w;
    mine->pair.columns = columns;
    Cta *both[2] = {cta, peer};
    int units = (int)(columns / TMEM_UNIT), unit = -1;
    if (theirs->pair.warp && !theirs->pair.granted) {
        if (theirs->pair.columns != columns) {
            finding(w, i, -1, FINDING_TENSOR, "Let both allocate the same.",
                    "allocates %u columns of tensor memory for a pair of blocks, of which the "
                    "other one allocates %u",
                    columns, theirs->pair.columns);
            return FLOW_FAULT;
        }
        unit = find_units(both, 2, units);
    }
    if (unit < 0) {
        warp_block(w, BLOCK_TMEM, 0, 0);
        return FLOW_RETRY;
    }
    take(cta, unit, units);
    take(peer, unit, units);
    *column = (uint32_t)unit * TMEM_UNIT;
    theirs->pair.granted = true;
    theirs->pair.column = *column;
    mine->pair.warp = NULL;
    warp_wake(theirs->pair.warp, BLOCK_TMEM, 0);
    return FLOW_NEXT;
}

Flow tmem_allocate(Warp *w, const Insn *i, int group, uint32_t columns, uint32_t *column) {
    Tcgen05 *t = tcgen05_of(w->cta);
    if (!tcgen05_use_group(w, i, group)) return FLOW_FAULT;
    if (!t->pair.granted && !may_allocate(w, i, columns)) return FLOW_FAULT;
    if (group == 2) {
        Flow flow = allocate_pair(w, i, columns, column);
        if (flow != FLOW_NEXT) return flow;
    } else {
        int units = (int)(columns / TMEM_UNIT), unit = find_units(&w->cta, 1, units);
        if (unit < 0) {
            warp_block(w, BLOCK_TMEM, 0, 0);
            return FLOW_RETRY;
        }
        take(w->cta, unit, units);
        *column = (uint32_t)unit * TMEM_UNIT;
    }
    t->last_columns = columns;
    t->alloc = i;
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

static void give_back(Cta *cta, int unit, int units) {
    Tmem *m = cta->sm->tmem;
    for (int u = unit; u < unit + units; u++) {
        m->owner[u] = NULL;
        cta->tcgen05->units &= (uint16_t) ~(1u << u);
    }
    m->length[unit] = 0;
    cta->sm->changes++;
    wake_waiters(cta->sm);
}

bool tmem_release(Warp *w, const Insn *i, int group, uint32_t address, uint32_t columns) {
    Tcgen05 *t = tcgen05_of(w->cta);
    if (!tcgen05_use_group(w, i, group)) return false;
    uint32_t column = tmem_column(address), unit = column / TMEM_UNIT;
    const Tmem *m = w->sm->tmem;
    bool begins = m && !tmem_lane(address) && column % TMEM_UNIT == 0 && column < TMEM_COLUMNS &&
                  t->units >> unit & 1 && m->length[unit];
    if (!begins || m->length[unit] * (uint32_t)TMEM_UNIT != columns) {
        finding(w, i, -1, FINDING_TENSOR,
                "Pass the address that tcgen05.alloc wrote, and the number that it was given.",
                "frees %u columns of tensor memory at 0x%08x, %s", columns, address,
                begins ? "where an allocation of another size begins"
                       : "where no allocation of this block begins");
        return false;
    }
    Cta *peer = group == 2 ? tcgen05_peer(w, i) : NULL;
    if (group == 2 && !peer) return false;
    if (peer && peer->tcgen05 && peer->tcgen05->pair.granted && checks(w))
        finding(w, i, -1, FINDING_RACE, "Put a barrier of the cluster between the two.",
                "frees tensor memory while the allocation of the pair's other block has not "
                "returned yet");
    tmem_race_release(w, i, column, columns);
    give_back(w->cta, (int)unit, m->length[unit]);
    w->stores++;
    return true;
}

void tmem_cta_end(Cta *cta, bool report) {
    Tcgen05 *t = cta->tcgen05;
    if (!t || !t->units) return;
    if (report)
        finding(cta->warps, t->alloc, -1, FINDING_TENSOR,
                "Let one warp execute tcgen05.dealloc before the block ends.",
                "the block ends and has not freed %d columns of tensor memory",
                TMEM_UNIT * __builtin_popcount(t->units));
    for (int u = 0; u < TMEM_UNITS; u++)
        if (t->units >> u & 1 && cta->sm->tmem->length[u])
            give_back(cta, u, cta->sm->tmem->length[u]);
}
