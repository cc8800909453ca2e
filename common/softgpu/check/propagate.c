// How instructions pass undefined values on, and where those have an effect (definedness.h).
//
// Results are worked out before the handler runs, from the values that it will read. If it can't
// run yet and is called again, they come out the same: where a source is the result's own register,
// it is undefined in the lanes in which it was.
#include <string.h>

#include "softgpu/check/bits.h"
#include "softgpu/check/undefined.h"
#include "softgpu/execute/memory_access.h"

typedef struct {
    uint32_t lanes, origin;
} Undefined;

static const struct KernelUses *uses_of(const Warp *w, const Insn *i) {
    return &w->kernel->uses[i->index];
}

// ---- sources

// Adds what is undefined of a row in some lanes.
static void add_row(const Warp *w, Undefined *u, Row r, uint32_t lanes) {
    uint32_t more = definedness_lanes(w, r) & lanes;
    if (!more) return;
    u->lanes |= more;
    u->origin = w->undefined->rows[(size_t)(w->frame - w->stack + r) / 4].origin;
}

// Lanes in which a row holds `value` or, with `ones`, all ones.
static uint32_t lanes_holding(const Warp *w, Row r, unsigned width, bool ones) {
    const void *at = row(w, r);
    uint32_t lanes = 0;
    if (width == 1) {
        memcpy(&lanes, at, 4);
        return ones ? lanes : ~lanes;
    }
    unsigned bytes = width / 8;
    uint64_t wanted = ones ? ~0ull >> (64 - width) : 0;
    for (unsigned l = 0; l < WARP_SIZE; l++) {
        uint64_t value = 0;
        memcpy(&value, (const uint8_t *)at + l * bytes, bytes);
        lanes |= (uint32_t)(value == wanted) << l;
    }
    return lanes;
}

// Adds what is undefined of a op b, where a defined 0 (or all ones) on one side decides.
static void add_decided(const Warp *w, Undefined *u, const Insn *i, uint32_t mask, bool ones) {
    unsigned width = uses_of(w, i)->width;
    uint32_t a = definedness_lanes(w, i->a), b = definedness_lanes(w, i->b);
    if (!((a | b) & mask)) return;
    uint32_t decided = 0;
    if (width && width <= 64) {
        decided |= lanes_holding(w, i->a, width, ones) & ~a;
        decided |= lanes_holding(w, i->b, width, ones) & ~b;
    }
    add_row(w, u, i->a, mask & ~decided);
    add_row(w, u, i->b, mask & ~decided);
}

// Adds what is undefined of a comparison combined with the predicate c.
static void add_compared(const Warp *w, Undefined *u, const Insn *i, uint32_t mask, bool ones) {
    uint32_t c = definedness_lanes(w, i->c);
    uint32_t decided = lanes_holding(w, i->c, 1, ones) & ~c;
    add_row(w, u, i->a, mask & ~decided);
    add_row(w, u, i->b, mask & ~decided);
    add_row(w, u, i->c, mask);
}

// What is undefined of the results of an instruction that computes.
static Undefined computed(const Warp *w, const Insn *i, uint32_t mask) {
    const struct KernelUses *uses = uses_of(w, i);
    Undefined u = {0};
    switch ((UsesRule)uses->rule) {
    case USES_SELECT: {
        uint32_t c = lanes_holding(w, i->c, 1, true);
        add_row(w, &u, i->a, mask & c);
        add_row(w, &u, i->b, mask & ~c);
        add_row(w, &u, i->c, mask);
        break;
    }
    case USES_AND: add_decided(w, &u, i, mask, false); break;
    case USES_OR: add_decided(w, &u, i, mask, true); break;
    case USES_MULTIPLY:
        add_decided(w, &u, i, mask, false);
        add_row(w, &u, i->c, mask);
        break;
    case USES_COMPARE_AND: add_compared(w, &u, i, mask, false); break;
    case USES_COMPARE_OR: add_compared(w, &u, i, mask, true); break;
    default:
        for (uint32_t k = uses->first; k < uses->first + uses->count; k++) {
            Use use = w->kernel->touched[k];
            if ((use & USE_KINDS) == USE_READ) add_row(w, &u, use & ~(Use)USE_KINDS, mask);
        }
    }
    if (uses->carry & USES_CARRY_IN && w->undefined->carry.lanes & mask) {
        u.lanes |= w->undefined->carry.lanes & mask;
        u.origin = w->undefined->carry.origin;
    }
    return u;
}

// ---- results

// The registers that the instruction writes become undefined in these of the lanes of `mask`.
static void set_results(Warp *w, const Insn *i, uint32_t mask, Undefined u) {
    const struct KernelUses *uses = uses_of(w, i);
    for (uint32_t k = uses->first; k < uses->first + uses->count; k++) {
        Use use = w->kernel->touched[k];
        if ((use & USE_KINDS) != USE_WRITE) continue;
        undefined_set(w, undefined_row(w, use & ~(Use)USE_KINDS), mask, u.lanes, u.origin);
    }
    if (uses->carry & USES_CARRY_OUT)
        undefined_set(w, &w->undefined->carry, mask, u.lanes, u.origin);
}

// ---- uses that have an effect

// This row must be defined in these lanes.
static void demand(Warp *w, const Insn *i, Row r, uint32_t lanes, const char *use) {
    uint32_t bad = definedness_lanes(w, r) & lanes;
    if (bad) undefined_report(w, i, undefined_row(w, r), bad, FINDING_UNINITIALISED, use);
}

// So must all registers that are used in this way.
static void demand_all(Warp *w, const Insn *i, Use kind, uint32_t lanes, const char *use) {
    const struct KernelUses *uses = uses_of(w, i);
    for (uint32_t k = uses->first; k < uses->first + uses->count; k++) {
        Use touched = w->kernel->touched[k];
        if ((touched & USE_KINDS) == kind) demand(w, i, touched & ~(Use)USE_KINDS, lanes, use);
    }
}

// A store to global memory. Padding of a struct that is copied by vectors is only a note: there,
// part of a vector was read undefined, and part of one is stored so.
static void demand_stored(Warp *w, const Insn *i, uint32_t lanes) {
    uint32_t all = lanes;
    for (int k = 0; k < i->row_count; k++) all &= definedness_lanes(w, i->rows[k]);
    for (int k = 0; k < i->row_count; k++) {
        uint32_t bad = definedness_lanes(w, i->rows[k]) & lanes;
        if (!bad) continue;
        struct UndefinedRow *at = undefined_row(w, i->rows[k]);
        uint32_t padding = w->undefined->origins[at->origin].some ? bad & ~all : 0;
        const char *use = "stores to global memory";
        if (padding) undefined_report(w, i, at, padding, FINDING_LINT, use);
        if (bad & ~padding) undefined_report(w, i, at, bad & ~padding, FINDING_UNINITIALISED, use);
    }
}

// The lanes whose address lies in global memory, and in `*windows` those of the other spaces.
static uint32_t global_lanes(const Warp *w, const Insn *i, uint32_t mask, SpaceMasks *windows) {
    *windows = (SpaceMasks){0};
    if (i->space == SPACE_GLOBAL || i->space == SPACE_CONST) return mask;
    if (i->space == SPACE_SHARED) windows->shared = mask;
    if (i->space == SPACE_LOCAL) windows->local = mask;
    if (i->space != SPACE_NONE) return 0;
    uint64_t address[WARP_SIZE];
    wide_addresses(w, i, address);
    *windows = generic_spaces(address, mask);
    return windows->global;
}

// The arguments of a call of a built-in function must be defined.
static void demand_arguments(Warp *w, const Insn *i, uint32_t mask) {
    const Call *call = i->extra;
    size_t frame = (size_t)(w->frame - w->stack);
    for (int n = 0; call->builtin && n < call->argument_count; n++) {
        const struct CallArgument *a = &call->arguments[n];
        for (uint32_t byte = 0; byte < a->size; byte++) {
            struct UndefinedRow *at = undefined_at(w, frame + a->from + 4 * byte);
            if (!(at->lanes & mask)) continue;
            undefined_report(w, i, at, at->lanes & mask, FINDING_UNINITIALISED,
                             "passes to a function of the runtime");
        }
    }
}

// ---- .param storage of calls

// What is undefined of a variable's bytes [byte, byte + size), in these lanes.
static Undefined param_bytes(Warp *w, size_t variable, uint32_t byte, uint32_t size,
                             uint32_t lanes) {
    Undefined u = {0};
    for (uint32_t k = byte; k < byte + size; k++) {
        const struct UndefinedRow *at = undefined_at(w, variable + 4 * k);
        if (!(at->lanes & lanes)) continue;
        u.lanes |= at->lanes & lanes;
        u.origin = at->origin;
    }
    return u;
}

static void load_param(Warp *w, const Insn *i, uint32_t mask) {
    size_t variable = (size_t)(w->frame - w->stack) + (uint32_t)i->imm;
    uint32_t byte = (uint32_t)(i->imm >> 32);
    for (uint32_t k = 0; k < i->row_count; k++) {
        Undefined u = param_bytes(w, variable, byte + k * i->size, i->size, mask);
        undefined_set(w, undefined_row(w, i->rows[k]), mask, u.lanes, u.origin);
    }
}

static void store_param(Warp *w, const Insn *i, uint32_t mask) {
    size_t variable = (size_t)(w->frame - w->stack) + (uint32_t)i->imm;
    uint32_t byte = (uint32_t)(i->imm >> 32);
    for (uint32_t k = 0; k < i->row_count; k++) {
        Undefined u = {0};
        add_row(w, &u, i->rows[k], mask);
        for (uint32_t b = 0; b < i->size; b++, byte++)
            undefined_set(w, undefined_at(w, variable + 4 * byte), mask, u.lanes, u.origin);
    }
}

// A parameter or result goes from one frame into another.
static void pass(Warp *w, const struct CallArgument *a, size_t from, size_t to, uint32_t mask) {
    for (uint32_t byte = 0; byte < a->size; byte++) {
        struct UndefinedRow source = *undefined_at(w, from + a->from + 4 * byte);
        undefined_set(w, undefined_at(w, to + a->to + 4 * byte), mask, source.lanes & mask,
                      source.origin);
    }
}

void definedness_call(Warp *w, const Call *call, size_t caller, size_t callee, uint32_t mask) {
    for (int n = 0; n < call->argument_count; n++)
        pass(w, &call->arguments[n], caller, callee, mask);
}

void definedness_return(Warp *w, const Frame *from, uint32_t mask) {
    pass(w, &from->call->result, from->offset, from->caller->offset, mask);
    for (size_t at = 0; at < from->function->frame_size; at += 4)
        undefined_set(w, undefined_at(w, from->offset + at), mask, 0, 0);
}

// ---- around a handler

void definedness_guard(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t bad = definedness_lanes(w, i->guard) & w->active;
    if (!bad) return;
    struct UndefinedRow *at = undefined_row(w, i->guard);
    const struct KernelUses *uses = uses_of(w, i);
    if (uses->rule == USES_BRANCH)
        undefined_report(w, i, at, bad, FINDING_UNINITIALISED, "decides a branch with");
    else if (uses->rule >= USES_MATRIX)
        undefined_report(w, i, at, bad, FINDING_UNINITIALISED, "is switched on or off by");
    else // nobody knows whether these lanes keep what they have: definedness_before does the others
        set_results(w, i, bad & ~mask, (Undefined){bad & ~mask, at->origin});
}

void definedness_before(Warp *w, const Insn *i, uint32_t mask) {
    static const char *const ADDRESS = "takes as an address";
    const Undefined none = {0};
    SpaceMasks windows;
    if (!w->kernel->uses) return;
    switch ((UsesRule)uses_of(w, i)->rule) {
    case USES_LOAD:
    case USES_MATRIX:
        demand_all(w, i, USE_ADDRESS, mask, ADDRESS);
        set_results(w, i, mask, none);
        return;
    case USES_LOAD_PARAM: load_param(w, i, mask); return;
    case USES_STORE:
        demand_all(w, i, USE_ADDRESS, mask, ADDRESS);
        demand_stored(w, i, global_lanes(w, i, mask, &windows));
        return;
    case USES_STORE_PARAM: store_param(w, i, mask); return;
    case USES_ATOMIC:
    case USES_EXCHANGE:
        demand_all(w, i, USE_ADDRESS, mask, ADDRESS);
        demand_all(w, i, USE_READ, mask, "hands to an atomic operation");
        set_results(w, i, mask, none);
        return;
    case USES_SYNC:
        demand_all(w, i, USE_ADDRESS, mask, ADDRESS);
        demand_all(w, i, USE_READ, mask, "takes as an operand");
        set_results(w, i, mask, none);
        return;
    case USES_SHUFFLE:
        demand(w, i, i->b, mask, "shuffles by");
        demand(w, i, i->c, mask, "shuffles by");
        if (i->row_count) demand(w, i, i->rows[0], mask, "takes as its mask of lanes");
        return;
    case USES_GATHER: demand(w, i, i->b, mask, "takes as its mask of lanes"); return;
    case USES_BRANCH: demand_all(w, i, USE_READ, mask, "decides a branch with"); return;
    case USES_CALL:
        if (((const Call *)i->extra)->callee || ((const Call *)i->extra)->builtin)
            demand_arguments(w, i, mask);
        else
            demand(w, i, i->a, mask, "calls a function by");
        return;
    default: break;
    }
    Undefined u = computed(w, i, mask);
    add_row(w, &u, i->guard, mask);
    set_results(w, i, mask, u);
}

void definedness_after(Warp *w, const Insn *i, uint32_t mask) {
    if (!w->kernel->uses || uses_of(w, i)->rule != USES_STORE) return;
    uint32_t any = 0;
    for (int k = 0; k < i->row_count; k++) any |= definedness_lanes(w, i->rows[k]) & mask;
    if (!any) return;
    SpaceMasks windows;
    global_lanes(w, i, mask, &windows);
    uint64_t address[WARP_SIZE];
    uint32_t offset[WARP_SIZE];
    wide_addresses(w, i, address);
    window_addresses(address, offset);
    for (int k = 0; k < i->row_count; k++) {
        uint32_t bad = definedness_lanes(w, i->rows[k]) & mask;
        if (bad & windows.local) w->undefined->stored = 1 + undefined_row(w, i->rows[k])->origin;
        for (uint32_t rest = bad; rest; rest &= rest - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(rest), bit = 1u << l;
            uint32_t at = offset[l] + (uint32_t)k * i->size;
            if (windows.shared & bit && w->cta->shared_written)
                memset(w->cta->shared_written + (at & ((1u << RANK_SHIFT) - 1)), 0, i->size);
            if (windows.local & bit && w->local_written)
                bits_clear(w->local_written, (uint64_t)l * w->local_stride + at, i->size);
        }
    }
}

// ---- between lanes

void definedness_shuffle(Warp *w, const Insn *i, uint32_t all, const int32_t from[WARP_SIZE]) {
    if (!w->kernel->uses) return;
    uint32_t source = definedness_lanes(w, i->a), lanes = 0;
    uint32_t origin = source ? undefined_row(w, i->a)->origin : 0;
    for (int l = 0; source && l < WARP_SIZE; l++) lanes |= (source >> from[l] & 1) << l;
    undefined_set(w, undefined_row(w, i->d), all, lanes, origin);
    if (i->e != ROW_NONE) undefined_set(w, undefined_row(w, i->e), all, 0, 0);
}

void definedness_gather(Warp *w, const Insn *i, uint32_t all, Row members, int vote) {
    if (!w->kernel->uses) return;
    uint32_t source = definedness_lanes(w, i->a) & all, lanes = 0;
    uint32_t origin = source ? undefined_row(w, i->a)->origin : 0;
    uint32_t yes = 0, decides = 0; // defined predicates that settle the vote
    if (source && vote) {
        memcpy(&yes, row(w, i->a), 4);
        decides = (vote == 1 ? ~yes : yes) & ~source;
    }
    for (uint32_t l = 0; source && l < WARP_SIZE; l++) {
        uint32_t among = all;
        if (members != ROW_NONE) {
            memcpy(&among, (const uint8_t *)row(w, members) + 4 * l, 4);
            among &= all;
        }
        lanes |= (uint32_t)((source & among) != 0 && !(decides & among)) << l;
    }
    undefined_set(w, undefined_row(w, i->d), all, lanes, origin);
    if (i->e != ROW_NONE) undefined_set(w, undefined_row(w, i->e), all, lanes, origin);
}
