// Instructions about clusters (PTX ISA 9.7.9.23, 9.7.13.4): mapa, getctarank, barrier.cluster.
//
// A shared address is rank << 24 | offset, in a CTA's own addresses too; so another CTA's
// counterpart of an address differs in the rank alone.
#include "softgpu/check/findings.h"
#include "softgpu/check/race.h"
#include "softgpu/execute/control.h"
#include "softgpu/execute/execute.h"
#include "softgpu/machine/cluster.h"

// ---- addresses

#define OFFSET_MASK ((1u << RANK_SHIFT) - 1)

// Is each lane's address one of shared memory? `what` names the instruction's purpose.
static bool check_window(Warp *w, const Insn *i, uint32_t mask, const uint64_t address[WARP_SIZE]) {
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (address[l] < SHARED_WINDOW_SIZE) continue;
        finding(w, i, l, FINDING_WRONG_SPACE, "Give it an address of __shared__ memory.",
                "gets 0x%llx, which is no address of shared memory",
                (unsigned long long)(address[l] + (i->choice[0] ? 0 : SHARED_WINDOW)));
        return false;
    }
    return true;
}

// The lanes' addresses as shared ones. The state space is group 0 of these forms: without one they
// are generic.
static void shared_of(const Warp *w, const Insn *i, uint64_t address[WARP_SIZE]) {
    uint64_t window = i->choice[0] ? 0 : SHARED_WINDOW;
    const Lane32 *narrow = row(w, i->a);
    const Lane64 *wide = row(w, i->a);
    for (int l = 0; l < WARP_SIZE; l++)
        address[l] = (i->choice[1] == 1 ? narrow[l] : wide[l]) - window;
}

static Flow mapa(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address[WARP_SIZE];
    const Lane32 *rank = row(w, i->b);
    int size = w->cta->cluster->size;
    shared_of(w, i, address);
    if (!check_window(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (rank[l] >= (uint32_t)size) {
            finding(w, i, l, FINDING_WRONG_SPACE, "Give a rank below %cluster_nctarank.",
                    "asks for the address in CTA %u of a cluster of %d", rank[l], size);
            return FLOW_FAULT;
        }
        address[l] = (address[l] & OFFSET_MASK) | (uint64_t)rank[l] << RANK_SHIFT;
        if (!i->choice[0]) address[l] += SHARED_WINDOW;
    }
    if (i->choice[1] == 1) {
        Lane32 *d = row(w, i->d);
        EACH_LANE(uint32_t, d, mask, address[l]);
    } else {
        put64(w, i->d, address, mask);
    }
    return FLOW_NEXT;
}

static Flow getctarank(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address[WARP_SIZE];
    shared_of(w, i, address);
    if (!check_window(w, i, mask, address)) return FLOW_FAULT;
    Lane32 *d = row(w, i->d);
    EACH_LANE(uint32_t, d, mask, address[l] >> RANK_SHIFT);
    return FLOW_NEXT;
}

// ---- the cluster's barrier

// The lanes that execute a barrier instruction: with .aligned the whole warp. False: not all there.
static bool come_together(Warp *w, const Insn *i, uint32_t mask, uint32_t *all) {
    *all = mask;
    if (!(i->flags & INSN_ALIGNED)) return true;
    if (!warp_gather(w, i, mask, w->live, all)) return false;
    note_exited(w, i, *all);
    return true;
}

static Flow arrive(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    if (!come_together(w, i, mask, &all)) return FLOW_RETRY;
    uint32_t again = all & (w->cluster_arrived | w->cluster_passed);
    Cluster *cluster = w->cta->cluster;
    if (again) {
        finding_pair(w, i, __builtin_ctz(again), FINDING_BARRIER, cluster->arrival,
                     "Let every barrier.cluster.arrive be followed by one barrier.cluster.wait.",
                     "arrives at the cluster's barrier a second time without having waited");
        return FLOW_FAULT;
    }
    w->cluster_arrived |= all;
    cluster->used = true;
    cluster->arrival = i;
    w->stores++;
    w->sm->changes++;
    bool relaxed = i->choice[1] == 2;
    if (race_on(w)) race_cluster_arrive(w, !relaxed);
    cluster_barrier_complete(cluster);
    return FLOW_NEXT;
}

// Lanes that find the phase complete go on; others are let on when it completes.
static Flow wait(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    if (!come_together(w, i, mask, &all)) return FLOW_RETRY;
    uint32_t without = all & ~(w->cluster_arrived | w->cluster_passed);
    if (without) {
        finding(w, i, __builtin_ctz(without), FINDING_BARRIER,
                "Arrive first (barrier.cluster.arrive).",
                "waits at the cluster's barrier without having arrived at it");
        return FLOW_FAULT;
    }
    uint32_t passed = all & w->cluster_passed, pending = all & w->cluster_arrived;
    w->cluster_passed &= ~passed;
    w->stores++;
    if (passed) cluster_warp_met(w);
    if (!pending) return FLOW_NEXT;
    w->cluster_waiting |= pending;
    warp_block(w, BLOCK_CLUSTER, 0, 0);
    return FLOW_WAIT;
}

#define ALIGNED INSN_ALIGNED

const Form cluster_forms[] = {
    {"mapa", "shared::cluster? u32", "d32 a32 b32", mapa, PIPE_ALU},
    {"mapa", "shared::cluster? _|u64", "d64 a64 b32", mapa, PIPE_ALU},
    {"getctarank", "shared::cluster? u32", "d32 a32", getctarank, PIPE_ALU},
    {"getctarank", "shared::cluster? _|u64", "d32 a64", getctarank, PIPE_ALU},
    {"barrier", "cluster release|relaxed? arrive", "", arrive, PIPE_CONTROL},
    {"barrier", "cluster release|relaxed? arrive aligned", "", arrive, PIPE_CONTROL, 0, ALIGNED},
    {"barrier", "cluster acquire? wait", "", wait, PIPE_CONTROL},
    {"barrier", "cluster acquire? wait aligned", "", wait, PIPE_CONTROL, 0, ALIGNED},
    {0},
};
