// Clusters: CTAs that run at once, on SMs of one GPC, and reach each other's shared memory.
//
// Every CTA belongs to a cluster; in a launch without clusters, to one of its own. All SMs of a
// cluster are run by one host thread, in turns of a few instructions (machine/run.c), so a handler
// may touch a peer's memory, wake its warps and arrive at its mbarriers in the parallel phase.
//
// Invariant: the CTAs of a cluster stay in their SMs' lists, and their memory stays, until all of
// them have ended; so Cluster.ctas is good as long as one of them runs. `started` and `exited` tell
// whether a peer may be touched.
#ifndef SOFTGPU_CLUSTER_H
#define SOFTGPU_CLUSTER_H

#include "softgpu/machine/machine.h"

typedef struct Cluster {
    Cta *ctas[CLUSTER_MAX]; // by rank
    int size;
    int running; // CTAs that have not ended
    // barrier.cluster: which lanes have arrived is in Warp.cluster_…
    uint64_t phases;     // completed
    bool used;           // some thread has arrived since the start
    const Insn *arrival; // the last one, for reports
} Cluster;

// A set of neighbouring SMs of one GPC that run clusters together, on one host thread.
typedef struct {
    int first, count; // SMs
    int capacity;     // clusters at once
} SmGroup;

// How the first `sms` SMs are grouped for clusters of `size` CTAs, of which an SM holds `per_sm`.
// groups[sms]; returns their number. Groups that hold none are left out.
int cluster_groups(const GpuFigures *figures, int sms, int size, int per_sm, SmGroup *groups);
// Clusters of `size` CTAs that the whole GPU holds at once.
int cluster_capacity(const GpuFigures *figures, int size, int per_sm);

// Number of CTAs of a cluster of the launch.
static inline uint32_t cluster_size(const Launch *l) {
    return l->cluster[0] * l->cluster[1] * l->cluster[2];
}
// %ctaid, as a number, of the CTA with this rank in the cluster number `linear`.
uint64_t cluster_cta(const Launch *l, uint64_t linear, uint32_t rank);

// All warps of the CTA have exited: the last one of its cluster takes all of them off their SMs.
void cluster_cta_ended(Cta *cta);

// A warp's wait at the barrier has succeeded.
void cluster_warp_met(Warp *w);
// Completes the barrier's phase if all threads of the cluster that have not exited have arrived.
bool cluster_barrier_complete(Cluster *cluster);
// Lanes of a warp have exited, which count as arrived from now on.
void cluster_lanes_exited(Warp *w);

#endif
