// The schedule of a basic block: what the machine code of a block asks of a scheduler, and how long
// a warp alone takes for it.
//
// ptxas reorders instructions inside a block, so a block is not modelled by the order of its lines
// but by its dependences: a list schedule, at most one machine instruction a cycle, each when its
// operands are there and its unit is free, those with the longest way to the end first.
//
// A block is cut into *segments* where a warp may have to wait for something whose time is not
// known beforehand. Nothing moves across a barrier, an mbarrier's wait, a wait_group, a fence or
// the issue of an asynchronous product or copy: each begins a segment with that instruction
// (Segment.wait = WAIT_HERE or WAIT_QUEUE, Segment.insn). The result of a load is waited for where
// it is first used: all that needs it, directly or not, stands in the segment that waits for its
// rows, or in a later one; all that doesn't may go before. Rows that a load of another block may
// have left pending (software pipelines) are waited for likewise.
//
// So the machine may execute a block in program order and reckon its time by segments: at the first
// instruction of segment s, all that s waits for has been executed.
//
//     start(s)  = max(end(s - 1), ready times of the rows of s, end of its wait)
//     issue(i)  = start(segment of i) + slots[i].at: when a load, store, copy or product leaves
//     end(s)    = start(s) + length, or later where other warps hold the units (busy[])
//
// Pure functions of the code and the GPU: to be computed once a kernel.
#ifndef SOFTGPU_BLOCK_H
#define SOFTGPU_BLOCK_H

#include "softgpu/machine/code.h"
#include "softgpu/timing/expansion.h"

typedef struct {
    uint32_t segment; // of its block
    uint32_t at;      // cycle of its first machine instruction, from the segment's start
} Slot;

// What a segment waits for: a row that a load of the block writes, or one that a load of another
// block may have left pending.
typedef struct {
    Row row;
    uint32_t from; // the load's index in the kernel; LOAD_ELSEWHERE
} WaitedRow;
#define LOAD_ELSEWHERE UINT32_MAX

typedef struct {
    uint8_t wait;  // WaitKind: WAIT_NOT, WAIT_RESULT (rows), WAIT_HERE, WAIT_QUEUE
    uint32_t insn; // WAIT_HERE, WAIT_QUEUE: the instruction (index in the kernel), issued at 0
    uint32_t first_row, row_count; // WAIT_RESULT: rows[first_row…] of the kernel's schedule
    uint32_t issue;                // machine instructions
    uint32_t busy[UNIT_COUNT];     // cycles of each unit: the scheduler's, or the SM's
    uint32_t reads;                // registers (of a warp, 128 bytes) read
    uint32_t length; // cycles for a warp alone, from the first issue to behind the last
    uint32_t drain;  // cycles from then until the last result of known latency is there
} Segment;

typedef struct {
    uint32_t first, count; // instructions, indices in the kernel
    uint32_t first_segment, segment_count;
    uint32_t issue, length; // sums over the segments
} BlockSchedule;

typedef struct {
    BlockSchedule *blocks;
    uint32_t block_count;
    uint32_t *block_of; // per instruction
    Slot *slots;        // per instruction
    Segment *segments;
    uint32_t segment_count;
    WaitedRow *rows; // waited for
    uint32_t row_count;
} KernelSchedule;

// Schedules every block of a kernel. NULL when out of memory.
KernelSchedule *kernel_schedule(const Kernel *kernel, const GpuFigures *f, const GpuTiming *t);
void kernel_schedule_free(KernelSchedule *schedule);

#endif
