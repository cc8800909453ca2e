// Registers of wgmma.mma_async: what other instructions may do to them (PTX ISA 9.7.15.7).
//
//   from the issue to the wait that covers it   nobody touches D, nobody writes A
//   between the last wgmma.fence and the issue  nobody has touched D or A, but an mma_async of the
//                                               same shape on the same D
//   at an issue with scale-d                    D has been written
//
// Rows that are operands of some mma_async of their function have marks; Kernel.in_flight tells the
// instructions that touch such a row, so all others cost one look. Only with the sync check, and
// only in kernels with wgmma or tcgen05.ld: else Warp.in_flight is NULL, and nothing here is
// called.
#ifndef SOFTGPU_IN_FLIGHT_H
#define SOFTGPU_IN_FLIGHT_H

#include "softgpu/machine/tcgen05.h"
#include "softgpu/machine/wgmma.h"

// A warp starts; a warp's memory goes.
void in_flight_start(Warp *w);
void in_flight_free(Warp *w);

// Before an instruction's handler runs.
void in_flight_touch(Warp *w, const Insn *i, uint32_t mask);
static inline void in_flight_before(Warp *w, const Insn *i, uint32_t mask) {
    if (w->kernel->in_flight[i->index]) in_flight_touch(w, i, mask);
}

// wgmma.fence
void in_flight_fence(Warp *w);
// The warp has issued operation number n: asks whether it may use its registers, and marks them.
void in_flight_issue(Warp *w, const Warpgroup *g, uint64_t n);
// A tcgen05.ld has been issued: its registers may not be touched before its wait (a note unless
// strict: a GPU honours the dependence). And that wait.
void in_flight_load(Warp *w, const Insn *i);
void in_flight_loaded(Warp *w, const TensorMove *move);
// A wait has covered it.
void in_flight_release(Warp *w, const Warpgroup *g, uint64_t n);

#endif
