// Asynchronous stores into the shared memory of a cluster's CTA (PTX ISA 9.7.9.12, 9.7.13.7):
// st.async and red.async. The data and the mbarrier that counts the bytes lie in one CTA.
//
// An operation's value is read at its issue. It *lands* when it is written (or combined with what
// is there), and its bytes are taken off the mbarrier's tx-count, in one step. When that is, is the
// setting `async`, as of copies (machine/async.h). It outlives the thread that issued it.
//
// Invariant: an operation that has not landed is in the list Cta.remote of the CTA that it goes to.
#ifndef SOFTGPU_REMOTE_H
#define SOFTGPU_REMOTE_H

#include "softgpu/check/race.h"
#include "softgpu/machine/reduction.h"

// What one lane stores. Addresses are without rank bits, and checked.
typedef struct {
    Cta *to;
    uint32_t at, mbarrier;
    bool async_proxy; // it is no st.async: the answer of clusterlaunchcontrol.try_cancel
    bool reduces;     // the value into what is there
    Reduction reduction;
    TensorType type;   // of what is reduced
    uint8_t bytes;     // 4, 8 or 16; of reductions 4 or 8
    uint8_t value[16]; // all elements
} RemoteStore;

void remote_issue(Warp *w, const Insn *i, int lane, const RemoteStore *store);

// Someone waits at this mbarrier: lands what goes to it where nothing else will (late). False if
// there is nothing.
bool remote_demand(Cta *cta, uint32_t mbarrier);
// Nobody gets on: lands everything. False if there is nothing.
bool remote_land_all(Sm *sm);

// The CTA has ended: what was still on its way to it is a finding, if `report`.
void remote_cta_end(Cta *cta, bool report);
void remote_free(Sm *sm);

#endif
