// Bulk copies (PTX ISA 9.7.9.25.4 and 9.7.9.27): what the copy engine of an SM (TMA) moves between
// global and shared memory, or between the shared memories of a cluster, on its own.
//
// A load, or a copy to a peer, has two moments: its *issue*, when addresses are checked and traffic
// is counted; and its *landing*, when it reads its source, writes its destination and takes its
// bytes off the mbarrier's tx-count. A store or reduction has four: its issue; then it has *read*
// its source; then it has *written*; and it is *waited for* when a wait_group of the thread that
// issued it covers its group. When these are, is the setting `async`:
//
//   timed    after fixed latencies in SM time: a source is read long before the copy is written
//   early    at the issue
//   late     not before a wait asks for it, those issued last first; the source is read then
//   random   after a latency drawn from the SM's random numbers; reading and writing apart
//
// Operations are unordered among themselves, also within a group. Reductions into global memory are
// atomics: where other SMs run, they are applied between rounds, in SM order.
//
// Invariant: an operation is in one list, of the CTA whose mbarrier it signals (`incoming`) or that
// issued it (`outgoing`), until it is over. An operation with several destinations (multicast) is
// one for each of them.
#ifndef SOFTGPU_BULK_H
#define SOFTGPU_BULK_H

#include "softgpu/check/race.h"
#include "softgpu/machine/bulk_move.h"
#include "softgpu/machine/machine.h"

// Starts an operation, which has been checked (execute/bulk.c). A copy is made of *move.
void bulk_issue(Warp *w, const Insn *i, int lane, const BulkMove *move);
// Closes the lanes' current group.
void bulk_commit(Warp *w, uint32_t mask);
// Have all but the `newest` last groups of each lane read their sources (`reads`), or written? If
// not, the running group is blocked and the handler returns FLOW_RETRY; or FLOW_DEFER, if it has to
// ask again in the serial phase.
Flow bulk_wait(Warp *w, uint32_t mask, uint32_t newest, bool reads);

// Someone waits at this mbarrier and only bytes are missing: lands what brings them, where nothing
// else will (late). False if there is nothing of the kind.
bool bulk_demand(Cta *cta, uint32_t address);
// Nobody gets on: lands everything that only a wait would have. False if there is nothing.
bool bulk_land_all(Sm *sm);
// The serial phase: applies the reductions that the SM has read in this round. False if there are
// none.
bool bulk_apply(Sm *sm);
// The launch has failed: forgets reductions that have not been applied.
void bulk_forget(Sm *sm);

// Tensor maps that kernels edit (TensorMap.edits): the CTA has acquired the map at this address;
// has it acquired so many edits? And what the lanes of a warp have edited and not yet released.
void bulk_map_acquired(Cta *cta, uint64_t address, uint32_t edits);
bool bulk_map_known(const Cta *cta, uint64_t address, uint32_t edits);
void bulk_map_edited(Cta *cta, uint64_t address);
// Releases all maps in global memory that the CTA's threads have edited.
void bulk_maps_released(Cta *cta);
// The CTA has ended, and its memory may serve another; and that goes, too.
void bulk_maps_forget(Cta *cta);
void bulk_maps_free(Cta *cta);

// The CTA has ended. Operations that nobody has waited for are findings, if `report`.
void bulk_cta_finish(Cta *cta, bool report);
void bulk_cta_free(Cta *cta);
void bulk_free(Sm *sm);

#endif
