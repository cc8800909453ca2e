// Loads and stores: ld, ldu, st in every state space and width.
//
// A handler knows the state space: it turns the warp's addresses into places in the host's memory
// (memory_access.h) and hands those to a *mover*, which knows the types: memory elements of 1 to 16
// bytes, registers at least as wide, up to eight elements a lane. Insn.extra is a MemoryOp,
// Insn.size the element's size, Insn.rows the registers.
//
// Order: accesses that other SMs may observe in order (volatile, relaxed, acquire, release at a
// scope above cta) to global memory run in the serial phase.
#include <string.h>

#include "softgpu/execute/memory_access.h"

enum { WIDEST = 32 }; // bytes that a lane moves at most

typedef void Mover(Warp *w, const Insn *i, const Places *places, uint32_t mask);

typedef struct {
    Mover *move;
    bool store;
    bool ordered; // seen by other SMs in order: FLOW_DEFER when global
    bool poll;    // a load that wait loops are made of
    bool bypass_l1;
    bool constant;                       // through the constant cache
    bool cluster;                        // may reach other CTAs' shared memory
    bool strong;                         // volatile, relaxed, acquire, release
    bool narrow;                         // … of a scope that no other block is in
    uint8_t order;                       // RaceOrder
    uint32_t frame_offset, frame_stride; // .param storage in the frame
} MemoryOp;

// ---- movers

// Accesses in memory may be misaligned where that isn't checked, and rows hold any type.
#define MEMORY_TYPE __attribute__((may_alias, aligned(1)))
#define ROW_TYPE    __attribute__((may_alias))
typedef uint8_t MEMORY_TYPE mem_u8;
typedef int8_t MEMORY_TYPE mem_s8;
typedef uint16_t MEMORY_TYPE mem_u16;
typedef int16_t MEMORY_TYPE mem_s16;
typedef uint32_t MEMORY_TYPE mem_u32;
typedef int32_t MEMORY_TYPE mem_s32;
typedef uint64_t MEMORY_TYPE mem_u64;
typedef uint16_t ROW_TYPE row_16;
typedef uint32_t ROW_TYPE row_32;
typedef uint64_t ROW_TYPE row_64;

// A mover that reads `memory_type` elements into rows of `row_type`; conversion extends them.
// `if (mask …)` becomes masked moves where the machine has them.
#define DEFINE_LOAD(memory_type, row_type)                                                         \
    static void load_##memory_type##_##row_type(Warp *w, const Insn *i, const Places *places,      \
                                                uint32_t mask) {                                   \
        unsigned count = i->row_count;                                                             \
        for (unsigned k = 0; k < count; k++) {                                                     \
            row_type *restrict d = row(w, i->rows[k]);                                             \
            const mem_##memory_type *base = (const mem_##memory_type *)places->base + k;           \
            if (places->pattern == PLACED_SCATTERED && mask == FULL_MASK) {                        \
                for (int l = 0; l < WARP_SIZE; l++)                                                \
                    d[l] = (row_type)((const mem_##memory_type *)places->at[l])[k];                \
            } else if (places->pattern == PLACED_SCATTERED) {                                      \
                for (int l = 0; l < WARP_SIZE; l++)                                                \
                    if (mask >> l & 1)                                                             \
                        d[l] = (row_type)((const mem_##memory_type *)places->at[l])[k];            \
            } else if (places->pattern == PLACED_UNIFORM) {                                        \
                row_type value = (row_type)*base;                                                  \
                for (int l = 0; l < WARP_SIZE; l++) d[l] = mask >> l & 1 ? value : d[l];           \
            } else if (mask == FULL_MASK && count == 1) {                                          \
                for (int l = 0; l < WARP_SIZE; l++) d[l] = (row_type)base[l];                      \
            } else if (count == 1) {                                                               \
                for (int l = 0; l < WARP_SIZE; l++)                                                \
                    if (mask >> l & 1) d[l] = (row_type)base[l];                                   \
            } else {                                                                               \
                for (unsigned l = 0; l < WARP_SIZE; l++)                                           \
                    if (mask >> l & 1) d[l] = (row_type)base[l * count];                           \
            }                                                                                      \
        }                                                                                          \
    }

// A mover that writes the low part of each register. Where lanes write the same bytes, the highest
// lane's value stays, which is one of the outcomes that PTX allows.
#define DEFINE_STORE(memory_type, row_type)                                                        \
    static void store_##memory_type##_##row_type(Warp *w, const Insn *i, const Places *places,     \
                                                 uint32_t mask) {                                  \
        unsigned count = i->row_count;                                                             \
        for (unsigned k = 0; k < count; k++) {                                                     \
            const row_type *s = row(w, i->rows[k]);                                                \
            mem_##memory_type *base = (mem_##memory_type *)places->base + k;                       \
            if (places->pattern == PLACED_SCATTERED) {                                             \
                for (int l = 0; l < WARP_SIZE; l++)                                                \
                    if (mask >> l & 1)                                                             \
                        ((mem_##memory_type *)places->at[l])[k] = (mem_##memory_type)s[l];         \
            } else if (places->pattern == PLACED_UNIFORM) {                                        \
                *base = (mem_##memory_type)s[31 - __builtin_clz(mask)];                            \
            } else if (mask == FULL_MASK && count == 1) {                                          \
                for (int l = 0; l < WARP_SIZE; l++) base[l] = (mem_##memory_type)s[l];             \
            } else {                                                                               \
                for (unsigned l = 0; l < WARP_SIZE; l++)                                           \
                    if (mask >> l & 1) base[l * count] = (mem_##memory_type)s[l];                  \
            }                                                                                      \
        }                                                                                          \
    }

// Four 32-bit elements a lane, all lanes: what tiles are moved with. Four lanes at a time are
// transposed in vector registers.
typedef uint32_t Quad __attribute__((vector_size(16)));
typedef Quad __attribute__((may_alias, aligned(1))) mem_quad;
typedef Quad __attribute__((may_alias)) row_quad;

static inline void transpose(Quad q[4]) {
    Quad low01 = __builtin_shuffle(q[0], q[1], (Quad){0, 4, 1, 5});
    Quad low23 = __builtin_shuffle(q[2], q[3], (Quad){0, 4, 1, 5});
    Quad high01 = __builtin_shuffle(q[0], q[1], (Quad){2, 6, 3, 7});
    Quad high23 = __builtin_shuffle(q[2], q[3], (Quad){2, 6, 3, 7});
    q[0] = __builtin_shuffle(low01, low23, (Quad){0, 1, 4, 5});
    q[1] = __builtin_shuffle(low01, low23, (Quad){2, 3, 6, 7});
    q[2] = __builtin_shuffle(high01, high23, (Quad){0, 1, 4, 5});
    q[3] = __builtin_shuffle(high01, high23, (Quad){2, 3, 6, 7});
}

static void load_u32_row_32(Warp *w, const Insn *i, const Places *places, uint32_t mask);
static void store_u32_row_32(Warp *w, const Insn *i, const Places *places, uint32_t mask);

// The place of a lane's quad. PLACED_UNIFORM doesn't come here.
static inline uint8_t *quad_place(const Places *places, int lane) {
    return places->pattern == PLACED_SCATTERED ? places->at[lane] : places->base + 16 * lane;
}

static void load_quads(Warp *w, const Insn *i, const Places *places, uint32_t mask) {
    if (mask != FULL_MASK || places->pattern == PLACED_UNIFORM) {
        load_u32_row_32(w, i, places, mask);
        return;
    }
    row_quad *d[4];
    for (int k = 0; k < 4; k++) d[k] = row(w, i->rows[k]);
    for (int l = 0; l < WARP_SIZE; l += 4) {
        Quad q[4];
        for (int k = 0; k < 4; k++) q[k] = *(const mem_quad *)quad_place(places, l + k);
        transpose(q);
        for (int k = 0; k < 4; k++) d[k][l / 4] = q[k];
    }
}

static void store_quads(Warp *w, const Insn *i, const Places *places, uint32_t mask) {
    if (mask != FULL_MASK || places->pattern == PLACED_UNIFORM) {
        store_u32_row_32(w, i, places, mask);
        return;
    }
    const row_quad *s[4];
    for (int k = 0; k < 4; k++) s[k] = row(w, i->rows[k]);
    for (int l = 0; l < WARP_SIZE; l += 4) {
        Quad q[4];
        for (int k = 0; k < 4; k++) q[k] = s[k][l / 4];
        transpose(q);
        for (int k = 0; k < 4; k++) *(mem_quad *)quad_place(places, l + k) = q[k];
    }
}

// 128 bits: no integer of C, so these copy.
static void load_b128_row_128(Warp *w, const Insn *i, const Places *places, uint32_t mask) {
    Places p = *places;
    places_spread(&p, i->row_count * 16u);
    for (unsigned k = 0; k < i->row_count; k++) {
        uint8_t *d = row(w, i->rows[k]);
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            memcpy(d + 16 * l, p.at[l] + 16 * k, 16);
        }
    }
}

static void store_b128_row_128(Warp *w, const Insn *i, const Places *places, uint32_t mask) {
    Places p = *places;
    places_spread(&p, i->row_count * 16u);
    for (unsigned k = 0; k < i->row_count; k++) {
        const uint8_t *s = row(w, i->rows[k]);
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            memcpy(p.at[l] + 16 * k, s + 16 * l, 16);
        }
    }
}

// clang-format off
#define EACH_LOAD(X)                                                                               \
    X(u8, row_16) X(u8, row_32) X(u8, row_64) X(s8, row_16) X(s8, row_32) X(s8, row_64)            \
    X(u16, row_16) X(u16, row_32) X(u16, row_64) X(s16, row_16) X(s16, row_32) X(s16, row_64)      \
    X(u32, row_32) X(u32, row_64) X(s32, row_32) X(s32, row_64) X(u64, row_64)
#define EACH_STORE(X)                                                                              \
    X(u8, row_16) X(u8, row_32) X(u8, row_64) X(u16, row_16) X(u16, row_32) X(u16, row_64)         \
    X(u32, row_32) X(u32, row_64) X(u64, row_64)
EACH_LOAD(DEFINE_LOAD)
EACH_STORE(DEFINE_STORE)
// clang-format on

// What the modifiers of a load or store say.
typedef struct {
    Space space;
    unsigned element, count;
    bool is_signed, is_volatile, is_ordered, is_mmio, bypass, has_hint, in_cluster;
    const char *scope;
    RaceOrder order;
} Wording;

// The movers by size and signedness of the element and width of the registers.
static const struct MoverChoice {
    bool store;
    bool is_signed;
    uint8_t element; // bytes in memory
    uint8_t width;   // bytes of a lane in the row
    Mover *move;
} movers[] = {
#define SIGNED_u8          0
#define SIGNED_u16         0
#define SIGNED_u32         0
#define SIGNED_u64         0
#define SIGNED_s8          1
#define SIGNED_s16         1
#define SIGNED_s32         1
#define LOAD_CHOICE(m, r)  {false, SIGNED_##m, sizeof(mem_##m), sizeof(r), load_##m##_##r},
#define STORE_CHOICE(m, r) {true, false, sizeof(mem_##m), sizeof(r), store_##m##_##r},
    EACH_LOAD(LOAD_CHOICE) EACH_STORE(STORE_CHOICE){false, false, 16, 16, load_b128_row_128},
    {true, false, 16, 16, store_b128_row_128},
};

static Mover *find_mover(bool store, const Wording *g, unsigned width) {
    unsigned element = g->element;
    if (element == 4 && width == 4 && g->count == 4) return store ? store_quads : load_quads;
    for (size_t k = 0; k < sizeof movers / sizeof *movers; k++) {
        const struct MoverChoice *c = &movers[k];
        if (c->store == store && c->element == element && c->width == width &&
            (store || c->is_signed == g->is_signed || element >= 8))
            return c->move;
    }
    return NULL;
}

// ---- handlers

static Access access_of(const Insn *i) {
    const MemoryOp *op = i->extra;
    return (Access){
        .bytes = (unsigned)i->size * i->row_count,
        .kind = op->store ? ACCESS_WRITE : ACCESS_READ,
        .bypass_l1 = op->bypass_l1,
        .no_traffic = op->constant,
        .cluster = op->cluster,
        .strong = op->strong,
        .narrow = op->narrow,
        .element = i->size,
        .order = op->order,
    };
}

// Moves a store's data. Is anything in memory other than before?
static bool store_changes(Warp *w, const Insn *i, Places *places, uint32_t mask) {
    const MemoryOp *op = i->extra;
    uint8_t before[WARP_SIZE][WIDEST];
    size_t bytes = (size_t)i->size * i->row_count;
    places_spread(places, (unsigned)bytes);
    for (uint32_t m = mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        memcpy(before[lane], places->at[lane], bytes);
    }
    op->move(w, i, places, mask);
    for (uint32_t m = mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (memcmp(before[lane], places->at[lane], bytes) != 0) return true;
    }
    return false;
}

// Moves the data and keeps count of stores. Only where an endless loop is looked for it matters
// whether they change anything.
static Flow move_data(Warp *w, const Insn *i, Places *places, uint32_t mask) {
    const MemoryOp *op = i->extra;
    if (!op->store) {
        op->move(w, i, places, mask);
        return FLOW_NEXT;
    }
    w->stores++;
    w->sm->stores++;
    if (w->sm->watch)
        w->sm->changes += store_changes(w, i, places, mask);
    else
        op->move(w, i, places, mask);
    return FLOW_NEXT;
}

// The race check follows strong accesses of any scope in the serial phase.
static bool is_put_off(const Warp *w, const MemoryOp *op) {
    return (op->ordered || (op->strong && race_on(w))) && must_defer(w);
}

static Flow access_global(Warp *w, const Insn *i, uint32_t mask) {
    const MemoryOp *op = i->extra;
    if (is_put_off(w, op)) return FLOW_DEFER;
    uint64_t address[WARP_SIZE];
    Places places;
    wide_addresses(w, i, address);
    if (!place_global(w, i, address, mask, access_of(i), &places)) return FLOW_FAULT;
    move_data(w, i, &places, mask);
    return op->poll ? FLOW_YIELD : FLOW_NEXT;
}

static Flow access_shared(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    Places places;
    if (!narrow_addresses(w, i, mask, address)) return FLOW_FAULT;
    if (!place_shared(w, i, address, mask, access_of(i), &places)) return FLOW_FAULT;
    return move_data(w, i, &places, mask);
}

// As move_data, for local memory. Only its own lane sees that: a store of what was there already is
// no sign that a loop gets on. Without optimisation wait loops have their variables there.
static Flow move_local(Warp *w, const Insn *i, Places *places, uint32_t mask) {
    const MemoryOp *op = i->extra;
    if (!op->store) return move_data(w, i, places, mask);
    if (store_changes(w, i, places, mask)) {
        w->stores++;
        w->sm->changes++;
    }
    return FLOW_NEXT;
}

static Flow access_local(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t offset[WARP_SIZE];
    Places places;
    if (!narrow_addresses(w, i, mask, offset)) return FLOW_FAULT;
    if (!place_local(w, i, offset, mask, access_of(i), &places)) return FLOW_FAULT;
    return move_local(w, i, &places, mask);
}

// ld.param of an entry: the kernel's parameter block.
static Flow access_param(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t offset[WARP_SIZE];
    Places places;
    wide_addresses(w, i, offset);
    if (!place_param(w, i, offset, mask, access_of(i), &places)) return FLOW_FAULT;
    return move_data(w, i, &places, mask);
}

// ld.param and st.param of call arguments and results: storage in the frame.
static Flow access_frame(Warp *w, const Insn *i, uint32_t mask) {
    const MemoryOp *op = i->extra;
    Places places = {.pattern = PLACED_SCATTERED};
    for (int l = 0; l < WARP_SIZE; l++)
        places.at[l] = w->frame + op->frame_offset + (size_t)l * op->frame_stride;
    op->move(w, i, &places, mask);
    return FLOW_NEXT;
}

// Generic addresses: each lane's names its space.
static Flow access_generic(Warp *w, const Insn *i, uint32_t mask) {
    const MemoryOp *op = i->extra;
    uint64_t address[WARP_SIZE];
    uint32_t narrow[WARP_SIZE];
    Places places;
    wide_addresses(w, i, address);
    SpaceMasks spaces = generic_spaces(address, mask);
    if (spaces.global && is_put_off(w, op)) return FLOW_DEFER;
    if (spaces.global) {
        if (!place_global(w, i, address, spaces.global, access_of(i), &places)) return FLOW_FAULT;
        move_data(w, i, &places, spaces.global);
        if (spaces.global == mask) return op->poll ? FLOW_YIELD : FLOW_NEXT;
    }
    window_addresses(address, narrow);
    if (spaces.shared) {
        if (!place_shared(w, i, narrow, spaces.shared, access_of(i), &places)) return FLOW_FAULT;
        move_data(w, i, &places, spaces.shared);
    }
    if (spaces.local) {
        if (!place_local(w, i, narrow, spaces.local, access_of(i), &places)) return FLOW_FAULT;
        move_local(w, i, &places, spaces.local);
    }
    if (spaces.param) {
        uint64_t offset[WARP_SIZE];
        for (int l = 0; l < WARP_SIZE; l++) offset[l] = narrow[l];
        if (!place_param(w, i, offset, spaces.param, access_of(i), &places)) return FLOW_FAULT;
        move_data(w, i, &places, spaces.param);
    }
    return op->poll && spaces.global ? FLOW_YIELD : FLOW_NEXT;
}

// ---- lowering

static void read_modifier(Wording *g, const char *m) {
    static const struct {
        const char *name;
        Space space;
    } spaces[] = {
        {"global", SPACE_GLOBAL}, {"const", SPACE_CONST},        {"local", SPACE_LOCAL},
        {"param", SPACE_PARAM},   {"param::entry", SPACE_PARAM}, {"param::func", SPACE_PARAM},
        {"shared", SPACE_SHARED}, {"shared::cta", SPACE_SHARED}, {"shared::cluster", SPACE_SHARED}};
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
        if (!strcmp(m, spaces[k].name)) g->space = spaces[k].space;
    if (!strcmp(m, "shared::cluster")) g->in_cluster = true;
    if (!strcmp(m, "volatile")) g->is_volatile = true;
    if (!strcmp(m, "relaxed") || !strcmp(m, "acquire") || !strcmp(m, "release"))
        g->is_ordered = true;
    if (!strcmp(m, "acquire")) g->order = RACE_ACQUIRE;
    if (!strcmp(m, "release")) g->order = RACE_RELEASE;
    if (!strcmp(m, "mmio")) g->is_mmio = true;
    if (!strcmp(m, "cta") || !strcmp(m, "cluster") || !strcmp(m, "gpu") || !strcmp(m, "sys"))
        g->scope = m;
    if (!strcmp(m, "cg") || !strcmp(m, "cv")) g->bypass = true;
    if (!strcmp(m, "L2::cache_hint")) g->has_hint = true;
    if (m[0] == 'v' && m[1] >= '2' && m[1] <= '8' && !m[2]) g->count = (unsigned)(m[1] - '0');
    if (strchr("busf", m[0]) && m[1] >= '1' && m[1] <= '8') {
        unsigned bits = 0;
        for (const char *digit = m + 1; *digit >= '0' && *digit <= '9'; digit++)
            bits = bits * 10 + (unsigned)(*digit - '0');
        g->element = bits / 8;
        g->is_signed = m[0] == 's';
    }
}

// The rows of a load's or store's data operand; all of one width, at least the element's.
static const char *data_rows(Lowering *l, const PtxOperand *data, const Wording *g, bool store,
                             Insn *i, unsigned *width_bytes) {
    const PtxOperand *elements = data->kind == OPERAND_VECTOR ? data->elements : data;
    unsigned count = data->kind == OPERAND_VECTOR ? (unsigned)data->count : 1;
    if (count != g->count) return "the vector's length is not that of the instruction";
    int width = 0;
    for (unsigned k = 0; k < count; k++) {
        int bits = operand_width(l, &elements[k]);
        if (!bits) continue; // a sink or an immediate takes the width of the others
        if (width && bits != width) return "the registers of a vector must be of one width";
        width = bits;
    }
    if (!width) width = g->element < 2 ? 16 : (int)g->element * 8;
    if (width < (int)g->element * 8 || width == 1) return "the register is narrower than the type";
    Row *rows = kernel_alloc(l, count * sizeof *rows);
    for (unsigned k = 0; k < count; k++) {
        const char *why = NULL;
        rows[k] = store ? source_row(l, &elements[k], width, &why)
                        : destination_row(l, &elements[k], width, &why);
        if (rows[k] == ROW_NONE) return why;
    }
    i->rows = rows;
    i->row_count = (uint16_t)count;
    *width_bytes = (unsigned)width / 8;
    return NULL;
}

static const char *lower_access(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    bool store = p->opcode[0] == 's';
    Wording g = {.space = SPACE_NONE, .count = 1};
    for (int k = 0; k < p->modifier_count; k++) read_modifier(&g, p->modifiers[k]);
    if (g.is_ordered && !g.scope) return "relaxed, acquire and release need a scope (.cta … .sys)";
    if (g.scope && !g.is_ordered) return "a scope needs .relaxed, .acquire or .release";
    if (p->operand_count != 2 + g.has_hint) return "wrong number of operands";
    if (g.count * g.element > WIDEST) return "no access is wider than 32 bytes";
    if (g.count * g.element > 16 && g.space != SPACE_GLOBAL && g.space != SPACE_NONE)
        return "only global memory is accessed 32 bytes at a time";
    if (store && g.space == SPACE_CONST) return "constant memory can't be stored to";

    const PtxOperand *address = &p->operands[store ? 0 : 1];
    unsigned width = 0;
    const char *why = data_rows(l, &p->operands[store ? 1 : 0], &g, store, i, &width);
    if (why) return why;
    MemoryOp *op = kernel_alloc(l, sizeof *op);
    *op = (MemoryOp){
        .move = find_mover(store, &g, width),
        .store = store,
        .ordered = g.is_volatile || g.is_mmio || (g.is_ordered && strcmp(g.scope, "cta")),
        .poll = !store && (g.is_volatile || g.is_mmio || g.is_ordered),
        .bypass_l1 =
            g.bypass || g.is_volatile || g.is_mmio || (g.is_ordered && strcmp(g.scope, "cta")),
        .constant = g.space == SPACE_CONST,
        .cluster = g.in_cluster || g.space == SPACE_NONE,
        .strong = g.is_volatile || g.is_mmio || g.is_ordered,
        .narrow = g.scope && (!strcmp(g.scope, "cta") || !strcmp(g.scope, "cluster")),
        .order = (uint8_t)g.order,
    };
    if (!op->move) return "no register of this width takes that type";
    if (op->poll) i->flags |= INSN_POLL;
    i->extra = op;
    i->size = (uint8_t)g.element;
    i->space = (uint8_t)g.space;

    if (g.space == SPACE_PARAM && param_storage(l, address, &op->frame_offset, &op->frame_stride)) {
        uint64_t from = (uint64_t)(address->offset + address->elements[0].offset);
        if (from + g.count * g.element > op->frame_stride)
            return "reaches past the parameter's end";
        i->imm = (op->frame_offset - from) | from << 32; // for the init check
        i->run = access_frame;
        return NULL;
    }
    if (g.space == SPACE_PARAM && !in_entry(l))
        return "a function's parameters are only accessed by name";
    switch (g.space) {
    case SPACE_GLOBAL:
    case SPACE_CONST: i->run = access_global; break;
    case SPACE_SHARED: i->run = access_shared; break;
    case SPACE_LOCAL: i->run = access_local; break;
    case SPACE_PARAM: i->run = access_param; break;
    default: i->run = access_generic; break;
    }
    return address_operand(l, address, i);
}

#define EVICTION                                                                                   \
    "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate? "        \
    "L2::evict_normal|L2::evict_first|L2::evict_last? L2::cache_hint? "
#define SCOPE "cta|cluster|gpu|sys? "
#define TYPES "v2|v4|v8? b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"

const Form memory_forms[] = {
    {.name = "ld",
     .modifiers =
         "weak|volatile|relaxed|acquire? mmio? " SCOPE
         "global|const|local|param|param::entry|param::func|shared|shared::cta|"
         "shared::cluster? ca|cg|cs|lu|cv? nc? " EVICTION "L2::64B|L2::128B|L2::256B? " TYPES,
     .pipe = PIPE_LSU,
     .lower = lower_access},
    {.name = "ldu", .modifiers = "global? " TYPES, .pipe = PIPE_LSU, .lower = lower_access},
    {.name = "st",
     .modifiers = "weak|volatile|relaxed|release? mmio? " SCOPE
                  "global|local|param|param::func|shared|shared::cta|shared::cluster? "
                  "wb|cg|cs|wt? " EVICTION TYPES,
     .pipe = PIPE_LSU,
     .lower = lower_access},
    {0},
};
