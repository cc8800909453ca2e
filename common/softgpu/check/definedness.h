// Definedness: which lanes of which registers hold what was read from memory that nothing wrote.
//
// Right programs read words of shared and local memory that nothing wrote, and throw them away: a
// scan's unused warps, the rest of a merge, a variable that a compiler loads too early. So unless
// strict, such a read is no finding; it makes the register undefined in those lanes. Instructions
// pass that on, lane by lane, by the rules of Kernel.uses; and a finding is recorded where an
// undefined value has an effect: where it decides a branch or a guard, is an address, is stored to
// global memory, or goes into an atomic, a barrier, a printf. Stored to shared or local memory it
// leaves those bytes as if unwritten.
//
// What errs, errs towards "defined": results of tensor-core instructions and of ldmatrix always
// count as defined, and a value once reported does. Values are followed as a whole, not bit by bit,
// except where a defined 0 (or all ones) decides an and, or, multiplication or condition.
//
// Warp.undefined_rows counts the registers that are undefined in some lane. While it is 0 nothing
// here is called but definedness_load, and the warp runs its ordinary loop (machine/warp.c).
#ifndef SOFTGPU_DEFINEDNESS_H
#define SOFTGPU_DEFINEDNESS_H

#include "softgpu/check/check.h"

enum { LOAD_ELEMENTS = 32 }; // at most: single bytes

// Is a read of unwritten memory by `i` followed (true), or reported at once?
bool definedness_follows(const Warp *w, const Insn *i);
// Element k of what the load `i` reads is undefined in lanes[k]. `address` is an example. `some`:
// the lanes of which other elements are defined.
void definedness_load(Warp *w, const Insn *i, const uint32_t lanes[LOAD_ELEMENTS], Space space,
                      uint64_t address, uint32_t some);
// The lanes in which a row of the running frame is undefined.
uint32_t definedness_lanes(const Warp *w, Row r);

// ---- for the loop that follows values: around the handler of `i`

// The guard of `i` has been read; `mask` are the lanes that it leaves on, maybe none.
void definedness_guard(Warp *w, const Insn *i, uint32_t mask);
void definedness_before(Warp *w, const Insn *i, uint32_t mask);
// After it is done.
void definedness_after(Warp *w, const Insn *i, uint32_t mask);

// ---- for handlers, if undefined_rows isn't 0, before they write

// shfl: lane l gets lane from[l]'s value.
void definedness_shuffle(Warp *w, const Insn *i, uint32_t all, const int32_t from[32]);
// vote, match, redux on Insn.a; `members` as their handlers have it. vote: 1 all, 2 any, 0 others.
void definedness_gather(Warp *w, const Insn *i, uint32_t all, Row members, int vote);
// printf reads `size` bytes of its packed arguments at this offset of a lane's local memory.
void definedness_printed(Warp *w, const Insn *i, int lane, uint64_t offset, unsigned size);

// ---- for calls: frames are offsets in the warp's stack

void definedness_call(Warp *w, const Call *call, size_t caller, size_t callee, uint32_t mask);
void definedness_return(Warp *w, const Frame *from, uint32_t mask);

// A warp starts anew; a warp ends.
void definedness_start(Warp *w);
void definedness_free(Warp *w);

#endif
