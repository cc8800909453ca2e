// What the special registers hold (PTX ISA 10). A hidden instruction in front of the one that names
// a special register reads it into a row; its shape is told in special.h.
#include "softgpu/execute/special.h"

#include "softgpu/execute/execute.h"

// Thread index of each lane along one dimension. The block counts x first, then y, then z.
static void thread_index(const Warp *w, int dimension, uint64_t r[WARP_SIZE]) {
    const uint32_t *block = w->cta->launch->launch->block;
    uint32_t first = (uint32_t)w->id * WARP_SIZE;
    for (uint32_t l = 0; l < WARP_SIZE; l++) {
        uint32_t thread = first + l;
        if (dimension == 0)
            r[l] = block[0] > first + 31 ? thread : thread % block[0];
        else if (dimension == 1)
            r[l] = thread / block[0] % block[1];
        else
            r[l] = thread / block[0] / block[1];
    }
}

static uint64_t lane_mask(SpecialRegister s, unsigned l) {
    uint32_t equal = 1u << l, less = equal - 1;
    switch (s) {
    case SPECIAL_LANEMASK_EQ: return equal;
    case SPECIAL_LANEMASK_LE: return less | equal;
    case SPECIAL_LANEMASK_LT: return less;
    case SPECIAL_LANEMASK_GE: return ~less;
    default: return ~(less | equal);
    }
}

// Nanoseconds since the modelled GPU came to life.
static uint64_t global_timer(const Warp *w) {
    const Gpu *gpu = w->sm->gpu;
    return (uint64_t)(gpu->clock_us * 1000.0 + (double)w->sm->time / gpu->figures.clock_ghz);
}

// Dimensions of the cluster; 1 where the launch has none.
static uint32_t cluster_extent(const Launch *launch, int dimension) {
    return launch->cluster[dimension] ? launch->cluster[dimension] : 1;
}

static uint64_t shared_size(const Warp *w) {
    return w->kernel->shared_static + w->cta->launch->launch->dynamic_shared;
}

// Registers that hold the same for all lanes.
static uint64_t common_value(const Warp *w, SpecialRegister s) {
    const Cta *cta = w->cta;
    const Launch *launch = cta->launch->launch;
    const Sm *sm = w->sm;
    const GpuFigures *figures = &sm->gpu->figures;
    if (s >= SPECIAL_NTID_X && s <= SPECIAL_NTID_Z) return launch->block[s - SPECIAL_NTID_X];
    if (s >= SPECIAL_CTAID_X && s <= SPECIAL_CTAID_Z) return cta->index[s - SPECIAL_CTAID_X];
    if (s >= SPECIAL_NCTAID_X && s <= SPECIAL_NCTAID_Z) return launch->grid[s - SPECIAL_NCTAID_X];
    if (s >= SPECIAL_CLUSTERID_X && s <= SPECIAL_CLUSTERID_Z) {
        int d = (int)(s - SPECIAL_CLUSTERID_X);
        return cta->index[d] / cluster_extent(launch, d);
    }
    if (s >= SPECIAL_NCLUSTERID_X && s <= SPECIAL_NCLUSTERID_Z) {
        int d = (int)(s - SPECIAL_NCLUSTERID_X);
        return launch->grid[d] / cluster_extent(launch, d);
    }
    if (s >= SPECIAL_CLUSTER_CTAID_X && s <= SPECIAL_CLUSTER_CTAID_Z) {
        int d = (int)(s - SPECIAL_CLUSTER_CTAID_X);
        return cta->index[d] % cluster_extent(launch, d);
    }
    if (s >= SPECIAL_CLUSTER_NCTAID_X && s <= SPECIAL_CLUSTER_NCTAID_Z)
        return cluster_extent(launch, (int)(s - SPECIAL_CLUSTER_NCTAID_X));
    if (s >= SPECIAL_ENVREG0 && s <= SPECIAL_ENVREG31) {
        // 1 and 2 are the halves of the address of a cooperative launch's barrier
        if (s == SPECIAL_ENVREG0 + 1) return launch->cooperative_barrier >> 32;
        if (s == SPECIAL_ENVREG0 + 2) return (uint32_t)launch->cooperative_barrier;
        return 0;
    }
    switch (s) {
    case SPECIAL_CLUSTER_CTARANK: return cta->cluster_rank;
    case SPECIAL_CLUSTER_NCTARANK:
        return (uint64_t)cluster_extent(launch, 0) * cluster_extent(launch, 1) *
               cluster_extent(launch, 2);
    case SPECIAL_IS_EXPLICIT_CLUSTER:
        return cluster_extent(launch, 0) * cluster_extent(launch, 1) * cluster_extent(launch, 2) >
                   1 ||
               w->kernel->ptx->explicit_cluster;
    case SPECIAL_WARPID: return (uint64_t)w->id;
    case SPECIAL_NWARPID: return figures->threads_per_sm / WARP_SIZE;
    case SPECIAL_SMID: return (uint64_t)sm->id;
    case SPECIAL_NSMID: return (uint64_t)figures->sms;
    case SPECIAL_GRIDID: return cta->launch->id;
    case SPECIAL_CLOCK: return (uint32_t)sm->time;
    case SPECIAL_CLOCK_HI: return sm->time >> 32;
    case SPECIAL_CLOCK64: return sm->time;
    case SPECIAL_GLOBALTIMER: return global_timer(w);
    case SPECIAL_GLOBALTIMER_LO: return (uint32_t)global_timer(w);
    case SPECIAL_GLOBALTIMER_HI: return global_timer(w) >> 32;
    case SPECIAL_RESERVED_SMEM_BEGIN: return 0;
    case SPECIAL_RESERVED_SMEM_END:
    case SPECIAL_RESERVED_SMEM_CAP: return SHARED_RESERVED;
    case SPECIAL_RESERVED_SMEM_0: return 0;
    case SPECIAL_RESERVED_SMEM_1: return SHARED_SCRATCH;
    case SPECIAL_TOTAL_SMEM_SIZE: return shared_size(w);
    case SPECIAL_AGGR_SMEM_SIZE: return shared_size(w) + SHARED_RESERVED;
    case SPECIAL_DYNAMIC_SMEM_SIZE: return launch->dynamic_shared;
    default: return 0; // %pm…: counters that nothing has set up; no graph is running
    }
}

Flow read_special(Warp *w, const Insn *i, uint32_t mask) {
    SpecialRegister s = (SpecialRegister)i->imm;
    uint64_t r[WARP_SIZE];
    if (s <= SPECIAL_TID_Z) {
        thread_index(w, (int)(s - SPECIAL_TID_X), r);
    } else if (s == SPECIAL_LANEID) {
        for (unsigned l = 0; l < WARP_SIZE; l++) r[l] = l;
    } else if (s >= SPECIAL_LANEMASK_EQ && s <= SPECIAL_LANEMASK_GT) {
        for (unsigned l = 0; l < WARP_SIZE; l++) r[l] = lane_mask(s, l);
    } else {
        uint64_t value = common_value(w, s);
        for (unsigned l = 0; l < WARP_SIZE; l++) r[l] = value;
    }
    if (i->size == 0) {
        put_predicate(w, i->d, r[0] ? FULL_MASK : 0, mask);
    } else if (i->size == 8) {
        put64(w, i->d, r, mask);
    } else if (i->size == 4) {
        Lane32 *d = row(w, i->d);
        EACH_LANE(uint32_t, d, mask, r[l]);
    } else {
        Lane16 *d = row(w, i->d);
        EACH_LANE(uint16_t, d, mask, r[l]);
    }
    return FLOW_NEXT;
}
