// The modelled GPU while it runs a kernel: GPU → SM → CTA → warp → group of lanes.
//
// How a launch runs (machine/run.c). Time advances in rounds. In the *parallel phase* of a round
// each SM runs on its own for a quantum, SMs spread over host threads; what happens on one SM (its
// CTAs' registers and shared memory, weak accesses to global memory) takes effect at once. What
// other SMs can see in an ordered way (atomics, volatile, relaxed, acquire, release accesses to
// global memory, printf, malloc) is put off: its handler answers FLOW_DEFER and is called again in
// the *serial phase* at the end of the round, in (time, SM, warp) order, as are the L2 requests
// that the SMs logged. So neither results nor counters depend on the number of host threads.
//
// CTAs of a cluster do see each other in the parallel phase. Their SMs are run by one host thread,
// in turns of a few instructions (slices), so a handler may touch the memory of a peer and wake its
// warps without further ado; machine/cluster.h says what holds then. Without clusters every CTA is
// a cluster of its own, and an SM's slice is its quantum.
//
// What goes on while warps compute (cp.async, bulk copies, st.async, wgmma) is an operation of its
// SM: machine/async.h says when it takes effect, and names the files of each kind.
//
// An SM's time counts cycles if the launch is timed (timing/pace.h), else the warp instructions
// that it has issued.
#ifndef SOFTGPU_MACHINE_H
#define SOFTGPU_MACHINE_H

#include <stdatomic.h>

#include "softgpu/machine/code.h"
#include "softgpu/machine/random.h"
#include "softgpu/settings.h"
#include "softgpu/timing/activity.h"
#include "softgpu/timing/figures.h"

enum { WARP_SIZE = 32, NAMED_BARRIERS = 16, CLUSTER_MAX = 16, ALLOCATIONS_CACHED = 8 };
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
// From here on, also to kernels that ask for it by name (%reserved_smem_offset_1: tiles of
// cooperative groups).
#define SHARED_SCRATCH 0x100

// ---- groups: lanes of a warp that share a program counter

typedef enum {
    GROUP_RUNS,    // can run
    GROUP_PARKED,  // at a .sync or .aligned instruction, waiting for the lanes named in `need`
    GROUP_BLOCKED, // waits for something outside the warp (see Block)
    GROUP_DEFERRED // its next instruction runs in the serial phase
} GroupState;

typedef enum {
    BLOCK_NONE,
    BLOCK_BARRIER,   // a named barrier: `number`
    BLOCK_SLEEP,     // until time `until`
    BLOCK_WGMMA,     // wgmma.wait_group: until the other warps of the warpgroup have issued, too
    BLOCK_CLUSTER,   // barrier.cluster.wait
    BLOCK_REGISTERS, // setmaxnreg.inc: until the CTA has so many registers to give
    BLOCK_MBARRIER,  // mbarrier.try_wait: until the phase of the one at `number` completes
    BLOCK_MEMORY,    // a wait for copies: until it is known when they land
    BLOCK_TMEM,      // tcgen05.alloc: until columns are free, or the pair's peer comes
} BlockKind;

typedef struct Join Join; // where lanes wait for those they split from; machine/parts.h

// A call's activation: where its rows are and where it returns to. Groups that call the same
// function from the same rows share the callee's rows, so that they can meet in collective
// instructions.
typedef struct Frame Frame;
struct Frame {
    uint8_t *rows; // base of the function's rows
    const CodeFunction *function;
    uint32_t local_base; // byte offset of the function's .local storage in each thread's
    const Insn *return_to;
    const Call *call; // how results go back
    Frame *caller;
    // Private to machine/call.c:
    uint32_t lanes; // lanes that have not returned
    uint32_t depth; // callers
    size_t offset;  // of `rows` in the warp's stack
    Frame *next;    // list of the warp's frames
};

typedef struct {
    const Insn *pc;
    uint32_t mask; // lanes; 0 = the slot is free
    uint32_t need; // GROUP_PARKED: lanes that must arrive
    uint32_t here; // GROUP_PARKED: lanes that execute the instruction
    GroupState state;
    BlockKind block;
    int number;
    uint64_t until;
    Join *join;
    Frame *frame;
    uint32_t turns; // backward branches since the group last gave way
} Group;

// Where a warp stands with its SM's scheduler.
typedef enum {
    WARP_READY,    // in Sm.ready
    WARP_WAITS,    // blocked; warp_wake makes it ready
    WARP_DEFERRED, // nothing to do but an instruction of the serial phase
    WARP_EXITED,
    WARP_FAULTED, // the launch ends
} WarpStatus;

struct Warp {
    // The running group's state, kept here while it runs. active is 0 when no group can.
    uint8_t *frame;           // base of the rows of the running function
    const uint8_t *constants; // constant pool of the kernel
    const Insn *pc;
    const Insn *stop; // the running group's join point in this frame, or NULL
    uint32_t active;  // lanes of the running group
    uint32_t live;    // lanes that exist and have not exited
    uint32_t carry;   // condition code of add.cc and its kin: a bit per lane
    int current;      // index of the running group in groups
    int group_count;
    Group *groups; // WARP_SIZE slots; groups[current].frame is always up to date

    Cta *cta;
    Sm *sm;
    Kernel *kernel;
    uint8_t *local; // [32][local_stride] bytes
    uint32_t local_stride;
    int id;                  // within the CTA
    uint32_t exists;         // lanes within the CTA's thread count
    uint64_t *local_written; // one bit per byte of `local`: the init check; NULL when off
    uint64_t stores;         // changes this warp has made: a poll without any counts as blocked
    struct AsyncWarp *async; // copies under way (machine/async.h), NULL until the first
    uint32_t undefined_rows; // registers undefined in some lane (check/definedness.h)
    struct Definedness *undefined; // which; NULL until the first
    struct InFlight *in_flight;    // marks on registers of wgmma (check/in_flight.h), or NULL
    struct WarpPace *pace;         // timing/pace.h; NULL unless the launch is timed
    uint64_t waited_at;            // when it last found an mbarrier's phase incomplete
    // barrier.cluster: lanes that have arrived for the phase under way; and for the last one, which
    // has completed, and have not waited yet. Of the former, those that are blocked in a wait.
    uint32_t cluster_arrived, cluster_passed, cluster_waiting;
    uint32_t registers;        // per thread, as setmaxnreg has left it
    uint32_t registers_wanted; // a setmaxnreg.inc waits for so many; 0 if none does
    // Private to machine/:
    WarpStatus status;
    uint8_t *stack; // rows of all frames
    size_t stack_size;
    Join *joins; // all of them, innermost first
    Frame *frames;
    uint64_t turn_stores;        // `stores` when the warp's groups last took turns
    uint32_t turns, quiet_turns; // since lanes last met or parted; without stores
    uint64_t turn_hash;
    uint32_t gathered; // slots of groups that the collective at time `gathered_at` let in
    uint64_t gathered_at;
    struct SpinRecord {
        const Insn *pc;
        uint64_t hash, steps;
        uint32_t ran; // lanes that have come to a backward branch since
        int left;
        bool recurs;
    } spin;
};

// ---- barriers

typedef struct {
    uint32_t expected; // threads; 0 while no use is under way
    uint32_t arrived;
    uint32_t waiting; // warps blocked on it (count)
    bool whole;       // no count was given: all warps of the CTA that have not exited
    bool reduces;     // bar.red
    uint32_t red_and, red_or, red_popc;
    const Insn *first;   // the instruction that opened this use, for findings
    uint64_t generation; // completed uses
    uint64_t admitted;   // timed: when the last warp has arrived
} Barrier;

struct Cta {
    LaunchState *launch;
    Sm *sm;
    uint32_t index[3]; // %ctaid
    uint64_t linear;
    uint64_t work; // instructions so far, those of the serial phase aside
    uint32_t cluster_rank;
    struct Cluster *cluster, *own_cluster; // machine/cluster.h; `cluster` is never NULL
    bool ended;            // all its warps have exited; peers of its cluster may still run
    bool met;              // has passed a barrier of its cluster: peers know that it has started
    const Insn *none_left; // has been told here that no cluster is left to cancel
    int warp_count, live_warps;
    uint32_t thread_count;
    Warp *warps;
    uint8_t *shared; // byte at shared address x (rank bits aside) is shared[x]
    uint32_t
        shared_size; // one past the last valid address; addresses below SHARED_RESERVED are not
    uint8_t *shared_written; // a mark per byte of shared memory (check.h); NULL: no init check
    uint64_t *closed; // words that plain accesses may not touch now (machine/async.h), or NULL
    struct MbarrierTable *mbarriers; // live objects (machine/mbarrier.h), NULL until the first
    uint32_t async_arrivals;         // operations under way that arrive at an mbarrier
    struct BulkCta *bulk;            // bulk copies under way (machine/bulk.h), NULL until the first
    struct BulkMaps *bulk_maps;      // tensor maps, edited or acquired (likewise)
    bool closed_overlap;             // some word is closed twice
    struct Warpgroup *warpgroups;    // machine/wgmma.h; NULL until the first wgmma
    struct RaceCta *race;            // check/race.h; NULL when the race check is off
    struct Tcgen05 *tcgen05;         // machine/tcgen05.h; NULL until the first
    Barrier barriers[NAMED_BARRIERS];
    struct RegisterPool { // execute/register_pool.c
        uint32_t free;    // registers that no warp has
        struct RegisterUse {
            const Insn *insn;
            uint32_t done; // warps of the warpgroup that have executed it, until all have
        } uses[8];
    } pool;
    struct RemoteOp *remote; // asynchronous stores on their way here; machine/remote.h
    // Private to machine/:
    size_t shared_allocated;
    Cta *next;
};

// ---- an SM

typedef struct {   // an L2 request, logged in the parallel phase
    uint64_t line; // address >> 7
    uint64_t time;
    uint32_t ticket; // who waits for it (timing/pace.h); 0: nobody
    uint8_t sectors; // 32-byte sectors of the line, bit mask
    uint8_t write;   // 0 read, 1 write (full sectors), 2 write (part of one), 3 atomic, 4 prefetch
    uint32_t bytes;  // 2: which bytes of the sector, a bit each
} L2Request;

struct Sm {
    Gpu *gpu;
    LaunchState *launch;
    int id;
    uint64_t time;
    bool serial; // the serial phase is running this SM's deferred instructions
    Cta *ctas;   // resident
    int resident;
    struct Random random;
    struct Counters *counters; // of the host thread that runs this SM in this round
    struct Cache *l1;
    struct SmPace *pace; // timing/pace.h; NULL unless the launch is timed
    L2Request *requests;
    size_t request_count, request_capacity;
    struct EventQueue *events;            // (time, order) → completion; machine/event.h
    struct AsyncPool *async;              // memory of asynchronous operations; machine/async.h
    struct Warpgroup *retired_warpgroups; // memory that events still point to; machine/wgmma.h
    struct BulkPool *bulk;                // memory of bulk copies; machine/bulk.h
    struct Tmem *tmem;                    // tensor memory; machine/tmem.h; NULL until used
    uint64_t changes; // barrier completions, atomics, exits, …: progress, for deadlock detection
    uint64_t stores; // to global and shared memory; while `watch`, those that change it are changes
    bool faulted;    // a finding that ends the launch
    struct GlobalLog *global_log; // check/race_global.h; NULL until the first access
    struct FindingList *findings; // of this round; merged in SM order
    struct TraceSm *trace;        // timing/trace.h; NULL: no timeline of this SM in this launch
    // Allocations that this SM met lately (check/memory.c); cleared when a launch begins.
    struct AllocationCache {
        uint64_t begin, end;
        bool read_only;
        bool unwritten; // the kernel that runs can't write it (race_writes)
    } cached[ALLOCATIONS_CACHED];
    // Private to machine/:
    Warp **ready; // warps with a group that can run
    int ready_count, ready_next, ready_capacity;
    struct Deferred {
        uint64_t time;
        Warp *warp;
        int group;
    } * deferred; // in the order met
    int deferred_count, deferred_capacity;
    Cta *spare_ctas; // memory to use again
    Join *spare_joins;
    Frame *spare_frames;
    struct RemoteOp *spare_remote;
    bool watch;                     // is everybody only spinning? machine/spin.c
    uint64_t finished;              // CTAs
    uint64_t work_least, work_most; // Cta.work of those
    uint64_t l1_bytes;              // size of `l1`
};

// ---- a launch

typedef struct {
    Kernel *kernel;
    uint32_t grid[3], block[3], cluster[3]; // cluster 1,1,1 if none
    uint32_t dynamic_shared;
    const void *params; // parameter block, Kernel.param_size bytes
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
    // How long each unit was busy (timing/roofline.c): a share of time_us.
    double pipe_us[PIPE_COUNT], issue_us, shared_us, l2_us, hbm_us;
    double time_us;      // by the roofline, or the timing model
    const char *bound;   // what limits the time: "fma", "lsu", "hbm", …
    double host_seconds; // how long the emulation took
    double cpu_seconds;  // what all host threads worked for it
    // What the work alone takes at the units' full rates, in cycles of all SMs together.
    double pipe_cycles[PIPE_COUNT], shared_cycles, load_cycles; // load: from L2 through the port
    int sms_simulated, sms_total;
    int finding_count;
    // By the timing model; cycles is 0 when it did not time this kernel, and then so is the rest.
    double cycles;                // of the SMs' clock, from the launch to the last CTA's end
    double unit_busy[UNIT_COUNT]; // shares of the cycles, averages of the SMs
    double tensor_busy;           // likewise: mma.sync and wgmma together
    double shared_busy, l2_busy, hbm_busy;
    double stall[STALL_COUNT]; // shares of the cycles that resident warps spent, see Stall
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
    bool many_sms; // more than one SM has work: deferral is needed
    bool sampled;  // blocks of the SMs that aren't simulated are left out
    uint64_t id;   // counts launches, seeds
    // Private to machine/:
    bool timing;
    const struct KernelPace *pace; // timing/pace.h; NULL unless the launch is timed
    unsigned checks;
    uint64_t schedule;
    uint64_t started;          // blocks, those that were cancelled too
    struct Grid *grid;         // machine/grid.h
    struct GlobalRaces *races; // check/race_global.h; NULL: not checked
    atomic_uchar *defers;      // per instruction: has it answered FLOW_DEFER in this launch?
    // The constant pool by rank in the cluster: addresses of shared memory carry the rank.
    const uint8_t *constants[CLUSTER_MAX];
    uint32_t registers; // of a thread when it starts
};

// The one GPU of this process (machine/gpu.c); created at first use.
Gpu *gpu_get(void);
// A GPU apart from the process's, with these settings, and its end (tests).
Gpu *gpu_new(const Settings *settings, const GpuFigures *figures);
void gpu_delete(Gpu *gpu);
struct Gpu {
    const Settings *settings;
    GpuFigures figures;          // with --sms applied
    struct GlobalMemory *memory; // machine/global.h
    struct Cache *l2;
    struct Cache *near[2]; // what each half of it holds for its SMs (timing/memory_time.c)
    int near_share;        // SMs that these are sized for
    double clock_us;       // modelled time since start, what cudaEvent reports
    uint64_t launches;
    int sample;           // SMs simulated of figures.sms; = figures.sms when not sampling
    uint64_t stack_limit; // cudaLimitStackSize: bytes of stack beyond what calls surely need
    // Private to machine/:
    Sm *sm;                // [figures.sms]
    int l2_share;          // SMs that `l2` is sized for
    uint64_t grid_barrier; // memory of cooperative launches
    uint64_t now;          // SM time at which the last launch ended
    struct CtaShape {
        uint32_t threads, frame, local, shared;
        unsigned checks;
    } shape; // of spares
};
// The settings, read from the environment at first use (a bad variable ends the program, status 2).
// The API changes them between launches.
Settings *gpu_settings(void);
// Before the first gpu_get: models the GPU for this compute capability (90, 100) if none was named.
void gpu_choose(int sm);

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
// As warp_call for lanes `mask`; lanes `later` stay at the call, and make it in their own group.
Flow warp_call_part(Warp *w, const Insn *i, const Call *call, const CodeFunction *callee,
                    uint32_t mask, uint32_t later);
Flow warp_return(Warp *w, const Insn *i, uint32_t mask);
Flow warp_exit(Warp *w, const Insn *i, uint32_t mask);

// For collective instructions: do all live lanes of `need` stand here? If so returns true and *all
// is the lanes that execute (of all groups that stand at this instruction); the handler runs once
// for them, and every one of those groups then goes on (joined into one if they share their rows).
// If not, the running group is parked: the handler returns FLOW_RETRY. `need` may name lanes that
// have exited; they count as arrived. At an instruction with INSN_ANYWHERE, groups that stand at
// another such instruction with the same handler count too: they go on behind theirs, or block with
// the running group (warp_block), but are not among *all.
bool warp_gather(Warp *w, const Insn *i, uint32_t mask, uint32_t need, uint32_t *all);

// Called when a warp's last lane has exited (Cta.live_warps no longer counts it): barriers that
// only waited for it complete. In execute/barrier.c.
void barrier_warp_exited(Warp *w);

// Registers of a thread when its kernel starts, as setmaxnreg counts them. In
// execute/register_pool.c.
uint32_t registers_at_entry(const Kernel *kernel);
// All warps of a CTA have exited: have whole warpgroups changed their numbers?
void registers_end(Cta *cta);

// Blocks the running group (and those that warp_gather has just let in with it); the handler then
// returns FLOW_WAIT (or FLOW_RETRY).
void warp_block(Warp *w, BlockKind kind, int number, uint64_t until);
// Wakes the groups of a warp that are blocked on this.
void warp_wake(Warp *w, BlockKind kind, int number);

// ---- fast questions that handlers ask

static inline bool must_defer(const Warp *w) {
    return !w->sm->serial && w->sm->launch->many_sms;
}

#endif
