// The race check of tensor memory: a part of race.h, with its vector clocks, and an order of its
// own (PTX ISA 9.7.16.6, tcgen05 memory consistency).
//
// Who accesses tensor memory: the queue of a thread that issues mma, cp and shift (an agent, whose
// clock goes up with each commit), and the loads and the stores of a warp (an agent each, whose
// clocks go up with their waits). What puts two accesses in order:
//
//   queue → …      tcgen05.commit, a wait at its mbarrier, tcgen05.fence::after_thread_sync
//   ld, st → …     tcgen05.wait::ld, ::st; for another thread then fence::before_thread_sync, a
//                  barrier or mbarrier, fence::after_thread_sync
//   one thread     mma → mma on the same D with the same shape; cp → mma; mma → shift; shift → mma
//                  and shift → cp.4x256b; what .ashift moves is a part of its mma
//   two threads    cp → mma: both fences and a barrier will do, with no wait for the copy's end
//
// Two more vectors of knowledge (race_parts.h) say it: SENT, what a fence::before or a commit has
// put in front of the synchronisation that passes it on; KNOWN, what the warp's further tcgen05
// instructions come behind, which fence::after makes of what has been sent to it. An access whose
// predecessor is only SEEN lacks a fence; one that isn't even seen races. Products, copies, commits
// and fences go by what their lane has waited for and fenced; loads and stores, which a warp
// executes as one, by what all its lanes have. Lanes that meet (bar.warp.sync) share that.
//
// Kinder than the letter: an mma may write cells (its .ashift may) from which an earlier mma of its
// thread takes A or scales. They run in one pipe, in order, and FlashAttention-4 counts on it.
//
// Kept for each column and 16 lanes: the last write and up to three reads since.
#ifndef SOFTGPU_TMEM_RACE_H
#define SOFTGPU_TMEM_RACE_H

#include "softgpu/check/race.h"
#include "softgpu/machine/tcgen05.h"
#include "softgpu/machine/tmem.h"

typedef enum {
    TMEM_LOAD,
    TMEM_STORE,
    TMEM_ACCUMULATE,
    TMEM_OPERAND,
    TMEM_SHIFT_A, // an mma's .ashift, of its A
    TMEM_SHIFT,
    TMEM_COPY,
    TMEM_COPY_SPREAD, // .4x256b, which may follow a shift
} TmemAccess;

enum { TMEM_GROUPS = TMEM_LANES / 16 }; // of lanes

// A thread's mma, cp or shift accesses columns [column, column + columns) of a CTA, in the groups
// of 16 lanes of `groups`, a bit each. `chain`: two products with the same one have the same D and
// shape; 0 for what is no product.
void tmem_race_issue(TensorIssuer *issuer, const Insn *i, Cta *cta, uint32_t column,
                     uint32_t columns, uint32_t groups, TmemAccess access, uint64_t chain);
// It reads shared memory: chunks of 16 bytes at these addresses, of the own CTA or the peer
// (which).
void tmem_race_operand(TensorIssuer *issuer, const Insn *i, int which, const uint32_t *at,
                       int count);
// The thread commits. Answers what the commit covers.
RaceAgent tmem_race_commit(TensorIssuer *issuer, const Insn *i);
// Enters what threads of the warp have read of shared memory, by what they know now: to be called
// before they learn more. Reads are collected, as those of several products make whole lines.
void tmem_race_flush(Warp *w);
// … to this mbarrier: what the thread had waited for comes before the operations, and so before the
// arrival. (Its own loads and stores of shared memory don't: a commit speaks of tcgen05 only.)
void tmem_race_commit_to(Warp *w, int lane, Cta *cta, uint32_t address);
// What this agent stands for, as it was at the commit, is over and arrives at an mbarrier.
void tmem_race_committed(const RaceAgent *agent, Cta *cta, uint32_t address);

// A warp's ld or st; its wait.
void tmem_race_move(Warp *w, const Insn *i, uint32_t column, uint32_t columns, uint32_t groups,
                    bool stores);
void tmem_race_waited(Warp *w, bool stores);

// A relaxed arrival at a barrier: into `to`, a Knowledge, goes what a fence::before has put in
// front of it; and that what the lane has waited for is over, which is enough to free the columns.
void tmem_race_relaxed(Warp *w, int lane, uint32_t to);
// The same at an mbarrier.
void tmem_race_relaxed_arrival(Warp *w, int lane, Cta *cta, uint32_t address);

// tcgen05.fence of these lanes.
void tmem_race_fence_before(Warp *w, uint32_t lanes);
void tmem_race_fence_after(Warp *w, uint32_t lanes);
// The warp frees these columns.
void tmem_race_release(Warp *w, const Insn *i, uint32_t column, uint32_t columns);

// Newly allocated: nobody has accessed them.
void tmem_shadow_clear(Tmem *m, uint32_t column, uint32_t columns);
void tmem_shadow_free(Tmem *m);

#endif
