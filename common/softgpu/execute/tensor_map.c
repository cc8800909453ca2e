// Tensor maps in kernels: the operand of copies, edits (tensormap.replace, PTX ISA 9.7.9.28), and
// the fences that publish them (fence.proxy.tensormap, tensormap.cp_fenceproxy).
//
// TMA reads maps through a proxy of its own, which may hold an older copy. So a map that a kernel
// has edited may be used once a release fence has published the edit and the block that uses it has
// acquired the map. Maps that the host made need nothing.
#include "softgpu/execute/tensor_map.h"

#include "softgpu/check/findings.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/bulk.h"

enum { PIECE = 16 }; // bytes that a map is read and written at a time
typedef unsigned long long ull;

// ---- the operand of copies

// The bytes of the map; NULL after a finding.
static const uint8_t *map_bytes(Warp *w, const Insn *i, int lane, uint64_t address) {
    if (address - PARAM_WINDOW < PARAM_WINDOW_SIZE) {
        uint64_t offset = address - PARAM_WINDOW;
        if (offset + TENSOR_MAP_BYTES <= w->kernel->param_size)
            return w->sm->launch->params + offset;
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, NULL,
                "reads a tensor map at offset %llu of the kernel's parameters, which have %u bytes",
                (ull)offset, w->kernel->param_size);
        return NULL;
    }
    bool local = address - LOCAL_WINDOW < LOCAL_WINDOW_SIZE;
    if (local || address - SHARED_WINDOW < SHARED_WINDOW_SIZE) {
        finding(w, i, lane, FINDING_WRONG_SPACE,
                local ? "Pass it as `const __grid_constant__ CUtensorMap`, so that the kernel does "
                        "not copy its parameter."
                      : "Publish it in global memory first (tensormap.cp_fenceproxy).",
                "uses a tensor map at 0x%llx, which lies in %s: TMA reads maps from parameters, "
                "constant and global memory only",
                (ull)address, local ? "a thread's local memory" : "shared memory");
        return NULL;
    }
    if (!check_global_range(w, i, lane, address, TENSOR_MAP_BYTES, false)) return NULL;
    return global_pointer(w->sm->gpu->memory, address);
}

// Has an edited map been published to this block?
static bool check_published(Warp *w, const Insn *i, int lane, uint64_t address,
                            const TensorMap *map) {
    if (!map->edits || !(w->sm->gpu->settings->checks & CHECK_SYNC)) return true;
    bool released = map->released == map->edits;
    if (released && bulk_map_known(w->cta, address, map->edits)) return true;
    bool now = map->edit_launch == (uint32_t)w->sm->launch->id;
    FindingKind kind = now ? FINDING_RACE : FINDING_LINT;
    if (finding_again(w, i, kind)) return true;
    finding(
        w, i, lane, kind,
        released ? "Before the copy: fence.proxy.tensormap::generic.acquire.gpu [map], 128."
                 : "After the edit: fence.proxy.tensormap::generic.release.gpu, or edit it in "
                   "shared memory and use tensormap.cp_fenceproxy.",
        "uses the tensor map at 0x%llx, which %s has edited, and %s: TMA may read the map as it "
        "was",
        (ull)address, now ? "this kernel" : "an earlier kernel",
        released ? "this block has not acquired it since" : "no fence has released the edit");
    return true;
}

bool tensor_map_operand(Warp *w, const Insn *i, int lane, uint64_t address, TensorMap *map) {
    if (address % TENSOR_MAP_ALIGNMENT) {
        finding(w, i, lane, FINDING_MISALIGNED, "Declare it as CUtensorMap, or with alignas(64).",
                "uses a tensor map at 0x%llx, which is %llu bytes past a multiple of %d",
                (ull)address, (ull)(address % TENSOR_MAP_ALIGNMENT), TENSOR_MAP_ALIGNMENT);
        return false;
    }
    const uint8_t *bytes = map_bytes(w, i, lane, address);
    if (!bytes) return false;
    char why[300];
    if (!tensor_map_read(bytes, map, why, sizeof why)) {
        finding(w, i, lane, FINDING_BULK,
                "Pass a map that cuTensorMapEncodeTiled has made, and check its return code.",
                "uses 128 bytes at 0x%llx as a tensor map; %s", (ull)address, why);
        return false;
    }
    return check_published(w, i, lane, address, map);
}

// prefetch.tensormap fetches the map before it is needed: nothing to see, but it must be one.
static Flow prefetch(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address[WARP_SIZE];
    TensorMap map;
    wide_addresses(w, i, address);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t at = address[lane] + (i->space == SPACE_PARAM ? PARAM_WINDOW : 0);
        if (!tensor_map_operand(w, i, lane, at, &map)) return FLOW_FAULT;
    }
    return FLOW_NEXT;
}

// ---- edits

// Goes through the 128 bytes of a map as ordinary accesses, for all checks; answers where they are.
static uint8_t *access_map(Warp *w, const Insn *i, int lane, uint64_t address, bool shared,
                           AccessKind kind) {
    uint8_t *bytes = NULL;
    for (unsigned at = 0; at < TENSOR_MAP_BYTES; at += PIECE) {
        Places places;
        Access access = {.bytes = PIECE, .kind = kind};
        uint64_t wide[WARP_SIZE] = {0};
        uint32_t narrow[WARP_SIZE] = {0};
        wide[lane] = address + at;
        narrow[lane] = (uint32_t)(address + at);
        bool placed = shared ? place_shared(w, i, narrow, 1u << lane, access, &places)
                             : place_global(w, i, wide, 1u << lane, access, &places);
        if (!placed) return NULL;
        places_spread(&places, PIECE);
        if (!at) bytes = places.at[lane];
    }
    return bytes;
}

static bool check_map_address(Warp *w, const Insn *i, int lane, uint64_t address) {
    if (address % TENSOR_MAP_ALIGNMENT == 0) return true;
    finding(w, i, lane, FINDING_MISALIGNED, "Declare it as CUtensorMap, or with alignas(128).",
            "the tensor map's address 0x%llx is %llu bytes past a multiple of %d", (ull)address,
            (ull)(address % TENSOR_MAP_ALIGNMENT), TENSOR_MAP_ALIGNMENT);
    return false;
}

// What tensormap.replace changes, in Insn.extra; the value is Insn.b.
typedef struct {
    Insn address;
    TensorMapField field;
    unsigned ordinal;
    bool wide; // a value of 64 bits
} Replace;

static Flow replace(Warp *w, const Insn *i, uint32_t mask) {
    const Replace *r = i->extra;
    bool shared = r->address.space == SPACE_SHARED;
    uint64_t address[WARP_SIZE];
    wide_addresses(w, &r->address, address);
    uint32_t in_shared = shared ? mask : 0;
    if (r->address.space == SPACE_NONE) in_shared = generic_spaces(address, mask).shared;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        bool here = in_shared >> lane & 1;
        uint64_t at = here ? (uint32_t)address[lane] & (SHARED_WINDOW_SIZE - 1) : address[lane];
        uint64_t value =
            r->wide ? ((const Lane64 *)row(w, i->b))[lane] : ((const Lane32 *)row(w, i->b))[lane];
        if (!check_map_address(w, i, lane, at)) return FLOW_FAULT;
        uint8_t *map = access_map(w, i, lane, at, here, ACCESS_ATOMIC);
        if (!map) return FLOW_FAULT;
        char why[300];
        if (!tensor_map_edit(map, r->field, r->ordinal, value, (uint32_t)w->sm->launch->id, why,
                             sizeof why)) {
            finding(w, i, lane, FINDING_BULK, "Edit a map that cuTensorMapEncodeTiled has made.",
                    "edits the tensor map at 0x%llx: %s", (ull)at, why);
            return FLOW_FAULT;
        }
        if (!here) bulk_map_edited(w->cta, at);
    }
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- fences

static Flow release(Warp *w, const Insn *i, uint32_t mask) {
    (void)i, (void)mask;
    bulk_maps_released(w->cta);
    return FLOW_NEXT;
}

// A fence for no map. CUTLASS executes it in warps that have none, and GPUs let it pass.
static bool acquires_nothing(Warp *w, const Insn *i, int lane, uint64_t address) {
    if (address || w->sm->gpu->settings->strict) return false;
    if (!finding_again(w, i, FINDING_LINT))
        finding(w, i, lane, FINDING_LINT, "Execute the fence only where there is a map.",
                "acquires a tensor map at a null pointer");
    return true;
}

// fence.proxy.tensormap::generic.acquire.scope [address], 128
static Flow acquire(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address[WARP_SIZE];
    wide_addresses(w, i, address);
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (acquires_nothing(w, i, lane, address[lane])) continue;
        const uint8_t *bytes = map_bytes(w, i, lane, address[lane]);
        if (!bytes) return FLOW_FAULT;
        TensorMap map;
        memcpy(&map, bytes, sizeof map);
        if (map.released == map.edits) bulk_map_acquired(w->cta, address[lane], map.edits);
    }
    return FLOW_NEXT;
}

// tensormap.cp_fenceproxy: the warp copies a map from shared to global memory and releases it.
static Flow publish(Warp *w, const Insn *i, uint32_t mask) {
    const Insn *from = i->extra;
    uint64_t to[WARP_SIZE];
    uint32_t source[WARP_SIZE], all;
    if (!warp_gather(w, i, mask, w->live, &all)) return FLOW_RETRY;
    wide_addresses(w, i, to);
    if (!narrow_addresses(w, from, mask, source)) return FLOW_FAULT;
    int lane = __builtin_ctz(mask);
    if (!check_map_address(w, i, lane, to[lane]) || !check_map_address(w, i, lane, source[lane]))
        return FLOW_FAULT;
    const uint8_t *map = access_map(w, i, lane, source[lane], true, ACCESS_READ);
    uint8_t *place = map ? access_map(w, i, lane, to[lane], false, ACCESS_WRITE) : NULL;
    if (!place) return FLOW_FAULT;
    char why[300];
    if (!tensor_map_publish(place, map, (uint32_t)w->sm->launch->id, why, sizeof why)) {
        finding(w, i, lane, FINDING_BULK,
                "Edit a copy of a map that cuTensorMapEncodeTiled has made.",
                "publishes the tensor map at 0x%x of shared memory: %s", source[lane], why);
        return FLOW_FAULT;
    }
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- lowering

// Does the instruction have the size 128 as its last operand?
static bool has_size(const Match *m, int at) {
    const PtxOperand *o = &m->ptx->operands[at];
    return m->ptx->operand_count == at + 1 && o->kind == OPERAND_INTEGER &&
           o->bits == TENSOR_MAP_BYTES;
}

static const char *lower_prefetch(Lowering *l, const Match *m, Insn *i) {
    if (m->ptx->operand_count != 1) return "prefetch.tensormap takes an address";
    i->run = prefetch;
    i->space = m->choice[0] == 2 ? SPACE_PARAM : SPACE_NONE;
    return address_operand(l, &m->ptx->operands[0], i);
}

static const char *lower_acquire(Lowering *l, const Match *m, Insn *i) {
    if (!has_size(m, 1)) return "this fence takes an address and the size 128";
    i->run = acquire;
    return address_operand(l, &m->ptx->operands[0], i);
}

static const char *lower_publish(Lowering *l, const Match *m, Insn *i) {
    if (!has_size(m, 2)) return "tensormap.cp_fenceproxy takes two addresses and the size 128";
    Insn *from = kernel_alloc(l, sizeof *from);
    *from = *i;
    from->space = SPACE_SHARED;
    i->extra = from;
    i->run = publish;
    const char *why = address_operand(l, &m->ptx->operands[0], i);
    return why ? why : address_operand(l, &m->ptx->operands[1], from);
}

// tensormap.replace.tile.field… [address], {ordinal,} value
static const char *lower_replace(Lowering *l, const Match *m, Insn *i) {
    Replace *r = kernel_alloc(l, sizeof *r);
    *r = (Replace){.address = *i, .field = (TensorMapField)(m->choice[2] - 1)};
    bool has_ordinal = r->field >= MAP_BOX_DIM && r->field <= MAP_ELEMENT_STRIDE;
    const PtxOperand *o = m->ptx->operands;
    if (m->ptx->operand_count != 2 + has_ordinal)
        return "tensormap.replace takes an address, a dimension where there is one, and a value";
    if (has_ordinal && o[1].kind != OPERAND_INTEGER) return "the dimension must be a number";
    if (has_ordinal) r->ordinal = (unsigned)o[1].bits;
    r->address.space = m->choice[3] == 1 ? SPACE_GLOBAL : m->choice[3] ? SPACE_SHARED : SPACE_NONE;
    r->wide = m->choice[5] == 2;
    if (r->wide != (r->field == MAP_GLOBAL_ADDRESS || r->field == MAP_GLOBAL_STRIDE))
        return "addresses and strides are .b64, the other fields .b32";
    const char *why = address_operand(l, &o[0], &r->address);
    if (why) return why;
    i->b = source_row(l, &o[1 + has_ordinal], r->wide ? 64 : 32, &why);
    i->extra = r;
    i->run = replace;
    return why;
}

#define SCOPES "cta|cluster|gpu|sys"
#define FIELDS                                                                                     \
    "global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype|"                \
    "interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode"

const Form tensor_map_forms[] = {
    {"prefetch", "const|param? tensormap", NULL, NULL, PIPE_LSU, 0, 0, lower_prefetch},
    {"tensormap", "replace tile " FIELDS " global|shared::cta? b1024 b32|b64", NULL, NULL, PIPE_LSU,
     0, 0, lower_replace},
    {"tensormap",
     "cp_fenceproxy global shared::cta tensormap::generic release " SCOPES " sync aligned", NULL,
     NULL, PIPE_LSU, 0, INSN_ALIGNED, lower_publish},
    {"fence", "proxy tensormap::generic release " SCOPES, "", release, PIPE_CONTROL},
    {"fence", "proxy tensormap::generic acquire " SCOPES, NULL, NULL, PIPE_CONTROL, 0, 0,
     lower_acquire},
    {0},
};
