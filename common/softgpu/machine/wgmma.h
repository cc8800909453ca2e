// Warpgroups and the wgmma.mma_async that they have issued (PTX ISA 9.7.15).
//
// The four warps of a warpgroup come to an instruction in their own time. The first to come opens
// an operation, the others must come with the same instruction and the same operands; once all four
// have, it can execute, for all of them at once. Operations execute in the order of issue. When, is
// the setting `async` (machine/async.h): at once (early), when the first wait asks for it (late),
// after a latency. Operands are read, and accumulators written, at that moment.
//
// Operations are numbered from 0. Invariant, for each warp of the group:
//
//     first <= waited <= executed <= complete <= issued <= next
//
// where `first` is the oldest that is kept, `waited` the first that no wait of the warp has covered
// yet, `executed` the first that has not executed, `complete` the first that not all four warps
// have issued, and `next` the number of the one to be opened. At most WGMMA_KEPT are kept.
#ifndef SOFTGPU_WGMMA_H
#define SOFTGPU_WGMMA_H

#include "softgpu/check/race.h"
#include "softgpu/machine/machine.h"

// How many operations a warpgroup may have that no wait has covered. Beyond, the oldest executes and
// counts as waited for; if a warp has not issued that one yet, the others wait for it, as they would
// at the chip's queue, which is far shorter.
enum { WARPGROUP = 4, GROUPS_FOLLOWED = 64, WGMMA_KEPT = 4096 };

typedef struct {
    const Insn *insn;
    uint64_t a, b;             // descriptors
    bool accumulates;          // scale-d
    uint32_t frame[WARPGROUP]; // where each warp's rows are: offset in its stack
    uint64_t due;              // when it executes; UINT64_MAX: on demand
} WgmmaOp;

typedef struct Warpgroup Warpgroup;
struct Warpgroup {
    Warp *warps; // four in a row
    WgmmaOp *ops;
    uint64_t capacity; // of ops, a power of two: number n is ops[n % capacity]
    uint64_t first, executed, next;
    uint64_t begun, ended; // in a timed launch: first that the tensor cores haven't begun, ended
    struct {
        uint64_t issued, waited;
        uint64_t groups;                // committed
        uint64_t ends[GROUPS_FOLLOWED]; // operations of the latest groups: those below
    } warp[WARPGROUP];
    uint64_t busy;              // when the latest operation leaves the tensor cores
    uint64_t armed, generation; // of the event
    uint64_t events;            // that are to come, of earlier generations too
    struct WgmmaReads *reads;   // by group: for the race check; NULL without it
    Warpgroup *retired;         // list Sm.retired
};

// What a warp issues. FLOW_FAULT after a finding that ends the launch, FLOW_RETRY when the running
// group is blocked until the other warps have come further.
Flow wgmma_issue(Warp *w, const Insn *i, uint64_t a, uint64_t b, bool accumulates);
void wgmma_commit(Warp *w);
// Have all but the `newest` last groups of the warp executed? Else the running group is blocked,
// and the handler returns FLOW_RETRY.
bool wgmma_wait(Warp *w, const Insn *i, uint32_t newest);

// Operation number n; the operations in flight of a warp: issued, and not waited for.
static inline WgmmaOp *wgmma_op(const Warpgroup *g, uint64_t n) {
    return &g->ops[n & (g->capacity - 1)];
}
Warpgroup *wgmma_group(const Warp *w); // NULL before the first
// Is a group of the warp's complete with operation n: has it been committed?
bool wgmma_committed(const Warpgroup *g, const Warp *w, uint64_t n);

// A warp's last lane has exited, at `i`.
void wgmma_warp_exited(Warp *w, const Insn *i);
// The CTA has ended: forgets its operations; and gives back their memory.
void wgmma_cta_finish(Cta *cta);
void wgmma_cta_free(Cta *cta);
void wgmma_free(Sm *sm);

// ---- for timing/tensor_time.c

// The operation has begun and its result is there at `due`; the group's next one has ended; has it
// another one that can begin?
void wgmma_begun(Warpgroup *g, WgmmaOp *op, uint64_t due);
void wgmma_ended(Warpgroup *g);
bool wgmma_has_next(const Warpgroup *g);

// ---- execute/wgmma_multiply.c

// Executes an operation: reads the operands and writes D, for all four warps.
void wgmma_execute(const Warpgroup *g, const WgmmaOp *op);
// Columns of B, by which its time counts.
int wgmma_columns(const WgmmaOp *op);
// Bytes of shared memory that it reads; *registers: A comes from registers.
uint32_t wgmma_operand_bytes(const WgmmaOp *op, bool *registers);

#endif
