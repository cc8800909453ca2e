// Does a CTA end before its peers are done with its shared memory (race.h)? An access that comes
// after the end is found where it is made (peer.c). This file finds those that came before it in
// this run only.
//
// For each thread of the clock the CTA keeps the last access to it from outside. When its last warp
// exits, some warp of the CTA must know of each of these.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_parts.h"
#include "softgpu/machine/machine.h"

void race_reached(RaceCta *c, Warp *w, const Insn *i, uint16_t thread, uint32_t clock) {
    if (thread >= c->reach_capacity) {
        uint32_t capacity = (uint32_t)c->race->stride;
        c->reach = realloc(c->reach, capacity * sizeof *c->reach);
        if (!c->reach) abort();
        memset(c->reach + c->reach_capacity, 0, (capacity - c->reach_capacity) * sizeof *c->reach);
        c->reach_capacity = capacity;
    }
    c->reach[thread] = (RaceReach){w, i, clock};
    if (thread >= c->reach_count) c->reach_count = thread + 1u;
}

void race_reach_reset(RaceCta *c) {
    if (c->reach_count) memset(c->reach, 0, c->reach_count * sizeof *c->reach);
    c->reach_count = 0;
}

void race_reach_end(RaceCta *c) {
    if (!c->reach_count) return;
    const uint32_t *known = race_vector(c->race, c->exited, SEEN), *index = c->cta->index;
    for (uint32_t t = 0; t < c->reach_count; t++) {
        const RaceReach *reach = &c->reach[t];
        if (reach->clock <= known[t]) continue;
        FindingKind kind = reach->w->sm->gpu->settings->strict ? FINDING_RACE : FINDING_LINT;
        finding(reach->w, reach->insn, -1, kind,
                "Let no block of a cluster exit while others may still use its shared memory: end "
                "the kernel with a barrier of the cluster (barrier.cluster, cluster.sync()).",
                "reaches into the shared memory of block (%u,%u,%u) of its cluster, and nothing "
                "puts that before the end of that block",
                index[0], index[1], index[2]);
    }
}
