// Private to timing/pace*.c and to machine/: how the pace's parts fit together.
#ifndef SOFTGPU_PACE_PARTS_H
#define SOFTGPU_PACE_PARTS_H

#include "softgpu/timing/pace.h"

// Sends an operation's lines to L2.
void pace_send(Warp *w, const PaceOp *op, uint64_t time, uint32_t ticket);
// Cycles from a bulk copy's last line to its mbarrier's phase. GpuTiming.tma_latency is measured from
// the issue to the waiter's release: what the instructions on both ends take is in it.
static inline int pace_landing(const GpuTiming *t) {
    int ends = t->mbarrier_try_wait + 4 * t->op[OP_UNIFORM].latency + t->op[OP_SYNCS].interval;
    return t->tma_latency > ends ? t->tma_latency - ends : 0;
}
// The running instruction is a cp.async: its operation (machine/async.c).
void pace_copy(Warp *w, void *copy, uint64_t generation);
// machine/async.c: the lines of a cp.async are there.
TicketDone async_copy_done;
// Room for one more request in the SM's log (timing/traffic.c).
L2Request *traffic_request(Sm *sm);

#endif
