// May a thread reach into the shared memory of another CTA of its cluster?
//
// The peer must be there: it has started, which only a barrier of the cluster proves, and it has
// not exited, which only a barrier before its end prevents. softgpu starts a cluster's CTAs
// together and keeps their memory, so an access that comes too early does no harm here; it would
// elsewhere.
#include "softgpu/check/findings.h"
#include "softgpu/machine/cluster.h"

// Has anything told this CTA that its peers have started?
static void check_started(Warp *w, const Insn *i, int lane, uint32_t rank) {
    if (w->cta->met || !(w->sm->gpu->settings->checks & CHECK_SYNC)) return;
    FindingKind kind = w->sm->gpu->settings->strict ? FINDING_RACE : FINDING_LINT;
    if (finding_again(w, i, kind)) return;
    finding(w, i, lane, kind,
            "Let all threads of the cluster meet first (barrier.cluster, cluster.sync()).",
            "reaches into the shared memory of CTA %u of its cluster before any barrier of the "
            "cluster: that CTA may not have started",
            rank);
}

Cta *check_peer(Warp *w, const Insn *i, int lane, uint32_t address, uint32_t *offset) {
    const Cluster *cluster = w->cta->cluster;
    uint32_t rank = address >> RANK_SHIFT;
    *offset = address & ((1u << RANK_SHIFT) - 1);
    if (rank == w->cta->cluster_rank) return w->cta;
    if (rank >= (uint32_t)cluster->size) {
        if (cluster->size == 1 && rank < CLUSTER_MAX)
            finding(w, i, lane, FINDING_WRONG_SPACE,
                    "Launch with a cluster, or use the CTA's own shared address.",
                    "uses 0x%x, shared memory of CTA %u of the cluster, but this CTA is alone",
                    address, rank);
        else if (rank < CLUSTER_MAX)
            finding(w, i, lane, FINDING_WRONG_SPACE,
                    "Check the rank that mapa or map_shared_rank got.",
                    "uses 0x%x, shared memory of CTA %u of a cluster of %d CTAs (ranks 0 to %d)",
                    address, rank, cluster->size, cluster->size - 1);
        else
            finding(w, i, lane, FINDING_OUT_OF_BOUNDS, "Check how the address was computed.",
                    "uses 0x%x, which is no address of shared memory", address);
        return NULL;
    }
    Cta *peer = cluster->ctas[rank];
    if (peer->ended) {
        finding(w, i, lane, FINDING_USE_AFTER_FREE,
                "Let no CTA of a cluster exit while others use its shared memory: end the kernel "
                "with a barrier of the cluster (barrier.cluster, cluster.sync()).",
                "reaches into the shared memory (0x%x) of CTA %u of its cluster, block (%u,%u,%u), "
                "which has exited",
                *offset, rank, peer->index[0], peer->index[1], peer->index[2]);
        return NULL;
    }
    check_started(w, i, lane, rank);
    return peer;
}
