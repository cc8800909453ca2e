// CTAs come and go; their memory stays. An SM keeps what a finished CTA used (registers, shared and
// local memory) for the next one of the same launch.
//
// Invariant: all memory of a CTA is reached from its Cta and Warps, and nothing else points into it
// once cta_finish has run.
#include "softgpu/check/definedness.h"
#include "softgpu/check/race.h"
#include "softgpu/check/in_flight.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"
#include "softgpu/machine/remote.h"
#include "softgpu/timing/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff }; // shared memory that nothing has written

void *allocate(size_t size) {
    void *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (memory) return memory;
    fprintf(stderr,
            "softgpu: this machine has no memory left (%zu bytes were needed); run fewer blocks at "
            "once, or with fewer SMs (SOFTGPU_SMS)\n",
            size);
    exit(2);
}

// A CTA with memory for `launch`, not yet placed. Each brings a Cluster; that of rank 0 is used.
static Cta *cta_new(const LaunchState *launch) {
    const Launch *l = launch->launch;
    Cta *cta = allocate(sizeof *cta);
    memset(cta, 0, sizeof *cta);
    cta->thread_count = l->block[0] * l->block[1] * l->block[2];
    cta->warp_count = (int)((cta->thread_count + WARP_SIZE - 1) / WARP_SIZE);
    cta->warps = allocate((size_t)cta->warp_count * sizeof *cta->warps);
    memset(cta->warps, 0, (size_t)cta->warp_count * sizeof *cta->warps);
    for (int k = 0; k < cta->warp_count; k++) {
        Warp *w = &cta->warps[k];
        w->groups = allocate(WARP_SIZE * sizeof *w->groups);
        memset(w->groups, 0, WARP_SIZE * sizeof *w->groups);
        uint32_t first = (uint32_t)k * WARP_SIZE, left = cta->thread_count - first;
        w->id = k;
        w->cta = cta;
        w->exists = left >= WARP_SIZE ? FULL_MASK : (1u << left) - 1;
    }
    cta->shared_size = l->kernel->shared_dynamic + l->dynamic_shared;
    if (cta->shared_size < SHARED_RESERVED) cta->shared_size = SHARED_RESERVED;
    cta->shared_allocated = cta->shared_size;
    cta->shared = allocate(cta->shared_size);
    if (launch->checks & CHECK_INIT) cta->shared_written = allocate(cta->shared_size);
    cta->own_cluster = allocate(sizeof *cta->own_cluster);
    return cta;
}

static void cta_free(Cta *cta) {
    for (int k = 0; k < cta->warp_count; k++) {
        Warp *w = &cta->warps[k];
        frames_drop(w);
        free(w->groups);
        free(w->stack);
        free(w->local);
        free(w->local_written);
        definedness_free(w);
        in_flight_free(w);
        pace_warp_free(w);
    }
    async_cta_free(cta);
    race_cta_free(cta);
    free(cta->warps);
    free(cta->shared);
    free(cta->shared_written);
    free(cta->own_cluster);
    free(cta);
}

// Makes the CTA a member of its cluster.
static void join_cluster(Cta *cta, uint32_t rank, Cta *leader) {
    if (!leader) {
        leader = cta;
        *cta->own_cluster = (Cluster){.size = (int)cluster_size(cta->launch->launch)};
    }
    cta->cluster = leader->own_cluster;
    cta->cluster->ctas[rank] = cta;
    cta->cluster->running++;
    cta->cluster_rank = rank;
    cta->ended = cta->met = false;
    cta->none_left = NULL;
}

Cta *cta_start(Sm *sm, uint64_t linear, uint32_t rank, Cta *leader) {
    LaunchState *launch = sm->launch;
    const uint32_t *grid = launch->launch->grid;
    Cta *cta = sm->spare_ctas;
    if (cta)
        sm->spare_ctas = cta->next;
    else
        cta = cta_new(launch);
    cta->launch = launch;
    cta->sm = sm;
    cta->linear = linear;
    cta->work = 0;
    cta->index[0] = (uint32_t)(linear % grid[0]);
    cta->index[1] = (uint32_t)(linear / grid[0] % grid[1]);
    cta->index[2] = (uint32_t)(linear / grid[0] / grid[1]);
    join_cluster(cta, rank, leader);
    race_cta_start(cta);
    cta->live_warps = cta->warp_count;
    memset(cta->barriers, 0, sizeof cta->barriers);
    memset(&cta->pool, 0, sizeof cta->pool);

    // The system's part of shared memory is zero; the rest is whatever was there.
    memset(cta->shared, 0, SHARED_RESERVED);
    if (cta->shared_written) {
        memset(cta->shared + SHARED_RESERVED, POISON, cta->shared_size - SHARED_RESERVED);
        memset(cta->shared_written, 1, SHARED_RESERVED);
        memset(cta->shared_written + SHARED_RESERVED, 0, cta->shared_size - SHARED_RESERVED);
    }

    uint64_t time = launch->pace ? pace_cta_start(sm) : 0;
    for (int k = 0; k < cta->warp_count; k++) {
        Warp *w = &cta->warps[k];
        w->sm = sm;
        w->kernel = launch->launch->kernel;
        w->constants = launch->constants[rank];
        w->registers = launch->registers;
        w->cluster_arrived = w->cluster_passed = w->cluster_waiting = 0;
        w->registers_wanted = 0;
        w->status = WARP_WAITS;
        warp_start(w);
        if (launch->pace)
            pace_warp_start(w, time);
        else
            pace_warp_free(w);
        sm_ready(w);
    }
    cta->next = sm->ctas;
    sm->ctas = cta;
    sm->resident++;
    if (trace_on(sm)) trace_cta_begin(cta, sm->time);
    return cta;
}

void cta_end(Cta *cta) {
    if (cta->ended) return;
    cta->ended = true;
    if (cta->live_warps == 0) registers_end(cta);
    remote_cta_end(cta, cta->live_warps == 0);
    async_cta_finish(cta, cta->live_warps == 0);
    cta->sm->changes++;
    pace_cta_end(cta->sm);
}

void cta_finish(Cta *cta) {
    Sm *sm = cta->sm;
    cta_end(cta);
    if (trace_on(sm)) trace_cta_end(cta, sm->time);
    Cta **link = &sm->ctas;
    while (*link != cta) link = &(*link)->next;
    *link = cta->next;
    cta->next = sm->spare_ctas;
    sm->spare_ctas = cta;
    sm->resident--;
    sm->finished++;
    if (cta->work < sm->work_least) sm->work_least = cta->work;
    if (cta->work > sm->work_most) sm->work_most = cta->work;
}

void ctas_drop(Sm *sm) {
    while (sm->ctas) cta_finish(sm->ctas);
    while (sm->spare_ctas) {
        Cta *cta = sm->spare_ctas;
        sm->spare_ctas = cta->next;
        cta_free(cta);
    }
}
