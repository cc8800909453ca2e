// What the cycles of an SM go to: the units that work, and what the warps wait for meanwhile.
#ifndef SOFTGPU_ACTIVITY_H
#define SOFTGPU_ACTIVITY_H

// What executes machine instructions. The first group is there once for each of the SM's four
// schedulers, the second once for the SM; UNIT_ISSUE has no limit but the issue slot.
typedef enum {
    UNIT_ISSUE,
    UNIT_FMA,    // f32 add, mul, fma
    UNIT_IMAD,   // the half of the FMA lanes that multiplies integers
    UNIT_HALF,   // f16x2 and bf16x2
    UNIT_ALU,    // integer, logic, compare, select, min and max, packed conversions
    UNIT_FP64,   // doubles outside the tensor cores
    UNIT_XU,     // MUFU, conversions between integers and floats, popc, clz
    UNIT_TENSOR, // mma.sync
    UNIT_LSU,    // loads, stores, atomics, shuffles, mbarriers: the way to shared memory and L1
    UNIT_TMA,    // bulk copies
    UNIT_COUNT,
} Unit;
enum { UNIT_FIRST_SHARED = UNIT_LSU };

// What keeps a resident warp that does not issue; its other cycles are those in which it issues.
typedef enum {
    STALL_BARRIER,    // bar.sync, named barriers, barrier.cluster
    STALL_MBARRIER,   // mbarrier.try_wait: data or a buffer that is not there yet
    STALL_WGMMA,      // wgmma.wait_group, or a queue of products that is full
    STALL_MEMORY,     // the result of a load or an atomic
    STALL_COPY,       // cp.async and bulk groups
    STALL_DEPENDENCY, // the result of an arithmetic instruction
    STALL_PIPE,       // its unit is taken
    STALL_OTHER,      // the issue slot is another warp's, setmaxnreg, sleep, …
    STALL_COUNT,
} Stall;

#endif
