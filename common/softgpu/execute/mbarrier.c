// mbarrier instructions (PTX ISA 9.7.13.15). Waits, and arrivals whose token is wanted, are on
// objects in the CTA's own shared memory; arrivals without, and changes of what is expected, reach
// those of the cluster's other CTAs too (addresses from mapa).
//
// Lanes act one after the other, so a phase may complete between two of them. A wait that finds its
// phase incomplete lets other warps run first: waits are loops around test_wait or try_wait.
#include "softgpu/execute/mbarrier.h"

#include "softgpu/check/findings.h"
#include "softgpu/check/race.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"

// The state space is group 1 of every form here: 0 means that addresses are generic.
static bool lane_addresses(Warp *w, const Insn *i, uint32_t mask, uint32_t address[WARP_SIZE]) {
    return mbarrier_addresses(w, i, mask, i->choice[1] == 0, address);
}

// Addresses of shared memory, rank bits and all.
static bool raw_addresses(Warp *w, const Insn *i, uint32_t mask, bool generic,
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
        return true;
    }
    return narrow_addresses(w, i, mask, address);
}

bool mbarrier_addresses(Warp *w, const Insn *i, uint32_t mask, bool generic,
                        uint32_t address[WARP_SIZE]) {
    if (!raw_addresses(w, i, mask, generic, address)) return false;
    uint32_t home = w->cta->cluster_rank << RANK_SHIFT;
    for (int l = 0; l < WARP_SIZE; l++) address[l] -= home;
    return check_shared(w, i, address, 8, mask, true);
}

// The objects that lanes mean: whose memory they are in, and where.
typedef struct {
    Cta *cta[WARP_SIZE];
    uint32_t at[WARP_SIZE];
} Objects;

// As mbarrier_addresses, for operations that may reach the cluster's other CTAs.
static bool find_objects(Warp *w, const Insn *i, uint32_t mask, Objects *o) {
    uint32_t address[WARP_SIZE];
    bool remote = i->choice[1] == 0 || i->choice[1] == 3; // generic, .shared::cluster
    if (w->cta->cluster->size == 1 || !remote) {
        for (int l = 0; l < WARP_SIZE; l++) o->cta[l] = w->cta;
        return lane_addresses(w, i, mask, o->at);
    }
    if (!raw_addresses(w, i, mask, i->choice[1] == 0, address)) return false;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        o->cta[l] = check_peer(w, i, l, address[l], &o->at[l]);
        if (!o->cta[l]) return false;
    }
    return check_shared(w, i, o->at, 8, mask, true);
}

// What an arrival's Insn.size tells: is the token wanted; is it of cluster scope; does it release
// nothing?
enum { WANTS_TOKEN = 1, CLUSTER_SCOPE = 2, IS_RELAXED = 4 };

// One lane arrives at another CTA's object: its token means nothing here, and what it releases is
// only meant for the CTA unless it says otherwise.
static bool check_remote(Warp *w, const Insn *i, int lane, const Cta *cta) {
    if (cta == w->cta) return true;
    if (!(i->size & WANTS_TOKEN)) {
        if (!(i->size & CLUSTER_SCOPE) && !finding_again(w, i, FINDING_LINT))
            finding(w, i, lane, FINDING_LINT, "Write mbarrier.arrive.release.cluster.",
                    "arrives at an mbarrier of another CTA with the scope of its own CTA (the "
                    "default): what it wrote before need not be visible there");
        return true;
    }
    finding(w, i, lane, FINDING_WRONG_SPACE, "Write _ in place of the token.",
            "asks for the token of an arrival at an mbarrier of CTA %u of the cluster: only the "
            "CTA's own mbarriers give tokens",
            cta->cluster_rank);
    return false;
}

// An operation that gets an object and a number.
typedef bool Change(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address, uint32_t value);

static Flow change(Warp *w, const Insn *i, uint32_t mask, Change *change) {
    Objects o;
    const Lane32 *value = row(w, i->b);
    if (!find_objects(w, i, mask, &o)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        race_mbarrier_use(w, i, l, o.cta[l], o.at[l], false);
        if (!change(w, i, l, o.cta[l], o.at[l], value[l])) return FLOW_FAULT;
    }
    w->stores++;
    return FLOW_NEXT;
}
static Flow init(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    const Lane32 *value = row(w, i->b);
    if (!lane_addresses(w, i, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!mbarrier_init(w, i, l, w->cta, address[l], value[l])) return FLOW_FAULT;
    }
    w->stores++;
    return FLOW_NEXT;
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
    Objects o;
    uint64_t token[WARP_SIZE];
    if (!find_objects(w, i, mask, &o)) return FLOW_FAULT;
    arrival->relaxed = i->size & IS_RELAXED;
    arrival->lanes = mask;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!check_remote(w, i, l, o.cta[l])) return FLOW_FAULT;
        race_mbarrier_use(w, i, l, o.cta[l], o.at[l], false);
        if (i->b != ROW_NONE) *operand = ((const Lane32 *)row(w, i->b))[l];
        if (arrival->relaxed) tmem_race_relaxed_arrival(w, l, o.cta[l], o.at[l]);
        if (!mbarrier_arrive(w, i, l, o.cta[l], o.at[l], *arrival, &token[l])) return FLOW_FAULT;
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

// Tells the race check what the lanes have learnt. The semantics are the group behind the words.
static void tell_race(Warp *w, const Insn *i, uint32_t mask, const uint32_t address[WARP_SIZE],
                      bool by_parity, uint32_t completed) {
    bool acquires = i->choice[2 + by_parity] != 2; // relaxed
    for (uint32_t rest = mask; rest;) {
        int l = __builtin_ctz(rest);
        uint32_t lanes = 0; // mostly all of them name one object
        for (uint32_t others = rest; others; others &= others - 1)
            if (address[__builtin_ctz(others)] == address[l]) lanes |= others & -others;
        race_mbarrier_use(w, i, l, w->cta, address[l], false);
        race_mbarrier_wait(w, i, l, w->cta, address[l], by_parity, completed & lanes, acquires);
        rest &= ~lanes;
    }
}

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
    if (tries && w->pace && !completed) {
        uint32_t first = address[__builtin_ctz(mask)];
        bool same = true;
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            same &= address[__builtin_ctz(rest)] == first;
        if (same) {
            mbarrier_suspend(w, first);
            return FLOW_RETRY;
        }
    }
    if (race_on(w)) tell_race(w, i, mask, address, by_parity, completed);
    put_predicate(w, i->d, completed, mask);
    return completed == mask ? FLOW_NEXT : FLOW_YIELD;
}
static Flow test_wait(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, false, false);
}
static Flow test_wait_parity(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, true, false);
}
// The time that try_wait may sleep is up to the system, whatever the hint says: here it is none, but
// in a timed launch it sleeps until the phase completes, or for a millisecond or so.
static Flow try_wait(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, false, true);
}
static Flow try_wait_parity(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, true, true);
}

// An arrival.
static const char *lower_arrive(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    const char *why = NULL;
    i->run = m->form->run;
    i->size = o[0].kind == OPERAND_SINK ? 0 : WANTS_TOKEN;
    for (int k = 0; k < m->ptx->modifier_count; k++)
        if (!strcmp(m->ptx->modifiers[k], "cluster")) i->size |= CLUSTER_SCOPE;
    for (int k = 0; k < m->ptx->modifier_count; k++)
        if (!strcmp(m->ptx->modifiers[k], "relaxed")) i->size |= IS_RELAXED;
    if (i->size & WANTS_TOKEN && m->choice[1] == 3)
        return "an arrival at another CTA's mbarrier gives no token: write _";
    i->d = destination_row(l, &o[0], 64, &why);
    if (why) return why;
    why = address_operand(l, &o[1], i);
    if (!why && m->ptx->operand_count > 2) i->b = source_row(l, &o[2], 32, &why);
    return why;
}

#define OWN     "shared|shared::cta? "
#define ANY     "shared|shared::cta|shared::cluster? "
#define RELEASE "release|relaxed? cta|cluster? b64"
#define ACQUIRE "acquire|relaxed? cta|cluster? b64"
#define FORM    .pipe = PIPE_LSU
#define ARRIVE  .pipe = PIPE_LSU, .lower = lower_arrive
#define POLL    .pipe = PIPE_LSU, .flags = INSN_POLL

const Form mbarrier_forms[] = {
    {"mbarrier", "init " OWN "b64", "m b32", init, FORM},
    {"mbarrier", "inval " OWN "b64", "m", inval, FORM},
    {"mbarrier", "expect_tx " ANY "relaxed? cta|cluster? b64", "m b32", expect_tx, FORM},
    {"mbarrier", "complete_tx " ANY "relaxed? cta|cluster? b64", "m b32", complete_tx, FORM},
    {"mbarrier", "arrive " ANY RELEASE, "d64 m b32?", arrive, ARRIVE},
    {"mbarrier", "arrive " ANY "expect_tx " RELEASE, "d64 m b32", arrive_expecting, ARRIVE},
    {"mbarrier", "arrive " OWN "noComplete release? cta? b64", "d64 m b32", arrive_no_complete,
     ARRIVE},
    {"mbarrier", "arrive_drop " ANY RELEASE, "d64 m b32?", drop, ARRIVE},
    {"mbarrier", "arrive_drop " ANY "expect_tx " RELEASE, "d64 m b32", drop_expecting, ARRIVE},
    {"mbarrier", "arrive_drop " OWN "noComplete release? cta? b64", "d64 m b32", drop_no_complete,
     ARRIVE},
    {"mbarrier", "pending_count b64", "d32 a64", pending_count, .pipe = PIPE_ALU},
    {"mbarrier", "test_wait " OWN ACQUIRE, "dp m b64", test_wait, POLL},
    {"mbarrier", "test_wait " OWN "parity " ACQUIRE, "dp m b32", test_wait_parity, POLL},
    {"mbarrier", "try_wait " OWN ACQUIRE, "dp m b64 c32?", try_wait, POLL},
    {"mbarrier", "try_wait " OWN "parity " ACQUIRE, "dp m b32 c32?", try_wait_parity, POLL},
    {0},
};
