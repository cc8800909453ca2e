// Atomics: atom and red, on global, shared and generic addresses.
//
// An atomic is a read, a combination and a write per lane, one lane after the other; nothing comes
// in between, because warps of an SM run one at a time and global atomics run in the serial phase.
// Lanes go in ascending order under schedule 0 and in random order otherwise: PTX promises none,
// and a float sum depends on it.
//
// Values are handled as 64-bit patterns, zero-extended; 128-bit exch and cas have code of their
// own.
#include <math.h>
#include <string.h>

#include "softgpu/execute/bit_cast.h"
#include "softgpu/execute/memory_access.h"

typedef enum {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_INC,
    ATOMIC_DEC,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_OPS
} Operation;

// Insn.extra. Insn.rows: results, then operands, then (cas) new values; `count` of each.
typedef struct {
    Operation operation;
    Type type;
    unsigned count;  // elements of a vector; each is atomic on its own
    unsigned width;  // bytes of an element, in memory and in the rows
    bool returns;    // atom, not red
    bool write_only; // exch whose result is thrown away: no read
    bool cluster;    // may reach other CTAs' shared memory
    bool narrow;     // of a scope that no other block is in
    uint8_t order;   // RaceOrder
} Atomic;

// ---- arithmetic

static float half_value(uint16_t bits, bool bf16) {
    if (bf16) return bits_float((uint32_t)bits << 16);
    _Float16 h;
    memcpy(&h, &bits, 2);
    return (float)h;
}

// Rounds to nearest even.
static uint16_t half_bits(float f, bool bf16) {
    if (isnan(f)) return 0x7fff;
    if (bf16) {
        uint32_t bits = float_bits(f);
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    _Float16 h = (_Float16)f;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}

// The sum of two halves is rounded twice, to float and then to half, which gives the same as once:
// a float's precision is more than twice a half's plus two bits.
static uint16_t combine_half(Operation operation, bool bf16, uint16_t old, uint16_t operand) {
    float a = half_value(old, bf16), b = half_value(operand, bf16);
    if (operation == ATOMIC_ADD) return half_bits(a + b, bf16);
    if (isnan(a) && isnan(b)) return 0x7fff;
    if (isnan(a)) return operand;
    if (isnan(b)) return old;
    bool less = a < b || (a == b && signbit(a));
    return less == (operation == ATOMIC_MIN) ? old : operand;
}

// A subnormal becomes a zero of its sign.
static inline uint32_t flush_bits(uint32_t bits) {
    return bits & 0x7f800000 ? bits : bits & 0x80000000;
}

// The sum of two floats as bits. Without branches: it is vectorised.
static inline uint32_t add_floats(uint32_t a, uint32_t b, bool flush) {
    if (flush) a = flush_bits(a), b = flush_bits(b);
    uint32_t sum = float_bits(bits_float(a) + bits_float(b));
    if (flush) sum = flush_bits(sum);
    return (sum & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : sum;
}

static uint64_t low_bits(unsigned bytes) {
    return bytes >= 8 ? ~0ull : (1ull << 8 * bytes) - 1;
}

// The new value at the address. `flush`: f32 subnormals become zero (global memory).
static uint64_t combine(Operation operation, Type type, bool flush, uint64_t old, uint64_t operand,
                        uint64_t replacement) {
    unsigned bytes = type_size(type);
    switch (operation) {
    case ATOMIC_AND: return old & operand;
    case ATOMIC_OR: return old | operand;
    case ATOMIC_XOR: return old ^ operand;
    case ATOMIC_EXCH: return operand;
    case ATOMIC_CAS: return old == operand ? replacement : old;
    case ATOMIC_INC: return old >= operand ? 0 : old + 1;
    case ATOMIC_DEC: return old == 0 || old > operand ? operand : old - 1;
    default: break;
    }
    bool bf16 = type == TYPE_BF16 || type == TYPE_BF16X2;
    switch (type) {
    case TYPE_F32: return add_floats((uint32_t)old, (uint32_t)operand, flush);
    case TYPE_F64: return double_bits(bits_double(old) + bits_double(operand));
    case TYPE_F16:
    case TYPE_BF16: return combine_half(operation, bf16, (uint16_t)old, (uint16_t)operand);
    case TYPE_F16X2:
    case TYPE_BF16X2:
        return combine_half(operation, bf16, (uint16_t)old, (uint16_t)operand) |
               (uint64_t)combine_half(operation, bf16, (uint16_t)(old >> 16),
                                      (uint16_t)(operand >> 16))
                   << 16;
    default: break;
    }
    if (operation == ATOMIC_ADD) return (old + operand) & low_bits(bytes);
    bool less = old < operand;
    if (type == TYPE_S32) less = (int32_t)old < (int32_t)operand;
    if (type == TYPE_S64) less = (int64_t)old < (int64_t)operand;
    return less == (operation == ATOMIC_MIN) ? old : operand;
}

// ---- one lane

// Reads 2, 4 or 8 bytes. (A memcpy of a size that isn't constant is a call.)
static uint64_t get_bits(const uint8_t *place, unsigned bytes) {
    uint64_t value = 0;
    if (bytes == 4)
        memcpy(&value, place, 4);
    else if (bytes == 8)
        memcpy(&value, place, 8);
    else
        memcpy(&value, place, 2);
    return value;
}

static void put_bits(uint8_t *place, uint64_t value, unsigned bytes) {
    if (bytes == 4)
        memcpy(place, &value, 4);
    else if (bytes == 8)
        memcpy(place, &value, 8);
    else
        memcpy(place, &value, 2);
}

// A lane of a row; registers are exactly as wide as the type.
static uint64_t row_value(const Warp *w, Row r, unsigned width, int lane) {
    return get_bits((const uint8_t *)row(w, r) + (size_t)lane * width, width);
}

// What an atomic of one lane has done: a cas that fails doesn't write.
enum { WROTE = 1, CHANGED = 2 };

// exch and cas on 128 bits.
static int apply_wide(Warp *w, const Insn *i, const Atomic *op, uint8_t *place, int lane) {
    uint8_t old[16];
    const uint8_t *operand = (const uint8_t *)row(w, i->rows[1]) + 16 * lane;
    const uint8_t *next = operand;
    memcpy(old, place, 16);
    bool fails = op->operation == ATOMIC_CAS && memcmp(old, operand, 16);
    if (op->operation == ATOMIC_CAS)
        next = fails ? old : (const uint8_t *)row(w, i->rows[2]) + 16 * lane;
    bool changed = memcmp(old, next, 16);
    memcpy(place, next, 16);
    if (op->returns) memcpy((uint8_t *)row(w, i->rows[0]) + 16 * lane, old, 16);
    return (fails ? 0 : WROTE) | (changed ? CHANGED : 0);
}

// All elements of one lane.
static int apply_lane(Warp *w, const Insn *i, const Atomic *op, uint8_t *place, int lane,
                      bool flush) {
    if (op->width == 16) return apply_wide(w, i, op, place, lane);
    int effect = 0;
    unsigned width = op->width;
    const Row *results = i->rows, *operands = results + op->count, *news = operands + op->count;
    for (unsigned k = 0; k < op->count; k++, place += width) {
        uint64_t old = get_bits(place, width), replacement = 0;
        uint64_t operand = row_value(w, operands[k], width, lane);
        if (op->operation == ATOMIC_CAS) replacement = row_value(w, news[k], width, lane);
        uint64_t next = combine(op->operation, op->type, flush, old, operand, replacement);
        put_bits(place, next, width);
        if (next != old) effect |= CHANGED;
        if (op->operation != ATOMIC_CAS || old == operand) effect |= WROTE;
        if (op->returns) put_bits((uint8_t *)row(w, results[k]) + (size_t)lane * width, old, width);
    }
    return effect;
}

// Lanes of `mask` in the order in which they act.
static int lane_order(Warp *w, uint32_t mask, uint8_t order[WARP_SIZE]) {
    int count = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        order[count++] = (uint8_t)__builtin_ctz(rest);
    if (!w->sm->gpu->settings->schedule) return count;
    for (int k = count - 1; k > 0; k--) {
        uint32_t other = random_below(&w->sm->random, (uint32_t)k + 1);
        uint8_t lane = order[k];
        order[k] = order[other];
        order[other] = lane;
    }
    return count;
}

typedef uint32_t __attribute__((may_alias, aligned(1))) mem_word;
typedef uint32_t __attribute__((may_alias)) row_word;

// 32-bit sums, which are most of all atomics: histograms, counters, gradients. `add` is inlined.
#define DEFINE_ADD_WORDS(name, add)                                                                \
    static bool name(Places *places, uint32_t mask, const uint8_t order[WARP_SIZE], int count,     \
                     const row_word *operand, row_word *restrict result) {                         \
        uint32_t changed = 0;                                                                      \
        if (mask == FULL_MASK && places->pattern == PLACED_CONSECUTIVE) {                          \
            /* Every lane has an address of its own: the order doesn't matter. */                  \
            mem_word *restrict memory = (mem_word *)places->base;                                  \
            for (int l = 0; l < WARP_SIZE; l++) {                                                  \
                uint32_t old = memory[l], sum = add(old, operand[l]);                              \
                memory[l] = sum;                                                                   \
                result[l] = old;                                                                   \
                changed |= sum ^ old;                                                              \
            }                                                                                      \
            return changed;                                                                        \
        }                                                                                          \
        places_spread(places, 4);                                                                  \
        for (int k = 0; k < count; k++) {                                                          \
            int l = order[k];                                                                      \
            mem_word *memory = (mem_word *)places->at[l];                                          \
            uint32_t old = *memory, sum = add(old, operand[l]);                                    \
            *memory = sum;                                                                         \
            result[l] = old;                                                                       \
            changed |= sum ^ old;                                                                  \
        }                                                                                          \
        return changed;                                                                            \
    }
#define ADD_INTEGER(a, b)       ((a) + (b))
#define ADD_FLOAT(a, b)         add_floats(a, b, false)
#define ADD_FLUSHED_FLOAT(a, b) add_floats(a, b, true)
DEFINE_ADD_WORDS(add_integers, ADD_INTEGER)
DEFINE_ADD_WORDS(add_shared_floats, ADD_FLOAT)
DEFINE_ADD_WORDS(add_global_floats, ADD_FLUSHED_FLOAT)

// Performs the atomic for all lanes. Answers whether memory changed; *wrote: lanes that have
// written.
static bool apply(Warp *w, const Insn *i, Places *places, uint32_t mask, bool flush,
                  uint32_t *wrote) {
    const Atomic *op = i->extra;
    uint8_t order[WARP_SIZE];
    int count = lane_order(w, mask, order);
    *wrote = mask;
    if (op->operation == ATOMIC_ADD && op->count == 1 &&
        (op->type == TYPE_U32 || op->type == TYPE_S32 || op->type == TYPE_F32)) {
        row_word unused[WARP_SIZE], *result = op->returns ? row(w, i->rows[0]) : unused;
        row_word operand[WARP_SIZE]; // a copy: it may be the result's register
        memcpy(operand, row(w, i->rows[1]), sizeof operand);
        if (op->type != TYPE_F32) return add_integers(places, mask, order, count, operand, result);
        return flush ? add_global_floats(places, mask, order, count, operand, result)
                     : add_shared_floats(places, mask, order, count, operand, result);
    }
    bool changed = false;
    places_spread(places, op->width * op->count);
    for (int k = 0; k < count; k++) {
        int effect = apply_lane(w, i, op, places->at[order[k]], order[k], flush);
        changed |= (effect & CHANGED) != 0;
        if (!(effect & WROTE)) *wrote &= ~(1u << order[k]);
    }
    return changed;
}

// ---- handlers

static Access access_of(const Insn *i) {
    const Atomic *op = i->extra;
    return (Access){.bytes = i->size * op->count,
                    .kind = op->write_only ? ACCESS_WRITE : ACCESS_ATOMIC,
                    .bypass_l1 = true,
                    .cluster = op->cluster,
                    .strong = true,
                    .narrow = op->narrow,
                    .updates = true,
                    .blind = !op->returns || op->write_only,
                    .order = op->order};
}

// Counts a change as progress; an atomic that changed nothing may be a wait loop's poll.
static Flow finish(Warp *w, const Insn *i, bool changed) {
    const Atomic *op = i->extra;
    if (changed) {
        w->stores++;
        w->sm->changes++;
        return FLOW_NEXT;
    }
    return op->returns ? FLOW_YIELD : FLOW_NEXT;
}

// The atomic of these lanes in global memory. false after a finding.
static bool change_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], uint32_t mask,
                          bool *changed) {
    const Atomic *op = i->extra;
    Access access = access_of(i);
    Places places;
    uint32_t wrote;
    if (!place_global(w, i, address, mask, access, &places)) return false;
    *changed |= apply(w, i, &places, mask, true, &wrote);
    if (!race_on(w)) return true;
    race_global_flag(w, address, access.bytes, op->returns && !op->write_only ? mask : 0, wrote,
                     (GlobalKind){.access = RACE_ATOMIC,
                                  .order = access.order,
                                  .narrow = access.narrow,
                                  .updates = true,
                                  .element = (uint8_t)op->width});
    return true;
}

static Flow atomic_global(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    uint64_t address[WARP_SIZE];
    bool changed = false;
    wide_addresses(w, i, address);
    if (!change_global(w, i, address, mask, &changed)) return FLOW_FAULT;
    return finish(w, i, changed);
}

static Flow atomic_shared(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE], wrote;
    Places places;
    if (!narrow_addresses(w, i, mask, address)) return FLOW_FAULT;
    if (!place_shared(w, i, address, mask, access_of(i), &places)) return FLOW_FAULT;
    return finish(w, i, apply(w, i, &places, mask, false, &wrote));
}

static Flow atomic_generic(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address[WARP_SIZE];
    uint32_t narrow[WARP_SIZE], wrote;
    Places places;
    wide_addresses(w, i, address);
    SpaceMasks spaces = generic_spaces(address, mask);
    if (spaces.global && must_defer(w)) return FLOW_DEFER;
    if (spaces.local | spaces.param) {
        finding(w, i, __builtin_ctz(spaces.local | spaces.param), FINDING_WRONG_SPACE,
                "Atomics work on global and shared memory only.",
                "performs an atomic on a thread's local memory or on a parameter");
        return FLOW_FAULT;
    }
    bool changed = false;
    if (spaces.global && !change_global(w, i, address, spaces.global, &changed)) return FLOW_FAULT;
    if (spaces.shared) {
        window_addresses(address, narrow);
        if (!place_shared(w, i, narrow, spaces.shared, access_of(i), &places)) return FLOW_FAULT;
        changed |= apply(w, i, &places, spaces.shared, false, &wrote);
    }
    return finish(w, i, changed);
}

// ---- lowering

static const char *const operation_names[ATOMIC_OPS] = {
    [ATOMIC_ADD] = "add",   [ATOMIC_MIN] = "min", [ATOMIC_MAX] = "max", [ATOMIC_INC] = "inc",
    [ATOMIC_DEC] = "dec",   [ATOMIC_AND] = "and", [ATOMIC_OR] = "or",   [ATOMIC_XOR] = "xor",
    [ATOMIC_EXCH] = "exch", [ATOMIC_CAS] = "cas",
};

static const struct {
    const char *name;
    Type type;
} type_names[] = {
    {"b16", TYPE_B16},   {"b32", TYPE_B32},       {"b64", TYPE_B64}, {"b128", TYPE_B128},
    {"u32", TYPE_U32},   {"u64", TYPE_U64},       {"s32", TYPE_S32}, {"s64", TYPE_S64},
    {"f32", TYPE_F32},   {"f64", TYPE_F64},       {"f16", TYPE_F16}, {"f16x2", TYPE_F16X2},
    {"bf16", TYPE_BF16}, {"bf16x2", TYPE_BF16X2},
};

// Does PTX have this operation on this type? `vector`: with .v2 and wider.
static bool is_allowed(Operation operation, Type type, bool vector) {
    bool half = type == TYPE_F16 || type == TYPE_F16X2 || type == TYPE_BF16 || type == TYPE_BF16X2;
    if (half) return operation == ATOMIC_ADD || (vector && operation <= ATOMIC_MAX);
    if (vector) return operation == ATOMIC_ADD && type == TYPE_F32;
    switch (operation) {
    case ATOMIC_ADD:
        return type == TYPE_U32 || type == TYPE_S32 || type == TYPE_U64 || type == TYPE_S64 ||
               type == TYPE_F32 || type == TYPE_F64;
    case ATOMIC_MIN:
    case ATOMIC_MAX:
        return type == TYPE_U32 || type == TYPE_S32 || type == TYPE_U64 || type == TYPE_S64;
    case ATOMIC_INC:
    case ATOMIC_DEC: return type == TYPE_U32;
    case ATOMIC_AND:
    case ATOMIC_OR:
    case ATOMIC_XOR:
        return type == TYPE_B32 || type == TYPE_B64 || type == TYPE_U32 || type == TYPE_U64 ||
               type == TYPE_S32 || type == TYPE_S64;
    case ATOMIC_EXCH:
        return type == TYPE_B32 || type == TYPE_B64 || type == TYPE_B128 || type == TYPE_U32 ||
               type == TYPE_U64 || type == TYPE_S32 || type == TYPE_S64 || type == TYPE_F32 ||
               type == TYPE_F64;
    default:
        return type == TYPE_B16 || type == TYPE_B32 || type == TYPE_B64 || type == TYPE_B128 ||
               type == TYPE_U32 || type == TYPE_U64 || type == TYPE_S32 || type == TYPE_S64;
    }
}

// Rows of one data operand (a vector or a single register) at rows[0 … count).
static const char *operand_rows(Lowering *l, const PtxOperand *o, unsigned count, int width,
                                bool destination, Row *rows) {
    const PtxOperand *elements = o->kind == OPERAND_VECTOR ? o->elements : o;
    unsigned given = o->kind == OPERAND_VECTOR ? (unsigned)o->count : 1;
    bool sink = destination && o->kind == OPERAND_SINK; // for a whole vector, too
    if (given != count && !sink) return "the vector's length is not that of the instruction";
    for (unsigned k = 0; k < count; k++) {
        const char *why = NULL;
        const PtxOperand *element = sink ? o : &elements[k];
        rows[k] = destination ? destination_row(l, element, width, &why)
                              : source_row(l, element, width, &why);
        if (rows[k] == ROW_NONE) return why ? why : "an operand can't be used here";
    }
    return NULL;
}

static const char *lower_atomic(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    Atomic *op = kernel_alloc(l, sizeof *op);
    *op = (Atomic){.operation = ATOMIC_OPS, .count = 1, .returns = p->opcode[0] == 'a'};
    bool has_hint = false, noftz = false;
    i->space = SPACE_NONE;
    for (int k = 0; k < p->modifier_count; k++) {
        const char *word = p->modifiers[k];
        for (int o = 0; o < ATOMIC_OPS; o++)
            if (!strcmp(word, operation_names[o])) op->operation = (Operation)o;
        for (size_t t = 0; t < sizeof type_names / sizeof *type_names; t++)
            if (!strcmp(word, type_names[t].name)) op->type = type_names[t].type;
        if (word[0] == 'v') op->count = (unsigned)(word[1] - '0');
        if (!strcmp(word, "global")) i->space = SPACE_GLOBAL;
        if (!strncmp(word, "shared", 6)) i->space = SPACE_SHARED;
        op->cluster |= !strcmp(word, "shared::cluster");
        op->narrow |= !strcmp(word, "cta") || !strcmp(word, "cluster");
        if (!strcmp(word, "acquire")) op->order = RACE_ACQUIRE;
        if (!strcmp(word, "release")) op->order = RACE_RELEASE;
        if (!strcmp(word, "acq_rel")) op->order = RACE_ACQ_REL;
        has_hint |= !strcmp(word, "L2::cache_hint");
        noftz |= !strcmp(word, "noftz");
    }
    if (!is_allowed(op->operation, op->type, op->count > 1))
        return "PTX has no such operation on that type";
    bool half = op->type >= TYPE_F16 && op->type <= TYPE_BF16X2;
    if (half != noftz) return ".noftz stands with f16 and bf16 types, and only there";
    if (op->count > 1 && i->space == SPACE_SHARED) return "vectors work on global memory only";
    unsigned bytes = type_size(op->type);
    if (op->count * bytes > 16) return "no atomic is wider than 16 bytes";
    op->width = bytes;
    op->cluster |= i->space == SPACE_NONE;
    i->size = (uint8_t)bytes;
    i->extra = op;
    if (op->returns) i->flags |= INSN_POLL;

    bool cas = op->operation == ATOMIC_CAS;
    int at = op->returns; // index of the address operand
    if (p->operand_count != at + 2 + cas + has_hint) return "wrong number of operands";
    Row *rows = kernel_alloc(l, 3 * op->count * sizeof *rows);
    const char *why = NULL;
    for (unsigned k = 0; k < 3 * op->count; k++) rows[k] = ROW_NONE;
    int width = (int)op->width * 8;
    if (op->returns) {
        why = operand_rows(l, &p->operands[0], op->count, width, true, rows);
        op->write_only = op->operation == ATOMIC_EXCH && p->operands[0].kind == OPERAND_SINK;
    }
    if (!why)
        why = operand_rows(l, &p->operands[at + 1], op->count, width, false, rows + op->count);
    if (!why && cas)
        why = operand_rows(l, &p->operands[at + 2], op->count, width, false, rows + 2 * op->count);
    if (why) return why;
    i->rows = rows;
    i->row_count = (uint16_t)(3 * op->count);
    i->run = i->space == SPACE_GLOBAL   ? atomic_global
             : i->space == SPACE_SHARED ? atomic_shared
                                        : atomic_generic;
    return address_operand(l, &p->operands[at], i);
}

#define OPERANDS(more)                                                                             \
    "cta|cluster|gpu|sys? global|shared|shared::cta|shared::cluster? "                             \
    "add|min|max|inc|dec|and|or|xor" more " noftz? L2::cache_hint? v2|v4|v8? "                     \
    "b16|b32|b64|b128|u32|u64|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2"

const Form atomic_forms[] = {
    {.name = "atom",
     .modifiers = "relaxed|acquire|release|acq_rel? " OPERANDS("|exch|cas"),
     .pipe = PIPE_LSU,
     .lower = lower_atomic},
    {.name = "red",
     .modifiers = "relaxed|release? " OPERANDS(""),
     .pipe = PIPE_LSU,
     .lower = lower_atomic},
    {0},
};
