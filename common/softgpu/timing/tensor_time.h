// An SM's tensor cores as wgmma sees them: one queue a warpgroup, served in turns (pace.h).
//
// A product begins when all four warps have issued it, the ones of its warpgroup before it are done,
// and its turn has come: after each product the next warpgroup's is taken. It takes its arithmetic,
// or longer where shared memory can't deliver the operands (128 bytes a clock, which it shares with
// loads and stores, and with what bulk copies bring meanwhile). At most GpuTiming.wgmma_queue products of a warpgroup may be under way: the
// issue of another one blocks its warps.
#ifndef SOFTGPU_TENSOR_TIME_H
#define SOFTGPU_TENSOR_TIME_H

#include "softgpu/machine/wgmma.h"

enum { TENSOR_GROUPS = 64 };

typedef struct TensorQueue {
    Warpgroup *groups[TENSOR_GROUPS]; // with products that haven't begun
    int count, next;
    bool running;
} TensorQueue;

void tensor_queue_start(Sm *sm);
// A product of the group can begin.
void tensor_queue_push(Sm *sm, Warpgroup *g);
// The group's memory is about to be used otherwise.
void tensor_queue_forget(Sm *sm, Warpgroup *g);

#endif
