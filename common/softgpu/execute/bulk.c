// Bulk copies at their issue (PTX ISA 9.7.9.25.4, 9.7.9.27.1): what the operands mean and whether
// they may be so. What happens then is in machine/bulk.c.
//
// Each lane of the mask issues an operation of its own; right programs let one thread do it.
#include <stdio.h>

#include "softgpu/check/findings.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/execute/tensor_map.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/bulk.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"

enum { TENSOR_ALIGNMENT = 128, BULK_ALIGNMENT = 16, BYTES_MAX = MBARRIER_COUNT_MAX };
typedef unsigned long long ull;

// The operands, in Insn.extra.
typedef struct {
    BulkKind kind;
    int dimensions; // of a tensor copy; 0: none
    bool rows;      // tile::gather4, tile::scatter4
    bool own_only;  // .shared::cta: the destination can't be a peer's memory
    bool pair;      // .cta_group::2: the mbarrier may be that of the pair's other CTA
    uint8_t reduction, type;
    Insn shared, global, source,
        barrier; // one address each; `global` is the map's of tensor copies
    Row coordinates[TENSOR_RANK_MAX];
    Row size, cta_mask, byte_mask; // ROW_NONE if there is none
} BulkOperands;

// ---- operands of one lane

static uint64_t lane_address(const Warp *w, const Insn *a, int lane) {
    if (a->a == ROW_NONE) return a->imm;
    if (a->flags & INSN_WIDE_BASE) return ((const Lane64 *)row(w, a->a))[lane] + a->imm;
    return (uint32_t)(((const Lane32 *)row(w, a->a))[lane] + (uint32_t)a->imm);
}

// The CTA and offset that an operand in shared memory designates; NULL after a finding.
static Cta *shared_operand(Warp *w, const Insn *i, int lane, const Insn *a, bool own,
                           uint32_t *offset) {
    uint64_t address = lane_address(w, a, lane);
    if (address >> 32) {
        finding(w, i, lane, FINDING_WRONG_SPACE,
                "Convert generic addresses first (__cvta_generic_to_shared).",
                "uses 0x%llx, which is no shared-memory address", (ull)address);
        return NULL;
    }
    Cta *cta = check_peer(w, i, lane, (uint32_t)address, offset);
    if (!cta || cta == w->cta || !own) return cta;
    finding(w, i, lane, FINDING_WRONG_SPACE, "Use the CTA's own shared memory here.",
            "uses 0x%llx, shared memory of CTA %u of the cluster, which this operand can't name",
            (ull)address, cta->cluster_rank);
    return NULL;
}

static bool check_aligned(Warp *w, const Insn *i, int lane, uint64_t value, unsigned alignment,
                          const char *what, const char *mend) {
    if (value % alignment == 0) return true;
    finding(w, i, lane, FINDING_MISALIGNED, mend,
            "%s is 0x%llx, which is %llu bytes past a multiple of %u", what, (ull)value,
            (ull)(value % alignment), alignment);
    return false;
}

// ---- the global side

// A load of which nothing lies in its tensor: mostly coordinates in another order, or in bytes.
static void note_outside(Warp *w, const Insn *i, int lane, const BulkMove *m) {
    if (m->kind != BULK_LOAD || !w->sm->gpu->settings->checks) return;
    if (finding_again(w, i, FINDING_NOTE)) return;
    char at[80] = "", dims[80] = "";
    int count = m->rows ? 5 : m->map.rank;
    for (int d = 0, n = 0; d < count; d++)
        n += snprintf(at + n, sizeof at - (size_t)n, "%s%d", d ? ", " : "", m->coordinates[d]);
    for (int d = 0, n = 0; d < m->map.rank; d++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%llu", d ? " x " : "",
                      (ull)m->map.last[d] + 1);
    finding(w, i, lane, FINDING_NOTE, "Coordinates count elements, the innermost dimension first.",
            "loads a box at {%s} that lies outside of its tensor of %s elements as a whole; all of "
            "it is filled",
            at, dims);
}

// Checks that all of the box that lies inside of its tensor is memory, and counts the traffic. What
// follows on in memory is asked for at once.
static bool check_global_side(Warp *w, const Insn *i, int lane, const BulkMove *m, bool write) {
    uint64_t low, high;
    if (!box_envelope(m, &low, &high)) {
        note_outside(w, i, lane, m);
        return true;
    }
    bool asks = low >= high || !check_global_range_quick(w, low, high - low, write);
    if (!asks && !w->sm->gpu->settings->timing) return true;
    static const TrafficKind traffic[] = {
        [BULK_LOAD] = TRAFFIC_READ,
        [BULK_STORE] = TRAFFIC_WRITE,
        [BULK_REDUCE] = TRAFFIC_ATOMIC,
        [BULK_PREFETCH] = TRAFFIC_PREFETCH,
    };
    Box box;
    BoxRow row;
    uint64_t begin = 0, end = 0;
    for (box_begin(&box, m); box_next(&box, &row);) {
        if (!row.inside) continue;
        if (row.address != end) {
            traffic_bulk(w, begin, end - begin, traffic[m->kind]);
            begin = row.address;
        }
        end = row.address + row.inside;
        if (asks && !check_global_range(w, i, lane, row.address, row.inside, write)) return false;
    }
    traffic_bulk(w, begin, end - begin, traffic[m->kind]);
    return true;
}

// The tensor side of a copy: the map, the coordinates, and the bytes of the box.
static bool read_tensor(Warp *w, const Insn *i, int lane, BulkMove *m) {
    const BulkOperands *o = i->extra;
    if (!tensor_map_operand(w, i, lane, lane_address(w, &o->global, lane), &m->map)) return false;
    m->tensor = true;
    m->rows = o->rows;
    m->type = m->map.type;
    int wanted = o->rows ? 2 : o->dimensions, count = o->rows ? 5 : o->dimensions;
    if (m->map.rank != wanted) {
        finding(w, i, lane, FINDING_BULK, "Use the instruction for the map's rank.",
                "copies a box of %d dimensions; the tensor map has %u", wanted, m->map.rank);
        return false;
    }
    for (int d = 0; d < count; d++)
        m->coordinates[d] = ((const LaneS32 *)row(w, o->coordinates[d]))[lane];
    uint64_t bytes = tensor_box_bytes(&m->map);
    if (bytes > BYTES_MAX / 4) {
        finding(w, i, lane, FINDING_BULK, "Encode a map with a smaller box.",
                "copies a box of %llu bytes, more than shared memory can hold", (ull)bytes);
        return false;
    }
    m->bytes = (uint32_t)bytes;
    if (o->rows && m->map.box[1] != 1) {
        finding(w, i, lane, FINDING_BULK, "Encode the map with boxDim[1] = 1.",
                "gathers or scatters four rows; the tensor map's box must have one row, and has %u",
                m->map.box[1]);
        return false;
    }
    if (o->rows) m->bytes *= 4;
    if (m->kind == BULK_STORE && m->map.type == TENSOR_TF32) {
        finding(w, i, lane, FINDING_UNSUPPORTED, "Encode the map as FLOAT32 for stores.",
                "softgpu does not model stores through a tensor map of type TFLOAT32");
        return false;
    }
    unsigned inner = m->map.box[0] * tensor_element_size(m->map.type);
    unsigned span = swizzle_span(m->map.swizzle);
    if (m->map.swizzle && inner != span && m->kind != BULK_PREFETCH &&
        !finding_again(w, i, FINDING_LINT))
        finding(w, i, lane, FINDING_LINT,
                "Make the box's inner dimension as long as the swizzle, or don't swizzle.",
                "the box's rows have %u bytes and its swizzle spans %u: NVIDIA's documents don't "
                "agree where the rows then lie",
                inner, span);
    if (m->kind == BULK_REDUCE && !reduction_exists(m->reduction, m->type, false)) {
        finding(w, i, lane, FINDING_BULK, "Use a reduction that exists for the map's type.",
                "there is no .%s of elements of type %s", reduction_name(m->reduction),
                tensor_type_name(m->type));
        return false;
    }
    return true;
}

// The plain side: an address and a size.
static bool read_plain(Warp *w, const Insn *i, int lane, BulkMove *m) {
    const BulkOperands *o = i->extra;
    m->bytes = ((const Lane32 *)row(w, o->size))[lane];
    if (m->bytes % BULK_ALIGNMENT || m->bytes > BYTES_MAX) {
        finding(w, i, lane, FINDING_BULK, "Bulk copies move whole pieces of 16 bytes.",
                "copies %u bytes: the size must be a multiple of 16%s", m->bytes,
                m->bytes > BYTES_MAX ? " that shared memory can hold" : "");
        return false;
    }
    if (m->kind == BULK_PEER || m->kind == BULK_PEER_REDUCE) return true;
    m->global = lane_address(w, &o->global, lane);
    return check_aligned(w, i, lane, m->global, BULK_ALIGNMENT, "the global address of this copy",
                         "Bulk copies need addresses that are multiples of 16 on both sides.");
}

// ---- the shared side

static bool check_shared_side(Warp *w, const Insn *i, int lane, const BulkMove *m, const Cta *cta,
                              bool write) {
    unsigned alignment = m->tensor ? TENSOR_ALIGNMENT : BULK_ALIGNMENT;
    return check_aligned(w, i, lane, m->shared, alignment, "the shared address of this copy",
                         m->tensor ? "Align the tile: __align__(128), or 1024 for 128-byte "
                                     "swizzles."
                                   : "Bulk copies need addresses that are multiples of 16 on both "
                                     "sides.") &&
           check_shared_range(w, i, lane, cta, m->shared, bulk_footprint(m), write);
}

// A copy must not write over a live mbarrier.
static bool check_overwritten(Warp *w, const Insn *i, int lane, const BulkMove *m, Cta *cta) {
    uint32_t end = m->shared + bulk_footprint(m);
    if (!cta->closed || !closed_any(cta->closed, m->shared, end)) return true;
    const Mbarrier *b;
    for (int k = 0; (b = mbarrier_get(cta, k)); k++) {
        if (b->address + 8 <= m->shared || b->address >= end) continue;
        finding_pair(w, i, lane, FINDING_BARRIER, b->init,
                     "Invalidate the mbarrier first (mbarrier.inval), or keep its memory apart.",
                     "copies to shared memory from 0x%x to 0x%x, where there is a live mbarrier "
                     "(0x%x)",
                     m->shared, end, b->address);
        return false;
    }
    return true;
}

// The mbarrier that is to learn of the copy.
static bool check_barrier(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address) {
    if (!check_aligned(w, i, lane, address, 8, "the address of the mbarrier",
                       "mbarriers are 64-bit objects.") ||
        !check_shared_range(w, i, lane, cta, address, 8, true))
        return false;
    if (race_on(w)) race_mbarrier_use(w, i, lane, cta, address, true);
    if (!(w->sm->gpu->settings->checks & CHECK_SYNC)) return true;
    if (!mbarrier_find(cta, address)) {
        finding(w, i, lane, FINDING_BARRIER,
                "Initialise it first: mbarrier.init by one thread, fence.mbarrier_init, then a "
                "barrier of all threads (of the cluster, if it is a peer's).",
                "signals the mbarrier at 0x%x of block (%u,%u,%u), but there is none: no "
                "mbarrier.init has made one, or it was invalidated or overwritten",
                address, cta->index[0], cta->index[1], cta->index[2]);
        return false;
    }
    return true;
}

// A copy to one CTA: that of the destination operand.
static bool issue_here(Warp *w, const Insn *i, int lane, BulkMove *m, Cta *barrier_cta) {
    const BulkOperands *o = i->extra;
    bool pair = o->pair && barrier_cta->cluster_rank / 2 == m->cta->cluster_rank / 2;
    if (barrier_cta != m->cta && !pair) {
        finding(w, i, lane, FINDING_BULK,
                "Name the mbarrier of the CTA that gets the data (mapa on both addresses).",
                "copies to CTA %u of the cluster and signals an mbarrier of CTA %u",
                m->cta->cluster_rank, barrier_cta->cluster_rank);
        return false;
    }
    m->barrier_cta = barrier_cta;
    if (!check_shared_side(w, i, lane, m, m->cta, true) ||
        !check_overwritten(w, i, lane, m, m->cta) ||
        !check_barrier(w, i, lane, barrier_cta, m->barrier))
        return false;
    traffic_bulk_shared(m->cta->sm, m->bytes);
    bulk_issue(w, i, lane, m);
    return true;
}

// .multicast::cluster: the same to each CTA of the mask, at the same offsets. With .cta_group::2
// the mbarrier is that of the pair's CTA whose parity is the parity of the one named.
static bool issue_multicast(Warp *w, const Insn *i, int lane, BulkMove *m, const Cta *barrier_cta) {
    const BulkOperands *o = i->extra;
    const Cluster *cluster = w->cta->cluster;
    uint32_t mask = ((const Lane16 *)row(w, o->cta_mask))[lane];
    if (!mask || mask >> cluster->size) {
        finding(w, i, lane, FINDING_BULK,
                "Set a bit for each CTA of the cluster that gets the data.",
                "multicasts to the CTAs of the mask 0x%x; the cluster has %d", mask, cluster->size);
        return false;
    }
    uint32_t parity = barrier_cta->cluster_rank & 1;
    for (; mask; mask &= mask - 1) {
        uint32_t rank = (uint32_t)__builtin_ctz(mask), unused;
        uint32_t signalled = o->pair ? (rank & ~1u) | parity : rank;
        m->cta = check_peer(w, i, lane, rank << RANK_SHIFT | m->shared, &unused);
        if (!m->cta) return false;
        m->barrier_cta = check_peer(w, i, lane, signalled << RANK_SHIFT | m->barrier, &unused);
        if (!m->barrier_cta || !check_shared_side(w, i, lane, m, m->cta, true) ||
            !check_overwritten(w, i, lane, m, m->cta) ||
            !check_barrier(w, i, lane, m->barrier_cta, m->barrier))
            return false;
        traffic_bulk_shared(m->cta->sm, m->bytes);
        bulk_issue(w, i, lane, m);
    }
    return true;
}

// ---- the kinds of copies

static bool issue_to_shared(Warp *w, const Insn *i, int lane, BulkMove *m) {
    const BulkOperands *o = i->extra;
    m->cta = shared_operand(w, i, lane, &o->shared, o->own_only, &m->shared);
    if (!m->cta) return false;
    Cta *barrier_cta =
        shared_operand(w, i, lane, &o->barrier, o->own_only && !o->pair, &m->barrier);
    if (!barrier_cta) return false;
    if (m->kind == BULK_LOAD) {
        if (!check_global_side(w, i, lane, m, false)) return false;
    } else {
        m->source = shared_operand(w, i, lane, &o->source, true, &m->source_offset);
        if (!m->source ||
            !check_aligned(w, i, lane, m->source_offset, BULK_ALIGNMENT,
                           "the source address of this copy",
                           "Bulk copies need addresses that are multiples of 16 on both sides.") ||
            !check_shared_range(w, i, lane, m->source, m->source_offset, m->bytes, false))
            return false;
    }
    if (m->source) traffic_bulk_shared(m->source->sm, m->bytes);
    if (o->cta_mask != ROW_NONE) return issue_multicast(w, i, lane, m, barrier_cta);
    return issue_here(w, i, lane, m, barrier_cta);
}

static bool issue_to_global(Warp *w, const Insn *i, int lane, BulkMove *m) {
    const BulkOperands *o = i->extra;
    m->cta = shared_operand(w, i, lane, &o->shared, true, &m->shared);
    if (!m->cta || !check_shared_side(w, i, lane, m, m->cta, false) ||
        !check_global_side(w, i, lane, m, true))
        return false;
    if (o->byte_mask != ROW_NONE) {
        m->masked = true;
        m->byte_mask = ((const Lane16 *)row(w, o->byte_mask))[lane];
    }
    traffic_bulk_shared(w->sm, m->bytes);
    bulk_issue(w, i, lane, m);
    return true;
}

static bool issue(Warp *w, const Insn *i, int lane) {
    const BulkOperands *o = i->extra;
    BulkMove m = {.kind = o->kind, .reduction = o->reduction, .type = o->type};
    bool readable = o->dimensions ? read_tensor(w, i, lane, &m) : read_plain(w, i, lane, &m);
    if (!readable) return false;
    if (!m.bytes) return true; // nothing to copy
    if (m.kind == BULK_PREFETCH) return check_global_side(w, i, lane, &m, false);
    if (m.kind == BULK_STORE || m.kind == BULK_REDUCE) return issue_to_global(w, i, lane, &m);
    return issue_to_shared(w, i, lane, &m);
}

static Flow bulk(Warp *w, const Insn *i, uint32_t mask) {
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        if (!issue(w, i, __builtin_ctz(rest))) return FLOW_FAULT;
    w->stores++;
    w->sm->changes++;
    return w->sm->faulted ? FLOW_FAULT : FLOW_NEXT;
}

static Flow commit_group(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    bulk_commit(w, mask);
    return FLOW_NEXT;
}
static Flow wait_group(Warp *w, const Insn *i, uint32_t mask) {
    return bulk_wait(w, mask, (uint32_t)i->imm, false);
}
static Flow wait_group_read(Warp *w, const Insn *i, uint32_t mask) {
    return bulk_wait(w, mask, (uint32_t)i->imm, true);
}

// ---- lowering

// The number of the modifier among `names`, -1 if it is none of them.
static int which(const Match *m, const char *const names[], int count) {
    for (int k = 0; k < count; k++)
        if (ptx_has_modifier(m->ptx, names[k])) return k;
    return -1;
}

static BulkKind kind_of(const Match *m) {
    bool reduces = ptx_has_modifier(m->ptx, "reduce");
    if (ptx_has_modifier(m->ptx, "prefetch")) return BULK_PREFETCH;
    if (ptx_has_modifier(m->ptx, "bulk_group")) return reduces ? BULK_REDUCE : BULK_STORE;
    if (ptx_has_modifier(m->ptx, "global")) return BULK_LOAD;
    return reduces ? BULK_PEER_REDUCE : BULK_PEER;
}

// What is reduced, of copies that say it themselves.
static const char *lower_reduction(const Match *m, BulkOperands *o) {
    static const char *const operations[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
    static const char *const names[] = {"u32", "s32", "b32", "u64", "s64",
                                        "b64", "f16", "f32", "f64", "bf16"};
    static const TensorType types[] = {TENSOR_U32, TENSOR_S32, TENSOR_U32, TENSOR_U64, TENSOR_S64,
                                       TENSOR_U64, TENSOR_F16, TENSOR_F32, TENSOR_F64, TENSOR_BF16};
    if (o->kind != BULK_REDUCE && o->kind != BULK_PEER_REDUCE) return NULL;
    o->reduction = (uint8_t)which(m, operations, 8);
    if (o->dimensions) return NULL; // the map has the type
    int type = which(m, names, 10);
    o->type = (uint8_t)types[type];
    bool bits = names[type][0] == 'b' && names[type][1] != 'f';
    bool logic = o->reduction >= REDUCE_AND;
    bool half = o->type == TENSOR_F16 || o->type == TENSOR_BF16;
    bool sum = o->reduction == REDUCE_ADD;
    if (!reduction_exists(o->reduction, o->type, o->kind == BULK_PEER_REDUCE) || bits != logic)
        return "there is no such reduction for this type";
    if (ptx_has_modifier(m->ptx, "noftz") != (half && sum))
        return ".noftz belongs to sums of f16 and bf16, which need it";
    return NULL;
}

// The operands that are left, one after the other.
typedef struct {
    Lowering *l;
    const PtxOperand *next, *end;
    const char *why;
} Operands;

static const PtxOperand *take(Operands *o) {
    static const PtxOperand none = {.kind = OPERAND_SINK};
    if (o->next < o->end) return o->next++;
    if (!o->why) o->why = "an operand is missing";
    return &none;
}
static void take_address(Operands *o, Space space, Insn *a) {
    a->space = (uint8_t)space;
    a->flags = 0;
    a->a = ROW_NONE;
    const PtxOperand *operand = take(o);
    if (!o->why) o->why = address_operand(o->l, operand, a);
}
static Row take_row(Operands *o, int width) {
    const PtxOperand *operand = take(o);
    return o->why ? ROW_NONE : source_row(o->l, operand, width, &o->why);
}

// [map, {c0, c1, …}]
static void take_tensor(Operands *o, BulkOperands *b) {
    const PtxOperand *operand = o->next;
    int count = b->rows ? 5 : b->dimensions;
    take_address(o, SPACE_NONE, &b->global);
    if (o->why) return;
    const PtxOperand *list = operand->count == 2 ? &operand->elements[1] : NULL;
    if (!list || list->kind != OPERAND_VECTOR || list->count != count) {
        o->why = "a tensor copy takes [map, {coordinates}], one coordinate a dimension";
        return;
    }
    for (int d = 0; d < count && !o->why; d++)
        b->coordinates[d] = source_row(o->l, &list->elements[d], 32, &o->why);
}

static void take_global(Operands *o, BulkOperands *b) {
    if (b->dimensions)
        take_tensor(o, b);
    else
        take_address(o, SPACE_GLOBAL, &b->global);
}

// All kinds have their operands in the order destination, source, size, mbarrier, masks, policy.
static const char *lower_bulk(Lowering *l, const Match *m, Insn *i) {
    static const char *const dimensions[] = {"1d", "2d", "3d", "4d", "5d"};
    BulkOperands *b = kernel_alloc(l, sizeof *b);
    *b = (BulkOperands){.shared = *i, .global = *i, .source = *i, .barrier = *i};
    b->size = b->cta_mask = b->byte_mask = ROW_NONE;
    b->kind = kind_of(m);
    if (ptx_has_modifier(m->ptx, "tensor")) b->dimensions = which(m, dimensions, 5) + 1;
    b->rows =
        ptx_has_modifier(m->ptx, "tile::gather4") || ptx_has_modifier(m->ptx, "tile::scatter4");
    b->pair = ptx_has_modifier(m->ptx, "cta_group::2");
    bool loads = b->kind == BULK_LOAD;
    b->own_only = loads && ptx_has_modifier(m->ptx, "shared::cta");
    if (b->rows && b->dimensions != 2)
        return "gather4 and scatter4 are for tensors of 2 dimensions";
    const char *why = lower_reduction(m, b);
    if (why) return why;

    Operands o = {l, m->ptx->operands, m->ptx->operands + m->ptx->operand_count, NULL};
    bool to_shared = loads || b->kind == BULK_PEER || b->kind == BULK_PEER_REDUCE;
    if (to_shared) {
        take_address(&o, SPACE_SHARED, &b->shared);
        if (loads)
            take_global(&o, b);
        else
            take_address(&o, SPACE_SHARED, &b->source);
    } else {
        take_global(&o, b);
        if (b->kind != BULK_PREFETCH) take_address(&o, SPACE_SHARED, &b->shared);
    }
    if (!b->dimensions) b->size = take_row(&o, 32);
    if (to_shared) take_address(&o, SPACE_SHARED, &b->barrier);
    if (ptx_has_modifier(m->ptx, "multicast::cluster")) b->cta_mask = take_row(&o, 16);
    if (ptx_has_modifier(m->ptx, "L2::cache_hint")) take_row(&o, 64);
    if (ptx_has_modifier(m->ptx, "cp_mask")) b->byte_mask = take_row(&o, 16);
    if (!o.why && o.next != o.end) return "there are more operands than this copy takes";
    i->extra = b;
    i->run = bulk;
    return o.why;
}

#define DIMS   "1d|2d|3d|4d|5d "
#define HINT   "L2::cache_hint? "
#define SIGNAL "mbarrier::complete_tx::bytes "
#define PAIR   "cta_group::1|cta_group::2? "
#define OPS    "add|min|max|inc|dec|and|or|xor "
#define TYPES  "u32|s32|b32|u64|s64|b64|f16|f32|f64|bf16"
#define FORM   NULL, NULL, PIPE_TMA, 0, 0, lower_bulk

const Form bulk_forms[] = {
    {"cp",
     "async bulk tensor " DIMS "shared::cluster global tile|tile::gather4? " SIGNAL
     "multicast::cluster? " PAIR HINT,
     FORM},
    {"cp", "async bulk tensor " DIMS "shared::cta global tile|tile::gather4? " SIGNAL PAIR HINT,
     FORM},
    {"cp",
     "async bulk tensor " DIMS "global shared::cta tile|tile::scatter4? "
     "bulk_group " HINT,
     FORM},
    {"cp",
     "reduce async bulk tensor " DIMS "global shared::cta " OPS "tile? "
     "bulk_group " HINT,
     FORM},
    {"cp", "async bulk prefetch tensor " DIMS "L2 global tile|tile::gather4? " HINT, FORM},
    {"cp", "async bulk shared::cluster global " SIGNAL "multicast::cluster? " HINT, FORM},
    {"cp", "async bulk shared::cta global " SIGNAL HINT, FORM},
    {"cp", "async bulk shared::cluster shared::cta " SIGNAL, FORM},
    {"cp", "async bulk global shared::cta bulk_group " HINT "cp_mask?", FORM},
    {"cp", "reduce async bulk shared::cluster shared::cta " SIGNAL OPS TYPES, FORM},
    {"cp", "reduce async bulk global shared::cta bulk_group " HINT OPS "noftz? " TYPES, FORM},
    {"cp", "async bulk prefetch L2 global " HINT, FORM},
    {"cp", "async bulk commit_group", "", commit_group, PIPE_TMA},
    {"cp", "async bulk wait_group", "i", wait_group, PIPE_TMA},
    {"cp", "async bulk wait_group read", "i", wait_group_read, PIPE_TMA},
    {0},
};
