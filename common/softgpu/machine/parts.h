// Private to machine/: how a warp's groups, joins and frames fit together.
//
// Invariant: every live lane of a warp is in exactly one place: in one group (a slot of Warp.groups
// with a mask), or among the `arrived` lanes of one join. The running group's program counter and
// mask are in the Warp; those in its slot are stale until group_save.
#ifndef SOFTGPU_PARTS_H
#define SOFTGPU_PARTS_H

#include "softgpu/machine/machine.h"

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

// Memory that can't be done without; 64-byte aligned, as rows want it.
void *allocate(size_t size);

// A point where lanes that a branch split (or that a call took away) come together again.
struct Join {
    const Insn *pc;
    Frame *frame;      // the activation in which `pc` is meant
    uint32_t expected; // lanes that still come here, those that have arrived included
    uint32_t arrived;  // lanes that wait here
    uint32_t born;     // Warp.turns when it was made
    Join *outer;       // where they go to wait afterwards
    Join *next;        // list Warp.joins
};

enum {
    TURN = 64,       // backward branches after which a group gives way to another
    TURN_YIELD = 15, // what a poll counts beyond its branch
};

// ---- warp.c: groups

// Runs a warp until its SM's time is `until`, or all its groups wait.
WarpStatus warp_run(Warp *w, uint64_t until);
// The same, beginning with the group in `slot`.
WarpStatus warp_run_group(Warp *w, int slot, uint64_t until);
// Prepares a warp of a CTA that starts: all lanes in one group at the kernel's entry.
void warp_start(Warp *w);
// Stores the running group in its slot, to go on at `pc`.
void group_save(Warp *w, const Insn *pc);
void group_load(Warp *w, int slot);
// A new group that can run.
Group *group_add(Warp *w, const Insn *pc, uint32_t mask, Join *join, Frame *frame);
// Loads a group that can run, if need be by letting lanes leave a join. false, and active = 0, if
// none can.
bool group_next(Warp *w);
// Recomputes Warp.stop after the running group's join or frame has changed.
static inline void group_update_stop(Warp *w) {
    const Group *g = &w->groups[w->current];
    w->stop = g->join && g->join->frame == g->frame ? g->join->pc : NULL;
}
// The warp's only group, while it is in the slot that ran last; NULL if there may be others.
static inline Group *only_group(const Warp *w) {
    Group *g = &w->groups[w->current];
    return w->group_count == 1 && g->mask ? g : NULL;
}
// Tells what the warp's SM must do with it, from the states of its groups.
WarpStatus warp_status(const Warp *w);

// ---- diverge.c: joins

// Where lanes of the running group meet again: a new join at `pc` in the running frame, or the
// group's own join if that is the same place.
Join *join_make(Warp *w, const Insn *pc);
// The running group stands at its join point. False if no group can run now.
bool join_arrive(Warp *w);
// Lanes that will not come to the joins from `from` outwards up to `until` (exclusive).
void joins_leave(Warp *w, Join *from, const Join *until, uint32_t lanes);
// Lets all lanes that wait at joins go on without the others. False if there are none.
bool joins_release(Warp *w);
// No group of the warp can run: lets lanes leave a join if parked groups need them; records a
// finding if the parked groups wait for each other for ever.
bool joins_unstick(Warp *w);
// The running group, having jumped backwards to w->pc while it is not the whole warp, may have to
// give way to the others.
Flow warp_turn(Warp *w);

// ---- call.c: frames

// The frame of the entry function.
void frames_start(Warp *w);
// Lanes that have left a frame and its callers (exit); until = NULL for all of them.
void frames_leave(Warp *w, Frame *frame, uint32_t lanes);
// Gives back what the warp's frames and joins occupy, whatever its state.
void frames_drop(Warp *w);

// ---- cta.c

// Starts the CTA number `linear` of the grid on an SM, as `rank` of the cluster of which `leader`
// is the CTA of rank 0 (NULL for rank 0 itself).
Cta *cta_start(Sm *sm, uint64_t linear, uint32_t rank, Cta *leader);
// The CTA runs no more, but its memory stays.
void cta_end(Cta *cta);
// Takes a CTA off its SM and keeps its memory for the next one.
void cta_finish(Cta *cta);
// Frees all CTAs of an SM, resident or spare.
void ctas_drop(Sm *sm);

// ---- sm.c

// Runs an SM on its own until its time is `until`, or nothing on it can run.
void sm_run(Sm *sm, uint64_t until);
// Runs one deferred instruction, and those right behind it that are of the same kind.
void sm_run_deferred(Sm *sm, const struct Deferred *d);
// In a timed launch: when the SM has something to do next; UINT64_MAX: never.
uint64_t sm_next_time(const Sm *sm);
void sm_defer(Warp *w);
// Time of the next event; UINT64_MAX if there is none.
uint64_t sm_next_event(const Sm *sm);

// ---- ready.c: the warps of an SM that can run

void sm_ready(Warp *w);
void ready_remove(Warp *w, WarpStatus status);
// Timed launches: the warp whose clock is hindmost, NULL if there is none; and the clock of a ready
// warp has changed. Among equals schedulers are greedy, then they take the oldest: GTO, as most models
// of GPUs have it.
Warp *ready_first(const Sm *sm);
void ready_moved(Warp *w);

// ---- spin.c: is everybody only spinning?

// A hash of all that a warp's future depends on, memory aside.
uint64_t warp_hash(const Warp *w);
// Called at a backward branch of a watched SM.
void spin_record(Warp *w, const Insn *i);
void spin_begin(Sm *sm);
// Another round in which warps are watched.
void spin_go_on(Sm *sm);
// Has every warp of the SM that isn't blocked come back to an earlier state?
bool spin_all_recur(const Sm *sm);
// Has every such warp found an mbarrier's phase incomplete since `time`?
bool spin_all_await(const Sm *sm, uint64_t time);

// ---- workers.c: host threads

// Calls run(context, index, thread) for all indices below `count`, on up to `threads` host threads;
// thread 0 is the caller. Indices are claimed in rising order.
void workers_run(int threads, int count, void (*run)(void *context, int index, int thread),
                 void *context);

#endif
