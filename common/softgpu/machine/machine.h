// The modelled GPU while it runs a kernel: GPU → SM → CTA → warp → group of lanes.
//
// How a launch runs (machine/run.c). Time advances in rounds. In the *parallel phase* of a round
// each SM runs on its own for a quantum, SMs spread over host threads; what happens on one SM (its
// CTAs' registers and shared memory, weak accesses to global memory) takes effect at once. What
// other SMs can see in an ordered way (atomics, volatile, relaxed, acquire, release accesses to
// global memory, printf, malloc) is put off: its handler answers FLOW_DEFER and is called again in
// the *serial phase* at the end of the round, in (time, SM, warp) order, as are the L2 requests that
// the SMs logged. So neither results nor counters depend on the number of host threads.
//
// Until the timing model is built, an SM's time counts the warp instructions it has issued.
#ifndef SOFTGPU_MACHINE_H
#define SOFTGPU_MACHINE_H

#include <stdatomic.h>

#include "softgpu/machine/code.h"
#include "softgpu/machine/random.h"
#include "softgpu/settings.h"
#include "softgpu/timing/figures.h"

enum { WARP_SIZE = 32, NAMED_BARRIERS = 16, CLUSTER_MAX = 16 };
#define FULL_MASK 0xffffffffu

typedef struct Cta Cta;
typedef struct Sm Sm;
typedef struct Gpu Gpu;
typedef struct LaunchState LaunchState;

// ---- address windows of generic addresses (reserved in the host's address space, never mapped)

#define SHARED_WINDOW      0x6f0000000000ull // + (cta_rank << 24 | offset)
#define SHARED_WINDOW_SIZE 0x20000000ull
#define LOCAL_WINDOW       0x6f1000000000ull // + byte offset in the thread's local memory
#define LOCAL_WINDOW_SIZE  0x10000000ull
#define PARAM_WINDOW       0x6f2000000000ull // + byte offset in the kernel's parameter block
#define PARAM_WINDOW_SIZE  0x10000ull
#define FUNCTION_WINDOW    0x6f3000000000ull // function ids: not readable
#define RANK_SHIFT         24                // shared addresses: cta_rank << 24 | offset
#define SHARED_RESERVED    0x400             // bytes at the start that belong to the system

// ---- groups: lanes of a warp that share a program counter

typedef enum {
    GROUP_RUNS,    // can run
    GROUP_JOINED,  // has reached its join point and waits for the lanes it split from
    GROUP_PARKED,  // at a .sync or .aligned instruction, waiting for the lanes named in `need`
    GROUP_BLOCKED, // waits for something outside the warp (see Block)
    GROUP_DEFERRED // its next instruction runs in the serial phase
} GroupState;

typedef enum {
    BLOCK_NONE,
    BLOCK_BARRIER, // a named barrier: `number`
    BLOCK_SLEEP,   // until time `until`
} BlockKind;

typedef struct Join Join; // machine/warp.c

// A call's activation: where its rows are and where it returns to.
typedef struct Frame Frame;
struct Frame {
    uint8_t *rows;            // base of the function's rows
    const CodeFunction *function;
    uint32_t local_base;      // byte offset of the function's .local storage in each thread's
    const Insn *return_to;
    const Call *call;         // how results go back
    Frame *caller;
};

typedef struct {
    const Insn *pc;
    uint32_t mask;       // lanes; 0 = the slot is free
    uint32_t need;       // GROUP_PARKED: lanes that must arrive
    GroupState state;
    BlockKind block;
    int number;
    uint64_t until;
    Join *join;
    Frame *frame;
    uint32_t turns;      // backward branches since the group last gave way
} Group;

struct Warp {
    // The running group's state, kept here while it runs.
    uint8_t *frame;           // base of the rows of the running function
    const uint8_t *constants; // constant pool of the kernel
    const Insn *pc;
    uint32_t active;          // lanes of the running group
    uint32_t live;            // lanes that exist and have not exited
    uint32_t carry;           // condition code of add.cc and its kin: a bit per lane
    int current;              // index of the running group in groups
    int group_count;
    Group *groups;            // capacity 32; groups[0] is all there is while the warp is together

    Cta *cta;
    Sm *sm;
    Kernel *kernel;
    uint8_t *local;           // [32][local_stride] bytes
    uint32_t local_stride;
    int id;                   // within the CTA
    uint32_t exists;          // lanes within the CTA's thread count
    uint64_t *local_written;  // one bit per byte of `local`: the init check; NULL when off
    uint64_t stores;          // changes this warp has made: a poll without any counts as blocked
    // Private to machine/warp.c:
    uint8_t *stack;
    size_t stack_size, stack_used;
    Join *joins;
    Frame *frames;
    struct SpinRecord { const Insn *pc; uint64_t hash; bool recurs; } spin;
};

// ---- barriers

typedef struct {
    uint32_t expected;   // threads; 0 while no use is under way
    uint32_t arrived;
    uint32_t waiting;    // warps blocked on it (count)
    bool reduces;        // bar.red
    uint32_t red_and, red_or, red_popc;
    const Insn *first;   // the instruction that opened this use, for findings
    uint64_t generation; // completed uses
} Barrier;

struct Cta {
    LaunchState *launch;
    Sm *sm;
    uint32_t index[3];   // %ctaid
    uint64_t linear;
    uint32_t cluster_rank;
    int warp_count, live_warps;
    uint32_t thread_count;
    Warp *warps;
    uint8_t *shared;     // byte at shared address x (rank bits aside) is shared[x]
    uint32_t shared_size;// one past the last valid address; addresses below SHARED_RESERVED are not
    uint8_t *shared_written; // one byte per byte of shared memory; NULL when the init check is off
    Barrier barriers[NAMED_BARRIERS];
    // Private to machine/:
    void *memory;
    Cta *next;
};

// ---- an SM

typedef struct {         // an L2 request, logged in the parallel phase
    uint64_t line;       // address >> 7
    uint64_t time;
    uint8_t sectors;     // 32-byte sectors of the line, bit mask
    uint8_t write;       // 0 read, 1 write (full sectors), 2 write (partial), 3 atomic
} L2Request;

struct Sm {
    Gpu *gpu;
    LaunchState *launch;
    int id;
    uint64_t time;
    bool serial;         // the serial phase is running this SM's deferred instructions
    Cta *ctas;           // resident
    int resident;
    struct Random random;
    struct Counters *counters; // of the host thread that runs this SM in this round
    struct Cache *l1;
    L2Request *requests;
    size_t request_count, request_capacity;
    struct EventQueue *events; // (time, order) → completion; machine/event.h
    uint64_t changes;    // stores, barrier completions, exits: progress, for deadlock detection
    bool faulted;        // a finding that ends the launch
    struct FindingList *findings; // of this round; merged in SM order
    struct AllocationCache { uint64_t begin, end; bool host; } cached[4]; // check/memory.c
    // Private to machine/run.c:
    Warp **ready;
    int ready_count;
};

// ---- a launch

typedef struct {
    Kernel *kernel;
    uint32_t grid[3], block[3], cluster[3]; // cluster 1,1,1 if none
    uint32_t dynamic_shared;
    const void *params;      // parameter block, Kernel.param_size bytes
    bool cooperative;
    uint64_t cooperative_barrier; // device address of {u32 size; u32 barrier}, 0 if none
} Launch;

// What a kernel did, summed over the grid (scaled to it when SMs were sampled).
typedef struct KernelStats {
    const char *kernel;
    uint32_t grid[3], block[3];
    double warp_instructions[PIPE_COUNT], thread_instructions[PIPE_COUNT];
    double flops_f32, flops_f64, flops_tensor; // by unit
    double hbm_read_bytes, hbm_write_bytes, l2_read_bytes, l2_write_bytes;
    double shared_wavefronts, shared_ideal_wavefronts; // their ratio is the bank-conflict factor
    uint32_t registers, shared_bytes, ctas_per_sm;
    double time_us;          // by the roofline, or the timing model
    const char *bound;       // what limits the time: "fma", "lsu", "hbm", …
    double host_seconds;     // how long the emulation took
    int sms_simulated, sms_total;
    int finding_count;
} KernelStats;

// Runs a kernel to its end. Returns a cudaError code: 0; 700, 716, 719, 710 (assert), … after a
// finding or fault. *stats is filled in every case.
int gpu_launch(Gpu *gpu, const Launch *launch, KernelStats *stats);

// CTAs of the kernel that fit on one SM at once, and the reason when it is 0 (a sentence).
int gpu_occupancy(const GpuFigures *figures, const Kernel *kernel, uint32_t block_threads,
                  uint32_t dynamic_shared, char *why, size_t why_size);

struct LaunchState {
    const Launch *launch;
    Gpu *gpu;
    const uint8_t *params;
    uint64_t grid_size;
    bool many_sms;       // more than one SM has work: deferral is needed
    uint64_t id;         // counts launches, seeds
};

// The one GPU of this process (machine/gpu.c); created at first use.
Gpu *gpu_get(void);
struct Gpu {
    const Settings *settings;
    GpuFigures figures;      // with --sms applied
    struct GlobalMemory *memory; // machine/global.h
    struct Cache *l2;
    double clock_us;         // modelled time since start, what cudaEvent reports
    uint64_t launches;
    int sample;              // SMs simulated of figures.sms; = figures.sms when not sampling
};

// ---- rows

static inline void *row(const Warp *w, Row r) {
    const uint8_t *base = r & ROW_CONSTANT ? w->constants : w->frame;
    return (void *)(base + (r & ~ROW_CONSTANT));
}

// ---- groups of lanes (machine/warp.c)

// The running group goes on at `target` with lanes `taken` and at the next instruction with the
// others. Splits it if both are non-empty; they meet again at `join`.
Flow warp_branch(Warp *w, const Insn *i, const Insn *target, const Insn *join, uint32_t taken,
                 uint32_t mask);
// Like warp_branch for lanes with differing targets: targets[lane].
Flow warp_branch_table(Warp *w, const Insn *i, const Insn *const targets[32], const Insn *join,
                       uint32_t mask);
Flow warp_call(Warp *w, const Insn *i, const Call *call, const CodeFunction *callee, uint32_t mask);
Flow warp_return(Warp *w, const Insn *i, uint32_t mask);
Flow warp_exit(Warp *w, const Insn *i, uint32_t mask);

// For collective instructions: do all live lanes of `need` stand here? If so returns true and *all
// is the lanes that execute (of all groups that stand at this instruction); the handler runs once
// for them, and every one of those groups then goes on. If not, the running group is parked: the
// handler returns FLOW_RETRY.
bool warp_gather(Warp *w, const Insn *i, uint32_t mask, uint32_t need, uint32_t *all);

// Blocks the running group; the handler then returns FLOW_WAIT (or FLOW_RETRY).
void warp_block(Warp *w, BlockKind kind, int number, uint64_t until);
// Wakes the groups of a warp that are blocked on this.
void warp_wake(Warp *w, BlockKind kind, int number);

// ---- fast questions that handlers ask

static inline bool must_defer(const Warp *w) {
    return !w->sm->serial && w->sm->launch->many_sms;
}

#endif
