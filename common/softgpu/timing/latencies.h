// How long things take on an SM: what the timing model reckons with, one set per GPU (latencies.c,
// with the source of each number). Sizes, clocks and bandwidths are in figures.h.
//
// All times are in cycles of the SM's clock. The unit of work is the warp instruction of the
// *machine* (SASS), not of PTX: timing/expansion.h says which of them a PTX instruction becomes.
#ifndef SOFTGPU_LATENCIES_H
#define SOFTGPU_LATENCIES_H

#include <stdbool.h>
#include <stdint.h>

#include "softgpu/timing/activity.h"
#include "softgpu/timing/figures.h"

// Kinds of machine instructions, as far as their times differ.
typedef enum {
    OP_FMA,     // FFMA FADD FMUL
    OP_FMA2,    // FFMA2 FADD2 FMUL2: two f32 a lane (sm_100)
    OP_HALF,    // HFMA2 HADD2 HMUL2
    OP_IMAD,    // IMAD, low half
    OP_IMAD_HI, // IMAD.HI, IMAD.WIDE of registers
    OP_ALU,     // IADD3 LOP3 SHF LEA SEL PRMT F2FP I2FP …
    OP_COMPARE, // FMNMX FSETP ISETP VIMNMX: double rate on sm_100
    OP_FP64,    // DFMA DADD DMUL DSETP
    OP_MUFU,    // ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh
    OP_CONVERT, // F2I I2F F2F FRND POPC FLO BREV
    OP_VOTE,    // VOTE, MATCH
    OP_SPECIAL, // S2R
    OP_UNIFORM, // R2UR, ELECT, PLOP3: the scalar side
    OP_SHUFFLE, // SHFL
    OP_REDUX,   // REDUX
    OP_LOAD,    // LDG LDS LD LDL: latencies are those of the memory, below
    OP_STORE,   // STG STS ST STL
    OP_MATRIX,  // LDSM STSM: interval is that of one 8x8 matrix (128 bytes)
    OP_ATOMIC,  // ATOMS ATOMG RED
    OP_COPY,    // LDGSTS
    OP_SYNCS,   // mbarrier operations
    OP_MMA,     // HMMA IMMA DMMA: interval by FLOPs, mma_interval()
    OP_WGMMA,   // HGMMA: what the issuing warp does; the product is the queue's (Wgmma…)
    OP_BULK,    // UTMALDG UTMASTG UBLKCP …
    OP_BARRIER, // BAR
    OP_FENCE,   // MEMBAR, FENCE, WARPGROUP.ARRIVE, DEPBAR
    OP_BRANCH,  // BRA EXIT BSSY BSYNC CALL RET
    OP_COUNT,
} MachineOp;

// How a kind of machine instruction uses its unit.
typedef struct {
    uint8_t unit;      // Unit
    uint16_t interval; // cycles until the unit takes the next warp instruction
    uint16_t latency;  // cycles from issue to the issue of an instruction that needs the result
    uint8_t shared;    // of the SM's units: cycles for which one is taken; 0: the interval
} OpTime;

// The tensor cores' sorts of operands, as far as rates differ.
typedef enum { RATE_F16, RATE_TF32, RATE_FP8, RATE_INT8, RATE_F64 } RateKind;

typedef struct {
    const char *name; // that of GpuFigures
    OpTime op[OP_COUNT];
    int imad_takes_fma; // cycles for which an IMAD keeps the FMA unit busy as well
    int other_side;     // cycles more when FMA's side hands a result to the ALU's, or back
    int mufu_other;     // latency of rcp, rsqrt, sqrt, lg2, sin, cos, tanh; MUFU's is ex2's
    int guard;          // from a setp to an instruction that the predicate guards or branches
    // mma.sync. Dependent: from one product to the next into the same accumulator.
    int mma_latency, mma_f64_latency;
    double mma_share; // of the tensor cores' rate that mma.sync can reach

    // ---- memory: from issue to the first use of the result, nobody else there, no bank conflicts
    int shared_load;
    int shared_store;  // until a proxy fence behind it lets the warp on; 0: not reckoned with
    int shared_atomic; // atom.shared with a native operation
    int local_hit;     // L1 hit: global or local
    int l2_near, l2_far;
    double
        l2_near_bytes; // a footprint up to this is near for every SM: lines are held on both sides
    int l2_partitions; // halves with a slower way between them
    int l2_port_bytes; // that an SM takes from L2 in a cycle
    int dram;
    int constant_miss;    // first touch of a parameter or constant
    int atomic_l2;        // atom.global that finds its line in L2
    int atomic_same_word; // cycles between two warps' atomics on one word, at L2

    // ---- asynchronous copies
    int tma_latency;   // on top of a load's from the same place, up to the mbarrier's phase
    int tma_gap;       // between two bulk instructions of a warp
    int tma_in_flight; // bytes under way for an SM
    int store_visible; // a bulk store's read of shared memory: from issue to .read's wait
    int copy_commit, copy_wait; // cp.async's commit_group, a wait that has not to wait
    int loads_in_flight;        // 128-byte lines that an SM's L1 waits for at most

    // ---- other CTAs' shared memory
    int cluster_load;     // ld.shared::cluster of another SM, same TPC
    int cluster_load_far; // of another TPC
    int cluster_one_way;  // until a remote store or arrive has arrived
    double cluster_load_bytes, cluster_store_bytes, cluster_copy_bytes; // per clock and SM
    double cluster_both_bytes; // each way, when an SM both reads others' and is read
    int cluster_fence;         // from a remote store to behind a fence that follows it

    // ---- wgmma (and its kin): an asynchronous queue
    int wgmma_issue;          // cycles for which issuing one keeps its warp
    int wgmma_tail;           // from the end of the product to the release of a wait_group
    int wgmma_tail_registers; // the same with A from registers
    int wgmma_queue;          // products of a warpgroup that may be under way; issue blocks beyond
    int wgmma_register_bytes; // accumulators read and written, bytes a clock…
    int register_read_bytes;  // …out of what the register file can read
    bool register_pressure;   // does that count?

    // ---- tcgen05 (sm_100): 0 where there is none
    // From a product's issue to behind the wait at its mbarrier, beyond the cycles of its work, of
    // one SM and of a pair: A and B in shared memory; with half the rows; A in tensor memory.
    int tcgen05_tail[2][3];
    int tcgen05_commit; // of that, from the last result to a commit's arrival
    int tcgen05_ends;   // … and what issuing and waiting take in this model
    int tmem_latency; // from when a quarter's port has moved the last registers to behind the wait
    int tmem_registers; // of a warp that the port moves in a cycle, in or out

    // ---- synchronisation
    int mbarrier_arrive;   // until a waiter can see it
    int mbarrier_try_wait; // a try_wait that finds its phase complete
    int barrier_interval;  // between two warps' arrivals at a barrier
    int barrier_release;   // from the last arrival to the first issue behind it
    int cluster_barrier;   // barrier.cluster arrive + wait of CTAs that are all there
    int branch;            // issue of a branch to issue at its target

    // ---- CTAs and kernels
    int launch_cycles; // from the launch's start to the first CTA's first instruction
    int cta_replace;   // from a CTA's last instruction to its successor's first
    int cta_interval;  // between two CTAs that start on one SM
} GpuTiming;

// The times of a GPU; those of h100 for a name that is not in the table.
const GpuTiming *timing_of(const char *gpu_name);

// Cycles for which a mma.sync of `flops` (all lanes together) keeps its scheduler's tensor core.
int mma_interval(const GpuTiming *t, const GpuFigures *f, RateKind kind, double flops);
// Cycles of pure tensor work of a wgmma of m64, n and k, on an SM.
int wgmma_cycles(const GpuFigures *f, RateKind kind, int n, int k);

// "fma": a unit's name, for reports.
const char *unit_name(Unit unit);

#endif
