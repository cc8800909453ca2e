// tcgen05 but for products and copies (PTX ISA 9.7.16): allocation of tensor memory, loads and
// stores of warps with their waits, fences, commits. Products: tcgen05_mma.c.
//
// ld and st: a warp reaches the 32 lanes that its number modulo 4 names. With g = lane / 4 and
// t = lane % 4, register j of a lane is the cell
//
//     32x32b     [lane][j]
//     16x64b     [g + 8 (lane % 2)][2 j + lane / 2 % 2]
//     16x128b    [g + 8 (j % 2)][4 (j / 2) + t]
//     16x256b    [g + 8 (j / 2 % 2)][8 (j / 4) + 2 t + j % 2]
//     16x32bx2   [lane % 16][j], from lane 16 on so many columns further as the immediate says
//
// from the address's lane and column on. With .pack::16b (.unpack::16b) a register is the low
// halves of two columns, and columns count double.
#include "softgpu/execute/tcgen05.h"

#include <stdlib.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/execute/fragment.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"

// ---- addresses

// Shared addresses of the lanes, rank bits and all. Group `space` of the form is the state space: 0
// means that addresses are generic. False after a finding.
static bool shared_addresses(Warp *w, const Insn *i, uint32_t mask, bool generic,
                             uint32_t address[WARP_SIZE]) {
    if (!generic) return narrow_addresses(w, i, mask, address);
    uint64_t wide[WARP_SIZE];
    wide_addresses(w, i, wide);
    uint32_t wrong = mask & ~generic_spaces(wide, mask).shared;
    if (wrong) {
        int lane = __builtin_ctz(wrong);
        finding(w, i, lane, FINDING_WRONG_SPACE, "Pass the address of a __shared__ variable.",
                "uses 0x%llx, which is no address of shared memory",
                (unsigned long long)wide[lane]);
        return false;
    }
    window_addresses(wide, address);
    return true;
}

// ---- allocation

static Flow allocate_columns(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all, columns, column, address[WARP_SIZE];
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    if (!tcgen05_uniform(w, i, all, row(w, i->b), "number of columns", &columns)) return FLOW_FAULT;
    flow = tmem_allocate(w, i, i->size, columns, &column);
    if (flow != FLOW_NEXT) return flow;
    // A weak store of the generic proxy.
    Places places;
    Access access = {.bytes = 4, .kind = ACCESS_WRITE};
    if (!shared_addresses(w, i, all, i->space == SPACE_NONE, address)) return FLOW_FAULT;
    uint32_t first = all & -all;
    if (!place_shared(w, i, address, first, access, &places)) return FLOW_FAULT;
    places_spread(&places, 4);
    memcpy(places.at[__builtin_ctz(first)], &column, 4);
    return FLOW_NEXT;
}

static Flow release_columns(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all, address, columns;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    if (!tcgen05_uniform(w, i, all, row(w, i->a), "address", &address)) return FLOW_FAULT;
    if (!tcgen05_uniform(w, i, all, row(w, i->b), "number of columns", &columns)) return FLOW_FAULT;
    return tmem_release(w, i, i->size, address, columns) ? FLOW_NEXT : FLOW_FAULT;
}

static Flow relinquish(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    if (!tcgen05_use_group(w, i, i->size)) return FLOW_FAULT;
    w->cta->tcgen05->relinquished = i;
    return FLOW_NEXT;
}

// ---- ld and st

static const MoveForm *move_form(const Insn *i) {
    return i->extra;
}

bool tcgen05_is_store(const Insn *i) {
    return move_form(i)->stores;
}

int tcgen05_half_registers(const Insn *i) {
    return move_form(i)->half_registers;
}

MovePlace move_place(MoveShape shape, int j, int lane) {
    uint32_t g = (uint32_t)lane / 4, t = (uint32_t)lane % 4, r = (uint32_t)j, l = (uint32_t)lane;
    switch (shape) {
    case MOVE_32X32B: return (MovePlace){l, r};
    case MOVE_16X64B: return (MovePlace){g + 8 * (l % 2), 2 * r + l / 2 % 2};
    case MOVE_16X128B: return (MovePlace){g + 8 * (r % 2), 4 * (r / 2) + t};
    case MOVE_16X256B: return (MovePlace){g + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * t + r % 2};
    case MOVE_16X32BX2: break;
    }
    return (MovePlace){l % 16, r};
}

// May the warp reach these lanes?
static bool check_lanes(Warp *w, const Insn *i, uint32_t address) {
    uint32_t lane = tmem_lane(address), own = 32 * ((uint32_t)w->id % 4);
    bool whole = move_form(i)->shape == MOVE_32X32B;
    if (lane == own || (!whole && lane == own + 16)) return true;
    finding(w, i, -1, FINDING_TENSOR,
            "Add 32 * (warp % 4) << 16 to the address, and let each warp take its own quarter.",
            "accesses tensor memory from lane %u on: warp %d reaches lanes %u to %u%s", lane, w->id,
            own, own + 31,
            whole ? ", all of them with .32x32b"
                  : ", with this shape from the first or the 17th on");
    return false;
}

static Flow move(Warp *w, const Insn *i, uint32_t mask) {
    const MoveForm *f = move_form(i);
    uint32_t all, address;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    if (!tcgen05_uniform(w, i, all, row(w, i->a), "address", &address)) return FLOW_FAULT;
    address += (uint32_t)i->imm;
    if (!check_lanes(w, i, address)) return FLOW_FAULT;
    uint32_t part = f->reach - f->second, column = tmem_column(address);
    if (!tcgen05_columns(w, i, -1, w->cta, address, part, f->stores ? "stores to" : "loads from") ||
        !tcgen05_columns(w, i, -1, w->cta, address + f->second, part,
                         f->stores ? "stores to" : "loads from"))
        return FLOW_FAULT;
    uint32_t groups = (f->shape == MOVE_32X32B ? 3u : 1u) << tmem_lane(address) / 16;
    tmem_race_move(w, i, column, part, groups, f->stores);
    if (f->second) tmem_race_move(w, i, column + f->second, part, groups, f->stores);
    tcgen05_move(w, i, address, f->stores);
    return FLOW_NEXT;
}

Flow tcgen05_load(Warp *w, const Insn *i, uint32_t mask) {
    return move(w, i, mask);
}
static Flow store(Warp *w, const Insn *i, uint32_t mask) {
    return move(w, i, mask);
}

// What nothing wrote is garbage; imported programs load it and throw it away.
static void report_unwritten(Warp *w, const Insn *i, uint32_t lane, uint32_t column) {
    FindingKind kind = w->sm->gpu->settings->strict ? FINDING_UNINITIALISED : FINDING_LINT;
    if (finding_again(w, i, kind)) return;
    finding(w, i, -1, kind,
            "Write it first: a product with enable-input-d false, a tcgen05.st; look at how the "
            "accumulator lies (M = 64 uses half of the lanes).",
            "loads tensor memory at lane %u, column %u, which nothing has written since it was "
            "allocated",
            lane, column);
}

void tcgen05_execute_move(Warp *w, const TensorMove *m, bool stores) {
    const MoveForm *f = move_form(m->insn);
    Tmem *t = tmem_of(w->sm);
    uint32_t base = tmem_lane(m->address), first = tmem_column(m->address);
    bool checked = w->sm->gpu->settings->checks & CHECK_INIT, missing = false;
    uint32_t at_lane = 0, at_column = 0;
    for (int j = 0; j < m->insn->row_count; j++) {
        Lane32 *reg = m->values ? m->values + j * WARP_SIZE
                                : (Lane32 *)(w->stack + m->frame + m->insn->rows[j]);
        for (int l = 0; l < WARP_SIZE; l++) {
            MovePlace p = move_place(f->shape, j, l);
            uint32_t lane = base + p.lane, column = first + p.column * (f->packed ? 2 : 1);
            if (f->shape == MOVE_16X32BX2 && l >= 16) column += f->second;
            uint32_t bit = 1u << lane % 32, two = 0;
            for (uint32_t c = column; c < column + (f->packed ? 2 : 1); c++) {
                uint32_t *cell = &t->cell[c][lane], *written = &t->written[c][lane / 32];
                uint32_t half = 16 * (c - column);
                if (stores) {
                    // Of the column's upper half PTX says nothing.
                    *cell = f->packed ? 0xffff0000u | (reg[l] >> half & 0xffff) : reg[l];
                    *written |= bit;
                    continue;
                }
                two |= f->packed ? (*cell & 0xffff) << half : *cell;
                if (*written & bit || missing) continue;
                missing = true;
                at_lane = lane;
                at_column = c;
            }
            if (!stores) reg[l] = two;
        }
    }
    if (missing && checked) report_unwritten(w, m->insn, at_lane, at_column);
}

// ---- waits, fences

static Flow wait(Warp *w, const Insn *i, uint32_t mask, bool stores) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    return flow == FLOW_NEXT ? tcgen05_wait(w, stores) : flow;
}
static Flow wait_load(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, false);
}
static Flow wait_store(Warp *w, const Insn *i, uint32_t mask) {
    return wait(w, i, mask, true);
}
static Flow fence_before(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    tmem_race_fence_before(w, mask);
    return FLOW_NEXT;
}
static Flow fence_after(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    tmem_race_fence_after(w, mask);
    return FLOW_NEXT;
}

// ---- commit

// Ranks at which a lane's commit arrives. 0 after a finding.
static uint16_t targets(Warp *w, const Insn *i, int lane, const Cta *there) {
    const Cluster *cluster = w->cta->cluster;
    if (i->b == ROW_NONE) return (uint16_t)(1u << there->cluster_rank);
    uint16_t set = ((const Lane16 *)row(w, i->b))[lane];
    if (set && !(set >> cluster->size)) return set;
    finding(w, i, lane, FINDING_TENSOR, "Set a bit for each rank of the cluster meant.",
            "commits to the CTAs of the mask 0x%04x; the cluster has %d", set, cluster->size);
    return 0;
}

static bool commit_lane(Warp *w, const Insn *i, int lane, uint32_t address) {
    const Cluster *cluster = w->cta->cluster;
    uint32_t at[WARP_SIZE];
    Cta *there = check_peer(w, i, lane, address, &at[lane]);
    if (!there || !check_shared(w, i, at, 8, 1u << lane, true)) return false;
    uint16_t ctas = targets(w, i, lane, there);
    if (!ctas) return false;
    TensorIssuer *issuer = tcgen05_issuer(w, lane);
    if (i->size == 2 && !tcgen05_peer(w, i)) return false;
    TensorOp op = {.kind = TENSOR_COMMIT,
                   .insn = i,
                   .warp = w,
                   .lane = lane,
                   .agent = tmem_race_commit(issuer, i),
                   .commit = {.address = at[lane], .ctas = ctas}};
    for (int rank = 0; rank < cluster->size; rank++) {
        if (!(ctas >> rank & 1)) continue;
        Cta *cta = cluster->ctas[rank];
        race_mbarrier_use(w, i, lane, cta, at[lane], true);
        tmem_race_commit_to(w, lane, cta, at[lane]);
        if (!mbarrier_expect_async(w, i, lane, cta, at[lane], false)) return false;
    }
    tcgen05_issue(&op);
    return !w->sm->faulted;
}

static Flow commit(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    if (!tcgen05_use_group(w, i, i->size)) return FLOW_FAULT;
    if (!shared_addresses(w, i, mask, i->space == SPACE_NONE, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (!commit_lane(w, i, lane, address[lane])) return FLOW_FAULT;
    }
    return FLOW_NEXT;
}

// ---- lowering

static uint8_t group_of(const PtxInstruction *p) {
    return ptx_has_modifier(p, "cta_group::2") ? 2 : 1;
}

static const char *lower_alloc(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const char *why = address_operand(l, &p->operands[0], i);
    i->size = group_of(p);
    i->space = ptx_has_modifier(p, "shared::cta") ? SPACE_SHARED : SPACE_NONE;
    if (!why) i->b = source_row(l, &p->operands[1], 32, &why);
    i->run = allocate_columns;
    return why;
}

static const char *lower_dealloc(Lowering *l, const Match *m, Insn *i) {
    const char *why = NULL;
    i->size = group_of(m->ptx);
    i->a = source_row(l, &m->ptx->operands[0], 32, &why);
    if (!why) i->b = source_row(l, &m->ptx->operands[1], 32, &why);
    i->run = release_columns;
    return why;
}

static const char *lower_relinquish(Lowering *l, const Match *m, Insn *i) {
    (void)l;
    i->size = group_of(m->ptx);
    i->run = relinquish;
    return NULL;
}

static const char *lower_commit(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const char *why = address_operand(l, &p->operands[0], i);
    bool multicast = ptx_has_modifier(p, "multicast::cluster");
    if (!why && p->operand_count != (multicast ? 2 : 1))
        why = "tcgen05.commit takes an mbarrier, and with .multicast::cluster a mask of CTAs";
    i->size = group_of(p);
    i->space = ptx_has_modifier(p, "shared::cluster") ? SPACE_SHARED : SPACE_NONE;
    if (!why && multicast) i->b = source_row(l, &p->operands[1], 16, &why);
    i->run = commit;
    return why;
}

static const char *lower_move(Lowering *l, const Match *m, Insn *i) {
    static const char *const shapes[] = {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"};
    static const uint8_t registers[] = {1, 1, 2, 4, 1}, columns[] = {1, 2, 4, 8, 1};
    // What the port moves, measured: 16 lanes at a time are half of its width, and a quarter for
    // .16x256b, whose lanes meet in the same banks (timing/latencies.c, [SD]).
    static const uint8_t halves_moved[] = {2, 4, 8, 32, 4};
    const PtxInstruction *p = m->ptx;
    MoveForm *f = kernel_alloc(l, sizeof *f);
    *f = (MoveForm){.stores = ptx_has_modifier(p, "st")};
    for (int k = 0; k < p->modifier_count; k++) {
        const char *name = p->modifiers[k];
        for (int s = 0; s < 5; s++)
            if (!strcmp(name, shapes[s])) f->shape = (MoveShape)s;
        if (name[0] == 'x') f->repeat = (uint16_t)atoi(name + 1);
        f->packed |= strstr(name, "pack::16b") != NULL;
    }
    bool halves = f->shape == MOVE_16X32BX2;
    if (p->operand_count != (halves ? 3 : 2))
        return "tcgen05.ld and .st take registers and an address, and with .16x32bx2 a number";
    if (f->repeat * registers[f->shape] > 128) return "there is no such shape and count";
    const PtxOperand *vector = &p->operands[f->stores ? (halves ? 2 : 1) : 0];
    const PtxOperand *address = &p->operands[f->stores ? 0 : 1];
    if (halves) {
        const PtxOperand *second = &p->operands[f->stores ? 1 : 2];
        if (second->kind != OPERAND_INTEGER) return "the offset of the second half is a number";
        f->second = (uint32_t)second->bits;
    }
    f->reach = f->second + (uint32_t)f->repeat * columns[f->shape] * (f->packed ? 2 : 1);
    i->row_count = (uint16_t)(f->repeat * registers[f->shape]);
    f->half_registers = (uint16_t)(f->repeat * halves_moved[f->shape] * (f->packed ? 2 : 1));
    Row *rows = kernel_alloc(l, (size_t)i->row_count * sizeof *rows);
    const char *why = fragment_rows(l, vector, i->row_count, 32, !f->stores, rows);
    if (!why) why = address_operand(l, address, i);
    if (!why && i->flags & INSN_WIDE_BASE) why = "addresses of tensor memory have 32 bits";
    i->rows = rows;
    i->extra = f;
    i->run = f->stores ? store : tcgen05_load;
    return why;
}

#define ALIGNED INSN_ALIGNED
#define SHAPES  "32x32b|16x64b|16x128b|16x256b|16x32bx2 x1|x2|x4|x8|x16|x32|x64|x128 "

const Form tcgen05_forms[] = {
    {"tcgen05", "alloc cta_group::1|cta_group::2 sync aligned shared::cta? b32", "m a32",
     .pipe = PIPE_CONTROL, .flags = ALIGNED, .lower = lower_alloc},
    {"tcgen05", "dealloc cta_group::1|cta_group::2 sync aligned b32", "a32 b32",
     .pipe = PIPE_CONTROL, .flags = ALIGNED, .lower = lower_dealloc},
    {"tcgen05", "relinquish_alloc_permit cta_group::1|cta_group::2 sync aligned", "",
     .pipe = PIPE_CONTROL, .flags = ALIGNED, .lower = lower_relinquish},
    {"tcgen05", "ld sync aligned " SHAPES "pack::16b? b32", .pipe = PIPE_LSU, .flags = ALIGNED,
     .lower = lower_move},
    {"tcgen05", "st sync aligned " SHAPES "unpack::16b? b32", .pipe = PIPE_LSU, .flags = ALIGNED,
     .lower = lower_move},
    {"tcgen05", "wait::ld sync aligned", "", wait_load, PIPE_CONTROL, .flags = ALIGNED},
    {"tcgen05", "wait::st sync aligned", "", wait_store, PIPE_CONTROL, .flags = ALIGNED},
    {"tcgen05", "fence::before_thread_sync", "", fence_before, PIPE_CONTROL},
    {"tcgen05", "fence::after_thread_sync", "", fence_after, PIPE_CONTROL},
    {"tcgen05",
     "commit cta_group::1|cta_group::2 mbarrier::arrive::one shared::cluster? "
     "multicast::cluster? b64",
     .pipe = PIPE_CONTROL, .lower = lower_commit},
    {0},
};
