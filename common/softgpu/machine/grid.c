// The grid of a launch on the GPU's SMs (grid.h).
#include "softgpu/machine/grid.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"

enum {
    ERROR_CONFIGURATION = 9,
    ERROR_RESOURCES = 701,
    ERROR_COOPERATIVE_TOO_LARGE = 720,
    ERROR_CLUSTER_SIZE = 912,
};

int grid_check(Grid *g) {
    const Launch *l = g->launch;
    const char *name = l->kernel->name;
    const uint32_t *c = l->cluster;
    if ((uint64_t)c[0] * c[1] * c[2] > CLUSTER_MAX) {
        finding_global(FINDING_LAUNCH, name, "use smaller clusters",
                       "a cluster of %u x %u x %u blocks; at most %d can be", c[0], c[1], c[2],
                       CLUSTER_MAX);
        return ERROR_CLUSTER_SIZE;
    }
    if (l->grid[0] % c[0] || l->grid[1] % c[1] || l->grid[2] % c[2]) {
        finding_global(FINDING_LAUNCH, name, "round the grid up to whole clusters",
                       "the grid %u x %u x %u is no multiple of the cluster %u x %u x %u",
                       l->grid[0], l->grid[1], l->grid[2], c[0], c[1], c[2]);
        return ERROR_CONFIGURATION;
    }
    char why[200];
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    g->capacity =
        gpu_occupancy(&g->gpu->figures, l->kernel, threads, l->dynamic_shared, why, sizeof why);
    if (!g->capacity) {
        finding_global(FINDING_LAUNCH, name, NULL, "%s", why);
        return ERROR_RESOURCES;
    }
    int size = (int)cluster_size(l);
    uint64_t clusters = (uint64_t)cluster_capacity(&g->gpu->figures, size, g->capacity);
    if (!clusters) {
        finding_global(FINDING_LAUNCH, name,
                       "use smaller clusters, or blocks that need less (ask "
                       "cudaOccupancyMaxActiveClusters); or model more SMs",
                       "a cluster of %d blocks must fit on the SMs of one GPC, of which an SM "
                       "holds %d block%s; there is no such room on %d SM%s",
                       size, g->capacity, g->capacity > 1 ? "s" : "", g->gpu->figures.sms,
                       g->gpu->figures.sms > 1 ? "s" : "");
        return ERROR_CLUSTER_SIZE;
    }
    uint64_t room = clusters * (uint64_t)size;
    if (l->cooperative && g->state->grid_size > room) {
        finding_global(FINDING_LAUNCH, name,
                       "launch at most as many blocks as fit (ask "
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor)",
                       "a cooperative launch of %llu blocks, but only %llu can run at once",
                       (unsigned long long)g->state->grid_size, (unsigned long long)room);
        return ERROR_COOPERATIVE_TOO_LARGE;
    }
    return 0;
}

// ---- which clusters, and when

bool grid_goes_on(Grid *g) {
    return sample_next(&g->sample, g->next) < g->clusters;
}

// The SM of a group that has most room.
static Sm *emptiest(const Grid *g, const SmGroup *group) {
    Sm *best = &g->gpu->sm[group->first];
    for (int k = 1; k < group->count; k++) {
        Sm *sm = &g->gpu->sm[group->first + k];
        if (sm->resident < best->resident) best = sm;
    }
    return best;
}

// Is there room for another cluster?
static bool has_room(const Grid *g, const SmGroup *group, int size) {
    int resident = 0;
    for (int k = 0; k < group->count; k++) resident += g->gpu->sm[group->first + k].resident;
    return resident / size < group->capacity;
}

void grid_start_ctas(Grid *g) {
    const Launch *l = g->launch;
    uint32_t size = cluster_size(l);
    for (bool placed = true; placed;) {
        placed = false;
        for (int k = 0; k < g->group_count; k++) {
            uint64_t next = sample_next(&g->sample, g->next);
            if (next == g->clusters) return;
            const SmGroup *group = &g->groups[k];
            if (!has_room(g, group, (int)size)) continue;
            Cta *leader = NULL;
            for (uint32_t rank = 0; rank < size; rank++) {
                uint64_t linear = cluster_cta(l, next, rank);
                Cta *cta = cta_start(emptiest(g, group), linear, rank, leader);
                if (!leader) leader = cta;
                g->state->started++;
            }
            if (size > 1 && g->state->pace) pace_start_together(leader->cluster);
            g->next = next + 1;
            placed = true;
        }
    }
}

bool grid_cancel(Grid *g, uint64_t *cluster) {
    uint64_t next = sample_next(&g->sample, g->next);
    if (next == g->clusters) return false;
    *cluster = next;
    g->next = next + 1;
    g->state->started += cluster_size(g->launch);
    return true;
}

// ---- begin and end

// How many SMs the launch uses, and their groups: no more than there are clusters for.
static void choose_groups(Grid *g) {
    Gpu *gpu = g->gpu;
    const Settings *settings = gpu->settings;
    int size = (int)cluster_size(g->launch), sms = gpu->figures.sms;
    bool samples = settings->sample > 0 && settings->sample < sms && !g->launch->cooperative;
    gpu->sample = samples ? settings->sample : sms;
    g->groups = allocate((size_t)sms * sizeof *g->groups);
    for (;;) { // a sample must have room for a cluster at least
        g->group_count = cluster_groups(&gpu->figures, gpu->sample, size, g->capacity, g->groups);
        if (g->group_count || gpu->sample == sms) break;
        gpu->sample++;
    }
    if ((uint64_t)g->group_count > g->clusters) g->group_count = (int)g->clusters;
    const SmGroup *last = &g->groups[g->group_count - 1];
    g->sms = last->first + last->count;
    g->state->many_sms = g->sms > 1;
}

// The constant pools of a cluster's CTAs: addresses of shared memory carry the rank.
static void prepare_constants(Grid *g) {
    const Kernel *kernel = g->launch->kernel;
    uint32_t size = cluster_size(g->launch);
    g->state->constants[0] = kernel->constants;
    if (size == 1) return;
    size_t stride = (kernel->constant_size + 63) & ~(size_t)63;
    g->constants = allocate(stride * size + 1);
    for (uint32_t rank = 1; rank < size; rank++) {
        uint8_t *pool = g->constants + rank * stride;
        if (stride) memcpy(pool, kernel->constants, kernel->constant_size);
        for (int k = 0; k < kernel->shared_constant_count; k++) {
            const struct KernelSharedConstant *c = &kernel->shared_constants[k];
            for (uint32_t lane = 0; lane < WARP_SIZE; lane++) {
                uint8_t *at = pool + c->offset + lane * c->width;
                uint32_t address;
                memcpy(&address, at, 4);
                address += rank << RANK_SHIFT;
                memcpy(at, &address, 4);
            }
        }
        g->state->constants[rank] = pool;
    }
}

void grid_begin(Grid *g) {
    g->clusters = g->state->grid_size / cluster_size(g->launch);
    choose_groups(g);
    sample_choose(&g->sample, g->clusters, g->gpu->sample, g->gpu->figures.sms);
    g->state->sampled = g->sample.length != g->sample.grid;
    prepare_constants(g);
}

void grid_end(Grid *g) {
    free(g->groups);
    free(g->constants);
}
