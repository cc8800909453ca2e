// Accesses to closed words (closed.h): the words of the findings.
#include "softgpu/check/closed.h"

#include "softgpu/check/findings.h"
#include "softgpu/machine/mbarrier.h"

// A plain access to an mbarrier is undefined. A write makes an end of it.
static bool touch_mbarrier(Warp *w, const Insn *i, int lane, Cta *cta, const Mbarrier *b,
                           unsigned size, bool write) {
    bool strict = w->sm->gpu->settings->strict;
    finding_pair(w, i, lane, strict ? FINDING_BARRIER : FINDING_LINT, b->init,
                 "Invalidate the mbarrier first (mbarrier.inval), or keep its memory apart.",
                 "%s %u bytes of shared memory at a live mbarrier (0x%x), which only mbarrier "
                 "instructions may touch",
                 write ? "writes" : "reads", size, b->address);
    if (write && !strict) mbarrier_kill(cta, b->address);
    return !strict;
}

bool check_closed(Warp *w, const Insn *i, Cta *cta, const uint32_t address[WARP_SIZE],
                  unsigned size, uint32_t mask, bool write, bool *copied) {
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t low = address[lane], high = low + size;
        if (!closed_any(cta->closed, low, high)) continue;
        CopyOwner owner;
        if (async_owner(cta, low, high, &owner)) {
            *copied = true;
            bool own = owner.warp == w && owner.lane == lane;
            finding_pair(w, i, lane, FINDING_RACE, owner.insn,
                         own ? "Wait for the copy first: cp.async.wait_all, or wait_group with a "
                               "count that does not leave out its group."
                             : "Let the thread that copies wait first (cp.async.wait_group), then "
                               "all threads meet at a barrier.",
                         "%s %u bytes of shared memory at 0x%x that a cp.async of thread %d is "
                         "copying to: it has not been waited for",
                         write ? "writes" : "reads", size, low,
                         owner.warp->id * WARP_SIZE + owner.lane);
            continue;
        }
        for (uint32_t at = low / 8 * 8; at < high; at += 8) {
            const Mbarrier *b = mbarrier_find(cta, at);
            if (b && !touch_mbarrier(w, i, lane, cta, b, size, write)) return false;
        }
    }
    return true;
}
