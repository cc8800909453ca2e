// The tensor core of sm_100 (PTX ISA 9.7.16): what tcgen05 instructions set going.
//
// tcgen05.mma, .cp and .shift are issued by single threads. Their CTA has one queue of them, which
// runs in the order of issue, as the unit's pipe does. tcgen05.commit puts an arrival at an
// mbarrier behind what its own thread has issued: where that thread has nothing in the queue it
// arrives at once. tcgen05.ld and .st belong to a warp. They too are asynchronous: tcgen05.wait::ld
// and ::st say when they are over. When things happen is the setting `async`:
//
//   timed    mma, cp and shift after the time that the tensor core needs; ld and st at their wait.
//            In a timed launch the SM's tensor core takes one operation after the other, of all its
//            CTAs in the order of issue, and operands their share of shared memory's bandwidth
//   early    all at the issue
//   late     those not before somebody waits at an mbarrier that a commit behind them arrives
//            at; ld and st at their wait
//   random   those after random times, in order; ld and st at the issue or at their wait
//
// So between ld and wait::ld the registers hold what they held before, and a cell that somebody
// writes in between is read as it is at the end. Only in strict runs: a GPU honours a thread's use
// of its own loaded registers, and programs of others count on it, so there ld happens at once.
//
// What is ordered with what beyond that is the race check's business (check/tmem_race.h).
#ifndef SOFTGPU_MACHINE_TCGEN05_H
#define SOFTGPU_MACHINE_TCGEN05_H

#include "softgpu/check/race.h"
#include "softgpu/machine/machine.h"

typedef enum { TENSOR_MMA, TENSOR_COPY, TENSOR_SHIFT, TENSOR_COMMIT } TensorOpKind;

typedef struct {
    uint32_t d, idesc;
    uint32_t metadata, scale_a, scale_b; // tensor-memory addresses
    uint64_t a, b;                       // descriptors; a: a tensor-memory address if A lies there
    uint32_t disabled[8];                // lanes of D that stay as they are
    bool accumulates;
} TensorMma;
typedef struct {
    uint32_t to;   // and of a shift, what it moves
    uint64_t from; // descriptor
} TensorCopy;
typedef struct {
    uint32_t address; // of the mbarrier, without rank bits
    uint16_t ctas;    // ranks at which it arrives
    uint32_t clock;   // of the issuer's agent, when it was issued
} TensorCommit;

// What an operation takes: cycles of the tensor core (of both, in a pair) if its operands come in
// time, and so many more until its result is there; floating-point operations; bytes of each CTA's
// shared memory.
typedef struct {
    uint64_t work, latency, flops, bytes;
} TensorCost;

typedef struct {
    TensorOpKind kind;
    const Insn *insn;
    Warp *warp;
    int lane;
    uint64_t due;
    uint64_t order; // among those of the SM, in a timed launch
    TensorCost cost;
    RaceAgent agent; // commits: whose work is over
    union {
        TensorMma mma;
        TensorCopy copy;
        TensorCommit commit;
    };
} TensorOp;

// A thread that issues to the queue.
typedef struct {
    Warp *warp;
    int lane;
    uint64_t last; // 1 + the number of its latest mma or cp
    RaceAgent agent;
    RaceAgent issues; // its clock counts the fences::before behind what has been issued
    bool has_read;    // … `reads` isn't empty
    bool used;        // the agent's clock stands for something that no commit has covered
    const Insn *first;
    uint64_t *reads[2]; // chunks of shared memory read, but not yet entered, a bit each: of the own
                        // CTA and of the peer
    uint64_t chain, chain_epoch[2]; // the latest product: see check/tmem_race.h
} TensorIssuer;

// A tcgen05.ld or .st that has not been waited for.
typedef struct {
    const Insn *insn;
    uint32_t frame, address;
    uint32_t *values; // st: registers as they were at the issue, [register][lane]; NULL once landed
    bool landed;
} TensorMove;
typedef struct {
    TensorMove *moves;
    int count, capacity;
    RaceAgent loads, stores;
    bool loaded, stored; // something of the agent's clock is under way
    uint64_t due;
} TensorWarp;

typedef struct Tcgen05 {
    // tensor memory (machine/tmem.h)
    uint16_t units;
    uint8_t group; // the .cta_group of all its instructions; 0: none yet
    const Insn *relinquished, *alloc;
    uint32_t last_columns;
    struct {
        Warp *warp; // that waits in tcgen05.alloc.cta_group::2
        uint32_t columns, column;
        bool granted;
    } pair;
    // the queue
    TensorOp *ops;
    uint64_t capacity, first, next; // number n is ops[n % capacity]; below `first` all is over
    uint64_t begun;                 // timed: the first that the tensor core has not taken
    uint64_t busy;                  // not timed: until when the tensor core has work
    TensorIssuer *issuers;
    int issuer_count, issuer_capacity;
    TensorWarp *warps; // by number
} Tcgen05;

// The CTA's, made at the first use.
Tcgen05 *tcgen05_of(Cta *cta);
// All tcgen05 instructions of a kernel name one .cta_group. False after a finding.
bool tcgen05_use_group(Warp *w, const Insn *i, int group);
// The other CTA of the pair; NULL after a finding if there is none.
Cta *tcgen05_peer(Warp *w, const Insn *i);

// What a thread has issued so far.
TensorIssuer *tcgen05_issuer(Warp *w, int lane);
// Puts an operation that has been checked into the queue.
void tcgen05_issue(const TensorOp *op);

// tcgen05.ld and .st, checked. FLOW_NEXT, or FLOW_RETRY when the running group is blocked.
void tcgen05_move(Warp *w, const Insn *i, uint32_t address, bool stores);
Flow tcgen05_wait(Warp *w, bool stores);
// Loads and stores of the warp that have not been waited for.
static inline const TensorWarp *tcgen05_warp(const Warp *w) {
    return w->cta->tcgen05 ? &w->cta->tcgen05->warps[w->id] : NULL;
}

// As their namesakes of machine/async.h.
bool tcgen05_demand(Cta *cta, uint32_t address);
bool tcgen05_land_all(Sm *sm);
void tcgen05_warp_exited(Warp *w, const Insn *i);
void tcgen05_cta_finish(Cta *cta, bool report);
void tcgen05_cta_free(Cta *cta);

// ---- execute/

// Reads the operands and writes D; copies; shifts.
void tcgen05_execute_mma(const TensorOp *op);
void tcgen05_execute_copy(const TensorOp *op);
void tcgen05_execute_shift(const TensorOp *op);
// Moves between registers ([register][lane], or the rows of the frame if `values` is NULL) and
// tensor memory.
void tcgen05_execute_move(Warp *w, const TensorMove *move, bool stores);
bool tcgen05_is_store(const Insn *i);
// The time that it takes at its port, in halves of a register.
int tcgen05_half_registers(const Insn *i);

#endif
