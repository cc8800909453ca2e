// Cluster launch control of sm_100 (PTX ISA 9.7.13.16): a running block takes the work of a cluster
// that has not been launched yet, which then won't be. try_cancel writes a response of 16 bytes to
// shared memory, asynchronously and through the async proxy, and takes 16 bytes off an mbarrier's
// tx-count; with .multicast::cluster::all in each CTA of the cluster, at the same places.
//
// Which clusters are left, all SMs share: so it is put off to the serial phase. A response's bits
// are nobody's business but query_cancel's:
//
//     word 0       1 cancelled, 0 not
//     words 1-3    x, y, z of the first CTA of the cluster
//
// From schedule 1 on a request may be refused although clusters are left; they are launched later.
#include "softgpu/check/findings.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/grid.h"
#include "softgpu/machine/remote.h"

enum { REFUSES = 8 }; // from schedule 1 on: one in so many requests is refused

typedef struct {
    Insn barrier; // address operand
    bool all;
} Cancel;

// A lane's address in the CTA's own shared memory. False after a finding.
static bool own_address(Warp *w, const Insn *i, const Insn *operand, int lane, bool generic,
                        unsigned size, uint32_t *offset) {
    uint32_t address[WARP_SIZE], mask = 1u << lane;
    Insn copy = *i; // whose findings are the instruction's
    copy.a = operand->a;
    copy.imm = operand->imm;
    copy.flags = operand->flags;
    if (generic) {
        uint64_t wide[WARP_SIZE];
        wide_addresses(w, &copy, wide);
        if (!generic_spaces(wide, mask).shared) {
            finding(w, i, lane, FINDING_WRONG_SPACE, "Pass the address of a __shared__ variable.",
                    "uses 0x%llx, which is no address of shared memory",
                    (unsigned long long)wide[lane]);
            return false;
        }
        window_addresses(wide, address);
    } else if (!narrow_addresses(w, &copy, mask, address)) {
        return false;
    }
    address[lane] -= w->cta->cluster_rank << RANK_SHIFT;
    *offset = address[lane];
    return check_shared(w, i, address, size, mask, true);
}

// Asks the grid. The response's words.
static void ask(Warp *w, uint32_t words[4]) {
    LaunchState *launch = w->sm->launch;
    uint64_t cluster, linear;
    memset(words, 0xff, 16);
    words[0] = 0;
    if (launch->schedule && random_below(&w->sm->random, REFUSES) == 0) return;
    if (!grid_cancel(launch->grid, &cluster)) return;
    const uint32_t *grid = launch->launch->grid;
    linear = cluster_cta(launch->launch, cluster, 0);
    words[0] = 1;
    words[1] = (uint32_t)(linear % grid[0]);
    words[2] = (uint32_t)(linear / grid[0] % grid[1]);
    words[3] = (uint32_t)(linear / grid[0] / grid[1]);
}

static bool try_lane(Warp *w, const Insn *i, int lane) {
    const Cancel *c = i->extra;
    const Cluster *cluster = w->cta->cluster;
    uint32_t at, mbarrier, words[4];
    bool generic = i->space == SPACE_NONE;
    if (!own_address(w, i, i, lane, generic, 16, &at)) return false;
    if (!own_address(w, i, &c->barrier, lane, generic, 8, &mbarrier)) return false;
    if (w->cta->none_left && !finding_again(w, i, FINDING_LINT))
        finding_pair(w, i, lane, FINDING_LINT, w->cta->none_left,
                     "End the loop when is_canceled is false.",
                     "asks for another cluster after it has been told that none is left: what "
                     "then happens is undefined");
    ask(w, words);
    for (int rank = 0; rank < cluster->size; rank++) {
        Cta *cta = cluster->ctas[rank];
        if (!c->all && cta != w->cta) continue;
        RemoteStore store = {
            .to = cta, .at = at, .mbarrier = mbarrier, .async_proxy = true, .bytes = 16};
        memcpy(store.value, words, 16);
        race_mbarrier_use(w, i, lane, cta, mbarrier, true);
        remote_issue(w, i, lane, &store);
        if (w->sm->faulted || cta->sm->faulted) return false;
    }
    return true;
}

static Flow try_cancel(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        if (!try_lane(w, i, __builtin_ctz(rest))) return FLOW_FAULT;
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

static Flow is_canceled(Warp *w, const Insn *i, uint32_t mask) {
    const Lane128 *response = row(w, i->a);
    uint32_t cancelled = 0;
    for (int l = 0; l < WARP_SIZE; l++) cancelled |= (uint32_t)(response[l].lo & 1) << l;
    put_predicate(w, i->d, cancelled, mask);
    if (mask & ~cancelled) w->cta->none_left = i;
    return FLOW_NEXT;
}

// Coordinate `which` of the first CTA; garbage if nothing was cancelled.
static void coordinate(Warp *w, const Lane128 *response, uint32_t mask, int which, Row to) {
    Lane32 *d = row(w, to);
    for (int l = 0; l < WARP_SIZE; l++) {
        uint32_t words[4];
        memcpy(words, &response[l], 16);
        if (mask >> l & 1) d[l] = which < 3 ? words[1 + which] : 0;
    }
}

static Flow first_ctaid(Warp *w, const Insn *i, uint32_t mask) {
    const Lane128 *response = row(w, i->a);
    if (i->d != ROW_NONE) coordinate(w, response, mask, i->size, i->d);
    for (int k = 0; k < i->row_count; k++) coordinate(w, response, mask, k, i->rows[k]);
    return FLOW_NEXT;
}

// ---- lowering

static const char *lower_try(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    if (p->operand_count != 2)
        return "try_cancel takes the addresses of a response and an mbarrier";
    Cancel *c = kernel_alloc(l, sizeof *c);
    memset(c, 0, sizeof *c);
    c->all = ptx_has_modifier(p, "multicast::cluster::all");
    i->space = ptx_has_modifier(p, "shared::cta") ? SPACE_SHARED : SPACE_NONE;
    i->run = try_cancel;
    c->barrier = *i;
    const char *why = address_operand(l, &p->operands[0], i);
    if (!why) why = address_operand(l, &p->operands[1], &c->barrier);
    i->extra = c;
    return why;
}

static const char *lower_ctaid(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const char *why = NULL;
    if (p->operand_count != 2) return "get_first_ctaid takes a destination and a response";
    i->a = source_row(l, &p->operands[1], 128, &why);
    i->run = first_ctaid;
    if (why) return why;
    if (p->operands[0].kind != OPERAND_VECTOR) {
        i->size = ptx_has_modifier(p, "get_first_ctaid::y")   ? 1
                  : ptx_has_modifier(p, "get_first_ctaid::z") ? 2
                                                              : 0;
        i->d = destination_row(l, &p->operands[0], 32, &why);
        return why;
    }
    if (p->operands[0].count != 4) return "with .v4 the destination has four registers";
    Row *rows = kernel_alloc(l, 4 * sizeof *rows);
    for (int k = 0; k < 4 && !why; k++)
        rows[k] = destination_row(l, &p->operands[0].elements[k], 32, &why);
    i->rows = rows;
    i->row_count = 4;
    return why;
}

const Form launch_control_forms[] = {
    {"clusterlaunchcontrol",
     "try_cancel async shared::cta? mbarrier::complete_tx::bytes multicast::cluster::all? b128",
     .pipe = PIPE_TMA, .lower = lower_try},
    {"clusterlaunchcontrol", "query_cancel is_canceled pred b128", "dp a128", is_canceled,
     PIPE_ALU},
    {"clusterlaunchcontrol",
     "query_cancel get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z b32 b128",
     .pipe = PIPE_ALU, .lower = lower_ctaid},
    {"clusterlaunchcontrol", "query_cancel get_first_ctaid v4 b32 b128", .pipe = PIPE_ALU,
     .lower = lower_ctaid},
    {0},
};
