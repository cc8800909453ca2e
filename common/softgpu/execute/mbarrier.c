// mbarrier instructions (PTX ISA 9.7.13.15), on objects in the CTA's own shared memory.
//
// Lanes act one after the other, so a phase may complete between two of them. A wait that finds its
// phase incomplete lets other warps run first: waits are loops around test_wait or try_wait.
#include "softgpu/execute/mbarrier.h"

#include "softgpu/check/check.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/mbarrier.h"

// The state space is group 1 of every form here: 0 means that addresses are generic.
static bool lane_addresses(Warp *w, const Insn *i, uint32_t mask, uint32_t address[WARP_SIZE]) {
    return mbarrier_addresses(w, i, mask, i->choice[1] == 0, address);
}

bool mbarrier_addresses(Warp *w, const Insn *i, uint32_t mask, bool generic,
                        uint32_t address[WARP_SIZE]) {
    if (generic) {
        uint64_t wide[WARP_SIZE];
        wide_addresses(w, i, wide);
        uint32_t wrong = mask & ~generic_spaces(wide, mask).shared;
        if (wrong) {
            int lane = __builtin_ctz(wrong);
            finding(w, i, lane, FINDING_WRONG_SPACE, "Keep mbarriers in __shared__ memory.",
                    "uses 0x%llx as an mbarrier, which is no address of shared memory",
                    (unsigned long long)wide[lane]);
            return false;
        }
        window_addresses(wide, address);
    } else if (!narrow_addresses(w, i, mask, address)) {
        return false;
    }
    uint32_t home = w->cta->cluster_rank << RANK_SHIFT;
    for (int l = 0; l < WARP_SIZE; l++) address[l] -= home;
    return check_shared(w, i, address, 8, mask, true);
}

// An operation that gets an object and a number.
typedef bool Change(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, uint32_t value);

static Flow change(Warp *w, const Insn *i, uint32_t mask, Change *change) {
    uint32_t address[WARP_SIZE];
    const Lane32 *value = row(w, i->b);
    if (!lane_addresses(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!change(w, i, l, w->cta, address[l], value[l])) return FLOW_FAULT;
    }
    w->stores++;
    return FLOW_NEXT;
}
static Flow init(Warp *w, const Insn *i, uint32_t mask) {
    return change(w, i, mask, mbarrier_init);
}
static Flow expect_tx(Warp *w, const Insn *i, uint32_t mask) {
    return change(w, i, mask, mbarrier_expect_tx);
}
static Flow complete_tx(Warp *w, const Insn *i, uint32_t mask) {
    return change(w, i, mask, mbarrier_complete_tx);
}

static Flow inval(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    if (!lane_addresses(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!mbarrier_inval(w, i, l, w->cta, address[l])) return FLOW_FAULT;
    }
    w->stores++;
    return FLOW_NEXT;
}

// An arrival of each lane; b, if it is there, is what `operand` points at in *arrival.
static Flow arrive_with(Warp *w, const Insn *i, uint32_t mask, Arrival *arrival,
                        uint32_t *operand) {
    uint32_t address[WARP_SIZE];
    uint64_t token[WARP_SIZE];
    if (!lane_addresses(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (i->b != ROW_NONE) *operand = ((const Lane32 *)row(w, i->b))[l];
        if (!mbarrier_arrive(w, i, l, w->cta, address[l], *arrival, &token[l])) return FLOW_FAULT;
    }
    put64(w, i->d, token, mask);
    return FLOW_NEXT;
}
static Flow arrive(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1};
    return arrive_with(w, i, mask, &a, &a.count);
}
static Flow arrive_expecting(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1};
    return arrive_with(w, i, mask, &a, &a.expect_tx);
}
static Flow arrive_no_complete(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1, .no_complete = true};
    return arrive_with(w, i, mask, &a, &a.count);
}
static Flow drop(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1, .drops = true};
    return arrive_with(w, i, mask, &a, &a.count);
}
static Flow drop_expecting(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1, .drops = true};
    return arrive_with(w, i, mask, &a, &a.expect_tx);
}
static Flow drop_no_complete(Warp *w, const Insn *i, uint32_t mask) {
    Arrival a = {.count = 1, .drops = true, .no_complete = true};
    return arrive_with(w, i, mask, &a, &a.count);
}

static Flow pending_count(Warp *w, const Insn *i, uint32_t mask) {
    Lane32 *d = row(w, i->d);
    const Lane64 *token = row(w, i->a);
    EACH_LANE(uint32_t, d, mask, mbarrier_unpack(token[l]).pending);
    return FLOW_NEXT;
}

// ---- waits

enum { MAY_FAIL = 8 }; // from schedule 1 on, one in so many of try_wait's answers is false

static Flow wait(Warp *w, const Insn *i, uint32_t mask, bool by_parity, bool tries) {
    uint32_t address[WARP_SIZE], completed = 0;
    if (!lane_addresses(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        uint64_t token =
            by_parity ? ((const Lane32 *)row(w, i->b))[l] : ((const Lane64 *)row(w, i->b))[l];
        bool done;
        if (!mbarrier_test(w, i, l, w->cta, address[l], by_parity, token, &done)) return FLOW_FAULT;
        completed |= (uint32_t)done << l;
    }
    if (tries && w->sm->launch->schedule && random_below(&w->sm->random, MAY_FAIL) == 0)
        completed = 0;
    put_predicate(w, i->d, completed, mask);
    return completed == mask ? FLOW_NEXT : FLOW_YIELD;
}
static Flow test_wait(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, false, false);
}
static Flow test_wait_parity(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, true, false);
}
// The time that try_wait may sleep is up to the system, whatever the hint says: here it is none.
static Flow try_wait(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, false, true);
}
static Flow try_wait_parity(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, true, true);
}

#define OWN     "shared|shared::cta? "
#define ANY     "shared|shared::cta|shared::cluster? "
#define RELEASE "release|relaxed? cta|cluster? b64"
#define ACQUIRE "acquire|relaxed? cta|cluster? b64"
#define FORM    .pipe = PIPE_LSU
#define POLL    .pipe = PIPE_LSU, .flags = INSN_POLL

const Form mbarrier_forms[] = {
    {"mbarrier", "init " OWN "b64", "m b32", init, FORM},
    {"mbarrier", "inval " OWN "b64", "m", inval, FORM},
    {"mbarrier", "expect_tx " ANY "relaxed? cta|cluster? b64", "m b32", expect_tx, FORM},
    {"mbarrier", "complete_tx " ANY "relaxed? cta|cluster? b64", "m b32", complete_tx, FORM},
    {"mbarrier", "arrive " ANY RELEASE, "d64 m b32?", arrive, FORM},
    {"mbarrier", "arrive " ANY "expect_tx " RELEASE, "d64 m b32", arrive_expecting, FORM},
    {"mbarrier", "arrive " ANY "noComplete " RELEASE, "d64 m b32", arrive_no_complete, FORM},
    {"mbarrier", "arrive_drop " ANY RELEASE, "d64 m b32?", drop, FORM},
    {"mbarrier", "arrive_drop " ANY "expect_tx " RELEASE, "d64 m b32", drop_expecting, FORM},
    {"mbarrier", "arrive_drop " ANY "noComplete " RELEASE, "d64 m b32", drop_no_complete, FORM},
    {"mbarrier", "pending_count b64", "d32 a64", pending_count, .pipe = PIPE_ALU},
    {"mbarrier", "test_wait " OWN ACQUIRE, "dp m b64", test_wait, POLL},
    {"mbarrier", "test_wait " OWN "parity " ACQUIRE, "dp m b32", test_wait_parity, POLL},
    {"mbarrier", "try_wait " OWN ACQUIRE, "dp m b64 c32?", try_wait, POLL},
    {"mbarrier", "try_wait " OWN "parity " ACQUIRE, "dp m b32 c32?", try_wait_parity, POLL},
    {0},
};
