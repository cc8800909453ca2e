// Where clusters run, which CTAs they are, and their barrier (cluster.h; PTX ISA 9.7.13.4).
#include "softgpu/machine/cluster.h"

#include <stdlib.h>

#include "softgpu/check/race.h"
#include "softgpu/machine/parts.h"

// ---- places

int cluster_groups(const GpuFigures *f, int sms, int size, int per_sm, SmGroup *groups) {
    int count = 0;
    if (size == 1) {
        for (int s = 0; s < sms; s++) groups[count++] = (SmGroup){s, 1, per_sm};
        return count;
    }
    int first = 0; // of the GPC
    for (int g = 0; g < f->gpcs && first < sms; g++) {
        int left = f->gpc_sizes[g] < sms - first ? f->gpc_sizes[g] : sms - first;
        int next = first + f->gpc_sizes[g];
        for (; left >= size; left -= size, first += size)
            groups[count++] = (SmGroup){first, size, per_sm};
        // SMs that are too few for a CTA each may still hold several.
        if (left * per_sm >= size) groups[count++] = (SmGroup){first, left, left * per_sm / size};
        first = next;
    }
    return count;
}

int cluster_capacity(const GpuFigures *f, int size, int per_sm) {
    SmGroup *groups = allocate((size_t)f->sms * sizeof *groups);
    int count = cluster_groups(f, f->sms, size, per_sm, groups), clusters = 0;
    for (int g = 0; g < count; g++) clusters += groups[g].capacity;
    free(groups);
    return clusters;
}

uint64_t cluster_cta(const Launch *l, uint64_t linear, uint32_t rank) {
    const uint32_t *c = l->cluster, *grid = l->grid;
    uint64_t wide = grid[0] / c[0], high = grid[1] / c[1];
    uint64_t x = linear % wide * c[0] + rank % c[0];
    uint64_t y = linear / wide % high * c[1] + rank / c[0] % c[1];
    uint64_t z = linear / wide / high * c[2] + rank / c[0] / c[1];
    return x + grid[0] * (y + grid[1] * z);
}

void cluster_cta_ended(Cta *cta) {
    Cluster *cluster = cta->cluster;
    if (--cluster->running) {
        cta_end(cta);
        return;
    }
    for (int k = cluster->size - 1; k >= 0; k--) cta_finish(cluster->ctas[k]);
}

// ---- the barrier

void cluster_warp_met(Warp *w) {
    w->cta->met = true;
    if (race_on(w)) race_cluster_wait(w);
}

bool cluster_barrier_complete(Cluster *cluster) {
    bool any = false;
    for (int k = 0; k < cluster->size; k++) {
        const Cta *cta = cluster->ctas[k];
        for (int n = 0; n < cta->warp_count; n++) {
            const Warp *w = &cta->warps[n];
            if (w->live & ~w->cluster_arrived) return false;
            any |= w->cluster_arrived != 0;
        }
    }
    if (!any) return false;
    cluster->phases++;
    if (cluster->ctas[0]->race) race_cluster_complete(cluster->ctas[0]);
    for (int k = 0; k < cluster->size; k++) {
        Cta *cta = cluster->ctas[k];
        cta->sm->changes++;
        for (int n = 0; n < cta->warp_count; n++) {
            Warp *w = &cta->warps[n];
            w->cluster_passed |= w->cluster_arrived & ~w->cluster_waiting;
            bool waits = w->cluster_waiting;
            w->cluster_arrived = w->cluster_waiting = 0;
            if (!waits) continue;
            cluster_warp_met(w);
            warp_wake(w, BLOCK_CLUSTER, 0);
        }
    }
    return true;
}

void cluster_lanes_exited(Warp *w) {
    Cluster *cluster = w->cta->cluster;
    if (cluster->used) cluster_barrier_complete(cluster);
}
