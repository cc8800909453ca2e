// Operands of wgmma in shared memory for the race check: what a committed group reads, from its
// issue to the waits that cover it. A group is one agent. Each warp reads its own 16 rows of A, by
// what it knows; all four read B, and must know that it is there.
//
// Reads are entered when they are committed, and at the latest when the first wait covers them:
// that warp may already let others overwrite the operands, when a slower one has issued the
// group's last product but not yet committed it.
//
// A group is complete for all four warps at once, so the wait of any one of them covers what it
// reads: working code lets one thread of a warpgroup free the stage behind its own wait. By the
// letter a wait speaks of the warp's own groups only. A known limit.
#ifndef SOFTGPU_OPERAND_READS_H
#define SOFTGPU_OPERAND_READS_H

#include "softgpu/machine/wgmma.h"

// The warp has committed its group number `group`, operations [from, to).
void operand_reads_committed(Warpgroup *g, Warp *w, uint64_t group, uint64_t from, uint64_t to);
// A wait of the warp has covered that group.
void operand_reads_waited(Warpgroup *g, Warp *w, uint64_t group);
void operand_reads_free(Warpgroup *g);

#endif
