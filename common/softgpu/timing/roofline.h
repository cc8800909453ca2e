// The roofline: how long a kernel takes at least, from what it did.
//
// Every unit (the pipes of the SMs, the issue slots, shared memory, L2, HBM) is given the time
// that its work alone would take; the kernel takes the longest of these, as if all the others
// ran in its shadow, and the launch. What waits cost when nothing hides them is not in it: that
// takes a model of the pipelines.
#ifndef SOFTGPU_ROOFLINE_H
#define SOFTGPU_ROOFLINE_H

#include "softgpu/machine/machine.h"
#include "softgpu/timing/traffic.h"

// Fills the counts and times of *stats from the counters of the whole grid. stats->ctas_per_sm,
// l2_read_bytes and l2_write_bytes have been set.
void roofline(const Launch *launch, const Gpu *gpu, const Counters *sum, const CacheTraffic *hbm,
              KernelStats *stats);

// A pipe's name, for reports: "fma".
const char *pipe_name(Pipe pipe);

#endif
